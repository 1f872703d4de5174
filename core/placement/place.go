package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
)

// Policies are the names of the placement policies: auto is the best that we have; paper the pipeline as published; exact
// solves the problem to the optimum, or says that it is too large.
var Policies = []string{"auto", "paper", "exact"}

// Place plans all jobs of the problem by a policy. The model is static when all minimums fit at once, else queue.
//
// A wrong problem or policy gives an error that names the field. Jobs that cannot run are in Plan.Impossible; there may be
// no others.
func Place(p *Problem, policy string, s Search) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if !slices.Contains(Policies, policy) {
		return nil, fmt.Errorf("policy: unknown policy %q; give auto, paper or exact", policy)
	}
	in := compile(p)
	plan := &Plan{Model: Static, Policy: policy, Complete: true, Impossible: in.impossible}
	if len(in.jobs) == 0 {
		return plan, nil
	}
	if s.Budget <= 0 {
		s.Budget = max(defaultBudget, budgetPerJob*len(p.Jobs))
		if policy == "exact" {
			s.Budget = mostExact
		}
	}
	w := s.work()
	fit := in.fit(false)
	if fit == nil {
		plan.Model = Queue
	}
	schedule, bound, err := in.solve(policy, fit, w)
	if err != nil {
		return nil, err
	}
	plan.Complete = !w.cut
	in.describe(plan, schedule, in.nodes(schedule))
	plan.LowerBoundSeconds = min(bound, plan.MeanSeconds)
	return plan, nil
}

// solve returns a slot for every job and a lower bound of the mean. fit is nil in the queue model.
func (in *instance) solve(policy string, fit *assignment, w *work) (schedule []slot, bound float64, err error) {
	seed := in.problem.Seed
	if fit == nil {
		switch policy {
		case "paper":
			schedule, bound = in.paperQueue(w, seed)
		case "exact":
			schedule, bound, err = in.exactQueue(w, seed)
		default:
			schedule, bound = in.queue(w, seed)
		}
		return schedule, bound, err
	}
	var a *assignment
	switch policy {
	case "paper":
		a, bound = in.paper(fit, w, seed)
	case "exact":
		if in.exactWork() > mostExact {
			return nil, 0, fmt.Errorf("policy: exact would take %.0g steps on this problem, more than %.0g; give auto",
				in.exactWork(), float64(mostExact))
		}
		w.left = min(w.left, mostExact)
		if a = in.exact(w); a != nil {
			bound = a.total()
		} else {
			a, bound = in.approximate(fit, w, seed)
		}
	default:
		a, bound = in.static(fit, w, seed)
	}
	for _, counts := range a.counts {
		schedule = append(schedule, slot{counts: counts})
	}
	return schedule, bound / in.weight, nil
}

// describe writes the schedule into the plan.
func (in *instance) describe(plan *Plan, schedule []slot, shares [][]Share) {
	jct, byEnd := make([]float64, len(schedule)), make([]int, len(schedule))
	for i, s := range schedule {
		jct[i], byEnd[i] = in.jobs[i].completion(s), i
	}
	slices.SortStableFunc(byEnd, func(x, y int) int { return cmp.Compare(jct[x], jct[y]) })
	for i, s := range schedule {
		j := &in.jobs[i]
		plan.MeanSeconds += float64(j.weight / in.weight * jct[i])
		placed := Placed{Job: j.index, StartSeconds: s.start, JCTSeconds: jct[i], Shares: shares[i]}
		placed.BatchSizes = in.batchSizes(j, shares[i])
		if s.start > 0 {
			placed.Reason = in.whyWait(i, schedule, byEnd, jct)
		}
		plan.Placed = append(plan.Placed, placed)
	}
	plan.Fairness = in.fairness(jct)
}

// batchSizes are by device in the order of the shares.
func (in *instance) batchSizes(j *job, shares []Share) []int {
	of := &in.problem.Jobs[j.index]
	var rates []float64
	for _, s := range shares {
		for range s.Count {
			rates = append(rates, of.SamplesPerSecond[s.Type])
		}
	}
	return proportional(of.GlobalBatch, rates)
}

// whyWait says what a job waits for: the last to end, of those that hold its devices and end when it starts or before.
// byEnd is the jobs by when they end.
func (in *instance) whyWait(i int, schedule []slot, byEnd []int, ends []float64) string {
	until := sort.Search(len(byEnd), func(n int) bool { return ends[byEnd[n]] > schedule[i].start })
	for _, other := range slices.Backward(byEnd[:until]) {
		if schedule[other].start < schedule[i].start && overlap(schedule[i].counts, schedule[other].counts) {
			return fmt.Sprintf("waits for devices of job %s, which ends after %s s", in.problem.Jobs[in.jobs[other].index].ID,
				strconv.FormatFloat(ends[other], 'f', max(0, 2-int(math.Log10(max(ends[other], 0.01)))), 64))
		}
	}
	return "waits its turn"
}

func overlap(a, b []int) bool {
	for k := range a {
		if a[k] > 0 && b[k] > 0 {
			return true
		}
	}
	return false
}
