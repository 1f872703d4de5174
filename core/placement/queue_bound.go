package placement

import (
	"cmp"
	"math"
	"slices"
)

// The bound of the queue model. Let a device of kind k cost λ_k·π(t) a second at time t, with λ >= 0 and π >= 0 convex
// and falling. At any time the jobs that run hold devices worth at most Λ = Σ cap_k·λ_k, so in every schedule
//
//	Σ_j λ·n_j ∫_{s_j}^{s_j+r_j} π  <=  Λ ∫ π,
//
// where job j starts at s_j on counts n_j and runs r_j; with C_j = s_j + r_j and the area A_j = r_j·λ·n_j therefore
//
//	Σ w_j·C_j  >=  Σ_j min over n_j, s_j of ( w_j·C_j + A_j/r_j ∫_{s_j}^{s_j+r_j} π )  -  Λ ∫ π.
//
// Where a job has too many allotments to try, less area and less run than any of them will do: at a given middle of the
// run, the bracket falls with both, since the mean of a convex π about a point is larger the farther it reaches.
//
// For given areas the best π is the dual solution of one machine that works off Λ a second in Smith's order (weight
// over area falling): π(t) = Σ of the weights not yet done / Λ, linear while one job is worked off. As π is convex,
// the mean in the bracket is at least π at the middle of the run, and the right-hand side at least Σ w_j·C_j of that
// machine less half of each job's time on it plus half of its run: the squashed area bound with the correction of
// Eastman, Even and Isaacs (Management Science 11(2), 1964). The minimum over n_j stays inside, so a job may trade
// area for time at the prices. We improve λ by what is in demand, π by the areas that the jobs then choose.
//
// The same prices say who should run where: the first plan is made with them.

// Rounding in the bound's sums, as a share of their terms: far above what it can be for thousands of jobs, far below
// what matters.
const boundRounding = 1e-11

const (
	boundShare    = 4      // of the work goes into the bound at most
	boundRounds   = 200    // at most
	boundPatience = 20     // rounds without a better bound
	boundOptions  = 50_000 // that a round looks at, or few more: of many, the last evaluation alone looks at all
)

// bound finds good prices and returns a lower bound of Σ weight·completion.
func (q *queueSearch) bound() float64 {
	least := 0.0
	for i := range q.in.jobs {
		q.options[i] = q.offer(i)
		fastest := math.Inf(1)
		for _, o := range q.options[i] {
			fastest = min(fastest, o.run)
		}
		q.least[i] = float64(q.weight[i] * fastest)
		least += q.least[i]
	}
	d := newDual(q)
	best := d.search()
	if d.stride > 1 {
		d.stride = 1
		best = d.value(&q.prices)
	}
	return max(0, best, least-float64(boundRounding*least))
}

// search leaves the best prices found in the queue search.
func (d *dual) search() (best float64) {
	until := d.work.left - d.work.left/boundShare
	for round, stale := 0, 0; round < boundRounds && stale < boundPatience; round++ {
		d.build()
		value := d.value(&d.prices)
		if stale++; value > best+float64(1e-6*best) {
			stale = 0
		}
		if value > best || round == 0 {
			best, d.queueSearch.prices = value, d.prices.clone()
		}
		if !d.work.spend(d.cost()) || d.work.left < until {
			break
		}
		d.move(round)
	}
	return d.scaled(&d.queueSearch.prices, best)
}

// dual is the search for prices.
type dual struct {
	*queueSearch
	prices prices
	area   []float64 // by job, at λ: mean of what they chose lately
	chosen []float64 // by job: the area that they chose last
	usage  []float64 // by kind: device seconds chosen, at π
	last   []int     // by job: the option that they chose last
	smith  []int     // free jobs in Smith's order
	stride int       // from one option looked at to the next
}

func newDual(q *queueSearch) *dual {
	n := len(q.in.jobs)
	d := &dual{queueSearch: q, area: make([]float64, n), chosen: make([]float64, n), last: make([]int, n)}
	all := 0
	for _, options := range q.options {
		all += len(options)
	}
	d.stride = 1 + all/boundOptions
	d.usage = make([]float64, len(q.in.kinds))
	d.prices.lambda = make([]float64, len(q.in.kinds))
	for k, kd := range q.in.kinds { // first: what a device speeds up the jobs, on average
		for i := range q.in.jobs {
			j := &q.in.jobs[i]
			if kd.cap > 0 && j.rate[k] > 0 {
				d.prices.lambda[k] += j.rate[k] / slices.Max(j.rate)
			}
		}
	}
	for i := range q.in.jobs {
		if !q.in.jobs[i].stays() {
			d.smith = append(d.smith, i)
		}
		d.area[i] = math.Inf(1)
		for _, o := range q.options[i] {
			d.area[i] = min(d.area[i], d.areaOf(i, &o))
		}
	}
	return d
}

// areaOf is what an option's devices are worth, at λ, over its run.
func (d *dual) areaOf(i int, o *option) float64 {
	if o.counts == nil {
		_, rate := d.cheapest(&d.prices, i)
		return o.area * rate
	}
	return o.run * d.prices.worth(o.counts)
}

// cheapest is the kind on which a sample of the job is cheapest, and what it costs there.
func (d *dual) cheapest(p *prices, i int) (best int, cost float64) {
	cost = math.Inf(1)
	for k, rate := range d.in.jobs[i].rate {
		if rate > 0 && d.in.kinds[k].cap > 0 && p.lambda[k]/rate < cost {
			best, cost = k, p.lambda[k]/rate
		}
	}
	return best, cost
}

