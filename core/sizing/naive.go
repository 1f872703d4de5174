package sizing

import "github.com/evenstep/evenstep/core/speed"

// The naive policies are Proportional to what needs no thought to predict: the last speed, an EWMA, a running median.
// They are what better predictors are measured by. Half-life and window are ours.
const (
	naiveHalfLife = 5 // steps
	naiveWindow   = 9 // steps
)

func naiveLast(int) speed.Predictor   { return &speed.LastValue{} }
func naiveEWMA(int) speed.Predictor   { return &speed.EWMA{HalfLife: naiveHalfLife} }
func naiveMedian(int) speed.Predictor { return speed.NewMedian(naiveWindow) }
