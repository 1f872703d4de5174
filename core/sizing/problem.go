// Package sizing says how many samples each worker of a job gets in a step, so that all of them finish together and
// the global batch stays what the user fixed: semi-dynamic load balancing (LB-BSP).
//
// MinMax, Equal, Analytic and ProportionalSizes solve one instance. A Policy has memory: it is fed what a job's steps
// cost and answers with the batch sizes to train on. Kinds lists all policies by name.
//
// The package is pure: no I/O, no clock, no goroutine, no randomness. Nothing in it panics on bad numbers.
package sizing

import (
	"fmt"
	"math"
)

// Curve is what sizing asks of a worker's speed curve. Seconds must not fall as n rises.
type Curve interface {
	// Seconds is the compute time of n >= 1 samples, at least 0.
	Seconds(n int) float64
	// Samples is the inverse of Seconds, about: the most samples computed within the given seconds. The solver starts
	// from it and trusts Seconds alone, so a poor answer costs time, not exactness.
	Samples(seconds float64) float64
}

// Problem is one instance of batch sizing: split GlobalBatch samples among the workers.
type Problem struct {
	GlobalBatch int      // N, at least 1
	Quantum     int      // batch sizes are multiples of it; at least 1, divides GlobalBatch
	Workers     []Worker // at least one
}

// Worker is one worker's share of a Problem.
type Worker struct {
	// Min and Max bound the batch size in samples: 0 <= Min <= Max. Min counts rounded up to the quantum, Max down.
	// A Max of the global batch or more need not reach Min: such a problem is infeasible rather than wrong.
	Min, Max int
	Curve    Curve // compute time; Equal and the policies with memory do not look at it
	// CommunicateSeconds is added to the compute time of a worker that has any samples; finite, at least 0.
	CommunicateSeconds float64
}

// InfeasibleError says that no vector within the limits sums to the global batch. All three are samples; a sum past the
// largest int stands at that.
type InfeasibleError struct {
	GlobalBatch    int
	MinSum, MaxSum int // of the limits, rounded to the quantum
}

func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("global_batch: %d is outside what the workers can take, %d (sum of min) to %d (sum of max)",
		e.GlobalBatch, e.MinSum, e.MaxSum)
}

// check sums the limits, rounded to the quantum. The error names the first field that is wrong, or is an
// *InfeasibleError.
func (p *Problem) check() (minSum, maxSum int, err error) {
	switch {
	case p.GlobalBatch < 1:
		return 0, 0, fmt.Errorf("global_batch: %d is below 1", p.GlobalBatch)
	case p.Quantum < 1:
		return 0, 0, fmt.Errorf("quantum: %d is below 1", p.Quantum)
	case p.GlobalBatch%p.Quantum != 0:
		return 0, 0, p.notAMultiple()
	case len(p.Workers) == 0:
		return 0, 0, fmt.Errorf("workers: none; give at least one")
	}
	for i := range p.Workers {
		w := &p.Workers[i]
		least, most := p.least(w), p.most(w)
		switch {
		case w.Min < 0:
			return 0, 0, fmt.Errorf("workers[%d].min: %d is below 0", i, w.Min)
		case w.Max < min(w.Min, p.GlobalBatch):
			return 0, 0, fmt.Errorf("workers[%d].max: %d is below min %d; give max >= min", i, w.Max, w.Min)
		case most < min(least, p.GlobalBatch):
			return 0, 0, fmt.Errorf("workers[%d].max: no multiple of the quantum %d between min %d and max %d", i,
				p.Quantum, w.Min, w.Max)
		case !(w.CommunicateSeconds >= 0) || math.IsInf(w.CommunicateSeconds, 1):
			return 0, 0, fmt.Errorf("workers[%d].communicate_seconds: %v is not a finite number >= 0", i,
				w.CommunicateSeconds)
		}
		minSum, maxSum = add(minSum, least), add(maxSum, most)
	}
	if p.GlobalBatch < minSum || p.GlobalBatch > maxSum {
		return minSum, maxSum, &InfeasibleError{p.GlobalBatch, minSum, maxSum}
	}
	return minSum, maxSum, nil
}

func (p *Problem) notAMultiple() error {
	below := p.GlobalBatch - p.GlobalBatch%p.Quantum
	if below == 0 {
		return fmt.Errorf("global_batch: %d is not a multiple of the quantum %d; give %d", p.GlobalBatch, p.Quantum,
			p.Quantum)
	}
	return fmt.Errorf("global_batch: %d is not a multiple of the quantum %d; give %d or %d", p.GlobalBatch, p.Quantum,
		below, add(below, p.Quantum))
}

// room checks that sizes has one entry per worker.
func (p *Problem) room(sizes []int) error {
	if len(sizes) != len(p.Workers) {
		return fmt.Errorf("sizes: room for %d workers; give room for %d", len(sizes), len(p.Workers))
	}
	return nil
}

// CheckSizes says whether sizes solve the problem, which must have a solution: one entry per worker, each a multiple of
// the quantum within the worker's limits, in sum the global batch. The error names the entry that is wrong.
func (p *Problem) CheckSizes(sizes []int) error {
	if len(sizes) != len(p.Workers) {
		return fmt.Errorf("batch_sizes: %d of them for %d workers; give one each", len(sizes), len(p.Workers))
	}
	sum := 0
	for i, n := range sizes {
		w := &p.Workers[i]
		least, most := p.least(w), p.most(w)
		if n < least || n > most || n%p.Quantum != 0 {
			return fmt.Errorf("batch_sizes[%d]: %d is not a multiple of %d between %d and %d", i, n, p.Quantum, least,
				most)
		}
		sum = add(sum, n)
	}
	if sum != p.GlobalBatch {
		return fmt.Errorf("batch_sizes: they sum to %d; give sizes that sum to global_batch %d", sum, p.GlobalBatch)
	}
	return nil
}

// least is the worker's minimum as a multiple of the quantum; the largest int where there is none.
func (p *Problem) least(w *Worker) int {
	if r := w.Min % p.Quantum; r > 0 {
		return add(w.Min, p.Quantum-r)
	}
	return w.Min
}

// most is the worker's maximum as a multiple of the quantum.
func (p *Problem) most(w *Worker) int { return w.Max - w.Max%p.Quantum }

// clamp moves n, a multiple of the quantum, to within the worker's limits.
func (p *Problem) clamp(w *Worker, n int) int {
	// Testing against the limits as given saves the divisions for most workers.
	switch {
	case n < w.Min:
		return p.least(w)
	case n > w.Max:
		return p.most(w)
	}
	return n
}

// seconds is the worker's step time with n samples.
func (w *Worker) seconds(n int) float64 {
	if n <= 0 {
		return 0
	}
	return w.CommunicateSeconds + w.Curve.Seconds(n)
}

// StepSeconds is what a step takes: the time of the slowest worker with the given sizes, one entry per worker. Every
// worker needs its Curve.
func (p *Problem) StepSeconds(sizes []int) float64 {
	t := 0.0
	for i := range p.Workers {
		t = max(t, p.Workers[i].seconds(sizes[i]))
	}
	return t
}

// add is a + b of two numbers >= 0, or the largest int where that does not fit.
func add(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}
