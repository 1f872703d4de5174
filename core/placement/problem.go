// Package placement says which job runs on which devices, to minimise the average job completion time: sampling-based
// multi-job placement over a matching market (Liu, Wang, Huang, Pan, IEEE TPDS 35(6), 2024), with a proven lower bound
// beside every plan.
//
// Place plans jobs that hold their devices to the end. Round, for the cluster simulator, says who runs until the next
// decision, after which all may change.
//
// The package is pure: no I/O, no clock, no goroutine, no randomness but from the seed of the problem. A search takes a
// budget of work and asks Stop whether to go on; whoever calls owns the deadline. Where a fused multiply-add could make
// the plan differ between machines, products are rounded: float64(a*b) + c.
package placement

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Problem is one instance of placement.
type Problem struct {
	Pools []Pool
	Jobs  []Job
	// Bandwidth is what one worker sends and receives in an all-reduce, in bytes per second; above 0 where a job
	// communicates.
	Bandwidth float64
	Seed      uint64
}

// Pool is devices of one type on one node, alike in all.
type Pool struct {
	Node        string
	Type        string // the vendor's model name
	Count       int    // at least 0
	MemoryBytes uint64 // of each device; 0 when not known, which no job's memory exceeds
}

// Job is what is left of a training run, and what it may run on.
type Job struct {
	ID               string
	RemainingSamples float64            // above 0, finite
	GlobalBatch      int                // samples of one step, at least 1
	SamplesPerSecond map[string]float64 // by device type; a job cannot run where it is missing or 0
	// MinWorkers and MaxWorkers bound the devices that it gets: 1 <= MinWorkers <= MaxWorkers.
	MinWorkers, MaxWorkers int
	AllreduceBytes         float64  // of the gradient, at least 0
	SingleType             bool     // all devices of one type
	MemoryBytes            uint64   // that a worker needs on its device
	Nodes                  []string // that it may run on; nil for all
	Weight                 float64  // of its completion time in the mean; above 0
	// Current is where it runs now, and RestartSeconds what it costs to run anywhere else.
	Current        []Share
	RestartSeconds float64
	WaitedSeconds  float64 // since it was submitted; only who waits long enough gains by it, see overdueSeconds
	// Fixed leaves it where it runs, whatever that costs the others.
	Fixed bool
}

// Share is so many devices of one pool.
type Share struct {
	Node, Type string
	Count      int
}

// Check returns an error that names the first field that is wrong and says what would be right.
func (p *Problem) Check() error {
	if len(p.Pools) == 0 {
		return errors.New("devices: none; give at least one")
	}
	if len(p.Jobs) == 0 {
		return errors.New("jobs: none; give at least one")
	}
	total := 0
	type place struct{ node, typ string }
	pools := make(map[place]int, len(p.Pools))
	for i, pool := range p.Pools {
		switch first, twice := pools[place{pool.Node, pool.Type}]; {
		case pool.Node == "":
			return fmt.Errorf("devices[%d].node: missing; give the host name", i)
		case pool.Type == "":
			return fmt.Errorf("devices[%d].type: missing; give the model name", i)
		case twice:
			return fmt.Errorf("devices[%d]: %s on %s are devices[%d] already; give one entry with the sum", i, pool.Type,
				pool.Node, first)
		case pool.Count < 0 || pool.Count > maxDevices-total:
			return fmt.Errorf("devices[%d].count: %d is not in 0 ... %d, the most of all together", i, pool.Count, maxDevices)
		}
		pools[place{pool.Node, pool.Type}] = i
		total += pool.Count
	}
	held := make([]int, len(p.Pools))
	ids := make(map[string]int, len(p.Jobs))
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if first, twice := ids[j.ID]; twice {
			return fmt.Errorf("jobs[%d].id: %q is the id of jobs[%d] already", i, j.ID, first)
		}
		ids[j.ID] = i
		if err := j.check(); err != nil {
			return fmt.Errorf("jobs[%d].%w", i, err)
		}
		if j.AllreduceBytes > 0 && !(p.Bandwidth > 0 && !math.IsInf(p.Bandwidth, 1)) {
			return fmt.Errorf("bandwidth_bytes_per_second: %v is not a finite number > 0, which jobs[%d].allreduce_bytes needs",
				p.Bandwidth, i)
		}
		for s, share := range j.Current {
			k, known := pools[place{share.Node, share.Type}]
			if !known {
				return fmt.Errorf("jobs[%d].current[%d]: no %s on %s in devices", i, s, share.Type, share.Node)
			}
			if share.Count < 1 || share.Count > p.Pools[k].Count-held[k] {
				return fmt.Errorf("jobs[%d].current[%d].count: %d is not in 1 ... %d, what is there beside other jobs", i, s,
					share.Count, p.Pools[k].Count-held[k])
			}
			held[k] += share.Count
		}
	}
	return nil
}

// Numbers beyond these are mistakes, and sums of them would not stay exact or finite.
const (
	maxDevices = 10_000_000
	maxSamples = 1e18 // also of seconds, and of bytes
	maxWeight  = 1e9
	mostRun    = 1e30 // seconds on one device; a job cannot run where it would take longer
)

func (j *Job) check() error {
	usual := func(x float64) bool { return x >= 0 && x <= maxSamples }
	switch {
	case j.ID == "":
		return errors.New("id: missing; give each job a name")
	case !(j.RemainingSamples > 0 && j.RemainingSamples <= maxSamples):
		return fmt.Errorf("remaining_samples: %v is not a number > 0 and <= %g", j.RemainingSamples, maxSamples)
	case j.GlobalBatch < 1:
		return fmt.Errorf("global_batch: %d is below 1", j.GlobalBatch)
	case j.MinWorkers < 1:
		return fmt.Errorf("workers.min: %d is below 1", j.MinWorkers)
	case j.MaxWorkers < j.MinWorkers:
		return fmt.Errorf("workers.max: %d is below min %d; give max >= min", j.MaxWorkers, j.MinWorkers)
	case !usual(j.AllreduceBytes):
		return fmt.Errorf("allreduce_bytes: %v is not a number >= 0 and <= %g", j.AllreduceBytes, maxSamples)
	case !(j.Weight >= 1/maxWeight && j.Weight <= maxWeight):
		return fmt.Errorf("weight: %v is not in %g ... %g", j.Weight, 1/maxWeight, maxWeight)
	case !usual(j.RestartSeconds):
		return fmt.Errorf("restart_seconds: %v is not a number >= 0 and <= %g", j.RestartSeconds, maxSamples)
	case !usual(j.WaitedSeconds):
		return fmt.Errorf("waited_seconds: %v is not a number >= 0 and <= %g", j.WaitedSeconds, maxSamples)
	case j.Fixed && len(j.Current) == 0:
		return errors.New("current: missing; a fixed job needs it")
	}
	for s, share := range j.Current {
		if j.Fixed && !(j.RemainingSamples/j.SamplesPerSecond[share.Type] <= mostRun) {
			return fmt.Errorf("current[%d]: a fixed job runs on %s, for which samples_per_second has none", s, share.Type)
		}
	}
	types := make([]string, 0, len(j.SamplesPerSecond))
	for t := range j.SamplesPerSecond {
		types = append(types, t)
	}
	slices.Sort(types)
	for _, t := range types {
		if rate := j.SamplesPerSecond[t]; !usual(rate) {
			return fmt.Errorf("samples_per_second.%s: %v is not a number >= 0 and <= %g", t, rate, maxSamples)
		}
	}
	return nil
}
