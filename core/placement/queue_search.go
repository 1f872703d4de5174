package placement

import (
	"math"
	"slices"
)

// queuePlan is a schedule of the queue model: allotments, starts by job, and the order that makes them.
type queuePlan struct {
	order []int
	allot []allotment
	start []float64
	cost  float64 // Σ weight·completion
	loose int
}

func (p *queuePlan) copy(of *queuePlan) {
	p.order = append(p.order[:0], of.order...)
	p.allot = append(p.allot[:0], of.allot...)
	p.start = append(p.start[:0], of.start...)
	p.cost = of.cost
	p.loose = -1
}

func (p *queuePlan) clone() *queuePlan {
	c := new(queuePlan)
	c.copy(p)
	return c
}

// place starts one job as early as it fits.
func (q *queueSearch) place(p *queuePlan, i int) {
	a := &p.allot[i]
	start, looked := q.profile.earliest(a, 0)
	q.work.spend(looked + len(a.counts))
	end := start + a.seconds(start)
	q.profile.occupy(start, end, a.counts)
	p.start[i] = start
	p.cost += float64(q.weight[i] * end)
}

// decode starts all jobs in the plan's order. It gives up and returns false as soon as the cost must exceed the limit.
func (q *queueSearch) decode(p *queuePlan, limit float64) bool {
	q.profile.reset(q.in.kinds)
	p.cost = 0
	rest := 0.0
	for i := range p.allot {
		rest += q.least[i]
	}
	for _, i := range p.order {
		if i == p.loose {
			p.allot[i] = q.pick(i, 8, 2*q.random.Float64()*q.turns[i].price)
		}
		q.place(p, i)
		if rest -= q.least[i]; p.cost+float64(rest*(1-1e-9)) > limit {
			return false
		}
	}
	return p.cost <= limit
}

// firstPlan is the best of several made at the prices, each with another share of what devices cost, at the price when
// the job's turn comes on one machine or when devices are free.
func (q *queueSearch) firstPlan() *queuePlan {
	for i := range q.menus {
		if !q.complete[i] {
			q.menus[i] = q.ladder(&q.in.jobs[i])
		}
	}
	q.shortlist()
	order, until := q.smithOrder(), q.work.left/2
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
		return compareFloats(q.weight[b]/q.turns[b].area, q.weight[a]/q.turns[a].area)
	})
	return append(slices.Clone(q.first), others...)
}

// turn is a job's on one machine: the allotments that are cheapest at the prices, the area of the best one, and π then.
type turn struct {
	menu        []allotment
	area, price float64
}

// longestList is how many allotments of a menu the first plans consider.
const longestList = 24

// shortlist prices the menus.
func (q *queueSearch) shortlist() {
	q.turns = make([]turn, len(q.menus))
	type priced struct {
		a                 *allotment
		area, price, cost float64
	}
	for i, menu := range q.menus {
		list := make([]priced, len(menu))
		for n := range menu {
			a := &menu[n]
			area := a.later * q.prices.worth(a.counts)
			m := max(q.prices.best(q.weight[i]/area), a.later/2)
			price := q.prices.at(m)
			list[n] = priced{a, area, price, float64(q.weight[i]*(m+a.later/2)) + float64(area*price)}
		}
		slices.SortStableFunc(list, func(a, b priced) int { return compareFloats(a.cost, b.cost) })
		t := &q.turns[i]
		t.area, t.price = list[0].area, list[0].price
		for _, l := range list[:min(len(list), longestList)] {
			t.menu = append(t.menu, *l.a)
		}
		q.work.spend(len(menu) * (len(q.in.kinds) + 8))
	}
}

// greedy starts the jobs in an order, each on what ends it soonest when its devices cost a share of the prices.
func (q *queueSearch) greedy(order []int, share float64, turns bool) *queuePlan {
	n := len(q.in.jobs)
	p := &queuePlan{order: slices.Clone(order), allot: make([]allotment, n), start: make([]float64, n)}
	q.profile.reset(q.in.kinds)
	for _, i := range p.order {
		price := q.turns[i].price
		if !turns {
			price = q.priceNow()
		}
		p.allot[i] = q.pick(i, longestList, share*price)
		q.place(p, i)
	}
	return p
}

