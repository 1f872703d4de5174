package placement

import (
	"cmp"
	"math"
	"slices"
)

// firstPlan is the best of several made at the prices, each with another share of what devices cost.
func (q *queueSearch) firstPlan() *queuePlan {
	for i := range q.menus {
		if !q.complete[i] {
			q.menus[i] = q.ladder(&q.in.jobs[i])
		}
	}
	q.shortlist()
	order, until := q.smithOrder(), q.work.left/8
	var best *queuePlan
	for _, share := range []float64{1, 0.6, 1.4, 0.3} {
		for _, turns := range []bool{true, false} {
			if best != nil && q.work.left < until {
				return best
			}
			if p := q.greedy(order, share, turns); best == nil || p.cost < best.cost {
				best = p
			}
		}
	}
	return best
}

// smithOrder is the jobs that go first, then the others by weight over area, falling.
func (q *queueSearch) smithOrder() []int {
	others := make([]int, 0, len(q.in.jobs))
	for i := range q.in.jobs {
		if j := &q.in.jobs[i]; !j.stays() && !j.overdue {
			others = append(others, i)
		}
	}
	slices.SortStableFunc(others, func(a, b int) int {
		return cmp.Compare(q.weight[b]/q.turns[b].area, q.weight[a]/q.turns[a].area)
	})
	return append(slices.Clone(q.first), others...)
}

// turn is a job's on one machine: the allotments that are cheapest at the prices, the area of the best one, and π then.
type turn struct {
	menu        []allotment
	area, price float64
}

// How many allotments of a menu a job tries, and at how many times what is free then: less when work runs out.
const (
	longestList  = 24
	shortestList = 8
	piecesFitted = 3
)

// shortlist prices the menus.
func (q *queueSearch) shortlist() {
	q.turns = make([]turn, len(q.menus))
	for i := range q.menus {
		q.turns[i] = q.turn(i)
		q.work.spend(len(q.menus[i]) * (len(q.in.kinds) + 8))
	}
}

// turn prices a job's menu.
func (q *queueSearch) turn(i int) turn {
	type priced struct {
		a                 *allotment
		area, price, cost float64
	}
	list := make([]priced, len(q.menus[i]))
	for n := range list {
		a := &q.menus[i][n]
		area := a.later * q.prices.worth(a.counts)
		middle := max(q.prices.best(q.weight[i]/area), a.later/2)
		price := q.prices.at(middle)
		list[n] = priced{a, area, price, float64(q.weight[i]*(middle+a.later/2)) + float64(area*price)}
	}
	slices.SortStableFunc(list, func(a, b priced) int { return cmp.Compare(a.cost, b.cost) })
	t := turn{area: list[0].area, price: list[0].price}
	// First the best, the best that is at most a quarter as large, and so on, which fit where that does not; then the best
	// on each kind: few tries should not miss them.
	const size, onKind, other = 0, 1, 2
	class := make([]int, len(list))
	seen := make([]bool, len(q.in.kinds))
	for n, l := range list {
		k, _ := l.a.spread()
		if class[n] = onKind; seen[k] {
			class[n] = other
		}
		seen[k] = true
	}
	for n, most := 0, 0; n >= 0; {
		class[n] = size
		_, most = list[n].a.spread()
		n = slices.IndexFunc(list, func(l priced) bool { _, devices := l.a.spread(); return devices <= most/4 })
	}
	for c := size; c <= other; c++ {
		for n, l := range list {
			if class[n] == c && len(t.menu) < longestList {
				t.menu = append(t.menu, *l.a)
			}
		}
	}
	return t
}

