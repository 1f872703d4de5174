package cpu

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// groups are the control groups that this process is in: by controller, its own and those above it, as folders. Each
// limits what is below it. A controller is in a hierarchy of version 1 of its own, or in the one of version 2, whose name
// here is empty.
type groups struct {
	prober  *Prober
	folders map[string][]string
}

// groups finds the control groups: what this process is in is in /proc/self/cgroup, where to see it in the mounts.
func (p *Prober) groups() groups {
	g := groups{p, make(map[string][]string)}
	at := make(map[string]string) // by controller
	for line := range strings.Lines(p.read("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for controller := range strings.SplitSeq(parts[1], ",") {
				at[controller] = parts[2]
			}
		}
	}
	for line := range strings.Lines(p.read("proc/self/mountinfo")) {
		mount, of, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(mount), strings.Fields(of)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			g.add("", left[3], left[4], at[""])
		case "cgroup":
			for option := range strings.SplitSeq(right[2], ",") {
				if own, in := at[option]; in {
					g.add(option, left[3], left[4], own)
				}
			}
		}
	}
	return g
}

// add takes the hierarchy that is mounted at point, of which root and what is below it can be seen there. A group that
// is outside of it, as in a container, is taken for its root.
func (g *groups) add(controller, root, point, own string) {
	if g.folders[controller] != nil {
		return // mounted twice
	}
	below, inside := strings.CutPrefix(path.Clean("/"+own), strings.TrimSuffix(root, "/"))
	if !inside {
		below = ""
	}
	folder := path.Join(point, below)
	var folders []string
	for ; folder != point && folder != "/"; folder = path.Dir(folder) {
		folders = append(folders, folder)
	}
	g.folders[controller] = append(folders, point)
}

// quota is what a group gets of CPU time, together with those below it.
type quota struct {
	cpus float64 // CPUs' worth of time; infinite without a limit
	used float64 // seconds so far; NaN where that cannot be read
}

// quotas are those that there are, by the group's folder.
func (g groups) quotas() map[string]quota {
	quotas := make(map[string]quota)
	for _, folder := range g.folders[""] {
		limit, period, _ := strings.Cut(strings.TrimSpace(g.prober.read(folder, "cpu.max")), " ")
		used := number(field(g.prober.read(folder, "cpu.stat"), "usage_usec")) / 1e6
		quotas[folder] = quota{ratio(limit, period), used}
	}
	for i, folder := range g.folders["cpu"] {
		used := math.NaN()
		// In version 1 the time is another controller's, whose groups are the same ones in practice.
		if i < len(g.folders["cpuacct"]) {
			used = number(g.prober.read(g.folders["cpuacct"][i], "cpuacct.usage")) / 1e9
		}
		quotas[folder] = quota{ratio(strings.TrimSpace(g.prober.read(folder, "cpu.cfs_quota_us")),
			strings.TrimSpace(g.prober.read(folder, "cpu.cfs_period_us"))), used}
	}
	return quotas
}

// ratio is limit / period, infinite where limit is no limit.
func ratio(limit, period string) float64 {
	l, err1 := strconv.ParseFloat(limit, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || !(l > 0) || !(p > 0) {
		return math.Inf(1)
	}
	return l / p
}

// throttled counts how often a quota stopped a process of these groups.
func (g groups) throttled() (times int) {
	for _, folder := range slices.Concat(g.folders[""], g.folders["cpu"]) {
		if n := number(field(g.prober.read(folder, "cpu.stat"), "nr_throttled")); n > 0 {
			times += int(min(n, math.MaxInt32))
		}
	}
	return times
}

// limit is what a group may use of memory, and what it uses that cannot be taken back at once.
type limit struct{ bytes, used uint64 }

// memory are the limits of memory that there are.
func (g groups) memory() (limits []limit) {
	add := func(folder, most, used, inactive string) {
		bytes, err1 := strconv.ParseUint(strings.TrimSpace(g.prober.read(folder, most)), 10, 64)
		now, err2 := strconv.ParseUint(strings.TrimSpace(g.prober.read(folder, used)), 10, 64)
		if err1 != nil || err2 != nil || bytes == 0 {
			return
		}
		cache, _ := strconv.ParseUint(field(g.prober.read(folder, "memory.stat"), inactive+" "), 10, 64)
		limits = append(limits, limit{bytes, now - min(now, cache)})
	}
	for _, folder := range g.folders[""] {
		add(folder, "memory.max", "memory.current", "inactive_file")
	}
	for _, folder := range g.folders["memory"] {
		add(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
	}
	return limits
}

// number is NaN for what is none.
func number(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}
