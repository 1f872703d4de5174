package placement

import (
	"cmp"
	"container/heap"
	"slices"
)

// nodes decides which devices they are, once it is settled when each job starts on how many of each kind. Who stays where
// it runs keeps its devices. The others are served in the order of their starts, the largest first, each on few nodes: one
// that it is on already, else the node whose free devices fit best, else the one with most, and so on. The result is shares
// by job, in the order of the pools.
func (in *instance) nodes(schedule []slot) [][]Share {
	n := newNodeFitting(in)
	order := make([]int, len(schedule))
	for i := range schedule {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return n.compare(x, y, schedule) })
	// A job may be so short that it ends when it starts, as far as numbers can tell: only who has devices is released.
	var running endings
	for _, i := range order {
		for len(running) > 0 && running[0].at <= schedule[i].start {
			n.release(heap.Pop(&running).(ending).job)
		}
		heap.Push(&running, ending{in.jobs[i].completion(schedule[i]), i})
		if in.stays(i, schedule[i]) {
			n.keep(i)
		} else {
			n.fit(i, schedule[i].counts)
		}
	}
	shares := make([][]Share, len(schedule))
	for i, held := range n.held {
		slices.SortFunc(held, func(a, b poolShare) int { return a.pool - b.pool })
		for _, h := range held {
			pool := in.problem.Pools[h.pool]
			shares[i] = append(shares[i], Share{pool.Node, pool.Type, h.count})
		}
	}
	return shares
}

// ending is when a job ends.
type ending struct {
	at  float64
	job int
}

// endings is a heap, the soonest first.
type endings []ending

func (e endings) Len() int { return len(e) }
func (e endings) Less(a, b int) bool {
	return e[a].at < e[b].at || e[a].at == e[b].at && e[a].job < e[b].job
}
func (e endings) Swap(a, b int) { e[a], e[b] = e[b], e[a] }
func (e *endings) Push(x any)   { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// stays says whether a job keeps the devices that it runs on.
func (in *instance) stays(i int, s slot) bool {
	return s.start == 0 && in.jobs[i].current != nil && slices.Equal(s.counts, in.jobs[i].current)
}

// nodeFitting is the devices of the pools while jobs are given theirs.
type nodeFitting struct {
	in     *instance
	free   []int            // by pool
	kind   []int            // by pool; -1 for none
	onNode map[string][]int // pools
	held   [][]poolShare    // by job
	// with lists, by kind and number of free devices, the pools that had so many when they were listed.
	with [][][]int
}

type poolShare struct{ pool, count int }

func newNodeFitting(in *instance) *nodeFitting {
	pools := in.problem.Pools
	n := &nodeFitting{in: in, free: make([]int, len(pools)), kind: make([]int, len(pools)),
		onNode: make(map[string][]int), held: make([][]poolShare, len(in.jobs)), with: make([][][]int, len(in.kinds))}
	for k, pool := range pools {
		n.kind[k] = -1
		n.free[k] = pool.Count
		n.onNode[pool.Node] = append(n.onNode[pool.Node], k)
	}
	for kind, kd := range in.kinds {
		for _, k := range slices.Backward(kd.pools) { // the last listed is taken first
			n.kind[k] = kind
			n.list(k)
		}
	}
	return n
}

// list puts a pool where those with as many free devices are found.
func (n *nodeFitting) list(pool int) {
	with, free := &n.with[n.kind[pool]], n.free[pool]
	for len(*with) <= free {
		*with = append(*with, nil)
	}
	(*with)[free] = append((*with)[free], pool)
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
	for _, s := range n.in.problem.Jobs[n.in.jobs[i].index].Current {
		for _, k := range n.onNode[s.Node] {
			if n.in.problem.Pools[k].Type == s.Type {
				n.take(i, k, s.Count)
			}
		}
	}
}

func (n *nodeFitting) take(i, pool, count int) {
	n.free[pool] -= count
	n.held[i] = append(n.held[i], poolShare{pool, count})
	n.list(pool)
}

func (n *nodeFitting) release(i int) {
	for _, h := range n.held[i] {
		n.free[h.pool] += h.count
		n.list(h.pool)
	}
}

// fit finds devices for a job, the largest part first.
func (n *nodeFitting) fit(i int, counts []int) {
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

// best is the pool to take devices of a kind from. There is one: the counts fit.
func (n *nodeFitting) best(i, kind, want int) int {
	if pool := n.beside(i, kind, want); pool >= 0 {
		return pool
	}
	with := n.with[kind]
	for free := want; free < len(with); free++ {
		if pool := n.pop(kind, free); pool >= 0 {
			return pool
		}
	}
	for free := min(want, len(with)) - 1; ; free-- {
		if pool := n.pop(kind, free); pool >= 0 {
			return pool
		}
	}
}

// beside is a pool that has enough on a node that the job is on already, that with the least to spare; -1 for none.
func (n *nodeFitting) beside(i, kind, want int) int {
	best := -1
	for _, h := range n.held[i] {
		for _, k := range n.onNode[n.in.problem.Pools[h.pool].Node] {
			if n.kind[k] == kind && n.free[k] >= want && (best < 0 || n.free[k] < n.free[best]) {
				best = k
			}
		}
	}
	return best
}

// pop takes a pool with so many free devices off its list; -1 for none. Those that have others now are listed elsewhere.
func (n *nodeFitting) pop(kind, free int) int {
	list := &n.with[kind][free]
	for len(*list) > 0 {
		pool := (*list)[len(*list)-1]
		*list = (*list)[:len(*list)-1]
		if n.free[pool] == free {
			return pool
		}
	}
	return -1
}
