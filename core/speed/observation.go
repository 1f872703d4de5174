package speed

import "math"

// Observation is what one step showed of one worker.
type Observation struct {
	Samples float64 // not whole where it is a mean over micro-batches
	Seconds float64 // compute time of that many samples

	// Driving inputs: what the worker had at its disposal in that step. 0 is not known.
	CPU         float64 // cores available
	MemoryBytes float64 // host memory available
}

// Measured says whether the step was timed: samples and seconds are positive and finite.
func (o Observation) Measured() bool {
	return o.Samples > 0 && o.Seconds > 0 && !math.IsInf(o.Samples, 1) && !math.IsInf(o.Seconds, 1)
}
