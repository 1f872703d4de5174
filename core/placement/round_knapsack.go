package placement

import "slices"

// knapsack is a choice of at most one way for each item, which together need no more than what is free.
type knapsack struct {
	free  []int
	items []item
}

// item is one job with the value of each of its ways.
type item struct {
	ways   []Way
	values []float64
}

// denseWork is how many comparisons a dynamic programme may take; our choice, some milliseconds.
const denseWork = 4_000_000

// solve finds the choice of the largest value, or one that is near it.
func (k *knapsack) solve() *RoundPlan {
	all := make([]int, len(k.items))
	for i := range all {
		all[i] = i
	}
	if states := k.states(k.free, denseWork); k.work(states, all) <= denseWork {
		p := &RoundPlan{Ways: slices.Repeat([]int{-1}, len(k.items))}
		k.exact(p.Ways, all, k.free)
		p.Value = k.value(p.Ways)
		p.Bound = p.Value
		return p
	}
	return k.priced()
}

// states is the number of states that so many free devices make, at most one more than most.
func (k *knapsack) states(free []int, most int) int {
	states := 1
	for _, n := range free {
		if states *= n + 1; states > most {
			return most + 1
		}
	}
	return states
}

// work is how many comparisons a dynamic programme takes.
func (k *knapsack) work(states int, items []int) int {
	ways := 0
	for _, i := range items {
		ways += len(k.items[i].ways) + 1
	}
	return states * ways
}

// exact sets the ways of some items to the best choice on what is free for them. It is a dynamic programme over the
// items, in which a state is what is still free of each type.
func (k *knapsack) exact(ways []int, items []int, free []int) {
	g := newGrid(free)
	before, best := make([]float64, g.states), make([]float64, g.states)
	chosen := make([]int16, g.states*len(items)) // by item and state; 0 for none
	for row, i := range items {
		it, which := k.items[i], chosen[row*g.states:(row+1)*g.states]
		copy(best, before)
		for w, way := range it.ways {
			value, needs := it.values[w], g.offset(way.Counts)
			g.having(way.Counts, func(from, to int) {
				for s := from; s < to; s++ {
					if v := before[s-needs] + value; v > best[s] {
						best[s], which[s] = v, int16(w+1)
					}
				}
			})
		}
		before, best = best, before
	}
	s := g.states - 1
	for row := len(items) - 1; row >= 0; row-- {
		w := int(chosen[row*g.states+s]) - 1
		ways[items[row]] = w
		if w >= 0 {
			s -= g.offset(k.items[items[row]].ways[w].Counts)
		}
	}
}

// value is what a choice is worth.
func (k *knapsack) value(ways []int) float64 {
	sum := 0.0
	for i, w := range ways {
		if w >= 0 {
			sum += k.items[i].values[w]
		}
	}
	return sum
}

// grid numbers the vectors from 0 to what is free.
type grid struct {
	free   []int
	stride []int // one more than there are types; the last is the number of states
	states int
}

func newGrid(free []int) *grid {
	g := &grid{free: free, stride: []int{1}}
	for t, n := range free {
		g.stride = append(g.stride, g.stride[t]*(n+1))
	}
	g.states = g.stride[len(free)]
	return g
}

// offset is the difference that so many devices make to a state's number.
func (g *grid) offset(counts []int) int {
	sum := 0
	for t, n := range counts {
		sum += n * g.stride[t]
	}
	return sum
}

// having calls f with the ranges of states that have at least so many devices free.
func (g *grid) having(counts []int, f func(from, to int)) { g.from(len(counts)-1, 0, counts, f) }

// from does so for the types up to one, of the states from base on.
func (g *grid) from(t, base int, counts []int, f func(from, to int)) {
	if t < 0 {
		f(base, base+1)
		return
	}
	below := false
	for _, n := range counts[:t] {
		below = below || n > 0
	}
	if !below {
		if counts[t] <= g.free[t] {
			f(base+counts[t]*g.stride[t], base+g.stride[t+1])
		}
		return
	}
	for n := counts[t]; n <= g.free[t]; n++ {
		g.from(t-1, base+n*g.stride[t], counts, f)
	}
}

func within(counts, free []int) bool {
	for t, n := range counts {
		if n > free[t] {
			return false
		}
	}
	return true
}
