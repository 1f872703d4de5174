package sizing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evenstep/evenstep/core/speed"
)

// The solvers, and a step of auto, by number of workers; `make evidence` makes a table of it. Gate: the min-max of
// 10,000 affine workers in 2 ms on one core; reach: 1 ms. No allocation.
func BenchmarkSolve(b *testing.B) {
	for _, workers := range []int{10, 100, 1000, 10_000, 100_000} {
		affine, points, sizes := uneven(workers, false), uneven(workers, true), make([]int, workers)
		run := func(name string, p Problem, solve func(Problem, []int) (float64, error)) {
			b.Run(fmt.Sprintf("%s/%d", name, workers), func(b *testing.B) { benchmarkSolver(b, p, sizes, solve) })
		}
		run("min-max, affine curves", affine, MinMax)
		run("min-max, measured curves", points, MinMax)
		run("lbbsp-gpu-analytic, affine curves", affine, Analytic)
		run("proportional, affine curves", affine, ProportionalSizes)
		b.Run(fmt.Sprintf("step of auto/%d", workers), func(b *testing.B) { benchmarkAutoStep(b, affine) })
	}
}

func benchmarkSolver(b *testing.B, p Problem, sizes []int, solve func(Problem, []int) (float64, error)) {
	var times times
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		if _, err := solve(p, sizes); err != nil {
			b.Fatal(err)
		}
		times.add(time.Since(began))
	}
	times.reportMedian(b)
}

// benchmarkAutoStep: all curves are learned from a step and solved. The workers vary by 2 %; making up their times does
// not count.
func benchmarkAutoStep(b *testing.B, p Problem) {
	auto, err := NewAuto(p, nil)
	if err != nil {
		b.Fatal(err)
	}
	policy := &timed{Policy: auto}
	s := newScenario(p, 1, policy, auto.decision.BatchSizes, 1)
	s.noise = 0.02
	for b.Loop() {
		s.next(-1, 0)
	}
	policy.times.reportMedian(b)
}

// timed notes how long a policy takes.
type timed struct {
	Policy
	times times
}

func (t *timed) Step(observed []speed.Observation, lag int) (Decision, bool) {
	began := time.Now()
	d, changed := t.Policy.Step(observed, lag)
	t.times.add(time.Since(began))
	return d, changed
}

// times are those of the last operations. Their median is disturbed less by a busy machine than the mean.
type times struct {
	last  [1024]time.Duration
	count int
}

func (t *times) add(took time.Duration) {
	t.last[t.count%len(t.last)] = took
	t.count++
}

func (t *times) reportMedian(b *testing.B) {
	last := t.last[:min(t.count, len(t.last))]
	slices.Sort(last)
	b.ReportMetric(last[len(last)/2].Seconds()*1e3, "p50-ms")
}

// Workers that are all alike are one tall stair.
func BenchmarkMinMax10000Alike(b *testing.B) {
	p := Problem{GlobalBatch: 10000*256 + 8*77, Quantum: 8}
	for range 10000 {
		p.Workers = append(p.Workers, Worker{Min: 8, Max: 1 << 20, Curve: speed.Affine{Fixed: 0.01, PerSample: 0.001}})
	}
	benchmarkSolver(b, p, make([]int, len(p.Workers)), MinMax)
}
