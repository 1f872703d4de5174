package main

import (
	"fmt"
	"math"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
)

// bestNaive is the naive policy that captures most of a trace in hindsight: the last value, an EWMA of speeds or of
// times at any half-life, a running median over any window.
func bestNaive(t *simulate.Trace, lag int) (name string, share float64, err error) {
	share = math.Inf(-1)
	try := func(candidate string, predictor func(int) speed.Predictor) {
		s, failed := captured(t, lag, func(p sizing.Problem, start []int) (sizing.Policy, error) {
			return sizing.NewProportional(candidate, p, start, predictor)
		})
		if failed != nil {
			err = failed
		} else if s > share {
			name, share = candidate, s
		}
	}
	try("last value", func(int) speed.Predictor { return &speed.LastValue{} })
	for h := 0.125; h < 300; h *= 1.25 {
		try(fmt.Sprintf("EWMA of speeds, half-life %.2g", h), func(int) speed.Predictor {
			return &speed.EWMA{HalfLife: h}
		})
		try(fmt.Sprintf("EWMA of times, half-life %.2g", h), func(int) speed.Predictor {
			return &ofTimes{speed.EWMA{HalfLife: h}}
		})
	}
	for window := 2; window <= 100; window++ {
		try(fmt.Sprintf("median of %d", window), func(int) speed.Predictor { return speed.NewMedian(window) })
	}
	return name, share, err
}

// ofTimes averages the time of a sample instead of its inverse.
type ofTimes struct{ speed.EWMA }

func (t *ofTimes) Observe(o speed.Observation) {
	t.EWMA.Observe(speed.Observation{Samples: o.Seconds, Seconds: o.Samples})
}

func (t *ofTimes) Speed(next speed.Inputs) (float64, bool) {
	v, known := t.EWMA.Speed(next)
	return 1 / v, known
}
