package speed

import (
	"math"
	"math/rand/v2"
)

// These are our defaults, not published values: the paper's are not known to us.
const (
	lookBack   = 3  // steps of past speeds and inputs that a prediction sees
	narxHidden = 8  // units of the tanh layer
	narxWarmUp = 32 // steps to learn from before a prediction counts
	narxBase   = 3  // half-life in steps of the average that predictions start from
	narxScale  = 64 // half-life in steps of the scales

	narxHistory = 128 // steps that are trained on again
	narxReplay  = 2   // of them at each step, beside the newest

	leastDeviation = 0.02 // of a logarithm: what varies less is not blown up to unit size
	mostDeviations = 3    // scaled values are clipped to so many
)

// narxInputs are the network's: past speeds, past and current CPU and memory, the base and a constant.
const narxInputs = lookBack + 2*(lookBack+1) + 2

// NARX predicts with a nonlinear autoregressive network with exogenous inputs, which is LB-BSP's predictor for CPU
// clusters (Chen et al., SoCC 2020): from past speeds and from past and current CPU and memory. It learns online, one
// network per worker. It is made by NewNARX.
//
// Speed, CPU and memory are taken as logarithms, so that half the speed with half the cores is linear, scaled by their
// rolling mean and deviation. The network adds to a fast average of the speeds: untrained it answers with that average,
// and it need not learn anew what a worker's level is when the level jumps. Each step trains on itself and on a few
// random ones of those before. Inputs that are not known stay as they were last; if they never were, they count as
// average.
type NARX struct {
	lag     int
	random  *rand.Rand
	network network
	history []moment            // a ring: as many as are trained on again, and what these need before and after
	seen    int                 // measured steps
	base    average             // of the logarithm of the speed
	scales  [3]scale            // of speed, CPU and memory
	inputs  [narxInputs]float64 // room for the network's
}

// moment is what one step showed, in logarithms: speed, CPU and memory (NaN: never known), and the base before it.
type moment struct {
	driven [3]float64
	base   float64
}

// NewNARX knows nothing yet. It learns to predict the step that comes lag steps (1 to 64) after the last one seen, from
// no later inputs than the next step's. The seed draws the first weights and the steps trained on again.
func NewNARX(lag int, seed uint64) *NARX {
	random := rand.New(rand.NewPCG(seed, 0))
	lag = withinLag(lag)
	return &NARX{
		lag:     lag,
		random:  random,
		network: newNetwork(narxInputs, narxHidden, random),
		history: make([]moment, narxHistory+lookBack+lag),
	}
}

// Observe learns from one step; one that was not measured is ignored, its inputs as well.
func (n *NARX) Observe(o Observation) {
	v, known := o.Speed()
	if !known {
		return
	}
	now := n.moment(o.Inputs())
	now.driven[0] = math.Log(v)
	*n.at(n.seen) = now
	n.seen++
	n.base.add(now.driven[0], weight(narxBase))
	for i, x := range now.driven {
		n.scales[i].add(x)
	}
	n.train()
}

// train learns from the newest step and from some before it, as far as there are any with a past.
func (n *NARX) train() {
	newest := n.seen - n.lag
	past := min(newest-lookBack+1, narxHistory)
	if past < 1 {
		return
	}
	n.learn(newest)
	for range narxReplay {
		n.learn(newest - n.random.IntN(past))
	}
	n.network.step()
}

// learn tells the network how it should have answered before the given step.
func (n *NARX) learn(step int) {
	m, then := n.at(step), n.at(step+n.lag-1)
	off := (then.driven[0] - m.base) / n.scales[0].deviation
	n.network.see(n.features(step, *m), clipped(off))
}

// at is a step from 0 on, as long as the ring holds it.
func (n *NARX) at(step int) *moment { return &n.history[step%len(n.history)] }

// Speed is the prediction, in samples per second; false until the lag and 31 steps more were seen.
func (n *NARX) Speed(next Inputs) (samplesPerSecond float64, known bool) {
	if n.seen < n.lag+narxWarmUp-1 {
		return 0, false
	}
	off := n.network.answer(n.features(n.seen, n.moment(next)))
	return math.Exp(n.base.mean + clipped(off)*n.scales[0].deviation), true
}

// moment is a step with the given inputs, about to begin.
func (n *NARX) moment(inputs Inputs) moment {
	m := moment{base: n.base.mean}
	for i, x := range [...]float64{inputs.CPU, inputs.MemoryBytes} {
		switch {
		case x > 0 && x <= math.MaxFloat64:
			m.driven[1+i] = math.Log(x)
		case n.seen > 0:
			m.driven[1+i] = n.at(n.seen - 1).driven[1+i]
		default:
			m.driven[1+i] = math.NaN()
		}
	}
	return m
}

// features are the network's inputs for the given step, which is m: what it has and the lookBack steps before it.
func (n *NARX) features(step int, m moment) []float64 {
	x := append(n.inputs[:0], 1, n.scales[0].scaled(m.base))
	x = append(x, n.scales[1].scaled(m.driven[1]), n.scales[2].scaled(m.driven[2]))
	for back := 1; back <= lookBack; back++ {
		past := n.at(step - back)
		for i := range past.driven {
			x = append(x, n.scales[i].scaled(past.driven[i]))
		}
	}
	return x
}

// scale brings values to about unit size by their rolling mean and deviation.
type scale struct {
	mean, square average
	deviation    float64 // at least leastDeviation; 0 while no value was seen
}

// add takes one value; NaN, not known, is none.
func (s *scale) add(x float64) {
	if math.IsNaN(x) {
		return
	}
	w, off := weight(narxScale), x-s.mean.mean
	s.mean.add(x, w)
	s.square.add(max(0, off*(x-s.mean.mean)), w) // rounding could make it negative
	s.deviation = max(math.Sqrt(s.square.mean), leastDeviation)
}

// scaled is 0, the mean, for what is not known or has never been.
func (s *scale) scaled(x float64) float64 {
	if math.IsNaN(x) || s.deviation == 0 {
		return 0
	}
	return clipped((x - s.mean.mean) / s.deviation)
}

// mostLag is as far ahead as any predictor looks, so that memory stays bounded.
const mostLag = 64

func withinLag(lag int) int { return max(1, min(lag, mostLag)) }

func clipped(x float64) float64 { return max(-mostDeviations, min(x, mostDeviations)) }