// priceNow is π when devices are free, on average by their worth.
func (q *queueSearch) priceNow() float64 {
	sum, all := 0.0, 0.0
	for k, kd := range q.in.kinds {
		worth := q.prices.lambda[k] * float64(kd.cap)
		sum += float64(worth * q.profile.times[q.profile.from[k]])
		all += worth
	}
	return q.prices.at(sum / all)
}

// pick is the allotment on which the job costs least beside those placed, at a price of devices: of its short list and of
// what is free soonest.
func (q *queueSearch) pick(i, list int, price float64) allotment {
	var best allotment
	least := math.Inf(1)
	try := func(a *allotment) bool {
		start, looked := q.profile.earliest(a, 0)
		q.work.spend(looked + 2*len(a.counts))
		run := a.seconds(start)
		cost := float64(q.weight[i]*(start+run)) + float64(price*run*q.prices.worth(a.counts))
		if best.counts == nil || cost < least {
			least, best = cost, *a
			return true
		}
		return false
	}
	j := &q.in.jobs[i]
	if !j.stays() {
		q.fitting(j, func(counts []int) {
			a := j.allotment(counts)
			if try(&a) {
				best.counts = slices.Clone(counts)
			}
		})
	}
	for n := range min(list, len(q.turns[i].menu)) {
		if best.counts != nil && (q.work.left <= 0 || q.work.cut) {
			break
		}
		try(&q.turns[i].menu[n])
	}
	return best
}

// piecesFitted is at how many times, from the first at which a device is free, what is free then is tried.
const piecesFitted = 3

// fitting calls try with what is free soonest for a job: of each kind alone, and of all together, cheapest first.
func (q *queueSearch) fitting(j *job, try func(counts []int)) {
	first := len(q.profile.times)
	kinds := make([]int, 0, len(q.in.kinds))
	for k := range q.in.kinds {
		if j.rate[k] > 0 && q.in.kinds[k].cap > 0 {
			first = min(first, q.profile.from[k])
			kinds = append(kinds, k)
		}
	}
	slices.SortStableFunc(kinds, func(a, b int) int {
		return compareFloats(q.prices.lambda[a]/j.rate[a], q.prices.lambda[b]/j.rate[b])
	})
	counts := make([]int, len(q.in.kinds))
	for i := first; i < min(first+piecesFitted, len(q.profile.times)); i++ {
		free := q.profile.free[i*q.profile.kinds:][:len(counts)]
		clear(counts)
		left, mixed := j.max, 0
		for _, k := range kinds {
			c := min(left, free[k])
			if c == 0 {
				continue
			}
			counts[k] = c
			left -= c
			if mixed++; mixed > 1 && j.single {
				counts[k] = 0
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
	}
}

// stepsBeforeExact is how long the annealing looks for a plan for branch and bound to start from.
const stepsBeforeExact = 2000

// anneal changes orders and allotments one at a time, and keeps changes that cost little: less and less, in rounds that
// grow, each from the best plan so far. It ends after so many steps, or with the work if steps is 0.
func (q *queueSearch) anneal(best *queuePlan, steps int) {
	head := len(q.first)
	movable := q.movable()
	if len(movable) == 0 {
		return
	}
	now, next := best.clone(), best.clone()
	heats := []float64{16, 4, 64}
	for n, round, done := 0, 100*len(movable), 0; ; n, round = n+1, round*3/2 {
		now.copy(best)
		heat := best.cost / float64(len(best.order)) / heats[n%len(heats)]
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

// reallot gives a job another allotment: any of its menu, or one device more, less or of another kind.
func (q *queueSearch) reallot(p *queuePlan, i int) bool {
	menu := q.menus[i]
	if q.random.IntN(4) == 0 {
		p.loose = i
		return true
	}
	if q.random.IntN(2) == 0 {
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
