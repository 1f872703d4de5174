package placement

import (
	"cmp"
	"math"
	"slices"
)

// allotment is a number of devices of each kind for one job, and how long it runs on them.
type allotment struct {
	counts []int
	// now and later are the seconds that it runs if it starts at 0 or after: they differ on the current devices alone.
	now, later float64
}

func (j *job) allotment(counts []int) allotment {
	a := allotment{counts: counts, now: j.seconds(counts)}
	a.later = a.now
	if j.current != nil && slices.Equal(counts, j.current) {
		a.later += j.restart
	}
	return a
}

// seconds is how long the job runs from a start.
func (a *allotment) seconds(start float64) float64 {
	if start > 0 {
		return a.later
	}
	return a.now
}

// spread is the first kind of which it has devices, and how many it has of all kinds.
func (a *allotment) spread() (first, devices int) {
	for k := len(a.counts) - 1; k >= 0; k-- {
		if a.counts[k] > 0 {
			first = k
			devices += a.counts[k]
		}
	}
	return first, devices
}

// Allotments are enumerated where that makes a menu of no more than so many for each job and for all.
const (
	mostAllotments    = 4096
	mostAllAllotments = 200_000
)

// enumerate fills the menus of the jobs that have few allotments.
func (q *queueSearch) enumerate() {
	limit := min(mostAllotments, max(32, mostAllAllotments/len(q.in.jobs)))
	for i := range q.in.jobs {
		j := &q.in.jobs[i]
		if j.stays() {
			q.menus[i], q.complete[i] = []allotment{j.allotment(j.current)}, true
			continue
		}
		e := enumeration{in: q.in, job: j, counts: make([]int, len(q.in.kinds)), limit: limit}
		if e.from(0, 0, 0) {
			q.menus[i], q.complete[i] = e.menu, true
		}
	}
}

// enumeration lists a job's allotments.
type enumeration struct {
	in     *instance
	job    *job
	counts []int
	seen   int
	limit  int
	menu   []allotment
}

// from enumerates the counts of kinds from k on, n workers and their joint rate being settled. It returns false when
// there are too many.
func (e *enumeration) from(k, n int, rate float64) bool {
	j := e.job
	if k == len(e.counts) {
		if n >= j.min {
			e.seen++
			if !e.dominated(n, rate) {
				e.menu = append(e.menu, j.allotment(slices.Clone(e.counts)))
			}
		}
		return e.seen <= e.limit
	}
	most := 0
	if j.rate[k] > 0 && !(j.single && e.mixes(k)) {
		most = min(e.in.kinds[k].cap, j.max-n)
	}
	for c := 0; c <= most; c++ {
		e.counts[k] = c
		if !e.from(k+1, n+c, rate+float64(float64(c)*j.rate[k])) {
			return false
		}
	}
	e.counts[k] = 0
	return true
}

// mixes says that a device of kind k would be one of a second type.
func (e *enumeration) mixes(k int) bool {
	for l, c := range e.counts[:k] {
		if c > 0 && e.in.kinds[l].typ != e.in.kinds[k].typ {
			return true
		}
	}
	return false
}

// dominated says that one worker less would take no longer, restarts at their worst: whoever uses these counts may use
// those.
func (e *enumeration) dominated(n int, rate float64) bool {
	j := e.job
	if n <= j.min || n < 2 {
		return false
	}
	here := j.run(rate, n)
	for k, c := range e.counts {
		if c > 0 && j.run(rate-j.rate[k], n-1)+j.restart <= here {
			return true
		}
	}
	return false
}

// ladder is the menu of a job that has too many allotments: growing numbers of workers on each type, on the types that
// are cheapest at the prices, and on the fastest.
func (q *queueSearch) ladder(j *job) []allotment {
	var orders [][]int
	usable := make([]int, 0, len(q.in.kinds))
	for k := range q.in.kinds {
		if j.rate[k] > 0 && q.in.kinds[k].cap > 0 {
			usable = append(usable, k)
		}
	}
	for i, k := range usable { // one order a type, where the type comes up first
		typ := q.in.kinds[k].typ
		if !slices.ContainsFunc(usable[:i], func(l int) bool { return q.in.kinds[l].typ == typ }) {
			other := func(l int) bool { return q.in.kinds[l].typ != typ }
			orders = append(orders, slices.DeleteFunc(slices.Clone(usable), other))
		}
	}
	if !j.single && len(orders) > 1 {
		orders = append(orders, q.sorted(usable, func(k int) float64 { return q.prices.lambda[k] / j.rate[k] }),
			q.sorted(usable, func(k int) float64 { return -j.rate[k] }))
	}
	var menu []allotment
	for _, kinds := range orders {
		menu = q.climb(menu, j, kinds)
	}
	if j.current != nil && q.allowed(j, j.current) {
		menu = append(menu, j.allotment(j.current))
	}
	return menu
}

func (q *queueSearch) sorted(kinds []int, key func(int) float64) []int {
	kinds = slices.Clone(kinds)
	slices.SortStableFunc(kinds, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	return kinds
}

// climb appends allotments that fill the kinds in their order: all there is, halves, thirds and smaller parts, which
// leave no remainder that nobody wants, and the most and the fewest workers.
func (q *queueSearch) climb(menu []allotment, j *job, kinds []int) []allotment {
	all := 0
	for _, k := range kinds {
		all += q.in.kinds[k].cap
	}
	sizes := []int{j.min, min(j.max, all)}
	for parts := 1; all/parts > j.min; parts += 1 + parts/4 {
		sizes = append(sizes, all/parts)
	}
	slices.Sort(sizes)
	fastest := math.Inf(1)
	for _, n := range slices.Compact(sizes) {
		if n < j.min || n > j.max || n > all {
			continue
		}
		counts := make([]int, len(q.in.kinds))
		left := n
		for _, k := range kinds {
			counts[k] = min(left, q.in.kinds[k].cap)
			left -= counts[k]
		}
		if a := j.allotment(counts); a.later < fastest {
			fastest = a.later
			menu = append(menu, a)
		}
	}
	return menu
}

// allowed says whether the job may run on such counts.
func (q *queueSearch) allowed(j *job, counts []int) bool {
	n, typ := 0, ""
	for k, c := range counts {
		if c == 0 {
			continue
		}
		if c < 0 || c > q.in.kinds[k].cap || !(j.rate[k] > 0) {
			return false
		}
		if j.single && typ != "" && typ != q.in.kinds[k].typ {
			return false
		}
		n, typ = n+c, q.in.kinds[k].typ
	}
	return n >= j.min && n <= j.max
}
