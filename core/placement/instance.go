package placement

import (
	"fmt"
	"slices"
	"strings"
)

// instance is a problem as the searches see it: devices that no job can tell apart are one kind, and only counts by kind
// matter. Which devices they are is decided last (nodes.go).
type instance struct {
	problem    *Problem
	kinds      []kind
	jobs       []job // those that can run
	impossible []Impossible
	weight     float64 // of all jobs together
}

// kind is devices of one type that the same jobs may use.
type kind struct {
	typ   string
	cap   int
	pools []int // indices into Problem.Pools, in order
}

// job is one job that can run.
type job struct {
	index    int       // into Problem.Jobs
	work     float64   // samples
	rate     []float64 // samples per second of one device, by kind; 0 where it cannot run
	usable   []int     // the kinds with a rate
	min, max int       // workers; max is at most what there is for it
	// communicate is the seconds that all-reduces would take on infinitely many workers: on n they take 1 - 1/n of it.
	communicate float64
	single      bool // all devices of one type
	weight      float64
	overdue     bool
	current     []int // counts by kind; nil where it does not run now
	restart     float64
	fixed       bool
}

// overdueSeconds is how long a job may have waited before it goes first in the queue, the longest waiting first: our
// choice. It bounds every wait, whatever comes after.
const overdueSeconds = 24 * 3600

// compile groups the devices and sorts out the jobs that cannot run.
func compile(p *Problem) *instance {
	in := &instance{problem: p}
	in.group()
	for i := range p.Jobs {
		j, reason := in.job(i)
		if reason != "" {
			in.impossible = append(in.impossible, Impossible{i, reason})
			continue
		}
		in.weight += j.weight
		in.jobs = append(in.jobs, j)
	}
	return in
}

// group makes kinds of the pools: alike are those of one type that the same jobs may use.
func (in *instance) group() {
	p := in.problem
	restricted := make([][]int, len(p.Pools)) // by pool: the jobs that may not use it
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.MemoryBytes == 0 && j.Nodes == nil {
			continue
		}
		allowed := make(map[string]bool, len(j.Nodes))
		for _, node := range j.Nodes {
			allowed[node] = true
		}
		for k, pool := range p.Pools {
			if j.Nodes != nil && !allowed[pool.Node] || pool.MemoryBytes != 0 && pool.MemoryBytes < j.MemoryBytes {
				restricted[k] = append(restricted[k], i)
			}
		}
	}
	at := make(map[string]int)
	for k, pool := range p.Pools {
		if pool.Count == 0 {
			continue
		}
		var key strings.Builder
		key.WriteString(pool.Type)
		for _, i := range restricted[k] {
			fmt.Fprintf(&key, "\x00%d", i)
		}
		index, known := at[key.String()]
		if !known {
			index = len(in.kinds)
			at[key.String()] = index
			in.kinds = append(in.kinds, kind{typ: pool.Type})
		}
		in.kinds[index].pools = append(in.kinds[index].pools, k)
		in.kinds[index].cap += pool.Count
	}
}

// job compiles one job, or says why it cannot run.
func (in *instance) job(index int) (j job, reason string) {
	p := in.problem
	of := &p.Jobs[index]
	j = job{
		index: index, work: of.RemainingSamples, rate: make([]float64, len(in.kinds)),
		min: of.MinWorkers, max: of.MaxWorkers, single: of.SingleType, weight: of.Weight,
		overdue: of.WaitedSeconds >= overdueSeconds, restart: of.RestartSeconds, fixed: of.Fixed,
	}
	if of.AllreduceBytes > 0 {
		j.communicate = min(mostRun, 2*of.RemainingSamples/float64(of.GlobalBatch)*of.AllreduceBytes/p.Bandwidth)
	}
	here := make(map[string]int) // devices that it can use, by type
	all := 0
	for k, kd := range in.kinds {
		pool := p.Pools[kd.pools[0]]
		if of.Nodes != nil && !slices.Contains(of.Nodes, pool.Node) || pool.MemoryBytes != 0 && pool.MemoryBytes < of.MemoryBytes {
			continue
		}
		if rate := of.SamplesPerSecond[kd.typ]; rate > 0 && of.RemainingSamples/rate <= mostRun {
			j.rate[k] = rate
			j.usable = append(j.usable, k)
			here[kd.typ] += kd.cap
			all += kd.cap
		}
	}
	most := all
	if j.single {
		most = 0
		for _, n := range here {
			most = max(most, n)
		}
	}
	if j.fixed {
		in.hold(&j, of)
		return j, ""
	}
	if j.min > of.GlobalBatch {
		return j, fmt.Sprintf("its global batch of %d has no sample for each of %d workers", of.GlobalBatch, j.min)
	}
	if most < j.min {
		return j, in.whyNot(of, most)
	}
	j.max = min(j.max, most, of.GlobalBatch)
	in.locate(&j, of)
	return j, ""
}

// whyNot says why a job for which there are only so many devices cannot run.
func (in *instance) whyNot(of *Job, most int) string {
	if most == 0 {
		return "no device of a type that it has a rate for, on its nodes, with the memory that it needs"
	}
	alike := ""
	if of.SingleType {
		alike = " of one type"
	}
	return fmt.Sprintf("it needs %d devices and there are %d%s that it can run on", of.MinWorkers, most, alike)
}

// hold leaves a fixed job what it has, whatever it may have.
func (in *instance) hold(j *job, of *Job) {
	in.locate(j, of)
	j.min = sum(j.current)
	j.max, j.single, j.usable = j.min, false, nil
	for k, c := range j.current {
		if c > 0 {
			j.rate[k] = of.SamplesPerSecond[in.kinds[k].typ]
			j.usable = append(j.usable, k)
		}
	}
}

// locate counts the devices that the job runs on now.
func (in *instance) locate(j *job, of *Job) {
	if len(of.Current) == 0 {
		return
	}
	j.current = make([]int, len(in.kinds))
	for k, kd := range in.kinds {
		for _, pool := range kd.pools {
			for _, s := range of.Current {
				if s.Node == in.problem.Pools[pool].Node && s.Type == kd.typ {
					j.current[k] += s.Count
				}
			}
		}
	}
}

// seconds is how long the job runs on so many devices by kind, at least one, all with a rate: proportional assignment
// (paper, step 1) gives each device the share of every batch that it is worth, so their rates add up. A restart is
// included where it runs elsewhere now.
func (j *job) seconds(counts []int) float64 {
	rate, n := 0.0, 0
	for k, c := range counts {
		if c > 0 {
			rate += float64(float64(c) * j.rate[k])
			n += c
		}
	}
	return j.run(rate, n) + j.moving(counts)
}

// run is the job's run time at a joint rate of n devices.
func (j *job) run(rate float64, n int) float64 {
	return j.work/rate + float64(j.communicate*(1-1/float64(n)))
}

// moving is the restart that other devices than the current ones cost.
func (j *job) moving(counts []int) float64 {
	if j.current == nil || slices.Equal(counts, j.current) {
		return 0
	}
	return j.restart
}
