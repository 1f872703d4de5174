package speed

import "math"

// Learned is an affine curve as it was measured, with what is not known of it. Sigmas are relative to the time.
type Learned struct {
	Samples    float64 // the batch size around which it was measured
	Seconds    float64 // compute time of so many samples
	Share      float64 // of Seconds that is fixed, whatever the batch size; 0 to 0.9
	Sigma      float64 // of Seconds
	ShareSigma float64 // of Share
}

// Learned is the curve with its uncertainty at the batch size where the worker lately was. It is false while nothing is
// known.
func (o *Online) Learned() (Learned, bool) {
	if !o.known() {
		return Learned{}, false
	}
	return Learned{o.at, o.level, o.share, math.Sqrt(o.levelVar), math.Sqrt(o.shareVar)}, true
}

// Curve is the curve alone.
func (l Learned) Curve() Affine {
	return Affine{Fixed: l.Seconds * l.Share, PerSample: l.Seconds * (1 - l.Share) / l.Samples}
}

// At is the same curve as seen from another batch size, further off in doubt the further away it is.
func (l Learned) At(samples float64) Learned {
	ratio := samples / l.Samples
	relative := l.Share + (1-l.Share)*ratio // time there, relative to Seconds
	tilt := (1 - ratio) / relative
	return Learned{
		Samples:    samples,
		Seconds:    l.Seconds * relative,
		Share:      l.Share / relative,
		Sigma:      math.Hypot(l.Sigma, tilt*l.ShareSigma),
		ShareSigma: l.ShareSigma,
	}
}
