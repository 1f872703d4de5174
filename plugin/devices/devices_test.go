package devices

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/evenstep/evenstep/plugin"
)

// fixed is a prober that always sees the same.
type fixed struct {
	Report
	err error
}

func (f fixed) Probe(context.Context) (Report, error) { return f.Report, f.err }

func sees(notes []string, d ...Device) fixed { return fixed{Report: Report{d, notes}} }

func some[T any](value T) *T { return &value }

var full = Device{ID: "gpu0", Kind: GPU, Type: "NVIDIA H200", UUID: "GPU-1", Parent: "GPU-0", PCI: "00000000:01:00.0",
	Cores: 16896, QuotaCores: 1.5, CoresAvailable: some(0.0), MemoryBytes: 1 << 37, MemoryFreeBytes: some[uint64](0),
	ComputeCapability: "9.0", NVLinkPeers: []string{"00000000:02:00.0"}, SMClockMHz: some(1410.0), SMClockMaxMHz: 1980,
	MemoryClockMaxMHz: 3201, Throttle: []string{"SW power cap"}, PowerWatts: some(699.5), PowerLimitWatts: some(700.0),
	TemperatureCelsius: some(-1.0), ECCErrors: some[uint64](0), XIDs: []uint32{79}}

// This test binary is a plugin as well, by the name that it is started by.
var plugins = map[string]Prober{
	"evenstep-devices-full":     sees([]string{"n"}, full, Device{ID: "gpu1", Kind: MIG}),
	"evenstep-devices-none":     sees([]string{"no driver"}),
	"evenstep-devices-twice":    sees(nil, Device{ID: "gpu0", Kind: GPU}),
	"evenstep-devices-nonsense": sees(nil, Device{ID: "a", Kind: "tpu"}),
	"evenstep-devices-fails":    fixed{err: errors.New("out\nof luck")},
	"evenstep-devices-crashes":  crashing{},
	"evenstep-devices-hangs":    hanging{},
}

type crashing struct{}

func (crashing) Probe(context.Context) (Report, error) { os.Exit(1); return Report{}, nil }

type hanging struct{}

func (hanging) Probe(context.Context) (Report, error) { select {} }

func TestMain(m *testing.M) {
	if prober, ours := plugins[filepath.Base(os.Args[0])]; ours {
		go func() { time.Sleep(time.Minute); os.Exit(1) }() // also keeps the runtime from seeing a deadlock
		Serve("1.2.3", prober)
		return
	}
	os.Exit(m.Run())
}

// folder makes a plugin folder with this binary under the names.
func folder(t *testing.T, names ...string) *plugin.Folder {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(dir, "evenstep-devices-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := plugin.Open(dir, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

var cpu = sees(nil, Device{ID: "cpu", Kind: CPU})

func TestANodeIsWhatAllSee(t *testing.T) {
	f := folder(t, "none", "full")
	want := Report{
		Devices: []Device{full, {ID: "gpu1", Kind: MIG}, {ID: "cpu", Kind: CPU}},
		Notes:   []string{"n", "no driver"},
	}
	for range 2 {
		got, err := NewNode(cpu, f, hclog.NewNullLogger()).Probe(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	}
	if v, err := Describe(f.Plugins[0]); v != "1.2.3" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
}

// No field is forgotten on the way.
func TestTheFullDeviceIsFull(t *testing.T) {
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not set", v.Type().Field(i).Name)
		}
	}
}

func TestWhatAPluginFailsToSayIsInANote(t *testing.T) {
	for name, want := range map[string]string{
		"fails":    "devices plugin fails failed: out of luck",
		"nonsense": `devices plugin nonsense failed: devices[0].kind: "tpu" is none of gpu, mig, cpu`,
		"crashes":  "devices plugin crashes failed: its process died",
		"hangs":    "devices plugin hangs failed: no answer within 5s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said strings.Builder
			node := NewNode(cpu, folder(t, name), hclog.New(&hclog.LoggerOptions{Output: &said}))
			for range 2 {
				got, err := node.Probe(context.Background())
				if diff := cmp.Diff(Report{Devices: cpu.Devices, Notes: []string{want}}, got); err != nil || diff != "" {
					t.Fatal(err, diff)
				}
			}
			// And once in the log.
			if n := strings.Count(said.String(), "a devices plugin failed, so its devices are not known: plugin="); n != 1 {
				t.Errorf("said %d times: %s", n, said.String())
			}
		})
	}
}

