package speed

// AffineSpeed predicts from the affine curve that Online learns, at the batch size that the worker had last. The zero
// value is ready.
type AffineSpeed struct {
	curve   Online
	samples float64 // of the last step
}

// Observe learns from one step; one that was not measured is ignored, and so are the first that Online drops.
func (a *AffineSpeed) Observe(o Observation) {
	if _, known := o.Speed(); known {
		a.samples = o.Samples
		a.curve.Observe(o.Samples, o.Seconds)
	}
}

// Speed is the prediction for the next step, in samples per second; false while there is no curve.
func (a *AffineSpeed) Speed(Inputs) (samplesPerSecond float64, known bool) {
	c, known := a.curve.Curve()
	if !known {
		return 0, false
	}
	return a.samples / (c.Fixed + c.PerSample*a.samples), true
}
