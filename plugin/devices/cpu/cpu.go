// Package cpu is the built-in prober: the share of this node's CPUs and memory that a process may use, as one device.
//
// It reads what the kernel says in /proc and in the control groups, of version 1 and 2. What cannot be read is not
// known.
package cpu

import (
	"bytes"
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/devices"
)

const (
	// leastInterval is between two looks at how busy the CPUs are. In less time they tick too seldom to tell.
	leastInterval = 200 * time.Millisecond
	ticks         = 100 // of /proc/stat in a second, whatever the kernel's own clock
)

// Prober reports one device, whose id is cpu.
type Prober struct {
	root  string // where the kernel's files are: / but in tests
	now   func() time.Time
	sleep func(time.Duration)

	mu   sync.Mutex
	last moment
}

// New returns a prober of the machine that it runs on.
func New() *Prober {
	p := &Prober{root: "/", now: time.Now, sleep: time.Sleep}
	p.last = p.look(p.allowed(), p.groups())
	return p
}

// Probe looks at the CPUs and the memory. It fails never, and takes leastInterval at most.
func (p *Prober) Probe(context.Context) (devices.Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest := leastInterval - p.now().Sub(p.last.at); rest > 0 {
		p.sleep(rest)
	}
	cpus, groups := p.allowed(), p.groups()
	now := p.look(cpus, groups)
	d := devices.Device{ID: "cpu", Kind: devices.CPU, Type: p.model(), Cores: len(cpus)}
	least := math.Inf(1)
	for _, q := range now.quotas {
		least = min(least, q.cpus)
	}
	if least < float64(len(cpus)) {
		d.QuotaCores = least
	}
	d.CoresAvailable = available(p.last, now, len(cpus))
	if now.throttled > p.last.throttled {
		d.Throttle = []string{"CPU quota"}
	}
	d.MemoryBytes, d.MemoryFreeBytes = p.memory(groups)
	p.last = now
	return devices.Report{Devices: []devices.Device{d}}, nil
}

// moment is what had been used when we looked; NaN where that cannot be read.
type moment struct {
	at        time.Time
	idle      float64 // seconds that the CPUs that we may run on were idle
	quotas    map[string]quota
	throttled int // times that a quota stopped somebody
}

func (p *Prober) look(cpus map[int]bool, g groups) moment {
	return moment{at: p.now(), idle: p.idle(cpus), quotas: g.quotas(), throttled: g.throttled()}
}

// available is what is left for others, in CPUs: what was idle, but no more than what is left of each quota.
func available(before, now moment, cpus int) *float64 {
	seconds := now.at.Sub(before.at).Seconds()
	cores := min((now.idle-before.idle)/seconds, float64(cpus))
	if math.IsNaN(cores) {
		return nil
	}
	for folder, q := range now.quotas {
		cores = min(cores, q.cpus)
		used := (q.used - before.quotas[folder].used) / seconds
		if _, there := before.quotas[folder]; there && !math.IsNaN(used) {
			cores = min(cores, q.cpus-used)
		}
	}
	cores = max(0, cores)
	cores = math.Round(cores*100) / 100 // ticks tell no more
	return &cores
}

// idle sums up what the given CPUs were idle since the system started.
func (p *Prober) idle(cpus map[int]bool) float64 {
	sum, found := 0.0, false
	for line := range strings.Lines(p.read("proc/stat")) {
		columns := strings.Fields(line)
		if len(columns) < 6 {
			continue
		}
		number, isCPU := strings.CutPrefix(columns[0], "cpu")
		n, err := strconv.Atoi(number)
		if !isCPU || err != nil || !cpus[n] {
			continue
		}
		idle, err1 := strconv.ParseFloat(columns[4], 64)
		waiting, err2 := strconv.ParseFloat(columns[5], 64)
		if err1 != nil || err2 != nil {
			return math.NaN()
		}
		sum += (idle + waiting) / ticks
		found = true
	}
	if !found {
		return math.NaN()
	}
	return sum
}

// allowed are the CPUs that this process may run on, which its cpuset has narrowed already, without those that are only
// possible, such as a virtual machine has many.
func (p *Prober) allowed() map[int]bool {
	cpus := list(field(p.read("proc/self/status"), "Cpus_allowed_list:"))
	if online := list(p.read("sys/devices/system/cpu/online")); len(online) > 0 {
		maps.DeleteFunc(cpus, func(n int, _ bool) bool { return !online[n] })
	}
	return cpus
}

// list reads numbers as the kernel writes them: 0-1,3.
func list(text string) map[int]bool {
	cpus := make(map[int]bool)
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to-from > 1<<16 {
			continue
		}
		for n := from; n <= to; n++ {
			cpus[n] = true
		}
	}
	return cpus
}

func (p *Prober) model() string {
	text := p.read("proc/cpuinfo")
	for _, name := range []string{"model name", "Model", "cpu"} { // of x86, arm and power
		if model := field(text, name); model != "" {
			return strings.TrimSpace(plugin.Line(strings.TrimPrefix(model, ":")))
		}
	}
	return ""
}

// memory is what a process may use and what of that is free.
func (p *Prober) memory(g groups) (total uint64, free *uint64) {
	text := p.read("proc/meminfo")
	total = kilobytes(text, "MemTotal:")
	available := kilobytes(text, "MemAvailable:")
	if total == 0 || available == 0 {
		return total, nil
	}
	for _, limit := range g.memory() {
		total = min(total, limit.bytes)
		available = min(available, limit.bytes-min(limit.bytes, limit.used))
	}
	return total, &available
}

func kilobytes(text, name string) uint64 {
	number, _, _ := strings.Cut(field(text, name), " ")
	n, err := strconv.ParseUint(number, 10, 54)
	if err != nil {
		return 0
	}
	return n * 1024
}

// field is the rest of the first line that begins with the name; empty where there is none.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// read is what a file says; nothing where it cannot be read.
func (p *Prober) read(path ...string) string {
	content, err := os.ReadFile(filepath.Join(append([]string{p.root}, path...)...))
	if err != nil {
		return ""
	}
	return string(bytes.ToValidUTF8(content, nil))
}
