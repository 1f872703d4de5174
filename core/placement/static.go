package placement

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Our choices, not the paper's.
const (
	categories  = 10 // sampled at the clearing prices
	linearised  = 4  // times that valuations are linearised anew
	kicks       = 40 // at least, and as many as there are jobs; those that gain do not count
	mostKicks   = 400
	closeEnough = 1e-6  // a gap below which the search ends
	shave       = 1e-12 // of a computed bound, for rounding
	pairsPerJob = 12    // of jobs, whose devices are split anew
)

// static searches the best assignment from one that fits, and returns it with a lower bound of the weighted sum.
//
// It is exact where that is quick.
func (in *instance) static(fit *assignment, w *work, seed uint64) (best *assignment, bound float64) {
	if in.exactWork() <= min(quickExact, float64(w.left/2)) {
		if a := in.exact(w); a != nil {
			return a, a.total()
		}
	}
	return in.approximate(fit, w, seed)
}

// approximate is static without the exact programme: clearing prices give the bound and say where to sample categories; the
// market, on valuations linearised at each job's present rate, settles each; cycles and splits improve it, as they do a
// greedy start and one in which who runs stays; random changes follow, kept where they lead to better.
func (in *instance) approximate(fit *assignment, w *work, seed uint64) (best *assignment, bound float64) {
	p := in.clear(w)
	bound = p.bound - shave*math.Abs(p.bound)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &search{in: in, w: w, rng: rng, bound: bound}
	s.offer(fit.clone())
	if slices.ContainsFunc(in.jobs, func(j job) bool { return j.current != nil }) {
		if stay := in.fit(true); stay != nil {
			s.offer(stay)
		}
	}
	for range s.samples() {
		if s.done() {
			break
		}
		if a := in.settle(in.atPrices(p, rng), p, w); a != nil {
			s.offer(a)
		}
	}
	s.kick()
	return s.best, bound
}

// search keeps the best assignment found.
type search struct {
	in    *instance
	w     *work
	rng   *rand.Rand
	bound float64
	best  *assignment
	total float64
}

// done says whether more search is of no use, or not allowed.
func (s *search) done() bool {
	return !s.w.spend(1) || s.total-s.bound <= closeEnough*s.bound
}

// samples is how many categories to try: fewer where each costs much.
func (s *search) samples() int {
	devices := 0
	for _, kd := range s.in.kinds {
		devices += kd.cap
	}
	return max(1, min(categories, 20_000/(devices+1)))
}

// offer improves an assignment and keeps it if it is the best.
func (s *search) offer(a *assignment) {
	if m := newImprover(a); m != nil {
		m.run(s.w)
		s.split(m, s.pairs())
	}
	if total := a.total(); s.best == nil || total < s.total {
		s.best, s.total = a, total
	}
}

// pairs is how many pairs of jobs to split anew: all where they are few.
func (s *search) pairs() int {
	jobs := len(s.in.jobs)
	return min(jobs*(jobs+1)/2, pairsPerJob*jobs)
}

// split divides the devices of pairs of jobs anew, and of jobs and the pool, and improves by cycles where that gained.
func (s *search) split(m *improver, pairs int) {
	jobs := len(s.in.jobs)
	if pairs == jobs*(jobs+1)/2 {
		for gained := true; gained; {
			gained = false
			for x := range jobs {
				for y := x + 1; y <= jobs; y++ {
					gained = m.resplit(x, y, s.w) || gained
				}
			}
			if gained {
				m.run(s.w)
			}
		}
		return
	}
	for range pairs {
		x, y := s.rng.IntN(jobs), s.rng.IntN(jobs+1)
		if x != y {
			m.resplit(x, y, s.w)
		}
	}
	m.run(s.w)
}

// kick changes the best at random, improves that, and keeps what is better, until so many changes in a row gained nothing.
func (s *search) kick() {
	a := s.best.clone()
	m := newImprover(a)
	if m == nil {
		return
	}
	limit := min(mostKicks, max(kicks, len(s.in.jobs)))
	for failed := 0; failed < limit && !s.done(); failed++ {
		m.touched = m.touched[:0]
		s.disturb(m)
		m.run(s.w)
		if len(s.in.jobs) < 2*kicks {
			for range len(s.in.jobs) {
				if x, y := s.rng.IntN(len(s.in.jobs)), s.rng.IntN(len(s.in.jobs)+1); x != y {
					m.resplit(x, y, s.w)
				}
			}
			m.run(s.w)
		}
		if total := a.total(); total < s.total*(1-leastImprovement) {
			s.best, s.total, failed = a.clone(), total, 0
			continue
		}
		m.restore(s.best)
	}
}

