package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// A generator says how slow one worker is in each step: its factor over a free worker of the fastest kind, above 0.
// Each draws from a source of its own.
type generator struct {
	name     string
	noise    float64 // sigma of the logarithm of each step's time on top, which nobody can foresee
	slowdown func(worker, workers, steps int, random *rand.Rand) func(step int) float64
}

// The generators and all their numbers are ours: situations to compare policies in, not measurements.
var generators = []generator{
	{"static", 0.03, static},
	{"contention", 0.05, contention},
	{"drift", 0.05, drift},
	{"throttle", 0.03, throttle},
	{"burst", 0.05, burst},
	{"join", 0.03, join},
}

// Synthetics are the names that Synthetic takes.
func Synthetics() []string {
	names := make([]string, len(generators))
	for i, g := range generators {
		names[i] = g.name
	}
	return names
}

// mostTimes bounds steps times workers of a synthetic trace.
const mostTimes = 1 << 24

// Synthetic makes a trace of the kind that is named. The same seed gives the same trace, and more steps or more workers
// leave the times of the others alone, as far as the kind allows.
func Synthetic(name string, workers, steps int, seed uint64) (*Trace, error) {
	i := slices.IndexFunc(generators, func(g generator) bool { return g.name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("unknown kind %.40q; give one of %q", name, Synthetics())
	case workers < 1 || steps < 1:
		return nil, fmt.Errorf("%d workers, %d steps; give at least 1", workers, steps)
	case workers > mostTimes/steps:
		return nil, fmt.Errorf("%d workers in %d steps; give at most %d together", workers, steps, mostTimes)
	}
	g := generators[i]
	t := &Trace{Seconds: make([][]float64, steps)}
	for k := range t.Seconds {
		t.Steps = append(t.Steps, strconv.Itoa(k))
		t.Seconds[k] = make([]float64, workers)
	}
	for w := range workers {
		t.Workers = append(t.Workers, strconv.Itoa(w))
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		slowdown := g.slowdown(w, workers, steps, random)
		for k := range t.Seconds {
			t.Seconds[k][w] = freeSeconds * slowdown(k) * math.Exp(g.noise*random.NormFloat64())
		}
	}
	return t, nil
}

// freeSeconds is what an equal share of the batch takes a free worker of the fastest kind.
const freeSeconds = 0.1

// kinds are the slowdowns of a cluster's device types; workers take them in turns.
var kinds = []float64{1, 1.5, 2.5}

// static is a cluster of three device types, in which only noise changes.
func static(worker, _, _ int, _ *rand.Rand) func(int) float64 {
	return func(int) float64 { return kinds[worker%len(kinds)] }
}

// contention is one device type, shared with others who come and go: a worker is free for 150 steps on average, then
// 1.3 to 3 times as slow for 50.
func contention(_, _, _ int, random *rand.Rand) func(int) float64 {
	slow := 1.0
	return func(int) float64 {
		switch {
		case slow == 1 && random.Float64() < 1.0/150:
			slow = 1.3 + 1.7*random.Float64()
		case slow > 1 && random.Float64() < 1.0/50:
			slow = 1
		}
		return slow
	}
}

// drift is one device type whose speeds wander: the logarithm of the slowdown is a random walk of 0.02 a step that is
// drawn back to 0 and so keeps to a sigma of about 0.3.
func drift(_, _, _ int, random *rand.Rand) func(int) float64 {
	const step, sigma = 0.02, 0.3
	x := sigma * random.NormFloat64()
	return func(int) float64 {
		x += step*random.NormFloat64() - x*step*step/(2*sigma*sigma)
		return math.Exp(x)
	}
}

// throttle is one device type, every second worker of which gets hot: after 100 to 300 steps at full clock it is 1.6
// times as slow for half as long, over and over.
func throttle(worker, _, _ int, random *rand.Rand) func(int) float64 {
	cool := 100 + random.IntN(201)
	start := random.IntN(cool)
	return func(step int) float64 {
		if worker%2 == 1 && (start+step)%(cool+cool/2) >= cool {
			return 1.6
		}
		return 1
	}
}

// burst is one device type with hiccups that nobody can foresee: one step in 50 a worker is 2 to 5 times as slow, for 1
// to 3 steps. A policy that runs after them loses.
func burst(_, _, _ int, random *rand.Rand) func(int) float64 {
	slow, left := 1.0, 0
	return func(int) float64 {
		if left == 0 && random.Float64() < 1.0/50 {
			slow, left = 2+3*random.Float64(), 1+random.IntN(3)
		}
		if left == 0 {
			return 1
		}
		left--
		return slow
	}
}

// join is a cluster of three device types whose last worker joins after a third of the steps. A replay has the same
// workers throughout, so until then a stand-in that is 8 times as slow holds its seat, as a CPU would.
func join(worker, workers, steps int, random *rand.Rand) func(int) float64 {
	joined := static(worker, workers, steps, random)
	return func(step int) float64 {
		if worker == workers-1 && step < steps/3 {
			return 8
		}
		return joined(step)
	}
}
