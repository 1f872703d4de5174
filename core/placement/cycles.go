package placement

import (
	"cmp"
	"math"
	"slices"
)

// leastImprovement is the share of the costs of the jobs that a change touches that it must save; less is rounding.
const leastImprovement = 1e-12

// mostEdges bounds the room that an improver takes: values of edges times jobs.
const mostEdges = 40_000_000

// improver makes an assignment better by cycles. Its nodes are the kinds and "no device". The edge a→b is the job that
// changes one device of a for one of b at the least cost; no device→b is one that gets a device more, a→no device one that
// gives one up. Along a cycle every device given up is another's gain, so it is feasible: add, drop, transfer, swap,
// rotate. The free devices are held by a job of their own, the pool, whom every change costs nothing.
//
// A cycle of negative cost is an improvement; the best of length up to four is applied until there is none.
type improver struct {
	*assignment
	nodes   int           // the kinds, then no device
	best    []*tournament // by edge: what the change costs every job
	costs   []float64     // by edge, the pool included
	who     []int         // by edge; len(jobs) is the pool
	pairs   []float64     // by edge: the least cost in two steps
	through []int         // by edge: the node between them
	touched []int         // jobs changed since the caller cleared it
}

// newImprover is nil where there are too many kinds and jobs for it.
func newImprover(a *assignment) *improver {
	nodes := len(a.free) + 1
	if len(a.counts) == 0 || nodes*nodes > mostEdges/(len(a.counts)+1) {
		return nil
	}
	m := &improver{assignment: a, nodes: nodes}
	m.best = make([]*tournament, nodes*nodes)
	m.costs, m.pairs = make([]float64, nodes*nodes), make([]float64, nodes*nodes)
	m.who, m.through = make([]int, nodes*nodes), make([]int, nodes*nodes)
	for e := range m.best {
		value := make([]float64, len(a.counts))
		for i := range value {
			value[i] = m.change(i, e/nodes, e%nodes)
		}
		m.best[e] = newTournament(value)
	}
	return m
}

// change is what it costs a job to change one device of kind from for one of kind to.
func (m *improver) change(i, from, to int) float64 {
	j, none := &m.in.jobs[i], m.nodes-1
	counts := m.counts[i]
	if j.fixed || from == to || from != none && counts[from] == 0 || to != none && j.rate[to] == 0 {
		return math.Inf(1)
	}
	if j.single && to != none && !m.alike(counts, from, to) {
		return math.Inf(1)
	}
	if from != none {
		counts[from]--
	}
	if to != none {
		counts[to]++
	}
	after := j.cost(counts)
	if from != none {
		counts[from]++
	}
	if to != none {
		counts[to]--
	}
	return after - m.cost[i]
}

// alike says whether all devices are of one type once one of from is one of to.
func (m *improver) alike(counts []int, from, to int) bool {
	for k, c := range counts {
		if k == from {
			c--
		}
		if c > 0 && m.in.kinds[k].typ != m.in.kinds[to].typ {
			return false
		}
	}
	return true
}

// update brings the edges up to date once a job has other devices.
func (m *improver) update(i int) {
	m.reckon(i)
	m.touched = append(m.touched, i)
	for e, t := range m.best {
		t.set(i, m.change(i, e/m.nodes, e%m.nodes))
	}
}

// run improves until there is no better cycle or the work is spent.
func (m *improver) run(w *work) {
	for w.spend(m.nodes * m.nodes * m.nodes) {
		m.sweep()
		from, by, ok := m.bestCycle()
		if !ok || !m.apply(m.cycle(from, by)) && !m.applyAny() {
			return
		}
	}
}

// sweep finds the least costs of one step and of two.
func (m *improver) sweep() {
	none := m.nodes - 1
	for e, t := range m.best {
		from := e / m.nodes
		m.who[e] = t.least()
		m.costs[e] = t.value[m.who[e]]
		if from != e%m.nodes && (from == none || m.free[from] > 0) && m.costs[e] > 0 {
			m.costs[e], m.who[e] = 0, len(m.counts)
		}
	}
	for a := range m.nodes {
		for b := range m.nodes {
			least, through := math.Inf(1), 0
			for c := range m.nodes {
				if d := m.costs[a*m.nodes+c] + m.costs[c*m.nodes+b]; d < least {
					least, through = d, c
				}
			}
			m.pairs[a*m.nodes+b], m.through[a*m.nodes+b] = least, through
		}
	}
}

// cost of the cycles through a and c: two steps there; one step back, or two.
func (m *improver) back(a, c int) (cost float64, steps int) {
	there := m.pairs[a*m.nodes+c]
	if a == c {
		return there, 0
	}
	if one, two := m.costs[c*m.nodes+a], m.pairs[c*m.nodes+a]; one <= two {
		return there + one, 1
	}
	return there + m.pairs[c*m.nodes+a], 2
}

// bestCycle is that of the least cost, if any is below 0: through a and c.
func (m *improver) bestCycle() (a, c int, ok bool) {
	least := 0.0
	for x := range m.nodes {
		for y := range m.nodes {
			if cost, _ := m.back(x, y); cost < least {
				least, a, c, ok = cost, x, y, true
			}
		}
	}
	return a, c, ok
}

// cycle lists the nodes of the best cycle through a and c; the last leads to the first.
func (m *improver) cycle(a, c int) []int {
	nodes := []int{a, m.through[a*m.nodes+c]}
	switch _, steps := m.back(a, c); steps {
	case 1:
		nodes = append(nodes, c)
	case 2:
		nodes = append(nodes, c, m.through[c*m.nodes+a])
	}
	return nodes
}

// applyAny tries all cycles of negative cost, the best first: that of the best may be wrong, where a job is in it twice.
func (m *improver) applyAny() bool {
	type pair struct {
		a, c int
		cost float64
	}
	var all []pair
	for a := range m.nodes {
		for c := range m.nodes {
			if cost, _ := m.back(a, c); cost < 0 {
				all = append(all, pair{a, c, cost})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y pair) int { return cmp.Compare(x.cost, y.cost) })
	for _, p := range all {
		if m.apply(m.cycle(p.a, p.c)) {
			return true
		}
	}
	return false
}

// apply changes the assignment along a cycle if that really saves.
func (m *improver) apply(cycle []int) bool {
	var jobs []int
	before := 0.0
	for s, from := range cycle {
		to := cycle[(s+1)%len(cycle)]
		i := m.who[from*m.nodes+to]
		m.shift(i, from, to, 1)
		if i < len(m.counts) && !slices.Contains(jobs, i) {
			jobs = append(jobs, i)
			before += m.cost[i]
		}
	}
	after := 0.0
	for _, i := range jobs {
		after += m.costIfValid(i)
	}
	if !(after < before-leastImprovement*before) || slices.Min(m.free) < 0 {
		for s, from := range cycle {
			to := cycle[(s+1)%len(cycle)]
			m.shift(m.who[from*m.nodes+to], from, to, -1)
		}
		return false
	}
	for _, i := range jobs {
		m.update(i)
	}
	return true
}

// shift changes one device of from for one of to, or back for -1.
func (m *improver) shift(i, from, to, sign int) {
	counts := m.free
	if i < len(m.counts) {
		counts = m.counts[i]
	}
	if from < len(m.free) {
		counts[from] -= sign
	}
	if to < len(m.free) {
		counts[to] += sign
	}
}

// costIfValid is infinite for what a job cannot have.
func (m *improver) costIfValid(i int) float64 {
	if slices.Min(m.counts[i]) < 0 {
		return math.Inf(1)
	}
	return m.in.costIfAlike(i, m.counts[i])
}
