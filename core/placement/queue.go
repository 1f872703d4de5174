package placement

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// The queue model: jobs also wait. Each starts once, holds its devices to its end, and what runs at any time fits the
// capacity of every kind. The mean of start + run by weight is to be as low as it can be.
//
// A job that runs now keeps its devices without a restart only if it starts at 0 on the same counts: if it waits,
// others have them meanwhile, so it restarts wherever it runs then. A fixed job starts at 0 on its current counts.
//
// A schedule is an order, and an allotment for each job: in that order each starts as early as its allotment fits
// beside those before it (queue_plan.go). Some order and allotments give an optimum, namely those of an optimal
// schedule by start times: no job then starts later than there. Fixed jobs are first in every order, then overdue
// ones, the longest waiting first; nobody behind delays them.
//
// Prices of devices over time give a lower bound (queue_bound.go) and first plans (queue_greedy.go). For few jobs
// branch and bound then proves the optimum (queue_exact.go); for more, annealing improves the plan (queue_anneal.go).

// slot is when a job starts and on how many devices of each kind.
type slot struct {
	start  float64
	counts []int
}

// completion is when the job ends, restart included.
func (j *job) completion(s slot) float64 {
	a := j.allotment(s.counts)
	return s.start + a.seconds(s.start)
}

// queue searches the queue model. It returns a slot for each of the instance's jobs and a lower bound of the weighted
// mean over every schedule. The bound knows neither ageing nor the restart after waiting on the same counts: it is also
// one for whoever does without them.
func (in *instance) queue(w *work, seed uint64) (schedule []slot, bound float64) {
	if len(in.jobs) == 0 {
		return nil, 0
	}
	q := newQueueSearch(in, w, seed)
	q.enumerate()
	proven := q.bound()
	best := q.firstPlan()
	if q.countable() {
		q.anneal(best, stepsBeforeExact)
		if q.exact(best) {
			return q.slots(best), q.mean(best, max(proven, q.relaxedOptimum(best)))
		}
	}
	q.anneal(best, 0)
	return q.slots(best), q.mean(best, proven)
}

// queueSearch is the state of a search of the queue model. Slices are by job, as in instance.jobs.
type queueSearch struct {
	in       *instance
	work     *work
	random   *rand.Rand
	weight   []float64 // as a share of the largest, so that sums stay finite
	menus    [][]allotment
	complete []bool // the menu leaves nothing out but what is dominated
	options  [][]option
	least    []float64 // weight times a lower bound of the run
	first    []int     // fixed jobs, then overdue ones, in their order
	prices   prices
	turns    []turn
	profile  profile
}

func newQueueSearch(in *instance, w *work, seed uint64) *queueSearch {
	n := len(in.jobs)
	q := &queueSearch{
		in: in, work: w, random: rand.New(rand.NewPCG(seed, 0)), weight: make([]float64, n), first: in.firstInQueue(),
		menus: make([][]allotment, n), complete: make([]bool, n), options: make([][]option, n), least: make([]float64, n),
	}
	heaviest := 0.0
	for i := range in.jobs {
		heaviest = max(heaviest, in.jobs[i].weight)
	}
	for i := range in.jobs {
		q.weight[i] = in.jobs[i].weight / heaviest
	}
	return q
}

// firstInQueue are the fixed jobs, then the overdue ones, the longest waiting first.
func (in *instance) firstInQueue() []int {
	var fixed, overdue []int
	for i := range in.jobs {
		switch j := &in.jobs[i]; {
		case j.stays():
			fixed = append(fixed, i)
		case j.overdue:
			overdue = append(overdue, i)
		}
	}
	slices.SortStableFunc(overdue, func(a, b int) int {
		jobs := in.problem.Jobs
		return cmp.Compare(jobs[in.jobs[b].index].WaitedSeconds, jobs[in.jobs[a].index].WaitedSeconds)
	})
	return append(fixed, overdue...)
}

// stays says that the job is left on its current devices.
func (j *job) stays() bool { return j.fixed && j.current != nil }

// slots is the plan as a schedule.
func (q *queueSearch) slots(p *queuePlan) []slot {
	schedule := make([]slot, len(q.in.jobs))
	for i := range schedule {
		schedule[i] = slot{p.start[i], p.allot[i].counts}
	}
	return schedule
}

// mean makes a weighted mean of a bound of the sum. Rounding may have put that above the plan's by a hair; 0 is a bound
// where no other is finite.
func (q *queueSearch) mean(p *queuePlan, bound float64) float64 {
	total := 0.0
	for _, w := range q.weight {
		total += w
	}
	if bound = min(bound, p.cost); math.IsInf(bound, 1) {
		return 0
	}
	return max(0, bound/total)
}
