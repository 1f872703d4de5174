package speed

// Observation is what one step showed of one worker.
type Observation struct {
	Samples float64 // not whole where it is a mean over micro-batches
	Seconds float64 // compute time of that many samples

	// Driving inputs: what the worker had at its disposal in that step. 0 is not known.
	CPU         float64 // cores available, or in every step the clock of an accelerator, in MHz
	MemoryBytes float64 // host memory available
}

// Inputs are the driving inputs of one step, as in Observation. What is not a positive number is not known.
type Inputs struct {
	CPU         float64 // as in Observation
	MemoryBytes float64 // host memory available
}

// Inputs are the driving inputs that the step had.
func (o Observation) Inputs() Inputs { return Inputs{o.CPU, o.MemoryBytes} }

// Speed is how fast the worker computed, in samples per second. It is false where the step was not measured, or shows a
// broken clock or counter: seconds from a nanosecond to 30 years and samples from a thousandth to 10¹² count.
func (o Observation) Speed() (samplesPerSecond float64, known bool) {
	if o.Samples >= leastSamples && o.Samples <= mostSamples && o.Seconds >= leastSeconds && o.Seconds <= mostSeconds {
		return o.Samples / o.Seconds, true
	}
	return 0, false
}

// Measured says whether the step was timed, within the bounds of Speed.
func (o Observation) Measured() bool {
	_, known := o.Speed()
	return known
}