// cost is the work of one round.
func (d *dual) cost() int {
	n := 0
	for i := range d.options {
		n += len(d.options[i])/d.stride*(len(d.in.kinds)+16) + 400
	}
	return n
}

// build makes π of the areas: one machine in Smith's order, with what fixed jobs leave of it.
func (d *dual) build() {
	p := &d.prices
	density := func(i int) float64 { return d.weight[i] / d.area[i] }
	slices.SortStableFunc(d.smith, func(a, b int) int { return cmp.Compare(density(b), density(a)) })
	ends, rates := d.machine()
	p.time, p.density = append(p.time[:0], 0), p.density[:0]
	t, piece := 0.0, 0
	for _, i := range d.smith {
		left := d.area[i]
		for piece+1 < len(ends) && left > (ends[piece]-t)*rates[piece] {
			left -= float64((ends[piece] - t) * rates[piece])
			t = ends[piece]
			piece++
		}
		t += left / rates[piece]
		if t > p.time[len(p.time)-1] && !math.IsInf(t, 1) && !math.IsInf(density(i), 1) {
			p.time = append(p.time, t)
			p.density = append(p.density, density(i))
		}
	}
	p.settle()
}

// machine is what fixed jobs leave of all devices at λ: rates[i] until ends[i].
func (d *dual) machine() (ends, rates []float64) {
	all := d.prices.supply(d.in.kinds)
	var fixed []int
	for i := range d.in.jobs {
		if d.in.jobs[i].stays() {
			fixed = append(fixed, i)
			all -= d.prices.worth(d.menus[i][0].counts)
		}
	}
	least := d.prices.supply(d.in.kinds) * 1e-9
	slices.SortStableFunc(fixed, func(a, b int) int { return cmp.Compare(d.menus[a][0].now, d.menus[b][0].now) })
	for _, i := range fixed {
		a := &d.menus[i][0]
		ends, rates = append(ends, a.now), append(rates, max(least, all))
		all += d.prices.worth(a.counts)
	}
	return append(ends, math.Inf(1)), append(rates, max(least, all))
}

// value is the bound at prices, rounding taken off, or -Inf where it is not finite. It leaves in chosen and usage what
// the jobs choose.
func (d *dual) value(p *prices) float64 {
	clear(d.usage)
	sum := 0.0
	for i := range d.in.jobs {
		sum += d.choose(p, i)
	}
	paid := float64(p.supply(d.in.kinds) * p.total[len(p.total)-1])
	bound := sum - paid - float64(boundRounding*(sum+paid))
	if math.IsNaN(bound) || math.IsInf(bound, 0) {
		return math.Inf(-1)
	}
	return bound
}

// choose is the least cost of one job at the prices.
func (d *dual) choose(p *prices, i int) float64 {
	w := d.weight[i]
	if d.in.jobs[i].stays() {
		a := &d.menus[i][0]
		paid := p.until(a.now)
		d.use(a.counts, paid)
		return float64(w*a.now) + float64(p.worth(a.counts)*paid)
	}
	cheapest, rate := d.cheapest(p, i)
	least, choice, area, price := math.Inf(1), -1, 0.0, 0.0
	try := func(n int) {
		o := &d.options[i][n]
		size := o.area * rate
		if o.counts != nil {
			size = o.run * p.worth(o.counts)
		}
		m := max(p.best(w/size), o.run/2)
		if float64(w*(m+o.run/2))+float64(size*p.at(m)) >= least { // Jensen's is quicker, and less
			return
		}
		if start, cost := p.hold(w, size, o.run); cost < least {
			least, choice, area, price = cost, n, size, p.mean(start, o.run)
		}
	}
	try(d.last[i])
	for n := 0; n < len(d.options[i]); n += d.stride {
		try(n)
	}
	if choice < 0 {
		return least
	}
	d.last[i], d.chosen[i] = choice, area
	if o := &d.options[i][choice]; o.counts != nil {
		d.use(o.counts, o.run*price)
	} else {
		d.usage[cheapest] += float64(o.area / d.in.jobs[i].rate[cheapest] * price)
	}
	return least
}

func (d *dual) use(counts []int, seconds float64) {
	for k, c := range counts {
		d.usage[k] += float64(float64(c) * seconds)
	}
}

// move changes λ by demand over capacity and the areas towards those chosen, in steps that shorten.
func (d *dual) move(round int) {
	p := &d.prices
	step, supply := 1/(1+float64(round)/8), p.supply(d.in.kinds)
	seconds := p.total[len(p.total)-1]
	for k, kd := range d.in.kinds {
		if kd.cap == 0 || !(seconds > 0) || !(p.lambda[k] > 0) {
			continue
		}
		demand := d.usage[k] / (float64(kd.cap) * seconds)
		p.lambda[k] *= 1 + float64(step*(min(max(demand, 0.5), 2)-1)/2)
	}
	scale := supply / p.supply(d.in.kinds) // only λ·π matters: the areas lag behind, so keep λ's scale
	for k := range p.lambda {
		p.lambda[k] *= scale
	}
	for i := range d.area {
		d.area[i] *= 1 + float64(step*(min(max(d.chosen[i]/d.area[i], 0.5), 2)-1)/2)
	}
}

// scaled looks for a better bound than best, that at p, with π higher or lower at all times: it is concave in that.
func (d *dual) scaled(p *prices, best float64) float64 {
	for _, factor := range []float64{0.7, 1.4, 0.9, 1.1} {
		for range 8 {
			tried := p.clone()
			for i := range tried.density {
				tried.density[i] *= factor
			}
			tried.settle()
			value := d.value(&tried)
			if !(value > best) {
				break
			}
			best, *p = value, tried
			if !d.work.spend(d.cost()) {
				return best
			}
		}
	}
	return best
}