func TestTwoPluginsCannotNameTheSameDevice(t *testing.T) {
	got, err := NewNode(cpu, folder(t, "full", "twice"), hclog.NewNullLogger()).Probe(t.Context())
	if err != nil || len(got.Devices) != 3 || len(got.Notes) != 2 || !strings.Contains(got.Notes[1],
		`devices plugin twice failed: devices[3].id: "gpu0" is the id of devices[0] already`) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestANodeWithoutPlugins(t *testing.T) {
	f := folder(t)
	got, err := NewNode(cpu, f, hclog.NewNullLogger()).Probe(t.Context())
	want := []string{"GPUs are not looked for: there is no plugin for that in " + f.Path}
	if diff := cmp.Diff(Report{Devices: cpu.Devices, Notes: want}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := NewNode(fixed{err: errors.New("broken")}, f, hclog.NewNullLogger()).Probe(t.Context()); err == nil {
		t.Error("the built-in prober's failure was lost")
	}
}

func TestARefusedPluginIsNoted(t *testing.T) {
	f := folder(t, "full")
	f.Plugins[0].Refused = errors.New("others may write to it")
	var said strings.Builder
	got, err := NewNode(cpu, f, hclog.New(&hclog.LoggerOptions{Output: &said})).Probe(t.Context())
	if !strings.Contains(said.String(), "a plugin is refused: plugin="+f.Plugins[0].Path) {
		t.Errorf("the log has %q", said.String())
	}
	if err != nil || len(got.Notes) != 2 || got.Notes[0] != "devices plugin full is refused: others may write to it" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	with := func(change func(d *Device)) Report {
		d := full
		d.MemoryFreeBytes = some(*full.MemoryFreeBytes)
		change(&d)
		return Report{Devices: []Device{{ID: "cpu", Kind: CPU}, d}}
	}
	long := strings.Repeat("x", maxText+1)
	for want, r := range map[string]Report{
		"": with(func(*Device) {}),
		"devices[1].id: missing; give each device a name":      with(func(d *Device) { d.ID = "" }),
		`devices[1].id: "cpu" is the id of devices[0] already`: with(func(d *Device) { d.ID = "cpu" }),
		`devices[1].kind: "" is none of gpu, mig, cpu`:         with(func(d *Device) { d.Kind = "" }),
		`devices[1].texts: "a\n" is not a printable text`:      with(func(d *Device) { d.Type = "a\n" }),
		`devices[1].texts: "xxxx`:                              with(func(d *Device) { d.UUID = long }),
		`devices[1].texts: "\x80" is not a printable text`:     with(func(d *Device) { d.Throttle = []string{"\x80"} }),
		"devices[1].sm_clock_mhz: NaN is not a finite number":  with(func(d *Device) { d.SMClockMHz = some(math.NaN()) }),
		"devices[1].power_watts: -1 is not a finite number":    with(func(d *Device) { d.PowerWatts = some(-1.0) }),
		"devices[1].quota_cores: +Inf is not a finite number":  with(func(d *Device) { d.QuotaCores = math.Inf(1) }),
		"devices[1].temperature_celsius: -300 is no":           with(func(d *Device) { d.TemperatureCelsius = some(-300.0) }),
		"devices[1].memory_free_bytes: 9 is above":             with(func(d *Device) { *d.MemoryFreeBytes, d.MemoryBytes = 9, 8 }),
		"devices[1].throttle, nvlink_peers, xid_errors: 65":    with(func(d *Device) { d.XIDs = make([]uint32, 65) }),
		"notes[0]: not a printable text":                       {Notes: []string{"\n"}},
		"devices, notes: 1025 and 0 of them; give at most":     {Devices: make([]Device, maxDevices+1)},
	} {
		err := r.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