// greedy starts the jobs in an order, each on what ends it soonest when its devices cost a share of what they are
// worth to the jobs behind: on one machine, a second that the job takes costs each of them 1/Λ. That is π where the
// job is worked off, but is not over when one machine would be done. Without turns it is π when devices are free, if
// that is more than half of it.
func (q *queueSearch) greedy(order []int, share float64, turns bool) *queuePlan {
	n := len(q.in.jobs)
	p := &queuePlan{order: slices.Clone(order), allot: make([]allotment, n), start: make([]float64, n), loose: -1}
	q.profile.reset(q.in.kinds)
	behind, supply := 0.0, q.prices.supply(q.in.kinds)
	for _, w := range q.weight {
		behind += w
	}
	spare := q.work.left / 2 // a greedy plan may take half the work, each job its part of that
	for n, i := range p.order {
		if q.work.cut {
			q.oneByOne(p, p.order[n:])
			break
		}
		until := q.work.left - max(0, q.work.left-spare)/(len(p.order)-n)
		behind -= q.weight[i]
		price := max(0, behind) / supply
		if !turns {
			price = max(price/2, q.priceNow())
		}
		p.allot[i] = q.pick(i, longestList, until, share*price)
		q.place(p, i)
	}
	return p
}

// oneByOne starts jobs one after another when all those placed have ended, without a look at the profile: what is left to do
// when there is no time to plan.
func (q *queueSearch) oneByOne(p *queuePlan, jobs []int) {
	last := q.profile.blocks[len(q.profile.blocks)-1].times
	at := last[len(last)-1]
	for _, i := range jobs {
		best := &q.turns[i].menu[0]
		for n := range q.turns[i].menu {
			if a := &q.turns[i].menu[n]; a.later < best.later {
				best = a
			}
		}
		p.allot[i], p.start[i] = *best, at
		at += best.seconds(at)
		p.cost += float64(q.weight[i] * at)
	}
}

// priceNow is π when devices are free, on average by their worth.
func (q *queueSearch) priceNow() float64 {
	sum, all := 0.0, 0.0
	for k, kd := range q.in.kinds {
		worth := q.prices.lambda[k] * float64(kd.cap)
		sum += float64(worth * q.profile.open(k))
		all += worth
	}
	return q.prices.at(sum / all)
}

// pick is the allotment on which the job costs least beside those placed, at a price of devices: of so many on its
// short list and of what is free soonest. Once less than `until` is left of the work, it looks at the first few only.
func (q *queueSearch) pick(i, list, until int, price float64) allotment {
	var best allotment
	least := math.Inf(1)
	try := func(a *allotment) bool {
		start, looked := q.profile.earliest(a, 0)
		q.work.spend(2*looked + 2*len(a.counts) + 8)
		run := a.seconds(start)
		cost := float64(q.weight[i]*(start+run)) + float64(price*run*q.prices.worth(a.counts))
		if best.counts == nil || cost < least {
			least, best = cost, *a
			return true
		}
		return false
	}
	tired := func() bool { return q.work.left <= until || q.work.cut }
	for n := range min(list, len(q.turns[i].menu)) {
		if n >= shortestList && tired() {
			break
		}
		try(&q.turns[i].menu[n])
	}
	if j := &q.in.jobs[i]; !j.stays() {
		pieces := piecesFitted
		if tired() {
			pieces = 1
		}
		q.fitting(j, pieces, func(counts []int) {
			a := j.allotment(counts)
			if try(&a) {
				best.counts = slices.Clone(counts)
			}
		})
	}
	return best
}

// fitting calls try with what is free for a job in so many pieces from the first in which something is: of each kind
// alone, and of all together, cheapest first.
func (q *queueSearch) fitting(j *job, pieces int, try func(counts []int)) {
	first := math.Inf(1)
	kinds := make([]int, 0, len(q.in.kinds))
	for k := range q.in.kinds {
		if j.rate[k] > 0 && q.in.kinds[k].cap > 0 {
			first = min(first, q.profile.open(k))
			kinds = append(kinds, k)
		}
	}
	slices.SortStableFunc(kinds, func(a, b int) int {
		return cmp.Compare(q.prices.lambda[a]/j.rate[a], q.prices.lambda[b]/j.rate[b])
	})
	counts := make([]int, len(q.in.kinds))
	q.profile.pieces(first, pieces, func(free []int) {
		clear(counts)
		left, mixed := j.max, 0
		for _, k := range kinds {
			if c := min(left, free[k]); c > 0 {
				counts[k] = c
				left -= c
				mixed++
			}
		}
		if mixed > 1 && !j.single && j.max-left >= j.min {
			try(counts)
		}
		for _, k := range kinds {
			clear(counts)
			if counts[k] = min(j.max, free[k]); counts[k] >= j.min {
				try(counts)
			}
		}
	})
}
