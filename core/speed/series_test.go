package speed

import (
	"math"
	"math/rand/v2"
)

// steps makes a series of a worker that takes 32 samples a step, from its speed at each.
func steps(n int, speed func(step int) float64) []Observation {
	series := make([]Observation, n)
	for k := range series {
		series[k] = Observation{Samples: 32, Seconds: 32 / speed(k)}
	}
	return series
}

func constant(int) float64 { return 100 }

func halved(k int) float64 {
	if k < 150 {
		return 100
	}
	return 50
}

func ramp(k int) float64 { return 100 + 0.5*float64(k) }

func seasonal(k int) float64 { return 100 + 30*math.Sin(2*math.Pi*float64(k)/12) }

// noisy is lognormal noise of 10 % around 100.
func noisy(seed uint64) func(int) float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(int) float64 { return 100 * math.Exp(0.1*r.NormFloat64()) }
}

// contended is a worker whose cores come and go, and with them its speed: less than in proportion, not beyond six
// cores, and the slower the faster it just was, as where a quota of CPU time is used up. With 1 % of noise.
func contended(n int, seed uint64) []Observation {
	r := rand.New(rand.NewPCG(seed, 2))
	series, cores, last := make([]Observation, n), 4.0, 100.0
	for k := range series {
		if r.IntN(5) == 0 {
			cores = 1 + 7*r.Float64()
		}
		v := 30 * math.Pow(min(cores, 6), 0.8) * math.Exp(-0.3*math.Tanh((last-100)/50)+0.01*r.NormFloat64())
		series[k] = Observation{Samples: 32, Seconds: 32 / v, CPU: cores, MemoryBytes: 1 << 34}
		last = v
	}
	return series
}
