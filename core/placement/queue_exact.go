package placement

import (
	"cmp"
	"math"
	"slices"
)

// Branch and bound over schedules by start time: each next job starts no earlier than the last one did, as early as
// its allotment fits; overdue jobs alone come before in their own order. Every node has two bounds of what it can lead
// to. One ends each open job as soon as it could alone, beside those placed. The other is that of queue_bound.go at
// its best prices, with the jobs placed at their true cost and the open ones no earlier than they fit.

// Branch and bound is tried for few jobs of which all allotments are known, within a share of the work.
const (
	mostExactJobs = 8
	exactShare    = 3
)

func (q *queueSearch) countable() bool {
	return len(q.in.jobs)-len(q.first) <= mostExactJobs && !slices.Contains(q.complete, false)
}

// exact improves a plan to the optimum. It returns false when the work did not suffice to prove it one.
func (q *queueSearch) exact(best *queuePlan) bool {
	b := newBranches(q, best)
	b.grow(0, 0, 0)
	return !b.cut
}

// relaxedOptimum is a bound by branch and bound of every schedule without ageing and without the restart of who waits
// and then runs on the same counts; best is an optimal plan with them.
func (q *queueSearch) relaxedOptimum(best *queuePlan) float64 {
	relaxed := false
	fixed := q.first[:0:0]
	for _, i := range q.first {
		if q.in.jobs[i].stays() {
			fixed = append(fixed, i)
		}
	}
	relaxed = len(fixed) < len(q.first)
	menus := make([][]allotment, len(q.menus))
	for i, menu := range q.menus {
		menus[i] = slices.Clone(menu)
		for n := range menus[i] {
			a := &menus[i][n]
			relaxed = relaxed || a.later > a.now
			a.later = a.now
		}
	}
	optimum := best.clone()
	if relaxed {
		r := *q
		r.menus, r.first = menus, fixed
		if !r.exact(optimum) {
			return 0
		}
	}
	return optimum.cost - float64(boundRounding*optimum.cost)
}

// branches is the state of branch and bound.
type branches struct {
	*queueSearch
	best     *queuePlan
	plan     *queuePlan
	open     []bool
	worth    [][]float64 // by job and allotment: λ·counts
	held     [][]held    // by job and allotment: where it costs least at the prices
	paid     float64     // Λ∫π
	profiles []profile   // by depth
	moves    [][]branch  // by depth
	until    int         // work left at which to give up
	cut      bool
}

type held struct{ start, cost float64 }

// branch is one job placed next.
type branch struct {
	job, allotment int
	start, end     float64
	cost, priced   float64 // weight·end, without and with what the devices cost at the prices
	excess         float64 // over the job's least priced cost here
}

func newBranches(q *queueSearch, best *queuePlan) *branches {
	n := len(q.in.jobs)
	b := &branches{
		queueSearch: q, best: best, plan: best.clone(), open: make([]bool, n), worth: make([][]float64, n),
		held: make([][]held, n), profiles: make([]profile, n+1), moves: make([][]branch, n+1),
		until: q.work.left - q.work.left/exactShare,
	}
	b.plan.order = b.plan.order[:0]
	for i, menu := range q.menus {
		b.open[i] = true
		for _, a := range menu {
			worth := q.prices.worth(a.counts)
			b.worth[i] = append(b.worth[i], worth)
			start, cost := q.prices.hold(q.weight[i], worth*a.now, a.now)
			b.held[i] = append(b.held[i], held{start, cost})
		}
	}
	b.paid = float64(q.prices.supply(q.in.kinds) * q.prices.total[len(q.prices.total)-1])
	b.profiles[0].reset(q.in.kinds)
	return b
}

// grow tries everything below a node: depth jobs are placed, at a cost without and with prices.
func (b *branches) grow(depth int, cost, priced float64) {
	if depth == len(b.open) {
		if cost < b.best.cost {
			b.best.copy(b.plan)
			b.best.cost = cost
		}
		return
	}
	moves, alone, dual := b.look(depth)
	if b.cut || b.hopeless(cost+alone) || b.hopeless(priced+dual-b.paid) {
		return
	}
	slices.SortStableFunc(moves, func(x, y branch) int { return cmp.Compare(x.excess, y.excess) })
	for n := range moves {
		m := &moves[n]
		// What is open else costs at least what it did here.
		if b.hopeless(priced + dual - b.paid + m.excess) {
			break
		}
		a := &b.menus[m.job][m.allotment]
		below := &b.profiles[depth+1]
		below.copy(&b.profiles[depth])
		below.occupy(m.start, m.end, a.counts)
		b.open[m.job] = false
		b.plan.order = append(b.plan.order, m.job)
		b.plan.allot[m.job], b.plan.start[m.job] = *a, m.start
		b.grow(depth+1, cost+m.cost, priced+m.priced)
		b.plan.order = b.plan.order[:depth]
		b.open[m.job] = true
		if b.cut {
			return
		}
	}
}

// hopeless says that a bound leaves nothing to gain but rounding.
func (b *branches) hopeless(bound float64) bool {
	return bound >= b.best.cost-float64(1e-13*b.best.cost)
}

// look lists the next jobs' branches, and bounds what all open jobs cost: each alone, and each at the prices.
func (b *branches) look(depth int) (moves []branch, alone, dual float64) {
	moves = b.moves[depth][:0]
	only, after, last := b.next(depth)
	for i := range b.open {
		if !b.open[i] {
			continue
		}
		w := b.weight[i]
		soonest, cheapest, from := math.Inf(1), math.Inf(1), len(moves)
		for n := range b.menus[i] {
			a := &b.menus[i][n]
			start, looked := b.profiles[depth].earliest(a, after)
			if !b.work.spend(looked+len(a.counts)) || b.work.left < b.until {
				b.cut = true
				return nil, 0, 0
			}
			m := branch{job: i, allotment: n, start: start, end: start + a.seconds(start)}
			m.cost = float64(w * m.end)
			m.priced = m.cost + float64(b.worth[i][n]*(b.prices.until(m.end)-b.prices.until(start)))
			soonest = min(soonest, m.cost)
			least := b.held[i][n].cost
			if start > b.held[i][n].start {
				least = float64(w*(start+a.now)) + float64(b.worth[i][n]*a.now*b.prices.mean(start, a.now))
			}
			cheapest = min(cheapest, least)
			if (only < 0 || only == i) && (start > after || i > last) {
				moves = append(moves, m)
			}
		}
		for n := from; n < len(moves); n++ {
			moves[n].excess = moves[n].priced - cheapest
		}
		alone += soonest
		dual += cheapest
	}
	b.moves[depth] = moves
	return moves, alone, dual
}

// next is the only job that may come next, or -1, the time that it may start after, and the last job that started then.
func (b *branches) next(depth int) (only int, after float64, last int) {
	if depth < len(b.first) {
		return b.first[depth], 0, -1
	}
	if depth == len(b.first) {
		return -1, 0, -1
	}
	last = b.plan.order[depth-1]
	return -1, b.plan.start[last], last
}
