package sizing

import (
	"cmp"
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// These are our defaults, not published values.
const (
	binWidth = 0.05 // sizes this close, relative to each other, share a bin
	mostBins = 16   // the one not seen for longest makes room
	binGain  = 0.2  // weight of a new observation in the mean of its bin, once that has as many as make 1/binGain
	binAge   = 100  // steps after which a bin counts half

	stepNoise   = 0.05 // sigma of a step's time, relative to it
	fixedDoubt  = 0.3  // sigma of the share of the time that is fixed, which is 0 as long as sizes do not tell
	mostFixed   = 0.9  // of the time at the mean size, so that more samples always take longer in the end
	floorCost   = 4    // by how much a floor must fit better, in squared sigmas
	forgetRatio = 0.25 // a worker that is off its curve by this for
	forgetAfter = 3    // so many steps in a row is another worker now
)

// floorLine learns the curve of one worker, flat up to a saturation point and then linear, from the times that it was
// seen to take at different sizes. The zero value is ready.
//
// Observations are averaged in bins of about equal size. The curve is the one of least squares through the bins: a
// line, or a floor through the smallest ones and a line through the rest, whichever split fits best. A single size says
// nothing about a fixed share, so the worker passes for proportional until others were seen.
type floorLine struct {
	bins []bin
	step int
	off  int // steps in a row that were off the curve
}

type bin struct {
	samples, seconds float64 // means
	weight           float64 // observations that the means stand for, at most 1/binGain
	seen             int     // the last step that it was seen in
}

// Observe learns from one step. One that was not measured, or not within reason, is ignored.
func (f *floorLine) Observe(o speed.Observation) {
	if _, known := o.Speed(); !known {
		return
	}
	f.step++
	if c, known := f.Curve(); known && math.Abs(o.Seconds/affineSeconds(c, o.Samples)-1) > forgetRatio {
		if f.off++; f.off == forgetAfter {
			f.bins, f.off = f.bins[:0], 0
		}
	} else {
		f.off = 0
	}
	b := f.bin(o.Samples)
	b.weight = min(b.weight+1, 1/binGain)
	b.samples += (o.Samples - b.samples) / b.weight
	b.seconds += (o.Seconds - b.seconds) / b.weight
	b.seen = f.step
}

// bin finds the bin of a size or makes one.
func (f *floorLine) bin(samples float64) *bin {
	oldest := 0
	for i := range f.bins {
		if b := &f.bins[i]; math.Abs(samples/b.samples-1) < binWidth/2 {
			return b
		} else if b.seen < f.bins[oldest].seen {
			oldest = i
		}
	}
	if len(f.bins) < mostBins {
		f.bins = append(f.bins, bin{})
		return &f.bins[len(f.bins)-1]
	}
	f.bins[oldest] = bin{}
	return &f.bins[oldest]
}

// Curve is what was learned, with Fixed >= 0 and PerSample > 0. It is false while nothing is known.
func (f *floorLine) Curve() (speed.Affine, bool) {
	if len(f.bins) == 0 {
		return speed.Affine{}, false
	}
	unit := f.bins[0] // the latest one: what follows is in its samples and seconds
	for _, b := range f.bins {
		if b.seen > unit.seen {
			unit = b
		}
	}
	bins := make([]bin, 0, mostBins)
	for _, b := range f.bins {
		weight := b.weight * math.Exp2(-float64(f.step-b.seen)/binAge)
		bins = append(bins, bin{b.samples / unit.samples, b.seconds / unit.seconds, weight, b.seen})
	}
	slices.SortFunc(bins, func(a, b bin) int { return cmp.Compare(a.samples, b.samples) })
	best := line(bins)
	bestCost := cost(best, bins)
	for flat := 2; flat <= len(bins); flat++ {
		c := floorThenLine(bins[:flat], bins[flat:])
		if x := cost(c, bins) + floorCost; x < bestCost {
			best, bestCost = c, x
		}
	}
	return speed.Affine{Fixed: best.Fixed * unit.seconds, PerSample: best.PerSample * unit.seconds / unit.samples,
		Floor: best.Floor * unit.seconds}, true
}

// line is the least squares through the bins, with a fixed share that is held to 0 by fixedDoubt.
func line(bins []bin) speed.Affine {
	var w, n, t, nn, nt float64
	for _, b := range bins {
		w += b.weight
		n += b.weight * b.samples
		t += b.weight * b.seconds
		nn += b.weight * b.samples * b.samples
		nt += b.weight * b.samples * b.seconds
	}
	const hold = (stepNoise / fixedDoubt) * (stepNoise / fixedDoubt)
	fixed := (t*nn - nt*n) / ((w+hold)*nn - n*n)
	fixed = max(0, min(fixed, mostFixed*t/w, mostFixed*nt/n)) // the slope stays above 0 whatever the bins
	return speed.Affine{Fixed: fixed, PerSample: (nt - fixed*n) / nn}
}

// floorThenLine has the mean of the flat bins for a floor. Where there are none above them the worker passes for
// proportional from the last of them on.
func floorThenLine(flat, above []bin) speed.Affine {
	var w, t float64
	for _, b := range flat {
		w += b.weight
		t += b.weight * b.seconds
	}
	c := speed.Affine{PerSample: t / w / flat[len(flat)-1].samples}
	if len(above) > 0 {
		c = line(above)
	}
	c.Floor = t / w
	return c
}

// cost is how badly a curve fits, in squared sigmas.
func cost(c speed.Affine, bins []bin) (sum float64) {
	for _, b := range bins {
		z := (b.seconds/affineSeconds(c, b.samples) - 1) / stepNoise
		sum += b.weight * z * z
	}
	return sum
}

// affineSeconds is Affine.Seconds for samples that are not whole.
func affineSeconds(c speed.Affine, samples float64) float64 {
	return max(c.Floor, c.Fixed+c.PerSample*samples)
}
