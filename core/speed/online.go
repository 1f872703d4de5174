package speed

import (
	"math"
	"slices"
)

// These are our defaults, not published values. Sigmas are relative to the predicted time.
const (
	starting   = 5   // observations that make the first curve
	startSlack = 1.5 // of those, the ones slower than the newest by more than this factor are left out

	firstNoise = 0.1   // sigma of one observation before any is known
	leastNoise = 0.005 // what no clock and no kernel stays below for long
	noiseGain  = 0.05  // weight of one observation in the noise

	drift = 0.003 // sigma of what the level moves by from one observation to the next

	firstShare = 0.3  // sigma of the fixed share of the time, which starts at 0
	mostShare  = 0.9  // so that twice the samples always take longer, by a tenth at least
	levelDoubt = 0.05 // sigma of what the level may jump by while the size changes
	follow     = 0.25 // by how much of the way the level's size follows the worker's

	pause     = 8 // a residual of more sigma than this is no news about the curve
	noiseClip = 2 // residuals count up to so many sigma in the noise

	// The level has jumped when some observations in a row are off to the same side by both of these.
	jumpRatio = 0.08
	jumpSigma = 3
	// How many: at least leastRun; Forecast asks for more where what is decided takes long to take effect.
	leastRun, mostRun = 3, 16
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
//   - A residual of many sigma is a pause, say for a checkpoint, and moves nothing.
//   - A jump of the level would be left out as well. It is known by a run of residuals off to one side, and then the
//     level is scaled by their median.
type Online struct {
	level    float64 // seconds at size `at`; 0 while nothing is known
	at       float64 // samples
	share    float64 // of level that is fixed
	levelVar float64 // relative
	shareVar float64
	noiseVar float64 // of one observation, relative

	recent  [mostRun]observation // the last ones, the newest last
	seen    int                  // observations, up to starting
	run     int                  // observations since the start or the last jump
	jumpRun int                  // observations that make a jump, leastRun to mostRun; 0 means leastRun
}

type observation struct{ samples, seconds float64 }

// Observe learns from one step: seconds of compute time for samples, which may be a mean over micro-batches. It says
// whether that showed a jump of the level. What is not a positive number within reason (a nanosecond to 30 years, a
// thousandth of a sample to 10¹²) is ignored.
func (o *Online) Observe(samples, seconds float64) (jumped bool) {
	if _, known := (Observation{Samples: samples, Seconds: seconds}).Speed(); !known {
		return false
	}
	copy(o.recent[:], o.recent[1:])
	o.recent[mostRun-1] = observation{samples, seconds}
	if o.seen < starting {
		o.seen++
		o.start()
		return false
	}
	o.run++
	o.levelVar += drift * drift
	ratio, jumped := o.jump()
	if jumped {
		o.level *= ratio
		o.levelVar += o.noiseVar
		o.run = 0
	} else {
		o.update(samples, seconds)
	}
	o.level = max(leastSeconds, min(o.level, mostSeconds))
	return jumped
}

func (o *Online) known() bool { return o.seen > 0 }

// Settled says whether the first steps are behind, in which memory is allocated and kernels are compiled.
func (o *Online) Settled() bool { return o.seen == starting }

// start takes the median speed of the first observations for proportional. Observations far slower than the newest are
// left out, since first steps are slow. A slow newest leaves all in, and the median is deaf to it.
func (o *Online) start() {
	first := o.recent[mostRun-o.seen:]
	newest := first[len(first)-1]
	var room [starting]float64
	perSample := room[:0]
	for _, seen := range first {
		if v := seen.seconds / seen.samples; v <= startSlack*newest.seconds/newest.samples {
			perSample = append(perSample, v)
		}
	}
	slices.Sort(perSample)
	o.at = newest.samples
	o.level = max(leastSeconds, min(perSample[(len(perSample)-1)/2]*o.at, mostSeconds))
	o.noiseVar = firstNoise * firstNoise
	o.levelVar = o.noiseVar / float64(len(perSample))
	o.shareVar = firstShare * firstShare
}

// Curve is what was learned, with Fixed >= 0, PerSample > 0 and Floor 0. It is false while nothing is known.
func (o *Online) Curve() (Affine, bool) {
	if !o.known() {
		return Affine{}, false
	}
	return Affine{Fixed: o.level * o.share, PerSample: o.level * (1 - o.share) / o.at}, true
}

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
	n := max(leastRun, min(o.jumpRun, mostRun))
	if o.run < n {
		return 1, false
	}
	var room [mostRun]float64
	ratios := room[:0]
	above, below := true, true
	for _, seen := range o.recent[mostRun-n:] {
		off := 1 + max(jumpRatio, jumpSigma*math.Sqrt(o.variance(seen.samples)+o.noiseVar))
		ratio := seen.seconds / o.predict(seen.samples)
		above = above && ratio > off
		below = below && ratio < 1/off
		ratios = append(ratios, ratio)
	}
	slices.Sort(ratios)
	return ratios[n/2], above || below
}

// update is one step of both filters.
func (o *Online) update(samples, seconds float64) {
	h := o.tilt(samples)
	total := o.variance(samples) + o.noiseVar
	residual := seconds/o.predict(samples) - 1
	z := residual / math.Sqrt(total)
	noisy := min(z*z, noiseClip*noiseClip)
	o.noiseVar = max(o.noiseVar*(1+noiseGain*(noisy-1)), leastNoise*leastNoise)
	if math.Abs(z) > pause {
		return
	}

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
