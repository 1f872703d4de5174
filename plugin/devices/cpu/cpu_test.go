package cpu

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/plugin/devices"
)

// machine is a root folder with files like the kernel's, and a clock.
type machine struct {
	t    testing.TB
	root string
	time time.Time
}

func newMachine(t testing.TB, files map[string]string) *machine {
	m := &machine{t, t.TempDir(), time.Unix(0, 0)}
	m.write(map[string]string{
		"proc/self/status":    "Name:\tx\nCpus_allowed_list:\t0-1,3\n",
		"proc/cpuinfo":        "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: another\n",
		"proc/meminfo":        "MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:  5000 kB\n",
		"proc/self/mountinfo": "",
		"proc/self/cgroup":    "",
	})
	m.idle(0)
	m.write(files)
	return m
}

func (m *machine) write(files map[string]string) {
	m.t.Helper()
	for name, text := range files {
		path := filepath.Join(m.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			m.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

// idle says how many seconds each CPU was idle since the start.
func (m *machine) idle(seconds int) {
	line := " 5 0 5 " + strconv.Itoa(seconds*ticks-min(seconds, 1)*ticks/2) + " " + strconv.Itoa(min(seconds, 1)*ticks/2) + " 0 0\n"
	m.write(map[string]string{"proc/stat": "cpu 9 9 9 9 9 9\ncpu0" + line + "cpu1" + line + "cpu2 0 0 0 9999999 0 0\ncpu3" +
		line + "intr 1 2 3 4 5 6\n"})
}

func (m *machine) prober() *Prober {
	p := &Prober{root: m.root, now: func() time.Time { return m.time },
		sleep: func(d time.Duration) { m.time = m.time.Add(d) }}
	p.last = p.look(p.allowed(), p.groups())
	return p
}

func (m *machine) probe(p *Prober) devices.Device {
	m.t.Helper()
	r, err := p.Probe(context.Background())
	if err != nil || len(r.Devices) != 1 {
		m.t.Fatalf("got %v, %v", r, err)
	}
	return r.Devices[0]
}

// Mounts as the kernel lists them.
const (
	mount2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	mount1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	mountInside1 = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
		"33 31 0:30 /docker/abc /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n" +
		"35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string // at the start
		idle    int               // seconds of each CPU, in ten
		later   map[string]string // files after these ten seconds
		want    devices.Device    // the rest of it is as of the machine without limits
		unknown bool              // cores available
	}{
		"all idle":  {idle: 10, want: devices.Device{CoresAvailable: at(3.0)}},
		"half busy": {idle: 5, want: devices.Device{CoresAvailable: at(1.5)}},
		"a group of version 2 and one above it": {
			files: map[string]string{
				"proc/self/mountinfo":                    mount2,
				"proc/self/cgroup":                       "0::/slice/job\n",
				"sys/fs/cgroup/slice/cpu.max":            "200000 100000\n",
				"sys/fs/cgroup/slice/cpu.stat":           "usage_usec 1000000\nnr_periods 9\nnr_throttled 4\n",
				"sys/fs/cgroup/slice/job/cpu.max":        "max 100000\n",
				"sys/fs/cgroup/slice/job/cpu.stat":       "usage_usec 77\nnr_throttled 0\n",
				"sys/fs/cgroup/slice/job/memory.max":     "4096000\n",
				"sys/fs/cgroup/slice/job/memory.current": "2048000\n",
				"sys/fs/cgroup/slice/job/memory.stat":    "anon 1\ninactive_file 48000\n",
				"sys/fs/cgroup/slice/memory.max":         "max\n",
				"sys/fs/cgroup/slice/memory.current":     "9999999\n",
			},
			idle:  10,
			later: map[string]string{"sys/fs/cgroup/slice/cpu.stat": "usage_usec 6000000\nnr_throttled 6\n"},
			want: devices.Device{QuotaCores: 2, CoresAvailable: at(1.5), Throttle: []string{"CPU quota"},
				MemoryBytes: 4096000, MemoryFreeBytes: at(uint64(2096000))},
		},
		"a container's root group of version 2": {
			files: map[string]string{
				"proc/self/mountinfo":    mount2,
				"proc/self/cgroup":       "0::/\n",
				"sys/fs/cgroup/cpu.max":  "50000 100000\n",
				"sys/fs/cgroup/cpu.stat": "usage_usec 0\nnr_throttled 0\n",
			},
			idle:  10,
			later: map[string]string{"sys/fs/cgroup/cpu.stat": "usage_usec 9000000\nnr_throttled 0\n"},
			want:  devices.Device{QuotaCores: 0.5, CoresAvailable: at(0.0)},
		},
		"a pod whose other container is busy, and one that is ours": { // each has its quota, the pod that of both
			files: map[string]string{
				"proc/self/mountinfo":                mount2,
				"proc/self/cgroup":                   "0::/pod/ours\n",
				"sys/fs/cgroup/cpu.max":              "max 100000\n",
				"sys/fs/cgroup/pod/cpu.max":          "800000 100000\n",
				"sys/fs/cgroup/pod/cpu.stat":         "usage_usec 0\n",
				"sys/fs/cgroup/pod/ours/cpu.max":     "200000 100000\n",
				"sys/fs/cgroup/pod/ours/cpu.stat":    "usage_usec 0\n",
				"sys/fs/cgroup/pod/ours/memory.max":  "max\n",
				"sys/fs/cgroup/pod/memory.max":       "100\n", // whose use is not known
				"sys/fs/cgroup/pod/ours/memory.high": "1\n",
			},
			idle: 10,
			later: map[string]string{
				"sys/fs/cgroup/pod/cpu.stat":      "usage_usec 60000000\n", // six CPUs of eight
				"sys/fs/cgroup/pod/ours/cpu.stat": "usage_usec 5000000\n",
			},
			want: devices.Device{QuotaCores: 2, CoresAvailable: at(1.5)},
		},
		"a group that is limited while we look": {
			files: map[string]string{
				"proc/self/mountinfo":      mount2,
				"proc/self/cgroup":         "0::/a\n",
				"sys/fs/cgroup/a/cpu.max":  "max 100000\n",
				"sys/fs/cgroup/a/cpu.stat": "usage_usec 0\nuser_usec 0\n",
			},
			idle: 10,
			later: map[string]string{
				"sys/fs/cgroup/a/cpu.max":  "100000 100000\n",
				"sys/fs/cgroup/a/cpu.stat": "usage_usec 2500000\n",
			},
			want: devices.Device{QuotaCores: 1, CoresAvailable: at(0.75)},
		},
		"one that we were moved to, whose use before is not known": {
			files: map[string]string{
				"proc/self/mountinfo":      mount2,
				"proc/self/cgroup":         "0::/a\n",
				"sys/fs/cgroup/b/cpu.max":  "100000 100000\n",
				"sys/fs/cgroup/b/cpu.stat": "usage_usec 99000000\n",
			},
			idle:  10,
			later: map[string]string{"proc/self/cgroup": "0::/b\n"},
			want:  devices.Device{QuotaCores: 1, CoresAvailable: at(1.0)},
		},
		"CPUs that are only possible": {
			files: map[string]string{
				"proc/self/status":              "Cpus_allowed_list:\t0-255\n",
				"sys/devices/system/cpu/online": "0-1,3\n",
			},
			idle: 10,
			want: devices.Device{CoresAvailable: at(3.0)},
		},
		"a model of any bytes": {
			files: map[string]string{"proc/cpuinfo": "model name\t: Some\tCPU\x1b@ 2\xff GHz\n"},
			idle:  10,
			want:  devices.Device{CoresAvailable: at(3.0)},
		},
		"groups of version 1": {
			files: map[string]string{
				"proc/self/mountinfo":                             mount1,
				"proc/self/cgroup":                                "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":      "-1\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":     "100000\n",
				"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us":  "150000\n",
				"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/cpu,cpuacct/job/cpu.stat":          "nr_throttled 0\n",
				"sys/fs/cgroup/cpu,cpuacct/job/cpuacct.usage":     "0\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":      "9223372036854771712\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes":      "5\n",
				"sys/fs/cgroup/memory/job/memory.limit_in_bytes":  "4096000\n",
				"sys/fs/cgroup/memory/job/memory.usage_in_bytes":  "4096000\n",
				"sys/fs/cgroup/memory/job/memory.stat":            "inactive_file 7\ntotal_inactive_file 96000\n",
			},
			idle:  10,
			later: map[string]string{"sys/fs/cgroup/cpu,cpuacct/job/cpuacct.usage": "10000000000\n"},
			want: devices.Device{QuotaCores: 1.5, CoresAvailable: at(0.5), MemoryBytes: 4096000,
				MemoryFreeBytes: at(uint64(96000))},
		},
		"a container that sees its groups of version 1 only": {
			files: map[string]string{
				"proc/self/mountinfo":                 mountInside1,
				"proc/self/cgroup":                    "5:cpu:/docker/abc\n4:cpuacct:/docker/abc\n3:memory:/docker/abc\n",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "100000\n",
				"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/cpuacct/cpuacct.usage": "0\n",
			},
			idle: 10,
			want: devices.Device{QuotaCores: 1, CoresAvailable: at(1.0)},
		},
		"a quota above the CPUs": {
			files: map[string]string{
				"proc/self/mountinfo":   mount2,
				"proc/self/cgroup":      "0::/\n",
				"sys/fs/cgroup/cpu.max": "800000 100000\n",
			},
			idle: 10,
			want: devices.Device{CoresAvailable: at(3.0)},
		},
		"nonsense in the control groups": {
			files: map[string]string{
				"proc/self/mountinfo":      "x\n - \n" + mount2 + "1 2 3:4 / /x rw - cgroup cgroup\n",
				"proc/self/cgroup":         "0::/../..\nx\n",
				"sys/fs/cgroup/cpu.max":    "-5 0\n",
				"sys/fs/cgroup/memory.max": "-1\n",
			},
			idle: 10,
			want: devices.Device{CoresAvailable: at(3.0)},
		},
		"unreadable CPU times": {idle: 10, later: map[string]string{"proc/stat": "cpu0 x\n"}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, c.files)
			p := m.prober()
			m.time = m.time.Add(10 * time.Second)
			m.idle(c.idle)
			m.write(c.later)
			want := c.want
			want.ID, want.Kind, want.Type, want.Cores = "cpu", devices.CPU, "Some CPU @ 2 GHz", 3
			if want.MemoryBytes == 0 {
				want.MemoryBytes, want.MemoryFreeBytes = 8000*1024, at(uint64(5000*1024))
			}
			if diff := cmp.Diff(want, m.probe(p)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func at[T any](value T) *T { return &value }

func TestAMachineThatSaysNothing(t *testing.T) {
	m := newMachine(t, nil)
	if err := os.RemoveAll(filepath.Join(m.root, "proc")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(devices.Device{ID: "cpu", Kind: devices.CPU}, m.probe(m.prober())); diff != "" {
		t.Error(diff)
	}
}

func TestTwoLooksAreNeverTooClose(t *testing.T) {
	m := newMachine(t, nil)
	p := m.prober()
	for range 3 {
		m.probe(p)
	}
	if passed := m.time.Sub(time.Unix(0, 0)); passed != 3*leastInterval {
		t.Errorf("three looks within %v", passed)
	}
}

func TestTheRealMachine(t *testing.T) {
	r, err := New().Probe(context.Background())
	if err != nil || len(r.Devices) != 1 {
		t.Fatalf("got %v, %v", r, err)
	}
	d := r.Devices[0]
	if d.Cores < 1 || d.CoresAvailable == nil || *d.CoresAvailable > float64(d.Cores) || d.MemoryBytes == 0 ||
		d.MemoryFreeBytes == nil || *d.MemoryFreeBytes > d.MemoryBytes {
		t.Errorf("got %+v", d)
	}
}

// Whatever the kernel's files hold, the numbers are within what they can be.
func TestAnyFiles(t *testing.T) {
	names := []string{"proc/stat", "proc/meminfo", "proc/cpuinfo", "proc/self/status", "proc/self/cgroup",
		"proc/self/mountinfo", "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/memory.max",
		"sys/fs/cgroup/memory.current"}
	words := []string{"cpu0", "cpu3", "0", "-1", "9", "99999999999999999999", "max", "nan", "inf", "\n", ":", "-", ",", "/",
		"..", "Cpus_allowed_list:", "0-3", "MemTotal:", "MemAvailable:", "usage_usec", "0::/x", mount2}
	m := newMachine(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		files := map[string]string{"proc/self/mountinfo": mount2}
		for _, name := range names {
			if rapid.Bool().Draw(t, name+" changes") {
				files[name] = strings.Join(rapid.SliceOf(rapid.SampledFrom(words)).Draw(t, name), " ")
			}
		}
		p := m.prober()
		m.write(files)
		d := m.probe(p)
		if c := d.CoresAvailable; c != nil && !(*c >= 0 && *c <= float64(d.Cores)) || math.IsNaN(d.QuotaCores) ||
			d.QuotaCores < 0 || d.MemoryFreeBytes != nil && *d.MemoryFreeBytes > d.MemoryBytes {
			t.Fatalf("%v\n%+v", files, d)
		}
	})
}
