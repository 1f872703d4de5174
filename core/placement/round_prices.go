package placement

import (
	"cmp"
	"math"
	"slices"
)

const (
	priceSteps   = 200
	stepDecay    = 0.96
	nearBound    = 1e-6 // of the bound
	coreAttempts = 3
)

// priced chooses by type prices, and settles exactly what they leave open.
//
// At prices p each item takes the way that is worth most above its price, or none. L(p) = Σ of that + p·free is above
// the value of every choice. Its minimum over p >= 0 is sought by subgradients in Polyak's steps, and choices are made
// from it greedily. Which items could do otherwise at little loss is what prices leave open: these, the core, are
// chosen anew by the dynamic programme on what the others leave free.
func (k *knapsack) priced() *RoundPlan {
	m := &market{knapsack: k, prices: make([]float64, len(k.free)), bound: math.Inf(1)}
	m.ways = slices.Repeat([]int{-1}, len(k.items))
	m.clear()
	m.settle()
	return &RoundPlan{Ways: m.ways, Value: m.worth, Bound: max(m.bound, m.worth)}
}

// market is a knapsack with type prices.
type market struct {
	*knapsack
	prices []float64
	bound  float64   // the least L(p) so far
	at     []float64 // the prices that gave it
	ways   []int     // the best choice so far
	worth  float64   // its value
}

// reduced is a way's value above its price.
func (m *market) reduced(it *item, w int, prices []float64) float64 {
	v := it.values[w]
	for t, n := range it.ways[w].Counts {
		if n > 0 {
			v -= float64(float64(n) * prices[t])
		}
	}
	return v
}

// taste is what an item does at the prices: its best way and what another would lose.
type taste struct {
	item, way int     // -1 for none
	gain      float64 // of the way, at least 0
	loss      float64 // of the next best
}

func (m *market) taste(i int, prices []float64) taste {
	best := taste{item: i, way: -1, loss: math.Inf(1)} // of none the gain is 0
	it := &m.items[i]
	for w := range it.ways {
		if v := m.reduced(it, w, prices); v > best.gain {
			best.way, best.gain, best.loss = w, v, v-best.gain
		} else {
			best.loss = min(best.loss, best.gain-v)
		}
	}
	return best
}

// clear seeks the prices at which L(p) is least. Prices of what more is asked for than there is rise, others fall, in
// steps that shrink.
func (m *market) clear() {
	m.start()
	step := 1.0
	asked := make([]float64, len(m.free))
	for range priceSteps {
		value := m.ask(asked)
		if value < m.bound {
			m.bound, m.at = value, slices.Clone(m.prices)
		}
		for t, n := range m.free {
			excess := (asked[t] - float64(n)) / max(1, float64(n))
			m.prices[t] *= max(0.2, 1+float64(step*min(excess, 4)))
		}
		step *= stepDecay
	}
	m.greedy(m.at)
}

// start prices a device at what a job pays for one on average.
func (m *market) start() {
	sum, devices := 0.0, 0.0
	for i := range m.items {
		it := &m.items[i]
		for w, way := range it.ways {
			sum += it.values[w] / float64(len(it.ways))
			for _, n := range way.Counts {
				devices += float64(n) / float64(len(it.ways))
			}
		}
	}
	for t := range m.prices {
		m.prices[t] = sum / max(1, devices)
	}
}

// ask sums what the items ask for at the prices, and says L(p).
func (m *market) ask(asked []float64) float64 {
	value := 0.0
	for t, n := range m.free {
		asked[t] = 0
		value += float64(float64(n) * m.prices[t])
	}
	for i := range m.items {
		taste := m.taste(i, m.prices)
		value += taste.gain
		if taste.way >= 0 {
			for t, n := range m.items[i].ways[taste.way].Counts {
				asked[t] += float64(n)
			}
		}
	}
	return value
}

// greedy lets the items choose one after the other, first who has most to lose by another way.
func (m *market) greedy(prices []float64) {
	tastes := m.tastes(prices)
	slices.SortStableFunc(tastes, func(a, b taste) int { return cmp.Compare(b.loss, a.loss) })
	left := slices.Clone(m.free)
	ways := slices.Repeat([]int{-1}, len(m.items))
	for pass := range 2 { // second, whoever waits takes what is left
		if pass == 1 {
			slices.Reverse(tastes)
		}
		for _, t := range tastes {
			if ways[t.item] >= 0 || pass == 0 && t.way < 0 {
				continue
			}
			it := &m.items[t.item]
			best, gain := -1, math.Inf(-1)
			for w := range it.ways {
				v := m.reduced(it, w, prices)
				if v > gain && (pass == 1 || v > 0) && within(it.ways[w].Counts, left) {
					best, gain = w, v
				}
			}
			if ways[t.item] = best; best >= 0 {
				for t, n := range it.ways[best].Counts {
					left[t] -= n
				}
			}
		}
	}
	if worth := m.value(ways); worth > m.worth {
		m.ways, m.worth = ways, worth
	}
}

func (m *market) tastes(prices []float64) []taste {
	tastes := make([]taste, len(m.items))
	for i := range tastes {
		tastes[i] = m.taste(i, prices)
	}
	return tastes
}

// settle chooses the core anew: first the items that prices tell least, then, while that gains, others.
func (m *market) settle() {
	tastes := m.tastes(m.at)
	for i := range tastes {
		if m.ways[i] != tastes[i].way {
			tastes[i].loss = 0
		}
	}
	slices.SortStableFunc(tastes, func(a, b taste) int { return cmp.Compare(a.loss, b.loss) })
	from := 0
	for range coreAttempts {
		if m.bound-m.worth <= nearBound*m.bound {
			return
		}
		core, free := m.core(tastes[from:])
		if len(core) == 0 {
			return
		}
		ways := slices.Clone(m.ways)
		m.exact(ways, core, free)
		if worth := m.value(ways); worth > m.worth {
			m.ways, m.worth = ways, worth
		}
		from += len(core) / 2
	}
}

// core is as many items as the dynamic programme can take, and what the choice so far leaves free for them.
func (m *market) core(tastes []taste) (core []int, free []int) {
	free = slices.Clone(m.free)
	for i, w := range m.ways {
		if w >= 0 {
			for t, n := range m.items[i].ways[w].Counts {
				free[t] -= n
			}
		}
	}
	ways := 0
	for _, t := range tastes {
		ways += len(m.items[t.item].ways) + 1
		now := m.ways[t.item]
		if now >= 0 {
			for t, n := range m.items[t.item].ways[now].Counts {
				free[t] += n
			}
		}
		if m.states(free, denseWork)*ways > denseWork {
			if now >= 0 {
				for t, n := range m.items[t.item].ways[now].Counts {
					free[t] -= n
				}
			}
			break
		}
		core = append(core, t.item)
	}
	return core, free
}