// restore takes back what was changed.
func (m *improver) restore(to *assignment) {
	touched := m.touched
	m.touched = nil
	copy(m.free, to.free)
	for _, i := range touched {
		copy(m.counts[i], to.counts[i])
	}
	for _, i := range touched {
		m.update(i)
	}
	m.touched = touched[:0]
}

// disturb moves a few devices between jobs, or to the pool, whatever that costs, if the jobs can still run.
func (s *search) disturb(m *improver) {
	jobs := len(s.in.jobs)
	for range 2 + s.rng.IntN(4) {
		if i := s.rng.IntN(jobs); s.in.jobs[i].single && s.changeType(m, i) {
			continue
		}
		i, from, to := s.rng.IntN(jobs), s.rng.IntN(m.nodes), s.rng.IntN(m.nodes)
		if math.IsInf(m.change(i, from, to), 1) {
			continue
		}
		if to < m.nodes-1 && m.free[to] == 0 {
			other := s.holder(m, i, to)
			if other < 0 || math.IsInf(m.change(other, to, from), 1) {
				continue
			}
			m.shift(other, to, from, 1)
			m.update(other)
		} else {
			m.shift(jobs, to, from, 1)
		}
		m.shift(i, from, to, 1)
		m.update(i)
	}
}

// changeType moves a job of a single type to another kind, at random: onto free devices, and onto those of jobs that can
// take its own in return. It says whether that could be.
func (s *search) changeType(m *improver, i int) bool {
	j, to := &m.in.jobs[i], s.rng.IntN(m.nodes-1)
	n := sum(m.counts[i])
	if j.fixed || j.rate[to] == 0 || m.in.kinds[to].cap < n || m.counts[i][to] == n {
		return false
	}
	had := slices.Clone(m.counts[i])
	m.give(i, make([]int, m.nodes-1))
	next := make([]int, m.nodes-1)
	for m.free[to] < n {
		from := s.rng.IntN(m.nodes - 1)
		other := s.holder(m, i, to)
		if had[from] == 0 || m.free[from] == 0 || other < 0 || math.IsInf(m.change(other, to, from), 1) {
			m.touched = append(m.touched, i)
			m.restore(s.best)
			return false
		}
		m.shift(other, to, from, 1)
		m.shift(len(m.counts), from, to, 1)
		m.update(other)
	}
	next[to] = n
	m.give(i, next)
	m.update(i)
	return true
}

// holder is a job other than i that has a device of the kind, at random; -1 if a few tries find none.
func (s *search) holder(m *improver, i, kind int) int {
	for range 8 {
		if other := s.rng.IntN(len(m.counts)); other != i && m.counts[other][kind] > 0 {
			return other
		}
	}
	return -1
}

// settle decides which devices the jobs of a category get: the market on valuations linearised at the rates that the jobs
// have, first those of their demand, then those of the market before. It is nil where the market does not clear.
func (in *instance) settle(c category, p *clearingPrices, w *work) (a *assignment) {
	counts := make([][]float64, len(p.demand))
	for i, d := range p.demand {
		counts[i] = slices.Clone(d)
	}
	for range linearised {
		next := in.market(c, in.valuations(counts, c), true, w)
		if next == nil {
			return a
		}
		a = next
		for i := range in.jobs {
			for k, n := range a.counts[i] {
				counts[i][k] = float64(n)
			}
		}
	}
	return a
}

// valuations says what a device of each kind is worth to each job at its present rate: how much its weighted run time
// falls. The average device of the present mix stands for its size, which the category may have changed.
func (in *instance) valuations(counts [][]float64, c category) [][]float64 {
	value := make([][]float64, len(in.jobs))
	for i := range in.jobs {
		j := &in.jobs[i]
		value[i] = make([]float64, len(in.kinds))
		rate, n, most := 0.0, 0.0, 0
		for k, have := range counts[i] {
			rate += float64(have * j.rate[k])
			n += have
			if have > counts[i][most] {
				most = k
			}
		}
		if rate == 0 {
			continue
		}
		rate *= float64(c[i]) / n
		for k, r := range j.rate {
			if !j.single || in.kinds[k].typ == in.kinds[most].typ {
				value[i][k] = j.weight * j.work * r / (rate * rate)
			}
		}
	}
	return value
}
