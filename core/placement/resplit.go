package placement

import (
	"math"
	"slices"
)

// mostSplits bounds the ways to split two jobs' devices that are tried.
const mostSplits = 4096

// resplit divides the joint devices of two jobs anew in the best of all ways, with what is free where those are few. y may
// be the pool, len(jobs), which holds the free devices. It says whether that saved anything.
func (m *improver) resplit(x, y int, w *work) bool {
	a, pool := &m.in.jobs[x], y == len(m.counts)
	if a.fixed || !pool && m.in.jobs[y].fixed {
		return false
	}
	joint := make([]int, len(m.free))
	ways, withFree := 1, 1
	for k := range joint {
		joint[k] = m.counts[x][k] + m.free[k]
		if !pool {
			joint[k] += m.counts[y][k]
		}
		withFree *= (joint[k] + 1) * (joint[k] + 2) / 2
		ways *= joint[k] - m.free[k] + 1
		if ways > mostSplits {
			return false
		}
		withFree = min(withFree, mostSplits+1)
	}
	switch {
	case pool:
		return m.divide(x, y, joint, m.alone, w)
	case withFree <= mostSplits:
		return m.divide(x, y, joint, m.bestRest, w)
	}
	for k := range joint {
		joint[k] -= m.free[k]
	}
	return m.divide(x, y, joint, m.wholeRest, w)
}

// divide gives x the best part of the joint devices, rest saying what y then has and costs.
func (m *improver) divide(x, y int, joint []int, rest func(y int, left []int) ([]int, float64), w *work) bool {
	a := &m.in.jobs[x]
	limits, left := make([]int, len(joint)), make([]int, len(joint))
	ways := 1
	for k := range joint {
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
	before := m.cost[x]
	if y < len(m.counts) {
		before += m.cost[y]
	}
	least := before - leastImprovement*before
	mine := make([]int, len(joint))
	var split, others []int
	for more := true; more; more = increment(mine, limits) {
		cost := m.in.costIfAlike(x, mine)
		if !(cost < least) {
			continue
		}
		for k := range joint {
			left[k] = joint[k] - mine[k]
		}
		theirs, theirCost := rest(y, left)
		if cost+theirCost < least {
			least, split, others = cost+theirCost, slices.Clone(mine), slices.Clone(theirs)
		}
	}
	if split == nil {
		return false
	}
	m.give(x, split)
	m.update(x)
	if y < len(m.counts) {
		m.give(y, others)
		m.update(y)
	}
	return true
}

// alone is for the pool: what is left costs nothing.
func (m *improver) alone(int, []int) ([]int, float64) { return nil, 0 }

// wholeRest gives y all that is left.
func (m *improver) wholeRest(y int, left []int) ([]int, float64) {
	return left, m.in.costIfAlike(y, left)
}

// bestRest gives y the best part of what is left.
func (m *improver) bestRest(y int, left []int) (best []int, least float64) {
	least = math.Inf(1)
	theirs := make([]int, len(left))
	for more := true; more; more = increment(theirs, left) {
		if cost := m.in.costIfAlike(y, theirs); cost < least {
			least, best = cost, slices.Clone(theirs)
		}
	}
	return best, least
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
