package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
)

// problemInput is one instance of batch sizing as users write it.
type problemInput struct {
	GlobalBatch given[whole]         `json:"global_batch"`
	Quantum     given[whole]         `json:"quantum"`
	Workers     given[[]workerInput] `json:"workers"`
}

type workerInput struct {
	ID                 given[string]      `json:"id"`
	Min                given[whole]       `json:"min"`
	Max                given[whole]       `json:"max"`
	Curve              given[curveInput]  `json:"curve"`
	Points             given[[][]literal] `json:"points"` // pairs of samples and seconds
	CommunicateSeconds given[amount]      `json:"communicate_seconds"`
}

type curveInput struct {
	FixedSeconds     given[amount] `json:"fixed_seconds"`
	SecondsPerSample given[amount] `json:"seconds_per_sample"`
	FloorSeconds     given[amount] `json:"floor_seconds"`
}

// problem fills in the defaults. The error names the field that is wrong; what concerns limits and sums is left to
// sizing.
func (in *problemInput) problem() (sizing.Problem, error) {
	switch {
	case !in.GlobalBatch.set:
		return sizing.Problem{}, errors.New("global_batch: missing; give the samples of one step")
	case !in.Workers.set || len(in.Workers.value) == 0:
		return sizing.Problem{}, errors.New("workers: missing; give at least one")
	}
	p := sizing.Problem{GlobalBatch: int(in.GlobalBatch.value), Quantum: int(in.Quantum.or(1))}
	seen := make(map[string]int, len(in.Workers.value))
	for i := range in.Workers.value {
		w := &in.Workers.value[i]
		id := w.ID.value
		if id == "" {
			return p, fmt.Errorf("workers[%d].id: missing; give each worker a name", i)
		}
		if first, twice := seen[id]; twice {
			return p, fmt.Errorf("workers[%d].id: %q is the id of workers[%d] already", i, id, first)
		}
		seen[id] = i
		worker, err := w.worker(p)
		if err != nil {
			return p, fmt.Errorf("workers[%d].%w", i, err)
		}
		p.Workers = append(p.Workers, worker)
	}
	return p, nil
}

func (w *workerInput) worker(p sizing.Problem) (out sizing.Worker, err error) {
	out.Min = int(w.Min.or(whole(p.Quantum)))
	out.Max = int(w.Max.or(whole(p.GlobalBatch)))
	out.CommunicateSeconds = float64(w.CommunicateSeconds.value)
	field := "curve.seconds_per_sample"
	switch {
	case w.Curve.set && w.Points.set:
		return out, errors.New("points: given besides curve; give one of the two")
	case w.Curve.set:
		out.Curve, err = w.Curve.value.curve()
	case w.Points.set:
		field = "points"
		out.Curve, err = points(w.Points.value)
	default:
		return out, errors.New("curve: missing; give curve or points")
	}
	if err == nil && math.IsInf(out.CommunicateSeconds+out.Curve.Seconds(p.GlobalBatch), 1) {
		err = fmt.Errorf("%s: the time of %d samples is too large for a number", field, p.GlobalBatch)
	}
	return out, err
}

func (c *curveInput) curve() (speed.Affine, error) {
	if !c.SecondsPerSample.set {
		return speed.Affine{}, errors.New("curve.seconds_per_sample: missing")
	}
	return speed.Affine{
		Fixed:     float64(c.FixedSeconds.value),
		PerSample: float64(c.SecondsPerSample.value),
		Floor:     float64(c.FloorSeconds.value),
	}, nil
}

func points(pairs [][]literal) (speed.Points, error) {
	at := make([]speed.Point, len(pairs))
	for i, pair := range pairs {
		if len(pair) != 2 {
			return speed.Points{}, fmt.Errorf("points[%d]: %d numbers; give [samples, seconds]", i, len(pair))
		}
		samples, err := pair[0].whole()
		if err != nil {
			return speed.Points{}, fmt.Errorf("points[%d][0]: %w", i, err)
		}
		seconds, err := pair[1].amount()
		if err != nil {
			return speed.Points{}, fmt.Errorf("points[%d][1]: %w", i, err)
		}
		at[i] = speed.Point{Samples: int(samples), Seconds: float64(seconds)}
	}
	return speed.NewPoints(at)
}
