package placement

import (
	"math"
	"slices"
)

const (
	priceRounds = 400 // our choice; the paper's market clears one category at a time
	// priceMemory is the weight of one round's demand in the demand that prices follow. Where kinds are alike, each round
	// all want the cheapest: only the average says who wants what.
	priceMemory = 0.05
	// mostOptions is up to how many vectors of counts a job's demand is found by trying all of them, which makes the bound
	// tighter; beyond, kinds are mixed in fractions.
	mostOptions = 3000
)

// clearingPrices are market-clearing prices, one per kind, of an infinitely divisible market: at them every job demands what
// is best for it and no kind is demanded more than there is, about.
//
// For any prices p >= 0, every assignment costs at least L(p) = Σ min over n of (cost(n) + p·n) - p·cap, since it leaves
// p·(cap - n) >= 0. So L(p) is a lower bound of the static optimum, whatever the prices.
type clearingPrices struct {
	bound float64 // the best L found, of the weighted sum
	// demand is what each job demands at the prices, by kind, on average, in fractions of devices.
	demand [][]float64
}

// clear finds clearing prices: they rise where demand is above the supply and fall where it is below, less and less.
func (in *instance) clear(w *work) *clearingPrices {
	d := newDemand(in, newAssignment(in).free)
	p := &clearingPrices{demand: make([][]float64, len(in.jobs))}
	for i := range p.demand {
		p.demand[i] = make([]float64, len(d.free))
	}
	p.bound = d.at(make([]float64, len(d.free))) // at prices of 0, each job at its fastest
	price, demanded := d.start(), make([]float64, len(d.free))
	for k, free := range d.free {
		demanded[k] = float64(free)
	}
	for round := range priceRounds {
		if !w.spend(d.effort) && round > 0 {
			break
		}
		p.bound = max(p.bound, d.at(price))
		d.remember(p.demand, 1/(1+float64(round)*priceMemory))
		step := 1 / (1 + float64(round)/20)
		for k, free := range d.free {
			demanded[k] += priceMemory * (d.total[k] - demanded[k])
			if free > 0 {
				price[k] *= math.Pow(max(0.25, min(demanded[k]/float64(free), 4)), step)
			}
			price[k] = max(price[k], 1e-300)
		}
	}
	return p
}

// demander finds what every job demands at given prices.
type demander struct {
	in      *instance
	free    []int
	options [][][]int // by job: all that it can have; nil for fractions
	demand  [][]float64
	total   []float64 // of the demand, by kind
	effort  int       // of one round, in units of work
	order   []int     // room for the hull
}

func newDemand(in *instance, free []int) *demander {
	d := &demander{in: in, free: free, demand: make([][]float64, len(in.jobs)), total: make([]float64, len(free))}
	d.options = make([][][]int, len(in.jobs))
	few := 1.0
	for _, f := range free {
		few *= float64(f + 1)
	}
	for i := range in.jobs {
		d.demand[i] = make([]float64, len(free))
		d.effort += 4*len(in.jobs[i].usable) + 1
		if few*float64(len(in.jobs)) <= 20*mostOptions && few <= mostOptions {
			d.options[i] = in.jobs[i].options(in, free)
			d.effort += len(d.options[i]) * len(free)
		}
	}
	return d
}

// options lists all vectors of counts that a job can have of what is free. Its current one counts as such if it is fixed.
func (j *job) options(in *instance, free []int) (all [][]int) {
	counts := make([]int, len(free))
	var fill func(k, n int)
	fill = func(k, n int) {
		if k == len(free) {
			if n >= j.min && (!j.single || in.oneType(counts)) {
				all = append(all, slices.Clone(counts))
			}
			return
		}
		most := 0
		if j.rate[k] > 0 {
			most = min(free[k], j.max-n)
		}
		for c := range most + 1 {
			counts[k] = c
			fill(k+1, n+c)
		}
		counts[k] = 0
	}
	if !j.fixed {
		fill(0, 0)
	}
	return all
}

// oneType says whether all the devices are of one type.
func (in *instance) oneType(counts []int) bool {
	typ := ""
	for k, c := range counts {
		if c > 0 {
			if typ != "" && typ != in.kinds[k].typ {
				return false
			}
			typ = in.kinds[k].typ
		}
	}
	return true
}

// start prices every kind at what one device more is worth, on average, when all is shared equally.
func (d *demander) start() []float64 {
	p := make([]float64, len(d.free))
	share := 1 / float64(max(1, len(d.in.jobs)))
	for i := range d.in.jobs {
		j := &d.in.jobs[i]
		rate := 0.0
		for _, k := range j.usable {
			rate += float64(j.rate[k]*float64(d.free[k])) * share
		}
		for _, k := range j.usable {
			if rate > 0 {
				p[k] += share * j.weight * j.work * j.rate[k] / (rate * rate)
			}
		}
	}
	for k := range p {
		p[k] = max(p[k], 1e-30)
	}
	return p
}

// at finds the demand at the prices and returns L.
func (d *demander) at(p []float64) (bound float64) {
	clear(d.total)
	for i := range d.in.jobs {
		j := &d.in.jobs[i]
		clear(d.demand[i])
		switch {
		case j.fixed:
			bound += j.cost(j.current)
			continue
		case d.options[i] != nil:
			bound += d.try(i, p)
		default:
			bound += d.mix(i, p)
		}
		for k, n := range d.demand[i] {
			d.total[k] += n
		}
	}
	for k, f := range d.free {
		bound -= float64(p[k] * float64(f))
	}
	return bound
}

// remember takes the demand into an average, in which it has the weight share.
func (d *demander) remember(average [][]float64, share float64) {
	for i, demand := range d.demand {
		for _, k := range d.in.jobs[i].usable {
			average[i][k] += share * (demand[k] - average[i][k])
		}
	}
}

