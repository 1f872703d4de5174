package speed

import "math"

// These are our defaults, not published values. Sigmas are relative to the predicted time.
const (
	dropped = 2 // observations not learned from: memory is allocated and kernels are compiled in the first steps

	firstNoise = 0.1   // sigma of one observation before any is known
	leastNoise = 0.005 // what no clock and no kernel stays below for long
	noiseGain  = 0.05  // weight of one observation in the noise

	drift = 0.003 // sigma of what the level moves by from one observation to the next

	firstShare = 0.3  // sigma of the fixed share of the time, which starts at 0
	mostShare  = 0.9  // so that twice the samples always take longer, by a tenth at least
	levelDoubt = 0.05 // sigma of what the level may jump by while the size changes
	follow     = 0.25 // by how much of the way the level's size follows the worker's

	clip = 2 // residuals count up to so many sigma

	// The level has jumped when three observations in a row are off to the same side by both of these.
	jumpRatio = 0.08
	jumpSigma = 3
)

// Observations outside these bounds come from a broken clock or counter and are ignored, so that nothing overflows.
const (
	leastSeconds, mostSeconds = 1e-9, 1e9
	leastSamples, mostSamples = 1e-3, 1e12
)

// Online learns the affine curve of one worker from its steps. The zero value is ready.
//
// It sees the curve as level × shape: the level is the time at the batch size where the worker lately was, the shape is
// the share of that time which is fixed, whatever the size. Two scalar Kalman filters follow them:
//
//   - The level drifts and jumps, since a shared or throttled device slows all of a step by one factor.
//   - The share starts at 0, proportional, and is learned from what a change of size does to the time. While a single
//     size was seen nothing tells, and nothing is learned. A jump of the level at the same moment must not pass for a
//     share, so small changes of size teach little.
//   - A residual counts up to clip sigma (Huber), so a pause for a checkpoint moves next to nothing.
//   - A jump of the level would be clipped as well. It is known by three residuals in a row off to one side, and
//     then the level is scaled by their median.
type Online struct {
	dropped int

	level    float64 // seconds at size `at`; 0 while nothing is known
	at       float64 // samples
	share    float64 // of level that is fixed
	levelVar float64 // relative
	shareVar float64
	noiseVar float64 // of one observation, relative

	recent [3]observation // the last ones, the newest last
	run    int            // how many were observed since the start or the last jump
}

type observation struct{ samples, seconds float64 }

// Observe learns from one step: seconds of compute time for samples, which may be a mean over micro-batches. What is
// not a positive number within reason (a nanosecond to 30 years, a thousandth of a sample to 10¹²) is ignored. The
// first 2 observations are dropped, and the 3 after them make the first curve.
func (o *Online) Observe(samples, seconds float64) {
	if _, known := (Observation{Samples: samples, Seconds: seconds}).Speed(); !known {
		return
	}
	if o.dropped < dropped {
		o.dropped++
		return
	}
	o.recent[0], o.recent[1], o.recent[2] = o.recent[1], o.recent[2], observation{samples, seconds}
	o.run++
	if !o.known() {
		if o.run == len(o.recent) {
			o.start()
		}
		return
	}
	o.levelVar += drift * drift
	if ratio, jumped := o.jump(); jumped {
		o.level *= ratio
		o.levelVar += o.noiseVar
		o.run = 0
	} else {
		o.update(samples, seconds)
	}
	o.level = max(leastSeconds, min(o.level, mostSeconds))
}

func (o *Online) known() bool { return o.level > 0 }

// start takes the median speed of the recent observations, so that a pause among them does no harm, for proportional.
func (o *Online) start() {
	var perSample [3]float64
	for i, seen := range o.recent {
		perSample[i] = seen.seconds / seen.samples
	}
	o.at = o.recent[2].samples
	o.level = median(perSample) * o.at
	o.noiseVar = firstNoise * firstNoise
	o.levelVar = o.noiseVar / 2
	o.shareVar = firstShare * firstShare
}

// Curve is what was learned, with Fixed >= 0, PerSample > 0 and Floor 0. It is false while nothing is known.
func (o *Online) Curve() (Affine, bool) {
	if !o.known() {
		return Affine{}, false
	}
	return Affine{Fixed: o.level * o.share, PerSample: o.level * (1 - o.share) / o.at}, true
}

// Noise is the sigma of one step's time around the curve, relative to it; 0 while nothing is known.
func (o *Online) Noise() float64 { return math.Sqrt(o.noiseVar) }

// Sigma is how far the curve itself may be off at n samples: one sigma, relative to its time there. It is +Inf while
// nothing is known and for n <= 0.
func (o *Online) Sigma(n int) float64 {
	if !o.known() || n <= 0 {
		return math.Inf(1)
	}
	return math.Sqrt(o.variance(float64(n)))
}

// predict is the time of so many samples, in seconds.
func (o *Online) predict(samples float64) float64 {
	return o.level * (o.share + (1-o.share)*samples/o.at)
}

// tilt is by how much more of a share the time of so many samples would be longer, relative to it.
func (o *Online) tilt(samples float64) float64 {
	ratio := samples / o.at
	return (1 - ratio) / (o.share + (1-o.share)*ratio)
}

// variance is that of the prediction, relative to it.
func (o *Online) variance(samples float64) float64 {
	h := o.tilt(samples)
	return o.levelVar + h*h*o.shareVar
}

// jump says whether the level has jumped, and by which factor.
func (o *Online) jump() (ratio float64, jumped bool) {
	if o.run < len(o.recent) {
		return 1, false
	}
	var ratios [3]float64
	above, below := true, true
	for i, seen := range o.recent {
		off := 1 + max(jumpRatio, jumpSigma*math.Sqrt(o.variance(seen.samples)+o.noiseVar))
		ratios[i] = seen.seconds / o.predict(seen.samples)
		above = above && ratios[i] > off
		below = below && ratios[i] < 1/off
	}
	return median(ratios), above || below
}

func median(x [3]float64) float64 {
	return max(min(x[0], x[1]), min(max(x[0], x[1]), x[2]))
}

// update is one step of both filters.
func (o *Online) update(samples, seconds float64) {
	h := o.tilt(samples)
	total := o.variance(samples) + o.noiseVar
	residual := seconds/o.predict(samples) - 1
	z := residual / math.Sqrt(total)
	z = max(-clip, min(z, clip))
	residual = z * math.Sqrt(total)
	o.noiseVar = max(o.noiseVar*(1+noiseGain*(z*z-1)), leastNoise*leastNoise)

	gain := o.levelVar / total
	o.level *= 1 + gain*residual
	o.levelVar *= 1 - gain

	gain = o.shareVar * h / (total + levelDoubt*levelDoubt)
	o.share = max(0, min(o.share+gain*residual, mostShare))
	o.shareVar *= max(0, 1-gain*h)
	o.move(o.at + follow*(samples-o.at))
}

// move makes the level that of another size, without changing the curve.
func (o *Online) move(at float64) {
	h := o.tilt(at)
	level := o.predict(at)
	o.levelVar = min(o.levelVar+h*h*o.shareVar, 1)
	o.share = min(o.share*o.level/level, mostShare)
	o.level, o.at = level, at
}
