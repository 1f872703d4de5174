package speed

import "math"

// EWMA predicts the exponentially weighted moving average of the speeds seen.
type EWMA struct {
	// HalfLife is the number of steps after which an observation counts half as much. 0, as anything that is not
	// positive, follows the last value; +Inf is the mean of all.
	HalfLife float64

	speed average
}

// Observe learns from one step; one that was not measured is ignored and ages nothing.
func (e *EWMA) Observe(o Observation) {
	if v, known := o.Speed(); known {
		e.speed.add(v, weight(e.HalfLife))
	}
}

// Speed is the prediction for the next step, in samples per second; false while nothing was seen.
func (e *EWMA) Speed(Inputs) (samplesPerSecond float64, known bool) {
	return e.speed.mean, e.speed.count > 0
}

// average forgets exponentially. It starts as the plain mean, until the weight of the newest takes over: the very first
// value, often of a step that compiled kernels, would otherwise count as much as all that are long past.
type average struct {
	mean  float64
	count int // of values added
}

func (a *average) add(x, weight float64) {
	a.count++
	weight = max(weight, 1/float64(a.count))
	a.mean = (1-weight)*a.mean + weight*x // which is positive if all values are, whatever is rounded
}

// weight is that of the newest value in an average of the given half-life, in (0, 1].
func weight(halfLife float64) float64 {
	if halfLife > 0 {
		return 1 - math.Exp2(-1/halfLife)
	}
	return 1
}
