package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/evenstep/evenstep/core/speed"
)

// learning are the first steps, which do not count: from then on NARX predicts as well, at any of the lags.
const learning = 50

// job is what the workers of a job showed: by worker, then by step.
type job struct {
	name    string
	workers [][]speed.Observation
}

// jobs are those of the traces, with an equal share of the batch for each worker in every step, and one whose workers
// know what drives their speed.
func jobs(traces []trace) (all []job) {
	for _, t := range traces {
		j := job{t.name, make([][]speed.Observation, len(t.Workers))}
		for _, seconds := range t.Seconds {
			for worker, s := range seconds {
				j.workers[worker] = append(j.workers[worker], speed.Observation{Samples: 1, Seconds: s})
			}
		}
		all = append(all, j)
	}
	known := job{name: "cores known"}
	for worker := range uint64(8) {
		known.workers = append(known.workers, driven(2000, rand.New(rand.NewPCG(1, worker))))
	}
	return append(all, known)
}

// driven is a worker who senses before each step how many cores it has, 1 to 8. Its speed grows less than in proportion
// to them, not beyond six, and is the lower the higher it just was, as where a quota of CPU time is used up; with 1 %
// of noise.
func driven(steps int, random *rand.Rand) []speed.Observation {
	series := make([]speed.Observation, steps)
	cores, last := 4.0, 100.0
	for k := range series {
		if random.IntN(5) == 0 {
			cores = 1 + 7*random.Float64()
		}
		v := 30 * math.Pow(min(cores, 6), 0.8) * math.Exp(-0.3*math.Tanh((last-100)/50)+0.01*random.NormFloat64())
		series[k] = speed.Observation{Samples: 1, Seconds: 1 / v, CPU: cores}
		last = v
	}
	return series
}

// predictors are the tables of how far off the predictors are, one for each lag.
func predictors(out io.Writer, recorded []trace) (missed []string, err error) {
	synthetic, err := generated()
	if err != nil {
		return nil, err
	}
	for i, lag := range lags {
		var columns []string
		cells := map[string][]string{} // by predictor
		for _, j := range jobs(append(recorded[:len(recorded):len(recorded)], synthetic...)) {
			columns = append(columns, j.name)
			for name, e := range meanErrors(j, lag) {
				cell := fmt.Sprintf("%.1f / %.1f / %+.1f", 100*e.RMSE, 100*e.MAE, 100*e.Bias)
				if e.Steps == 0 {
					cell = "too short"
				}
				cells[name] = append(cells[name], cell)
			}
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		header(out, fmt.Sprintf("lag %d", lag), columns)
		for _, m := range candidates(lag, 0) {
			row(out, m.Name, cells[m.Name])
		}
	}
	return nil, nil
}

// candidates are all predictors, fresh, the ensemble of them last.
func candidates(lag int, seed uint64) []speed.Member {
	return append(speed.Members(lag, seed), speed.Member{
		Name: "ensemble", Predictor: speed.NewEnsemble(lag, speed.Members(lag, seed)...),
	})
}

// meanErrors are the means over the workers of a job, by predictor.
func meanErrors(j job, lag int) map[string]speed.PredictionError {
	means := map[string]speed.PredictionError{}
	share := 1 / float64(len(j.workers))
	for worker, series := range j.workers {
		members := candidates(lag, uint64(worker))
		var fresh []speed.Predictor
		for _, m := range members {
			fresh = append(fresh, m)
		}
		for i, e := range speed.Errors(series, fresh, lag, learning) {
			mean := means[members[i].Name]
			mean.Steps += e.Steps
			mean.RMSE += share * e.RMSE
			mean.MAE += share * e.MAE
			mean.Bias += share * e.Bias
			means[members[i].Name] = mean
		}
	}
	return means
}
