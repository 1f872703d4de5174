package sizing

import (
	"fmt"
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// These are our defaults, not published values.
const (
	// leastGain is the share of the step time that a move must save. The uncertainty of the curves widens it: of many
	// workers that are alike some always look slow.
	leastGain  = 0.01
	gainSigmas = 1
)

// Auto is the policy of choice: it learns every worker's speed curve, solves for the min-max on the curves, and moves
// when that promises clearly more than uncertainty could pretend.
//
// A move is seen only steps later, when what the workers have already drawn is trained on. Until the reports show the
// new sizes, Auto learns from them but does not move again. A worker that was not measured yet keeps its size.
type Auto struct {
	problem  Problem // its curves are the ones learned
	learned  []speed.Online
	decision Decision
	before   []int // the sizes before the last move; nil before the first
	next     []int // room for the solver
}

// NewAuto starts from the given sizes, or from equal ones if start is nil. The problem's curves are ignored. The error
// names the field that is wrong; it is an *InfeasibleError when no vector fits.
func NewAuto(p Problem, start []int) (*Auto, error) {
	sizes, err := startSizes(&p, start)
	if err != nil {
		return nil, err
	}
	p.Workers = slices.Clone(p.Workers)
	return &Auto{
		problem:  p,
		learned:  make([]speed.Online, len(sizes)),
		decision: Decision{BatchSizes: sizes, Reason: "nothing known yet"},
		next:     make([]int, len(sizes)),
	}, nil
}

// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new.
// Observations that are not one per worker count as nothing measured.
func (a *Auto) Step(observed []speed.Observation) (d Decision, changed bool) {
	if len(observed) != len(a.learned) {
		return a.decision, false
	}
	for i, o := range observed {
		a.learned[i].Observe(o.Samples, o.Seconds)
	}
	p, known := a.predicted()
	if known == 0 {
		return a.decision, false
	}
	a.decision.StepSeconds = p.StepSeconds(a.decision.BatchSizes)
	if !a.arrived(observed) {
		return a.decision, false
	}
	return a.decide(p)
}

// arrived says whether the step ran with the sizes decided rather than with those before, as far as it was measured.
// Samples need not be the sizes to the last one: some jobs count the rows that a filter left.
func (a *Auto) arrived(observed []speed.Observation) bool {
	measured := false
	for i, o := range observed {
		if !o.Measured() {
			continue
		}
		measured = true
		if a.before == nil || a.before[i] == a.decision.BatchSizes[i] {
			continue
		}
		toNew := math.Abs(o.Samples - float64(a.decision.BatchSizes[i]))
		if toOld := math.Abs(o.Samples - float64(a.before[i])); toNew >= toOld {
			return false
		}
	}
	return measured
}

// decide moves if that saves enough.
func (a *Auto) decide(p Problem) (d Decision, changed bool) {
	now := a.decision.StepSeconds
	then, err := MinMax(p, a.next)
	if err != nil || !(now-then > a.band()*now) {
		return a.decision, false
	}
	a.before = a.decision.BatchSizes
	a.decision = Decision{slices.Clone(a.next), then, a.reason(p, now, then)}
	return a.decision, true
}

// predicted is the problem with the curves learned. Workers without one are pinned to their size and take no time.
func (a *Auto) predicted() (p Problem, known int) {
	p = a.problem
	p.Workers = slices.Clone(p.Workers)
	for i := range p.Workers {
		w := &p.Workers[i]
		if curve, ok := a.learned[i].Curve(); ok {
			w.Curve = curve
			known++
		} else {
			*w = Worker{Min: a.decision.BatchSizes[i], Max: a.decision.BatchSizes[i], Curve: speed.Affine{}}
		}
	}
	return p, known
}

// band is the share of the step time that a move must save.
func (a *Auto) band() float64 {
	worst := 0.0
	for i, n := range a.decision.BatchSizes {
		if sigma := a.learned[i].Sigma(n); !math.IsInf(sigma, 1) {
			worst = max(worst, sigma)
		}
	}
	return leastGain + gainSigmas*worst
}

// reason says in words why sizes move.
func (a *Auto) reason(p Problem, now, then float64) string {
	slowest, others := 0, make([]float64, 0, len(p.Workers))
	times := make([]float64, len(p.Workers))
	for i := range p.Workers {
		times[i] = p.Workers[i].seconds(a.decision.BatchSizes[i])
		if times[i] > times[slowest] {
			slowest = i
		}
	}
	for i, t := range times {
		if _, known := a.learned[i].Curve(); known && i != slowest {
			others = append(others, t)
		}
	}
	if len(others) == 0 {
		return fmt.Sprintf("predicted step %.3g s -> %.3g s", now, then)
	}
	slices.Sort(others)
	return fmt.Sprintf("worker %d takes %.3g s for %d samples, others %.3g s: predicted step %.3g s -> %.3g s", slowest,
		times[slowest], a.decision.BatchSizes[slowest], others[len(others)/2], now, then)
}
