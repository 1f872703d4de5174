package sizing

import (
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// Proportional is LB-BSP on CPU clusters: Chen, Weng, Wang, Li and Li, "Semi-Dynamic Load Balancing: Efficient
// Distributed Learning in Non-Dedicated Environments", SoCC 2020. x_i samples take worker i x_i/v_i seconds, so all
// finish together with x_i = X·v_i/Σv, v_i being the speed predicted for the step in which they hold. Whole quanta
// within the limits come from the exact min-max over those proportional curves. How the paper rounds is not known to
// us.
//
// As published it follows the prediction at every step, whatever that moves. That a worker whose speed is not known
// keeps its size is ours.
type Proportional struct {
	problem    Problem
	predictors []speed.Predictor
	keep       int // steps that keep the sizes from the start
	steps      int // seen
	decision   Decision
	next       []int // room for the solver
}

// narxHalfLife is that of the EWMA that stands in for NARX, in steps. Ours.
const narxHalfLife = 8

// NewCPU is policy lbbsp-cpu, which is Proportional to what NARX or else an EWMA predicts. It starts from the given
// sizes, or from equal ones if start is nil. The problem's curves are ignored. The error names the field that is wrong;
// it is an *InfeasibleError when no vector fits.
func NewCPU(p Problem, start []int) (*Proportional, error) {
	l, err := NewProportional("lbbsp-cpu", p, start, narxOrEWMA)
	if err != nil {
		return nil, err
	}
	l.keep = firstSteps
	return l, nil
}

// narxOrEWMA is the predictor of policy lbbsp-cpu. NARX is the paper's. That an EWMA stands in for it until it has
// learned enough, and whenever it had the smaller error lately, is ours. Both predict the next step, as in the paper,
// and are judged by what that is worth when the sizes take effect.
func narxOrEWMA(worker int) speed.Predictor {
	return speed.NewEnsemble(1,
		speed.Member{Name: "EWMA", Predictor: &speed.EWMA{HalfLife: narxHalfLife}},
		speed.Member{Name: "NARX", Predictor: speed.NewNARX(1, uint64(worker))})
}

// NewProportional starts from the given sizes, or from equal ones if start is nil, with a predictor for each worker.
// One that is a speed.Ensemble judges its members at the lag of the decisions. The reason of these names the policy.
// The problem's curves are ignored. The error names the field that is wrong; it is an *InfeasibleError when no vector
// fits.
func NewProportional(name string, p Problem, start []int, predictor func(worker int) speed.Predictor) (*Proportional,
	error) {
	sizes, err := startSizes(&p, start)
	if err != nil {
		return nil, err
	}
	p.Workers = slices.Clone(p.Workers)
	l := &Proportional{
		problem:  p,
		decision: Decision{BatchSizes: sizes, Reason: "in proportion to the speeds that " + name + " predicts"},
		next:     make([]int, len(sizes)),
	}
	for i := range sizes {
		l.predictors = append(l.predictors, predictor(i))
	}
	return l, nil
}

// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new. They
// take effect lag steps later, at least 1. Observations that are not one per worker count as nothing measured.
func (l *Proportional) Step(observed []speed.Observation, lag int) (d Decision, changed bool) {
	if len(observed) != len(l.predictors) {
		return l.decision, false
	}
	p := l.problem
	p.Workers = slices.Clone(p.Workers)
	for i, o := range observed {
		w := &p.Workers[i]
		w.CommunicateSeconds = 0 // which the paper's model does not have
		if v, ok := l.predict(i, o, lag); ok {
			w.Curve = speed.Affine{PerSample: 1 / v}
		} else {
			*w = pinned(l.decision.BatchSizes[i])
		}
	}
	if l.steps++; l.steps < l.keep {
		return l.decision, false
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

// predict lets a worker's predictor learn from a step and asks it for the speed, in samples per second, that comes lag
// steps later. It is false where nothing is known that makes sense.
func (l *Proportional) predict(worker int, o speed.Observation, lag int) (samplesPerSecond float64, known bool) {
	predictor := l.predictors[worker]
	if e, ok := predictor.(*speed.Ensemble); ok {
		e.JudgeAt(lag)
	}
	predictor.Observe(o)
	// The inputs of the coming step are not known before it; those of the last one are the best guess.
	v, known := predictor.Speed(o.Inputs())
	return v, known && plausible(v, l.problem.GlobalBatch)
}

// plausible says whether a speed, in samples per second, gives a time that fits into a number.
func plausible(v float64, globalBatch int) bool {
	return 1/v > 0 && !math.IsInf(float64(globalBatch)/v, 0)
}

// pinned is a worker that keeps its size and that nobody waits for.
func pinned(n int) Worker { return Worker{Min: n, Max: n, Curve: speed.Affine{}} }

// ProportionalSizes writes into sizes, one entry per worker, batch sizes in proportion to the speeds that the workers
// have at equal ones, which is Proportional for curves that are known. It returns the time of the slowest, in seconds.
// The error names the field that is wrong; it is an *InfeasibleError when no vector fits.
func ProportionalSizes(p Problem, sizes []int) (stepSeconds float64, err error) {
	if _, _, err := p.solvable(sizes); err != nil {
		return 0, err
	}
	if err := Equal(p, sizes); err != nil {
		return 0, err
	}
	speeds := p
	speeds.Workers = slices.Clone(p.Workers)
	for i := range speeds.Workers {
		w := &speeds.Workers[i]
		n := max(sizes[i], p.Quantum) // a worker that has nothing at equal sizes has a speed all the same
		w.Curve, w.CommunicateSeconds = speed.Affine{PerSample: w.seconds(n) / float64(n)}, 0
	}
	if _, err := MinMax(speeds, sizes); err != nil {
		return 0, err
	}
	return p.StepSeconds(sizes), nil
}
