package speed

import "math"

// These are our defaults, not published values. Sigma is relative to the predicted time.
const (
	dropped = 2 // observations not learned from: memory is allocated and kernels are compiled in the first steps

	firstNoise = 0.1   // sigma of one observation before any is known
	leastNoise = 0.005 // what no clock and no kernel stays below for long
	noiseGain  = 0.05  // weight of one observation in the noise

	drift      = 0.002 // sigma of the level's random walk, per observation
	shareSigma = 0.3   // sigma of the prior that the time is all per sample and none fixed

	clip = 2 // residuals count up to so many sigma

	// A level change is three observations in a row that are off to the same side by both of these.
	changeRun   = 3
	changeRatio = 0.08
	changeSigma = 3
)

// Observations outside these bounds come from a broken clock or counter and are ignored, so that no square overflows.
const (
	leastSeconds, mostSeconds = 1e-9, 1e9
	leastSamples, mostSamples = 1e-3, 1e12
)

// Online learns the affine curve of one worker from its steps. The zero value is ready.
//
// It is a Kalman filter (recursive least squares with a model of what is forgotten) for t = fixed + perSample·n:
//
//   - The curve drifts in level, not in shape: process noise lies along (fixed, perSample) itself, since a shared or
//     throttled device slows all of a step by one factor. So nothing winds up while a single batch size is seen.
//   - While a single size was seen its time tells nothing about the split. The prior starts at fixed = 0, proportional,
//     and leaves the split so uncertain that the first other size settles it.
//   - A residual counts up to clip sigma (Huber), so a pause for a checkpoint moves next to nothing.
//   - A change of level would be clipped as well. It is known by three residuals in a row off to one side, and then the
//     whole curve is scaled by their median.
type Online struct {
	skipped int
	known   bool

	fixed, perSample float64
	cov              [3]float64 // of (fixed, perSample): the two variances with their covariance between
	variance         float64    // of one observation, relative
	recent           [changeRun]struct{ samples, seconds float64 }
	count            int // observations in recent since the last change of level
}

// Observe learns from one step: seconds of compute time for samples, which may be a mean over micro-batches. What is not
// a positive number within reason (a nanosecond to 30 years, a thousandth of a sample to 10¹²) is ignored. The first 2
// observations are dropped.
func (o *Online) Observe(samples, seconds float64) {
	if !(samples >= leastSamples && samples <= mostSamples && seconds >= leastSeconds && seconds <= mostSeconds) {
		return
	}
	if o.skipped < dropped {
		o.skipped++
		return
	}
	if !o.known {
		o.start(samples, seconds)
		return
	}
	copy(o.recent[:], o.recent[1:])
	o.recent[changeRun-1].samples, o.recent[changeRun-1].seconds = samples, seconds
	o.count++
	o.spread(drift * drift)
	if ratio := o.change(); ratio != 1 {
		o.rescale(ratio)
		return
	}
	o.update(samples, seconds)
}

// Curve is what was learned, with Fixed >= 0, PerSample > 0 and Floor 0. It is false while nothing is known.
func (o *Online) Curve() (Affine, bool) {
	return Affine{Fixed: o.fixed, PerSample: o.perSample}, o.known
}

// Noise is the sigma of one step's time around the curve, relative to it; 0 while nothing is known.
func (o *Online) Noise() float64 { return math.Sqrt(o.variance) }

// Sigma is how far the curve itself may be off at n samples: one sigma, relative to its time there. It is +Inf while
// nothing is known and for n <= 0.
func (o *Online) Sigma(n int) float64 {
	if !o.known || n <= 0 {
		return math.Inf(1)
	}
	t := o.predict(float64(n))
	return math.Sqrt(max(o.uncertain(float64(n)), 0)) / t
}

func (o *Online) start(samples, seconds float64) {
	o.known = true
	o.fixed, o.perSample = 0, seconds/samples
	o.variance = firstNoise * firstNoise
	// The level is as certain as one observation; a share of it may be fixed rather than per sample.
	a, b := shareSigma*seconds, -shareSigma*seconds/samples
	o.cov = [3]float64{a * a, a * b, b * b}
	o.spread(o.variance)
}

func (o *Online) predict(samples float64) float64 { return o.fixed + o.perSample*samples }

// uncertain is the variance of the prediction, in seconds².
func (o *Online) uncertain(samples float64) float64 {
	return o.cov[0] + 2*o.cov[1]*samples + o.cov[2]*samples*samples
}

// spread makes the level less certain, by a relative variance.
func (o *Online) spread(variance float64) {
	o.cov[0] += variance * o.fixed * o.fixed
	o.cov[1] += variance * o.fixed * o.perSample
	o.cov[2] += variance * o.perSample * o.perSample
}

// change is the factor by which the level has changed, 1 if it has not.
func (o *Online) change() float64 {
	if o.count < changeRun {
		return 1
	}
	var ratios [changeRun]float64
	above, below := 0, 0
	for i, seen := range o.recent {
		t := o.predict(seen.samples)
		sigma := math.Sqrt(max(o.uncertain(seen.samples), 0)/(t*t) + o.variance)
		off := max(changeRatio, changeSigma*sigma)
		ratios[i] = seen.seconds / t
		if ratios[i] > 1+off {
			above++
		} else if ratios[i] < 1/(1+off) {
			below++
		}
	}
	if above < changeRun && below < changeRun {
		return 1
	}
	a, b, c := ratios[0], ratios[1], ratios[2]
	return max(min(a, b), min(max(a, b), c))
}

// rescale moves the whole curve to a new level, which is then about as certain as one observation.
func (o *Online) rescale(ratio float64) {
	o.fixed *= ratio
	o.perSample *= ratio
	for i := range o.cov {
		o.cov[i] *= ratio * ratio
	}
	o.spread(o.variance)
	o.count = 0
}

// update is the filter's step.
func (o *Online) update(samples, seconds float64) {
	t := o.predict(samples)
	total := o.uncertain(samples) + o.variance*t*t
	residual := seconds - t
	z := residual / math.Sqrt(total)
	if math.Abs(z) > clip {
		residual *= clip / math.Abs(z)
	}
	o.variance *= 1 + noiseGain*(min(z*z, clip*clip)-1)
	o.variance = max(o.variance, leastNoise*leastNoise)

	a := o.cov[0] + o.cov[1]*samples
	b := o.cov[1] + o.cov[2]*samples
	o.fixed += a / total * residual
	o.perSample += b / total * residual
	o.cov[0] -= a * a / total
	o.cov[1] -= a * b / total
	o.cov[2] -= b * b / total
	o.constrain(samples, o.fixed+o.perSample*samples)
}

// constrain keeps fixed >= 0 and perSample > 0 without changing the time at the batch size just seen.
func (o *Online) constrain(samples, t float64) {
	t = max(t, leastSeconds)
	if o.fixed < 0 {
		o.fixed, o.perSample = 0, t/samples
	}
	if least := 1e-3 * t / samples; o.perSample < least {
		o.fixed, o.perSample = t-least*samples, least
	}
}
