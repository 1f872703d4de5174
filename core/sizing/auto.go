package sizing

import (
	"fmt"
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// These are our defaults, not published values.
const (
	// leastGain is the share of the step time that a move must save. What the curves and the forecast may be off widens
	// it: of many workers that are alike some always look slow.
	leastGain   = 0.001
	curveSigmas = 0.15
	doubtSigmas = 0.4

	// firstGrowth bounds sizes, relative to those at the start, while a worker is in its first steps.
	firstGrowth = 1.25
)

// Auto is the policy of choice: it learns every worker's speed curve, forecasts it for the step in which a decision takes
// effect, solves for the min-max on the forecasts, and moves when that promises more than uncertainty could pretend.
//
// It joins the published ideas and the successors': the analytic min-max of LB-BSP (2018) on curves learned online as in
// its tuning (2020), a dead-band as in Dynamic Batching (arXiv 2305.12213), but as wide as the measured uncertainty. The
// forecast (see speed.Forecast) is ours. A worker that was not measured yet keeps its size.
//
// Of the successors' other ideas it does without: two thresholds and a cool-down guard decisions that are made on what was,
// while these are made for the step in which they hold; a proportional first step is what the min-max does while curves are
// proportional, as all are after one step; and how much of the all-reduce hides behind backward is not in what workers
// report, so all are taken to wait for it alike.
type Auto struct {
	problem  Problem // its curves are the forecasts
	start    []int
	forecast *speed.Forecast
	decision Decision
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
		start:    sizes,
		forecast: speed.NewForecast(len(sizes)),
		decision: Decision{BatchSizes: sizes, Reason: "nothing known yet"},
		next:     make([]int, len(sizes)),
	}, nil
}

// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new. They
// take effect lag steps later, at least 1. Observations that are not one per worker count as nothing measured.
func (a *Auto) Step(observed []speed.Observation, lag int) (d Decision, changed bool) {
	if len(observed) != len(a.next) {
		return a.decision, false
	}
	a.forecast.Observe(observed, lag)
	p, known := a.predicted()
	if known == 0 {
		return a.decision, false
	}
	now := p.StepSeconds(a.decision.BatchSizes)
	a.decision.StepSeconds = now
	then, err := MinMax(p, a.next)
	if err != nil || !(now-then > a.band()*now) {
		return a.decision, false
	}
	a.decision = Decision{slices.Clone(a.next), then, a.reason(p, now, then)}
	return a.decision, true
}

// predicted is the problem with the forecast curves. Workers without one are pinned to their size and take no time.
func (a *Auto) predicted() (p Problem, known int) {
	p = a.problem
	p.Workers = slices.Clone(p.Workers)
	settled := true
	for i := range p.Workers {
		w := &p.Workers[i]
		if curve, ok := a.forecast.Curve(i); ok {
			w.Curve = curve
			known++
		} else {
			*w = pinned(a.decision.BatchSizes[i])
		}
		settled = settled && a.forecast.Settled(i)
	}
	if !settled {
		a.restrain(p)
	}
	return p, known
}

// restrain bounds the growth of sizes. First steps may be slow for reasons of their own, and a size that they suggest may
// not fit a device's memory.
func (a *Auto) restrain(p Problem) {
	for i := range p.Workers {
		w := &p.Workers[i]
		grown := int(firstGrowth * float64(a.start[i]))
		w.Max = min(w.Max, max(a.decision.BatchSizes[i], grown-grown%p.Quantum))
	}
}

// band is the share of the step time that a move must save.
func (a *Auto) band() float64 {
	worst := 0.0
	for i, n := range a.decision.BatchSizes {
		if sigma := a.forecast.Sigma(i, n); !math.IsInf(sigma, 1) {
			worst = max(worst, curveSigmas*sigma+doubtSigmas*a.forecast.Doubt(i))
		}
	}
	return leastGain + worst
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
		if _, known := a.forecast.Curve(i); known && i != slowest {
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
