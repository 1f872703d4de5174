package placement

import "slices"

// stepsBeforeExact is how long the annealing looks for a plan for branch and bound to start from.
const stepsBeforeExact = 2000

// annealCools is by what the mean cost of a job is divided to give the most that a change may cost at first: rounds of
// different heat, since what small instances need is too hot for large ones. Our choice by trial.
var annealCools = [...]int{16, 4, 64}

// anneal changes orders and allotments one at a time, and keeps changes that cost little: less and less, in rounds that
// grow, each from the best plan so far. It ends after so many steps, or with the work if steps is 0.
func (q *queueSearch) anneal(best *queuePlan, steps int) {
	head := len(q.first)
	movable := q.movable()
	if len(movable) == 0 {
		return
	}
	now, next := best.clone(), best.clone()
	for n, round, done := 0, 100*len(movable), 0; ; n, round = n+1, round*3/2 {
		now.copy(best)
		heat := best.cost / float64(len(best.order)) / float64(annealCools[n%len(annealCools)])
		for step := range round {
			if steps > 0 && done == steps || !q.work.spend(1) {
				return
			}
			done++
			next.copy(now)
			if !q.change(next, head, movable) {
				continue
			}
			cooled := 1 - float64(step)/float64(round)
			limit := now.cost + float64(heat*cooled*cooled*cooled*q.random.Float64())
			if !q.decode(next, limit) {
				continue
			}
			now, next = next, now
			if now.cost < best.cost {
				best.copy(now)
			}
		}
	}
}

// movable are the jobs that have a choice.
func (q *queueSearch) movable() []int {
	var jobs []int
	for i := range q.in.jobs {
		if !q.in.jobs[i].stays() {
			jobs = append(jobs, i)
		}
	}
	return jobs
}

// change makes one random change to a plan, or returns false.
func (q *queueSearch) change(p *queuePlan, head int, movable []int) bool {
	free := len(p.order) - head
	switch r := q.random.IntN(10); {
	case r < 3 && free > 1: // one job to another position
		from, to := head+q.random.IntN(free), head+q.random.IntN(free)
		i := p.order[from]
		p.order = slices.Insert(slices.Delete(p.order, from, from+1), to, i)
		if r == 0 {
			return q.reallot(p, i)
		}
	case r < 5 && free > 1: // two neighbours, or any two, change places
		a := head + q.random.IntN(free-1)
		b := a + 1
		if r == 3 {
			b = head + q.random.IntN(free)
		}
		p.order[a], p.order[b] = p.order[b], p.order[a]
	case r < 9:
		return q.reallot(p, movable[q.random.IntN(len(movable))])
	default:
		a := q.reallot(p, movable[q.random.IntN(len(movable))])
		return q.reallot(p, movable[q.random.IntN(len(movable))]) || a
	}
	return true
}

// reallot gives a job another allotment: what it picks at some price when its turn comes, any of its menu, or one
// device more, less or of another kind.
func (q *queueSearch) reallot(p *queuePlan, i int) bool {
	switch menu := q.menus[i]; q.random.IntN(8) {
	case 0, 1:
		p.loose = i
		return true
	case 2, 3, 4:
		p.allot[i] = menu[q.random.IntN(len(menu))]
		return true
	}
	counts := slices.Clone(p.allot[i].counts)
	switch up, down := q.random.IntN(len(counts)), q.random.IntN(len(counts)); q.random.IntN(3) {
	case 0:
		counts[up]++
	case 1:
		counts[down]--
	default:
		counts[up]++
		counts[down]--
	}
	j := &q.in.jobs[i]
	if !q.allowed(j, counts) {
		return false
	}
	p.allot[i] = j.allotment(counts)
	return true
}
