package service

import (
	"cmp"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// maxPending bounds the incomplete steps that a gatherer keeps.
const maxPending = 16

// gatherer assembles steps from the reports of single workers. A step is complete when each rank that is waited for has
// reported it or a later one. All ranks are waited for from the start, also before they come; one that leaves is not,
// until it joins again. Steps are given out in order, and once one is, no older one is taken any more.
type gatherer struct {
	waited  []bool
	next    []uint64       // by rank: the first step that the rank has not reported yet
	pending []*pendingStep // ascending
	done    uint64         // steps below it were given out or passed over
}

// pendingStep is a step that some ranks have reported.
type pendingStep struct {
	step         uint64
	nextFreeStep uint64              // the largest reported
	observations []speed.Observation // by rank
	reports      int                 // ranks that reported this step
	missing      int                 // ranks that are waited for
}

func newGatherer(workers int) *gatherer {
	g := &gatherer{waited: make([]bool, workers), next: make([]uint64, workers)}
	for rank := range g.waited {
		g.waited[rank] = true
	}
	return g
}

// join waits for the rank from now on.
func (g *gatherer) join(rank int) {
	if !g.waited[rank] {
		g.waited[rank] = true
		g.count(rank, +1)
	}
}

// leave no longer waits for the rank.
func (g *gatherer) leave(rank int) {
	if g.waited[rank] {
		g.count(rank, -1)
		g.waited[rank] = false
	}
}

// count adds change to what the steps that the rank has not reported yet are missing.
func (g *gatherer) count(rank, change int) {
	for _, p := range g.pending {
		if p.step >= g.next[rank] {
			p.missing += change
		}
	}
}

// add takes what a rank that is waited for reports. A step that the rank has reported, or that is done, is ignored: the
// network may repeat and delay.
func (g *gatherer) add(rank int, step, nextFreeStep uint64, seen speed.Observation) {
	if step < g.next[rank] || step < g.done {
		return
	}
	p := g.at(step)
	p.nextFreeStep = max(p.nextFreeStep, nextFreeStep)
	p.observations[rank] = seen
	p.reports++
	g.count(rank, -1)
	g.next[rank] = step + 1
	g.count(rank, +1)
}

// at finds the pending step or begins it.
func (g *gatherer) at(step uint64) *pendingStep {
	i, found := slices.BinarySearchFunc(g.pending, step, func(p *pendingStep, step uint64) int {
		return cmp.Compare(p.step, step)
	})
	if found {
		return g.pending[i]
	}
	p := &pendingStep{step: step, observations: make([]speed.Observation, len(g.waited))}
	for rank, waited := range g.waited {
		if waited && g.next[rank] <= step {
			p.missing++
		}
	}
	g.pending = slices.Insert(g.pending, i, p)
	return p
}

// pop gives out the oldest step if it is complete, or if more are pending than are kept; nil otherwise.
func (g *gatherer) pop() *pendingStep {
	if len(g.pending) == 0 || (g.pending[0].missing > 0 && len(g.pending) <= maxPending) {
		return nil
	}
	p := g.pending[0]
	g.pending = slices.Delete(g.pending, 0, 1)
	g.done = p.step + 1
	return p
}
