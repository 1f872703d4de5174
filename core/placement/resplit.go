package placement

import (
	"math"
	"slices"
)

// mostSplits bounds the ways to split two jobs' devices that are tried.
const mostSplits = 4096

// resplit divides the joint devices of two jobs anew in the best of all ways. y may be the pool, len(jobs), which holds the
// free devices. It says whether that saved anything.
func (m *improver) resplit(x, y int, w *work) bool {
	a, pool := &m.in.jobs[x], y == len(m.counts)
	if a.fixed || !pool && m.in.jobs[y].fixed {
		return false
	}
	theirs, before := m.free, m.cost[x]
	if !pool {
		theirs = m.counts[y]
		before += m.cost[y]
	}
	joint, limits := make([]int, len(m.free)), make([]int, len(m.free))
	ways := 1
	for k := range joint {
		joint[k] = m.counts[x][k] + theirs[k]
		if a.rate[k] > 0 {
			limits[k] = min(joint[k], a.max)
		}
		if ways *= limits[k] + 1; ways > mostSplits {
			return false
		}
	}
	if !w.spend(ways * len(joint)) {
		return false
	}
	least := before - leastImprovement*before
	mine, yours := make([]int, len(joint)), make([]int, len(joint))
	var split []int
	for more := true; more; more = increment(mine, limits) {
		for k := range joint {
			yours[k] = joint[k] - mine[k]
		}
		cost := m.in.costIfAlike(x, mine)
		if !pool {
			cost += m.in.costIfAlike(y, yours)
		}
		if cost < least {
			least, split = cost, slices.Clone(mine)
		}
	}
	if split == nil {
		return false
	}
	for k := range joint {
		m.counts[x][k], theirs[k] = split[k], joint[k]-split[k]
	}
	m.update(x)
	if !pool {
		m.update(y)
	}
	return true
}

// costIfAlike is infinite for devices of several types where the job takes a single one.
func (in *instance) costIfAlike(i int, counts []int) float64 {
	if in.jobs[i].single && !in.oneType(counts) {
		return math.Inf(1)
	}
	return in.jobs[i].cost(counts)
}

// increment counts up to the limits, the first digit fastest; it is false after the last.
func increment(digits, limits []int) bool {
	for k := range digits {
		if digits[k]++; digits[k] <= limits[k] {
			return true
		}
		digits[k] = 0
	}
	return false
}
