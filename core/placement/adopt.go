package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Adopt makes a plan of what somebody else proposes, of whom nothing is believed: Job, StartSeconds and Shares of each
// are checked, the rest is reckoned. Every job that can run has to be in it, on devices that are there, that it may use,
// in numbers that it takes, and that no other job has at the time; in the static model all start at 0, in the queue model
// not after all could have run one after another. The bound is left at 0, since a proposal proves none. The error names
// what is wrong.
func Adopt(p *Problem, policy string, proposed []Placed) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	in := compile(p)
	plan := &Plan{Model: Static, Policy: policy, Complete: true, Impossible: in.impossible}
	if in.fit(false) == nil {
		plan.Model = Queue
	}
	if len(proposed) > len(in.jobs) {
		return nil, fmt.Errorf("placed: %d entries for %d jobs that can run; give each once", len(proposed), len(in.jobs))
	}
	schedule, held := make([]slot, len(in.jobs)), make([][]int, len(in.jobs))
	entries, oneByOne := make([]int, len(in.jobs)), 0.0
	for i := range in.jobs {
		j := &in.jobs[i]
		at := slices.IndexFunc(proposed, func(placed Placed) bool { return placed.Job == j.index })
		if at < 0 {
			return nil, fmt.Errorf("placed: job %s is not in it", p.Jobs[j.index].ID)
		}
		var err error
		if schedule[i], held[i], err = in.adopt(i, &proposed[at], plan.Model); err != nil {
			return nil, fmt.Errorf("placed[%d].%w", at, err)
		}
		entries[i] = at
		a := j.allotment(schedule[i].counts)
		oneByOne += a.seconds(schedule[i].start)
	}
	// Much later a number no longer tells one job's end from its start.
	for i, s := range schedule {
		if s.start > oneByOne*(1+1e-9) {
			return nil, fmt.Errorf("placed[%d].start_seconds: %v, though one after another all jobs are done after %v s",
				entries[i], s.start, oneByOne)
		}
	}
	if err := in.checkPools(schedule, held); err != nil {
		return nil, err
	}
	in.describe(plan, schedule, in.shares(held))
	return plan, nil
}

// adopt checks one job's place by itself and says how many devices of each pool it holds.
func (in *instance) adopt(i int, placed *Placed, model Model) (s slot, held []int, err error) {
	s = slot{start: placed.StartSeconds, counts: make([]int, len(in.kinds))}
	switch {
	case !(s.start >= 0) || math.IsInf(s.start, 1):
		return s, nil, fmt.Errorf("start_seconds: %v is not a finite number >= 0", s.start)
	case model == Static && s.start > 0:
		return s, nil, fmt.Errorf("start_seconds: %v, though all minimums fit at once; give 0", s.start)
	}
	j := &in.jobs[i]
	if held, err = in.perPool(placed.Shares); err != nil {
		return s, nil, err
	}
	types, workers := make(map[string]bool), 0
	for k, kd := range in.kinds {
		for _, pool := range kd.pools {
			s.counts[k] += held[pool]
		}
		if s.counts[k] > 0 {
			workers += s.counts[k]
			types[kd.typ] = true
			if j.rate[k] == 0 {
				return s, nil, fmt.Errorf("shares: the job cannot run on all of these %s", kd.typ)
			}
		}
	}
	switch {
	case workers < j.min || workers > j.max:
		return s, nil, fmt.Errorf("shares: %d devices for a job of %d to %d workers", workers, j.min, j.max)
	case j.single && len(types) > 1:
		return s, nil, fmt.Errorf("shares: %d types of devices for a job of a single one", len(types))
	case j.fixed || in.stays(i, s):
		// Other devices of the same kinds would cost a restart that is not reckoned with.
		current, _ := in.perPool(in.problem.Jobs[j.index].Current)
		if s.start > 0 || !slices.Equal(held, current) {
			return s, nil, errors.New("shares: not the devices that the job has now, though it is to stay there")
		}
	}
	return s, held, nil
}

// perPool sums up shares by pool.
func (in *instance) perPool(shares []Share) (held []int, err error) {
	held = make([]int, len(in.problem.Pools))
	for i, s := range shares {
		pool := slices.IndexFunc(in.problem.Pools, func(p Pool) bool { return p.Node == s.Node && p.Type == s.Type })
		switch {
		case pool < 0:
			return nil, fmt.Errorf("shares[%d]: no %s on %s in devices", i, s.Type, s.Node)
		case s.Count < 1 || s.Count > in.problem.Pools[pool].Count-held[pool]:
			return nil, fmt.Errorf("shares[%d].count: %d is not in 1 ... %d", i, s.Count,
				in.problem.Pools[pool].Count-held[pool])
		}
		held[pool] += s.Count
	}
	return held, nil
}

// change is so many devices more or fewer in use.
type change struct {
	at    float64
	count int
}

// checkPools says whether at any time more devices of a pool are in use than there are.
func (in *instance) checkPools(schedule []slot, held [][]int) error {
	for k, pool := range in.problem.Pools {
		var changes []change
		for i := range held {
			if n := held[i][k]; n > 0 {
				end := in.jobs[i].completion(schedule[i])
				changes = append(changes, change{schedule[i].start, n}, change{end, -n})
			}
		}
		// Who ends makes room for who starts at the same time.
		slices.SortFunc(changes, func(a, b change) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.count, b.count))
		})
		used := 0
		for _, c := range changes {
			if used += c.count; used > pool.Count {
				return fmt.Errorf("placed: %d %s on %s in use after %v s; there are %d", used, pool.Type, pool.Node, c.at,
					pool.Count)
			}
		}
	}
	return nil
}

// shares says by job what it holds of each pool.
func (in *instance) shares(held [][]int) [][]Share {
	shares := make([][]Share, len(held))
	for i, of := range held {
		for k, c := range of {
			if c > 0 {
				pool := in.problem.Pools[k]
				shares[i] = append(shares[i], Share{pool.Node, pool.Type, c})
			}
		}
	}
	return shares
}
