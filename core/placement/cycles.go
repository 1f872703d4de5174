package placement

import (
	"math"
	"slices"
)

// leastImprovement is the share of the costs of the jobs that a change touches that it must save; less is rounding.
const leastImprovement = 1e-12

const (
	mostNodes   = 2000       // of an improver
	mostChanges = 20_000_000 // changes of single jobs that it keeps
	// wideNodes is from how many nodes on only short cycles are looked at: two nodes, or three of which one is no device.
	wideNodes = 48
)

// improver makes an assignment better by cycles. Its nodes are the kinds and "no device". The edge a→b is the job that
// changes one device of a for one of b at the least cost; no device→b is one that gets a device more, a→no device one that
// gives one up. Along a cycle every device given up is another's gain, so it is feasible: add, drop, transfer, swap,
// rotate. The free devices are held by a job of their own, the pool, whom every change costs nothing.
//
// A cycle of negative cost is an improvement; the best of length up to four is applied until there is none.
type improver struct {
	*assignment
	nodes   int           // the kinds, then no device
	edges   []*tournament // by edge, among the jobs that could ever make the change; nil for none
	members [][]int32     // by edge: whose the tournament's values are
	places  [][]int32     // by job: its place in the tournaments of the edges between its usable kinds and no device
	rates   []float64     // by job
	sizes   []int         // by job
	costs   []float64     // by edge, the pool included
	who     []int         // by edge; len(jobs) is the pool
	pairs   []float64     // by edge: the least cost in two steps
	through []int         // by edge: the node between them
	touched []int         // jobs changed since the caller cleared it
}

// newImprover is nil where there are too many kinds and jobs for it.
func newImprover(a *assignment) *improver {
	nodes := len(a.free) + 1
	changes := 0
	for i := range a.in.jobs {
		u := len(a.in.jobs[i].usable) + 1
		changes += u * u
	}
	if nodes > mostNodes || changes > mostChanges {
		return nil
	}
	m := &improver{assignment: a, nodes: nodes, rates: make([]float64, len(a.counts)), sizes: make([]int, len(a.counts))}
	m.costs, m.who = make([]float64, nodes*nodes), make([]int, nodes*nodes)
	m.pairs, m.through = make([]float64, nodes*nodes), make([]int, nodes*nodes)
	m.edges, m.members = make([]*tournament, nodes*nodes), make([][]int32, nodes*nodes)
	values := make([][]float64, nodes*nodes)
	for i := range a.counts {
		m.measure(i)
		var places []int32
		m.between(i, func(_, from, to int) {
			e := from*nodes + to
			places = append(places, int32(len(values[e])))
			values[e] = append(values[e], m.change(i, from, to))
			m.members[e] = append(m.members[e], int32(i))
		})
		m.places = append(m.places, places)
	}
	for e, v := range values {
		if len(v) > 0 {
			m.edges[e] = newTournament(v)
		}
	}
	return m
}

// between lists the edges between a job's usable kinds and no device, numbered.
func (m *improver) between(i int, f func(n, from, to int)) {
	usable, none, n := m.in.jobs[i].usable, m.nodes-1, 0
	for x := 0; x <= len(usable); x++ {
		for y := 0; y <= len(usable); y++ {
			if x == y {
				continue
			}
			from, to := none, none
			if x < len(usable) {
				from = usable[x]
			}
			if y < len(usable) {
				to = usable[y]
			}
			f(n, from, to)
			n++
		}
	}
}

// measure keeps a job's joint rate and size.
func (m *improver) measure(i int) {
	j := &m.in.jobs[i]
	m.rates[i], m.sizes[i] = 0, 0
	for _, k := range j.usable {
		c := m.counts[i][k]
		m.rates[i] += float64(float64(c) * j.rate[k])
		m.sizes[i] += c
	}
}

