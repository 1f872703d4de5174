package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/evenstep/evenstep/core/placement"
)

// ClusterPolicy is a policy of Rounds.Run.
type ClusterPolicy struct {
	Name         string
	KnowsLengths bool // it is told how long jobs take
	SingleDevice bool // it takes jobs of one device only
	mixes        bool // it knows ways with devices of several types
	new          func(r *Rounds) clusterPolicy
}

// ClusterPolicies are the policies that Rounds.Run takes: ours, then the baselines.
func ClusterPolicies() []ClusterPolicy {
	ordered := func(o order, blind bool) func(*Rounds) clusterPolicy {
		return func(r *Rounds) clusterPolicy { return &inOrder{order: o, choose: r.chooser(blind)} }
	}
	return []ClusterPolicy{
		{"auto", true, false, true, func(r *Rounds) clusterPolicy {
			return &knapsack{aim: placement.MeanJCT, hold: r.rules.NoPreempt, round: r.rules.RoundSeconds,
				seed: r.rules.Seed}
		}},
		{"auto-unknown", false, false, true, func(*Rounds) clusterPolicy { return &knapsack{aim: placement.MeanJCTUnknown} }},
		{"makespan", true, false, true, func(*Rounds) clusterPolicy { return &knapsack{aim: placement.Makespan} }},
		{"paper", true, false, false, func(r *Rounds) clusterPolicy {
			return &paper{restart: r.rules.RestartSeconds, seed: r.rules.Seed}
		}},
		{"fifo", false, false, false, func(r *Rounds) clusterPolicy { return &fifo{choose: r.chooser(true), holds: true} }},
		{"fifo-het", false, false, false, func(r *Rounds) clusterPolicy { return &fifo{choose: r.chooser(false)} }},
		{"shortest", true, false, false, ordered(shortestTypical, true)},
		{"shortest-het", true, false, false, ordered(shortestFirst, false)},
		{"las", false, false, false, ordered(leastAttained, true)},
		{"las-het", false, false, false, ordered(leastAttained, false)},
		{"allox", true, true, false, func(*Rounds) clusterPolicy { return &allox{} }},
	}
}

// Takes says, with an error, why a policy does not take the jobs.
func (r *Rounds) Takes(policy string) error {
	p, err := clusterPolicyNamed(policy)
	if err != nil {
		return err
	}
	for i, j := range r.Jobs {
		if p.SingleDevice && j.Devices > 1 {
			return fmt.Errorf("%s takes jobs of one device; job %.40s needs %d", policy, j.ID, j.Devices)
		}
		if !p.mixes && r.classes[i].singles == 0 {
			return fmt.Errorf("%s gives a job devices of one type; there are not %d of any for job %.40s", policy, j.Devices, j.ID)
		}
	}
	return nil
}

func clusterPolicyNamed(name string) (ClusterPolicy, error) {
	for _, p := range ClusterPolicies() {
		if p.Name == name {
			return p, nil
		}
	}
	return ClusterPolicy{}, fmt.Errorf("unknown policy %.40q", name)
}

// knapsack is ours: the round knapsack of core/placement.
type knapsack struct {
	aim   placement.Aim
	hold  bool  // who runs keeps its devices
	order []int // with hold: jobs in the order of the last plan
	round float64
	seed  uint64
}

func (k *knapsack) decide(s *situation) error {
	p := placement.RoundProblem{Devices: slices.Clone(s.counts), Aim: k.aim, Hold: k.hold, Seconds: k.round,
		Seed: k.seed}
	at := make(map[int]int, len(s.jobs)) // index into the problem by job
	for i, j := range s.jobs {
		p.Jobs = append(p.Jobs, placement.RoundJob{Ways: j.ways, SecondsLeft: j.secondsLeft(), SecondsServed: j.served,
			Weight: j.weight, Now: j.way})
		at[j.index] = i
		if k.hold && j.way >= 0 {
			take(j.ways[j.way].Counts, p.Devices)
		}
	}
	for _, job := range k.order {
		if i, here := at[job]; here {
			p.Order = append(p.Order, i)
		}
	}
	plan, err := placement.Round(&p)
	if err != nil {
		return err
	}
	for i, j := range s.jobs {
		j.next = plan.Ways[i]
	}
	k.order = k.order[:0]
	for _, i := range plan.Order {
		k.order = append(k.order, s.jobs[i].index)
	}
	return nil
}

// chooser picks one of the ways of a job that fit what is free, -1 where none does.
type chooser func(j *runningJob, free []int) int

// chooser is type-aware: the fastest way that fits, of equal ones the first. Type-blind it draws among the single
// types.
func (r *Rounds) chooser(blind bool) chooser {
	if !blind {
		return fastest
	}
	random := rand.New(rand.NewPCG(r.rules.Seed, 1))
	return func(j *runningJob, free []int) int {
		var ways []int
		for w, way := range j.ways[:j.singles] {
			if fits(way.Counts, free) {
				ways = append(ways, w)
			}
		}
		if len(ways) == 0 {
			return -1
		}
		return ways[random.IntN(len(ways))]
	}
}

func fastest(j *runningJob, free []int) int { return fastestOf(j, len(j.ways), free) }

// fastestOf chooses among so many first ways.
func fastestOf(j *runningJob, ways int, free []int) int {
	best := -1
	for w, way := range j.ways[:ways] {
		if (best < 0 || j.rates[w] > j.rates[best]) && fits(way.Counts, free) {
			best = w
		}
	}
	return best
}

func fits(counts, free []int) bool {
	for k, n := range counts {
		if n > free[k] {
			return false
		}
	}
	return true
}

func take(counts, free []int) {
	for k, n := range counts {
		free[k] -= n
	}
}
