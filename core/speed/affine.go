// Package speed says how long a worker computes: its speed curve, seconds as a function of the batch size, either known
// (Affine, Points) or learned step by step from what the worker was seen to take (Online). And how fast it will be in
// the next step, in samples per second: there are several Predictors, and an Ensemble that follows the best of them.
//
// The package is pure: no I/O, no clock, no goroutine, no randomness but from a seed.
package speed

// Affine is the curve max(Floor, Fixed + PerSample·n): flat up to the saturation point of the device, then linear,
// which is how LB-BSP models GPUs. All three are seconds, finite and at least 0.
type Affine struct {
	Fixed     float64 // per step, whatever the batch size
	PerSample float64 // per sample
	Floor     float64 // least time of a step that has any samples
}

// Seconds is the compute time of n samples; 0 for n <= 0, since a worker without samples does not compute.
func (a Affine) Seconds(n int) float64 {
	if n <= 0 {
		return 0
	}
	if t := a.Fixed + a.PerSample*float64(n); t > a.Floor {
		return t
	}
	return a.Floor
}

// Samples is the inverse of Seconds: about the most samples computed within the given seconds, up to rounding. It is
// +Inf where more samples cost no more time, and 0 or less where not even the first sample is done by then.
func (a Affine) Samples(seconds float64) float64 {
	if seconds < a.Floor {
		return 0
	}
	return (seconds - a.Fixed) / a.PerSample
}
