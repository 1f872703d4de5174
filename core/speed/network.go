package speed

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// network is a network of one tanh layer with a linear output, trained example by example with Adam (Kingma and Ba
// 2015) and a little decay of the weights. Constants in the inputs make biases. Inputs should be of about unit size.
type network struct {
	in      int // inputs
	weights []float64
	slopes  []float64 // gradient of the examples since the last step
	first   []float64 // Adam's moments of the gradient
	second  []float64
	forgot  [2]float64 // the moments' decay so far
	hidden  []float64  // outputs of the tanh layer for the inputs last seen
}

// These are our defaults, not published values, but for Adam's own decay.
const (
	learnRate   = 0.005
	weightDecay = 0.001 // share of a weight lost with a step at full rate
	mostError   = 2     // deviations that an error counts up to
)

var adamDecay = [2]float64{0.9, 0.999}

// newNetwork starts with random weights in and none out, so that it answers 0 until it has learned otherwise.
func newNetwork(in, hidden int, random *rand.Rand) network {
	n := network{in: in, hidden: make([]float64, hidden), forgot: [2]float64{1, 1}}
	size := hidden*in + hidden
	all := make([]float64, 4*size)
	n.weights, n.slopes, n.first, n.second = all[:size], all[size:2*size], all[2*size:3*size], all[3*size:]
	for i := range n.weights[:hidden*in] {
		n.weights[i] = random.NormFloat64() / math.Sqrt(float64(in))
	}
	return n
}

// answer is the output for the inputs x.
func (n *network) answer(x []float64) float64 {
	for j := range n.hidden {
		n.hidden[j] = math.Tanh(floats.Dot(n.weights[j*n.in:(j+1)*n.in], x))
	}
	return floats.Dot(n.weights[len(n.hidden)*n.in:], n.hidden)
}

// see adds one example to the gradient of half the squared error. Errors count up to mostError (Huber).
func (n *network) see(x []float64, want float64) {
	off := max(-mostError, min(n.answer(x)-want, mostError))
	out := len(n.hidden) * n.in
	for j, h := range n.hidden {
		floats.AddScaled(n.slopes[j*n.in:(j+1)*n.in], off*n.weights[out+j]*(1-h*h), x)
	}
	floats.AddScaled(n.slopes[out:], off, n.hidden)
}

// step moves the weights against the gradient of what was seen since the last step.
func (n *network) step() {
	for i, decay := range adamDecay {
		n.forgot[i] *= decay
	}
	rate := learnRate * math.Sqrt(1-n.forgot[1]) / (1 - n.forgot[0])
	for i, g := range n.slopes {
		n.first[i] += (1 - adamDecay[0]) * (g - n.first[i])
		n.second[i] += (1 - adamDecay[1]) * (g*g - n.second[i])
		n.weights[i] -= rate*n.first[i]/(math.Sqrt(n.second[i])+1e-8) + learnRate*weightDecay*n.weights[i]
		n.slopes[i] = 0
	}
}
