package simulate

import (
	"fmt"
	"slices"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
)

// finest is the average batch size that stands for real-valued shares: a share is exact to a millionth.
const finest = 1_000_000

// Job is how a trace is trained on.
type Job struct {
	GlobalBatch int // N, samples; 0 for real-valued shares
	Quantum     int // at least 1; 1 for real-valued shares
	Lag         int // the decision after step k holds from step k+Lag; at least 1
	Warmup      int // so many first steps have equal sizes, whatever is decided; at least 0
}

// Problem states the job for a policy: every worker may have from one quantum to the whole batch.
func (j Job) Problem(workers int) sizing.Problem {
	p := sizing.Problem{GlobalBatch: j.GlobalBatch, Quantum: j.Quantum}
	if j.GlobalBatch == 0 {
		p.GlobalBatch = workers * finest
	}
	for range workers {
		p.Workers = append(p.Workers, sizing.Worker{Min: p.Quantum, Max: p.GlobalBatch})
	}
	return p
}

// Replay is a trace as one policy would have trained on it. Times are in the trace's unit.
type Replay struct {
	Seconds     float64   // all steps together
	StepSeconds []float64 // each step: its slowest worker
	Sizes       [][]int   // batch sizes by step, then by worker; equal vectors may share memory
	Resizes     int       // steps that had other sizes than the step before
	MovedShare  float64   // samples that another worker had in the step before, as a share of all samples
}

// Run replays the trace under a policy. A worker's time for n samples is its time in the trace · n·W/N. After each step
// it calls tick. The error is about the job, and an *sizing.InfeasibleError when the workers cannot take the batch.
func (j Job) Run(t *Trace, newPolicy sizing.Constructor, tick func()) (*Replay, error) {
	if j.Lag < 1 {
		return nil, fmt.Errorf("lag: %d is below 1", j.Lag)
	}
	p := j.Problem(len(t.Workers))
	policy, err := newPolicy(p, nil)
	if err != nil {
		return nil, err
	}
	sizes := make([]int, len(t.Workers))
	if err := sizing.Equal(p, sizes); err != nil {
		return nil, err
	}
	coming := slices.Repeat([][]int{sizes}, min(j.Lag, len(t.Seconds))) // the sizes of step k at k modulo their number
	r := &Replay{}
	observed := make([]speed.Observation, len(sizes))
	for k, recorded := range t.Seconds {
		if k >= j.Warmup {
			sizes = coming[k%len(coming)]
		}
		slowest := 0.0
		for i, n := range sizes {
			share := float64(n) * float64(len(sizes)) / float64(p.GlobalBatch)
			observed[i] = speed.Observation{Samples: float64(n), Seconds: recorded[i] * share}
			slowest = max(slowest, observed[i].Seconds)
		}
		r.add(slowest, sizes, p.GlobalBatch)
		d, _ := policy.Step(observed, j.Lag)
		coming[k%len(coming)] = d.BatchSizes
		tick()
	}
	r.MovedShare /= float64(len(r.Sizes))
	return r, nil
}

// add adds a step. MovedShare is the sum over the steps as yet.
func (r *Replay) add(seconds float64, sizes []int, globalBatch int) {
	if len(r.Sizes) > 0 {
		moved := 0
		for i, before := range r.Sizes[len(r.Sizes)-1] {
			moved += max(0, sizes[i]-before)
		}
		if moved > 0 {
			r.Resizes++
			r.MovedShare += float64(moved) / float64(globalBatch)
		}
	}
	r.Seconds += seconds
	r.StepSeconds = append(r.StepSeconds, seconds)
	r.Sizes = append(r.Sizes, sizes)
}

// Clairvoyant is the time of all steps for who knows each step's speeds before it and splits samples at will: W/Σ(1/t).
func Clairvoyant(t *Trace) (seconds float64) {
	for _, recorded := range t.Seconds {
		rate := 0.0
		for _, s := range recorded {
			rate += 1 / s
		}
		seconds += float64(len(recorded)) / rate
	}
	return seconds
}

// Captured is the share of what a clairvoyant saves over equal sizes that a policy saves. It is false where there is
// nothing to save.
func Captured(equal, policy, clairvoyant float64) (share float64, ok bool) {
	if !(equal-clairvoyant > 1e-9*equal) {
		return 0, false
	}
	return (equal - policy) / (equal - clairvoyant), true
}
