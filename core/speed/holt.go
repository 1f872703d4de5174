package speed

import "math"

// These are our defaults, not published values.
const (
	holtLevel   = 0.3 // weight of one observation in the level
	holtTrend   = 0.1 // weight of a change of the level in the trend
	holtDamping = 0.9 // what is left of the trend a step later
)

// Holt predicts by double exponential smoothing with a damped trend (Holt 1957; Gardner and McKenzie 1985), in its
// error-correction form. Level and trend are those of the logarithm of the speed: a trend is a share per step, and no
// forecast falls to 0. It stands for ARIMA, of which it is the case (1,1,2). The zero value is ready.
type Holt struct {
	level float64 // logarithm of the speed
	trend float64 // per step
	known bool
}

// Observe learns from one step; one that was not measured is ignored.
func (h *Holt) Observe(o Observation) {
	v, known := o.Speed()
	if !known {
		return
	}
	if !h.known {
		h.level, h.known = math.Log(v), true
		return
	}
	off := math.Log(v) - h.ahead()
	h.level = h.ahead() + holtLevel*off
	h.trend = holtDamping*h.trend + holtLevel*holtTrend*off
}

// Speed is the prediction for the next step, in samples per second; false while nothing was seen.
func (h *Holt) Speed(Inputs) (samplesPerSecond float64, known bool) {
	if !h.known {
		return 0, false
	}
	return math.Exp(h.ahead()), true
}

// ahead is the level that the next step is expected to have.
func (h *Holt) ahead() float64 { return h.level + holtDamping*h.trend }
