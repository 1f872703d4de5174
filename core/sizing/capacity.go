package sizing

import (
	"math"

	"github.com/evenstep/evenstep/core/speed"
)

// capacity is the most samples, within the limits and in whole quanta, that the worker finishes within t seconds; its
// minimum where it does not finish even that. last is the time of that many, -1 at the minimum, and next the time of
// one quantum more, +Inf at the maximum.
//
// It agrees with Worker.seconds to the last bit: last <= t < next.
func (p *Problem) capacity(w *Worker, t float64) (n int, last, next float64) {
	// Most curves are affine; calling them directly halves the time of a pass.
	if a, ok := w.Curve.(speed.Affine); ok {
		n = p.clamp(w, p.floor(a.Samples(t-w.CommunicateSeconds)))
		last, next = -1, math.Inf(1)
		if n-p.Quantum >= w.Min {
			last = w.CommunicateSeconds + a.Seconds(n)
		}
		if n <= w.Max-p.Quantum {
			next = w.CommunicateSeconds + a.Seconds(n+p.Quantum)
		}
	} else {
		n = p.clamp(w, p.floor(w.Curve.Samples(t-w.CommunicateSeconds)))
		last, next = p.times(w, n)
	}
	if last <= t && t < next {
		return n, last, next
	}
	n = p.walk(w, n, t)
	last, next = p.times(w, n)
	return n, last, next
}

// times are capacity's last and next for n samples.
func (p *Problem) times(w *Worker, n int) (last, next float64) {
	last, next = -1, math.Inf(1)
	if n-p.Quantum >= w.Min {
		last = w.seconds(n)
	}
	if n <= w.Max-p.Quantum {
		next = w.seconds(n + p.Quantum)
	}
	return last, next
}

// floor rounds down to the quantum, give or take one for large numbers; it is 0 for what is below that or not a number.
func (p *Problem) floor(samples float64) int {
	if !(samples > 0) {
		return 0
	}
	if samples > 1<<62 {
		samples = 1 << 62
	}
	return int(samples/float64(p.Quantum)) * p.Quantum
}

// walk moves n to the worker's capacity at t: in doubling strides past it, then back by bisection.
func (p *Problem) walk(w *Worker, n int, t float64) int {
	done := func(n int) bool { return w.seconds(n) <= t }
	least, most := p.least(w), p.most(w)
	lo, hi := n, n
	if stride := p.Quantum; done(n) {
		for hi < most && done(hi) {
			lo, hi, stride = hi, min(add(hi, stride), most), add(stride, stride)
		}
		if done(hi) {
			return hi
		}
	} else {
		for lo > least && !done(lo) {
			lo, hi, stride = max(lo-stride, least), lo, add(stride, stride)
		}
		if !done(lo) {
			return lo
		}
	}
	for hi-lo > p.Quantum {
		half := (hi - lo) / 2
		mid := lo + max(half-half%p.Quantum, p.Quantum)
		if done(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
