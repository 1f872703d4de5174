package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/sizing"
)

const (
	seeds    = 20
	noiseCoV = 0.1  // of a step's time, lognormal
	mostLoss = 0.02 // what auto may lose to equal sizes on average
)

// homogeneous is the table of what the policies lose to equal sizes where workers differ by nothing but noise.
func homogeneous(out io.Writer) (missed []string, err error) {
	header(out, "policy", []string{"lag 1", "lag 12"})
	for _, k := range sizing.Kinds() {
		var cells []string
		for _, lag := range lags {
			loss, err := lossWhereAlike(lag, k.New)
			if err != nil {
				return missed, err
			}
			if k.Name == "auto" && lag == 1 && loss > mostLoss {
				missed = append(missed, fmt.Sprintf("workers alike: auto loses %.2f %%, more than %.0f %%", 100*loss,
					100*mostLoss))
			}
			cells = append(cells, fmt.Sprintf("%.2f %%", 100*loss))
		}
		row(out, k.Name, cells)
	}
	return missed, nil
}

// lossWhereAlike is the mean over the seeds.
func lossWhereAlike(lag int, policy sizing.Constructor) (mean float64, err error) {
	for seed := range uint64(seeds) {
		t := alike(8, 2000, seed+1)
		equal, took, err := againstEqual(t, lag, policy)
		if err != nil {
			return 0, err
		}
		mean += (took/equal - 1) / seeds
	}
	return mean, nil
}

// alike is a trace of workers that differ by noise alone, of mean 1.
func alike(workers, steps int, seed uint64) *simulate.Trace {
	variance := math.Log(1 + noiseCoV*noiseCoV) // of the logarithm
	random := rand.New(rand.NewPCG(seed, 0))
	t := &simulate.Trace{Workers: make([]string, workers), Steps: make([]string, steps)}
	for range steps {
		times := make([]float64, workers)
		for i := range times {
			times[i] = math.Exp(math.Sqrt(variance)*random.NormFloat64() - variance/2)
		}
		t.Seconds = append(t.Seconds, times)
	}
	return t
}