// change is what it costs a job to change one device of kind from for one of kind to, about.
func (m *improver) change(i, from, to int) float64 {
	j, none := &m.in.jobs[i], m.nodes-1
	counts := m.counts[i]
	if j.fixed || from == to || from != none && counts[from] == 0 || to != none && j.rate[to] == 0 {
		return math.Inf(1)
	}
	if j.single && to != none && !m.alike(counts, from, to) {
		return math.Inf(1)
	}
	rate, n := m.rates[i], m.sizes[i]
	if from != none {
		rate, n = rate-j.rate[from], n-1
	}
	if to != none {
		rate, n = rate+j.rate[to], n+1
	}
	if n < j.min || n > j.max {
		return math.Inf(1)
	}
	if j.current == nil || j.restart == 0 {
		return float64(j.weight*j.run(rate, n)) - m.cost[i]
	}
	m.shift(i, from, to, 1)
	after := j.cost(counts)
	m.shift(i, from, to, -1)
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
	m.measure(i)
	m.touched = append(m.touched, i)
	m.between(i, func(n, from, to int) {
		m.edges[from*m.nodes+to].set(int(m.places[i][n]), m.change(i, from, to))
	})
}

// run improves until there is no better cycle or the work is spent.
func (m *improver) run(w *work) {
	m.fill()
	effort, find := m.nodes*m.nodes*m.nodes, m.bestCycle
	if m.nodes > wideNodes {
		effort, find = 3*m.nodes*m.nodes, m.shortCycle
	}
	m.sweep()
	for w.spend(effort) {
		cycle := find()
		if cycle == nil {
			return
		}
		if m.apply(cycle) {
			m.sweep()
			continue
		}
		// A job is in it twice, and its changes together cost more than each alone. Look for cycles without these edges.
		for s, from := range cycle {
			m.costs[from*m.nodes+cycle[(s+1)%len(cycle)]] = math.Inf(1)
		}
	}
}

// fill gives free devices to whom they help most, one at a time: the cheapest cycles, and most of them at first. It takes
// little and is never cut: a plan that leaves devices idle is none.
func (m *improver) fill() {
	none := m.nodes - 1
	for {
		least, kind := 0.0, -1
		for k, free := range m.free {
			if t := m.edges[none*m.nodes+k]; free > 0 && t != nil && t.value[t.least()] < least {
				least, kind = t.value[t.least()], k
			}
		}
		if kind < 0 {
			return
		}
		e := none*m.nodes + kind
		m.who[e], m.who[kind*m.nodes+none] = int(m.members[e][m.edges[e].least()]), len(m.counts)
		if !m.apply([]int{none, kind}) {
			return
		}
	}
}

// sweep finds the least cost of each edge.
func (m *improver) sweep() {
	none := m.nodes - 1
	for e, t := range m.edges {
		from, to := e/m.nodes, e%m.nodes
		m.costs[e] = math.Inf(1)
		if t != nil {
			m.costs[e], m.who[e] = t.value[t.least()], int(m.members[e][t.least()])
		}
		if from != to && (from == none || m.free[from] > 0) && m.costs[e] > 0 {
			m.costs[e], m.who[e] = 0, len(m.counts)
		}
	}
}

// shortCycle is the cycle of the least cost below 0 among those of two nodes, or of three with no device; nil for none.
func (m *improver) shortCycle() (cycle []int) {
	none, least := m.nodes-1, 0.0
	for a := range m.nodes {
		for b := range m.nodes {
			ab := m.costs[a*m.nodes+b]
			if cost := ab + m.costs[b*m.nodes+a]; cost < least {
				least, cycle = cost, []int{a, b}
			}
			if cost := m.costs[none*m.nodes+a] + ab + m.costs[b*m.nodes+none]; a != none && b != none && cost < least {
				least, cycle = cost, []int{none, a, b}
			}
		}
	}
	return cycle
}

// inTwo finds the least cost from each node to each in two steps.
func (m *improver) inTwo() {
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

// bestCycle is that of the least cost below 0 with at most four nodes; nil for none.
func (m *improver) bestCycle() (cycle []int) {
	m.inTwo()
	least, a, c := 0.0, -1, -1
	for x := range m.nodes {
		for y := range m.nodes {
			if cost, _ := m.back(x, y); cost < least {
				least, a, c = cost, x, y
			}
		}
	}
	if a < 0 {
		return nil
	}
	return m.cycle(a, c)
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
