package sizing

import (
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// Predictor foresees the speed of one worker.
type Predictor interface {
	// Observe learns from a step of the worker; one that was not measured teaches nothing.
	Observe(speed.Observation)
	// Speed is that of the next step, in samples per second; false while nothing is known.
	Speed() (samplesPerSecond float64, known bool)
}

// Proportional is the load balancing of LB-BSP on CPU clusters (SoCC 2020): a worker takes x_i/v_i seconds for x_i
// samples, so that all finish together with x_i = X·v_i/Σv, v_i being the speed that is predicted. Whole quanta within
// the limits come from the exact min-max over those proportional curves.
//
// It follows the prediction at every step, whatever that moves. A worker whose speed is not known keeps its size.
type Proportional struct {
	problem    Problem
	predictors []Predictor
	decision   Decision
	next       []int // room for the solver
}

// NewProportional starts from the given sizes, or from equal ones if start is nil, with a predictor for each worker.
// The reason of its decisions carries the name. The problem's curves are ignored. The error names the field that is
// wrong; it is an *InfeasibleError when no vector fits.
func NewProportional(name string, p Problem, start []int, predictor func() Predictor) (*Proportional, error) {
	sizes, err := startSizes(&p, start)
	if err != nil {
		return nil, err
	}
	p.Workers = slices.Clone(p.Workers)
	l := &Proportional{
		problem:  p,
		decision: Decision{BatchSizes: sizes, Reason: "policy " + name},
		next:     make([]int, len(sizes)),
	}
	for range sizes {
		l.predictors = append(l.predictors, predictor())
	}
	return l, nil
}

// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new.
// Observations that are not one per worker count as nothing measured.
func (l *Proportional) Step(observed []speed.Observation) (d Decision, changed bool) {
	if len(observed) != len(l.predictors) {
		return l.decision, false
	}
	p := l.problem
	p.Workers = slices.Clone(p.Workers)
	for i, o := range observed {
		if o.Measured() {
			l.predictors[i].Observe(o)
		}
		w := &p.Workers[i]
		if v, ok := l.predictors[i].Speed(); ok && plausible(v, p.GlobalBatch) {
			w.Curve = speed.Affine{PerSample: 1 / v}
		} else {
			*w = pinned(l.decision.BatchSizes[i])
		}
	}
	seconds, err := MinMax(p, l.next)
	if err != nil {
		return l.decision, false
	}
	l.decision.StepSeconds = seconds
	if slices.Equal(l.next, l.decision.BatchSizes) {
		return l.decision, false
	}
	l.decision.BatchSizes = slices.Clone(l.next)
	return l.decision, true
}

// plausible says whether a speed, in samples per second, gives a time that fits into a number.
func plausible(v float64, globalBatch int) bool {
	return 1/v > 0 && !math.IsInf(float64(globalBatch)/v, 0)
}

// pinned is a worker that keeps its size and that nobody waits for.
func pinned(n int) Worker { return Worker{Min: n, Max: n, Curve: speed.Affine{}} }