// try finds a job's demand among all its options.
func (d *demander) try(i int, p []float64) float64 {
	best, least := 0, math.Inf(1)
	for o, counts := range d.options[i] {
		cost := d.in.jobs[i].cost(counts)
		for k, c := range counts {
			cost += float64(p[k] * float64(c))
		}
		if cost < least {
			best, least = o, cost
		}
	}
	for k, c := range d.options[i][best] {
		d.demand[i][k] = float64(c)
	}
	return least
}

// mix finds a job's demand where kinds may be mixed in fractions. For n devices at a joint rate R, the cheapest mix is n
// times the lower convex hull, at R/n, of the kinds as points of rate and price. On a corner of the hull (one kind) cost and
// price together are a/n + p·n + a constant, least at sqrt(a/p); along an edge of slope s, R = sqrt(weight·work/s) and what is
// left is linear in n but for -1/n: least at an end. So few whole n need a look.
func (d *demander) mix(i int, p []float64) float64 {
	j := &d.in.jobs[i]
	m := mixing{job: j, p: p, least: math.Inf(1), order: d.order[:0]}
	if j.single {
		for _, k := range j.usable {
			if d.free[k] > 0 {
				m.corner(k)
			}
		}
	} else {
		m.alongHull(d.free)
	}
	d.order = m.order
	if j.current != nil {
		m.least += j.weight * j.restart
		stay := j.cost(j.current)
		for k, c := range j.current {
			stay += float64(p[k] * float64(c))
		}
		if stay < m.least {
			for k, c := range j.current {
				d.demand[i][k] = float64(c)
			}
			return stay
		}
	}
	if math.IsInf(m.least, 1) {
		return m.least
	}
	d.demand[i][m.a] = m.ofA
	d.demand[i][m.b] += m.n - m.ofA
	return m.least
}

// mixing is the best mix found: n devices, ofA of them of kind a and the rest of kind b.
type mixing struct {
	job    *job
	p      []float64
	least  float64
	a, b   int
	n, ofA float64
	order  []int
}

// offer takes n devices with a share of kind a and the rest of kind b if they cost less than what is known.
func (m *mixing) offer(n int, a, b int, shareOfA float64) {
	if n < m.job.min || n > m.job.max {
		return
	}
	each := float64(shareOfA*m.job.rate[a]) + float64((1-shareOfA)*m.job.rate[b])
	price := float64(shareOfA*m.p[a]) + float64((1-shareOfA)*m.p[b])
	cost := float64(m.job.weight*m.job.run(float64(n)*each, n)) + float64(n)*price
	if cost < m.least {
		m.least, m.a, m.b, m.n, m.ofA = cost, a, b, float64(n), shareOfA*float64(n)
	}
}

// corner offers whole numbers of one kind.
func (m *mixing) corner(k int) {
	j := m.job
	switch falls := j.work/j.rate[k] - j.communicate; {
	case falls <= 0:
		m.offer(j.min, k, k, 1)
	case m.p[k] <= 0:
		m.offer(j.max, k, k, 1)
	default:
		n := j.clip(math.Sqrt(j.weight * falls / m.p[k]))
		m.offer(n, k, k, 1)
		m.offer(n+1, k, k, 1)
	}
}

// clip rounds x down to a number of workers that the job may have.
func (j *job) clip(x float64) int {
	return int(max(float64(j.min), min(x, float64(j.max))))
}

// edge offers mixes of two neighbours on the hull, b being the faster.
func (m *mixing) edge(a, b int) {
	j := m.job
	slope := (m.p[b] - m.p[a]) / (j.rate[b] - j.rate[a])
	rate := math.Sqrt(j.weight * j.work / slope)
	for _, n := range [2]int{j.clip(math.Ceil(rate / j.rate[b])), j.clip(rate / j.rate[a])} {
		// of n devices, x of kind a: x·rate[a] + (n-x)·rate[b] = rate
		share := (float64(n)*j.rate[b] - rate) / (float64(n) * (j.rate[b] - j.rate[a]))
		m.offer(n, a, b, max(0, min(share, 1)))
	}
}

// alongHull offers the corners and edges of the lower convex hull from the cheapest kind, per device, to the fastest.
func (m *mixing) alongHull(free []int) {
	j := m.job
	for _, k := range j.usable {
		if free[k] > 0 {
			m.order = append(m.order, k)
		}
	}
	slices.SortFunc(m.order, func(x, y int) int {
		switch {
		case j.rate[x] != j.rate[y]:
			return sign(j.rate[x] - j.rate[y])
		case m.p[x] != m.p[y]:
			return sign(m.p[x] - m.p[y])
		}
		return x - y
	})
	hull := m.order[:0]
	for _, k := range m.order {
		if len(hull) > 0 && j.rate[hull[len(hull)-1]] == j.rate[k] {
			continue // as fast and no cheaper
		}
		for len(hull) > 0 && m.p[hull[len(hull)-1]] >= m.p[k] {
			hull = hull[:len(hull)-1] // slower and no cheaper
		}
		for len(hull) > 1 && m.above(hull[len(hull)-2], hull[len(hull)-1], k) {
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, k)
	}
	for h, k := range hull {
		m.corner(k)
		if h > 0 {
			m.edge(hull[h-1], k)
		}
	}
}

// above says whether b lies on or above the line from a to c.
func (m *mixing) above(a, b, c int) bool {
	r := m.job.rate
	return float64((m.p[b]-m.p[a])*(r[c]-r[a])) >= float64((m.p[c]-m.p[a])*(r[b]-r[a]))
}

func sign(x float64) int {
	if x < 0 {
		return -1
	}
	return 1
}
