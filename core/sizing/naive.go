package sizing

import (
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// The naive predictors are the yardsticks that published predictors are measured by. Half-life and window are ours.
const (
	ewmaHalfLife = 5 // steps
	medianWindow = 9 // steps
)

// lastSpeed predicts the speed that was last observed. The zero value is ready.
type lastSpeed struct{ v float64 }

func (l *lastSpeed) Observe(o speed.Observation) { l.v = o.Samples / o.Seconds }
func (l *lastSpeed) Speed() (float64, bool)      { return l.v, l.v > 0 }

// ewmaSpeed predicts the exponentially weighted mean of the speeds, in which half of the weight lies on the last
// halfLife steps.
type ewmaSpeed struct {
	halfLife float64 // steps, above 0
	v        float64
}

func (e *ewmaSpeed) Observe(o speed.Observation) {
	v := o.Samples / o.Seconds
	if e.v == 0 {
		e.v = v
	}
	e.v += (1 - math.Exp2(-1/e.halfLife)) * (v - e.v)
}

func (e *ewmaSpeed) Speed() (float64, bool) { return e.v, e.v > 0 }

// medianSpeed predicts the median of the speeds in the last window steps.
type medianSpeed struct {
	window int // steps, at least 1
	seen   []float64
}

func (m *medianSpeed) Observe(o speed.Observation) {
	if len(m.seen) == m.window {
		m.seen = m.seen[:copy(m.seen, m.seen[1:])]
	}
	m.seen = append(m.seen, o.Samples/o.Seconds)
}

func (m *medianSpeed) Speed() (float64, bool) {
	if len(m.seen) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(m.seen))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2, true
}
