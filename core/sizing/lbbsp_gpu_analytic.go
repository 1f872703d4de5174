package sizing

import (
	"fmt"
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// Analytic solves for the batch sizes as the 2018 version of LB-BSP does on GPUs (Chen et al., arXiv 1806.02508, first
// version). A worker's time is t_i(x) = t_i^m + Γ_i(x): communication, here the worker's CommunicateSeconds, and a
// curve that does not fall, flat up to a saturation point and then linear. x_i^o is the largest batch that fits into
// memory, here the worker's Max. It minimises the largest t_i(x_i) over whole numbers that sum to X:
//
//	cap_i(T) = the largest x <= x_i^o with t_i(x) <= T, or the worker's Min where there is none
//	T*       = the least T with Σ cap_i(T) >= X
//	x_i      = cap_i(T*), then the excess is taken from the workers with the largest t_i
//
// T* is bisected over all representable times, which takes 64 passes. MinMax finds an optimum of the same time in
// fewer; this one is kept for being as published. How the paper searches is not known to us.
//
// It writes into sizes, one entry per worker, and returns the time of the slowest, in seconds. The error names the
// field that is wrong; it is an *InfeasibleError when no vector fits.
func Analytic(p Problem, sizes []int) (stepSeconds float64, err error) {
	if _, _, err := p.solvable(sizes); err != nil {
		return 0, err
	}
	caps := func(t float64) (sum int) {
		for i := range p.Workers {
			sizes[i], _, _ = p.capacity(&p.Workers[i], t)
			sum = add(sum, sizes[i])
		}
		return sum
	}
	lo, hi := uint64(0), math.Float64bits(math.MaxFloat64)
	for lo < hi {
		if mid := lo + (hi-lo)/2; caps(math.Float64frombits(mid)) >= p.GlobalBatch {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	t := math.Float64frombits(lo)
	excess := caps(t) - p.GlobalBatch
	for i := range p.Workers {
		sooner, _, _ := p.capacity(&p.Workers[i], math.Nextafter(t, -1))
		take := max(0, min(sizes[i]-sooner, excess))
		sizes[i] -= take
		excess -= take
	}
	if excess != 0 {
		return 0, errFalls
	}
	return p.StepSeconds(sizes), nil
}

// leastSaving is the share of the predicted step time that a move must save. Ours.
const leastSaving = 0.01

// GPUAnalytic is LB-BSP on GPUs by Analytic, with a floor and a line per worker that are fitted as the job runs (see
// floorLine). When and from what the paper fits is not known to us; this is ours.
//
// A worker that was not measured yet keeps its size. No other has its size more than halved or doubled at once, since a
// curve is to be trusted near to where the worker was seen only.
type GPUAnalytic struct {
	problem  Problem
	fitted   []floorLine
	steps    int // seen
	decision Decision
	next     []int // room for the solver
}

// NewGPUAnalytic starts from the given sizes, or from equal ones if start is nil. The problem's curves are ignored. The
// error names the field that is wrong; it is an *InfeasibleError when no vector fits.
func NewGPUAnalytic(p Problem, start []int) (*GPUAnalytic, error) {
	sizes, err := startSizes(&p, start)
	if err != nil {
		return nil, err
	}
	p.Workers = slices.Clone(p.Workers)
	return &GPUAnalytic{
		problem:  p,
		fitted:   make([]floorLine, len(sizes)),
		decision: Decision{BatchSizes: sizes, Reason: "nothing known yet"},
		next:     make([]int, len(sizes)),
	}, nil
}

// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new.
// Observations that are not one per worker count as nothing measured.
func (g *GPUAnalytic) Step(observed []speed.Observation, _ int) (d Decision, changed bool) {
	if len(observed) != len(g.fitted) {
		return g.decision, false
	}
	p := g.problem
	p.Workers = slices.Clone(p.Workers)
	for i, o := range observed {
		g.fitted[i].Observe(o)
		w, n := &p.Workers[i], g.decision.BatchSizes[i]
		if curve, ok := g.fitted[i].Curve(); ok {
			w.Curve = curve
			w.Min, w.Max = max(w.Min, n/2), min(w.Max, max(add(n, n), p.Quantum))
		} else {
			*w = pinned(n)
		}
	}
	g.decision.StepSeconds = p.StepSeconds(g.decision.BatchSizes)
	if g.steps++; g.steps < firstSteps {
		return g.decision, false
	}
	then, err := Analytic(p, g.next)
	if err != nil || !(then < (1-leastSaving)*g.decision.StepSeconds) {
		return g.decision, false
	}
	reason := fmt.Sprintf("by the fitted curves: predicted step %.3g s -> %.3g s", g.decision.StepSeconds, then)
	g.decision = Decision{slices.Clone(g.next), then, reason}
	return g.decision, true
}
