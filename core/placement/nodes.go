package placement

import (
	"cmp"
	"slices"
)

// nodes decides which devices they are, once it is settled when each job starts on how many of each kind. Who stays where
// it runs keeps its devices. The others are served in the order of their starts, the largest first, each on few nodes: the
// node whose free devices fit best, else the one with most, and so on. The result is shares by job, in the order of the
// pools.
func (in *instance) nodes(schedule []slot) [][]Share {
	n := &nodeFitting{in: in, free: make([]int, len(in.problem.Pools)), held: make([][]int, len(schedule))}
	for k, pool := range in.problem.Pools {
		n.free[k] = pool.Count
	}
	order := make([]int, len(schedule))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return n.compare(x, y, schedule) })
	ends := newEnds(schedule, in)
	for _, i := range order {
		for _, ended := range ends.before(schedule[i].start) {
			n.release(ended)
		}
		if in.stays(i, schedule[i]) {
			n.keep(i)
		} else {
			n.fit(i, schedule[i].counts)
		}
	}
	return in.shares(n.held)
}

// shares says by job what it holds of each pool.
func (in *instance) shares(held [][]int) [][]Share {
	shares := make([][]Share, len(held))
	for i, of := range held {
		for k, c := range of {
			if c > 0 {
				pool := in.problem.Pools[k]
				shares[i] = append(shares[i], Share{pool.Node, pool.Type, c})
			}
		}
	}
	return shares
}

// stays says whether a job keeps the devices that it runs on.
func (in *instance) stays(i int, s slot) bool {
	return s.start == 0 && in.jobs[i].current != nil && slices.Equal(s.counts, in.jobs[i].current)
}

// nodeFitting is the devices of the pools while jobs are given theirs.
type nodeFitting struct {
	in   *instance
	free []int   // by pool
	held [][]int // by job, then by pool
}

// compare orders by start, those that stay first, then by size.
func (n *nodeFitting) compare(x, y int, schedule []slot) int {
	a, b := schedule[x], schedule[y]
	if c := cmp.Compare(a.start, b.start); c != 0 {
		return c
	}
	if p, q := n.in.stays(x, a), n.in.stays(y, b); p != q {
		if p {
			return -1
		}
		return 1
	}
	return cmp.Compare(sum(b.counts), sum(a.counts))
}

// keep gives a job what it has.
func (n *nodeFitting) keep(i int) {
	n.held[i] = make([]int, len(n.free))
	for _, s := range n.in.problem.Jobs[n.in.jobs[i].index].Current {
		for k, pool := range n.in.problem.Pools {
			if pool.Node == s.Node && pool.Type == s.Type {
				n.take(i, k, s.Count)
			}
		}
	}
}

func (n *nodeFitting) take(i, pool, count int) {
	n.free[pool] -= count
	n.held[i][pool] += count
}

func (n *nodeFitting) release(i int) {
	for k, c := range n.held[i] {
		n.free[k] += c
	}
}

// fit finds devices for a job, the largest part first.
func (n *nodeFitting) fit(i int, counts []int) {
	n.held[i] = make([]int, len(n.free))
	var kinds []int
	for k, c := range counts {
		if c > 0 {
			kinds = append(kinds, k)
		}
	}
	slices.SortStableFunc(kinds, func(x, y int) int { return cmp.Compare(counts[y], counts[x]) })
	for _, k := range kinds {
		for left := counts[k]; left > 0; {
			pool := n.best(i, k, left)
			c := min(left, n.free[pool])
			n.take(i, pool, c)
			left -= c
		}
	}
}

// best is the pool to take devices of a kind from: one on a node that the job is on already, else one that has enough,
// with the least to spare; else the one with most.
func (n *nodeFitting) best(i, kind, want int) int {
	best, rank := -1, 0
	for _, k := range n.in.kinds[kind].pools {
		free := n.free[k]
		if free == 0 {
			continue
		}
		r := min(free, want) * 4 // as many as it can give
		if free >= want {
			r = want*4 + 1
		}
		if n.on(i, k) {
			r += 2
		}
		if best < 0 || r > rank || r == rank && free < n.free[best] {
			best, rank = k, r
		}
	}
	return best
}

// on says whether the job has devices on the pool's node.
func (n *nodeFitting) on(i, pool int) bool {
	for k, c := range n.held[i] {
		if c > 0 && n.in.problem.Pools[k].Node == n.in.problem.Pools[pool].Node {
			return true
		}
	}
	return false
}

// ends hands out jobs by when they end.
type ends struct {
	jobs []int // by end, rising
	end  []float64
}

func newEnds(schedule []slot, in *instance) *ends {
	e := &ends{make([]int, len(schedule)), make([]float64, len(schedule))}
	for i := range schedule {
		e.jobs[i], e.end[i] = i, in.jobs[i].completion(schedule[i])
	}
	slices.SortStableFunc(e.jobs, func(x, y int) int { return cmp.Compare(e.end[x], e.end[y]) })
	return e
}

// before hands out those that end at or before t, once.
func (e *ends) before(t float64) (ended []int) {
	n := 0
	for n < len(e.jobs) && e.end[e.jobs[n]] <= t {
		n++
	}
	ended, e.jobs = e.jobs[:n], e.jobs[n:]
	return ended
}
