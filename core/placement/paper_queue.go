package placement

import (
	"errors"
	"math/rand/v2"
	"slices"
)

// paperQueue applies the pipeline where not all minimums fit at once, of which the paper does not speak. Our choice: as many
// jobs as fit, in the order in which they are given, fixed and overdue ones first, are planned as if they were all; then as
// many of the rest, and so on. Each starts as early as its devices are free beside those before it.
func (in *instance) paperQueue(w *work, seed uint64) (schedule []slot, bound float64) {
	q := newQueueSearch(in, w, seed)
	q.enumerate()
	bound = q.bound()
	p := &queuePlan{order: in.listing(q.first), allot: make([]allotment, len(in.jobs)), start: make([]float64, len(in.jobs))}
	rng := rand.New(rand.NewPCG(seed, 0))
	for from := 0; from < len(p.order); {
		wave, counts := in.wave(p.order[from:], w, rng)
		for at, i := range wave {
			p.allot[i] = in.jobs[i].allotment(counts[at])
		}
		from += len(wave)
	}
	q.profile.reset(in.kinds)
	for _, i := range p.order {
		q.place(p, i)
	}
	return q.slots(p), q.mean(p, bound)
}

// listing is all jobs, those given before the others.
func (in *instance) listing(first []int) (order []int) {
	listed := make([]bool, len(in.jobs))
	for _, i := range first {
		listed[i] = true
	}
	order = slices.Clone(first)
	for i := range in.jobs {
		if !listed[i] {
			order = append(order, i)
		}
	}
	return order
}

// wave plans as many of the jobs as fit at once, from the first on, and returns them with what each gets.
func (in *instance) wave(order []int, w *work, rng *rand.Rand) (jobs []int, counts [][]int) {
	part := &instance{problem: in.problem, kinds: in.kinds}
	fits := func(n int) bool {
		part.take(in, order[:n])
		return part.fit(false) != nil
	}
	low, high := 1, len(order)
	for n := 2; low < high && n < 2*high; n *= 2 { // doubling first: each try takes as long as it is large
		if n = min(n, high); fits(n) {
			low = n
		} else {
			high = n - 1
		}
	}
	for low < high {
		if middle := (low + high + 1) / 2; fits(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	part.take(in, order[:low])
	return order[:low], part.sampled(part.fit(false), w, rng).counts
}

// take makes the instance one of some jobs of another.
func (in *instance) take(of *instance, jobs []int) {
	in.jobs, in.weight = in.jobs[:0], 0
	for _, i := range jobs {
		in.jobs = append(in.jobs, of.jobs[i])
		in.weight += of.jobs[i].weight
	}
}

// exactQueue solves the queue model by branch and bound.
func (in *instance) exactQueue(w *work, seed uint64) (schedule []slot, bound float64, err error) {
	q := newQueueSearch(in, w, seed)
	if q.enumerate(); !q.countable() {
		return nil, 0, errors.New("policy: exact is for few jobs and devices where jobs have to wait; give auto")
	}
	schedule, bound = in.queue(w, seed)
	return schedule, bound, nil
}
