package sizing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/speed"
)

// drawStationary is a cluster whose workers differ by up to a factor of four and whose curves may have a floor.
func drawStationary(t *rapid.T, fixed, floor float64) Problem {
	p := Problem{GlobalBatch: 4096, Quantum: rapid.SampledFrom([]int{1, 8}).Draw(t, "quantum")}
	workers := rapid.IntRange(2, 8).Draw(t, "workers")
	for range workers {
		slope := 0.001 * math.Pow(4, rapid.Float64Range(0, 1).Draw(t, "slower"))
		equal := slope * float64(p.GlobalBatch/workers)
		p.Workers = append(p.Workers, Worker{Min: p.Quantum, Max: p.GlobalBatch, Curve: speed.Affine{
			Fixed:     equal * rapid.Float64Range(0, fixed).Draw(t, "fixed"),
			PerSample: slope,
			Floor:     equal * rapid.Float64Range(0, floor).Draw(t, "floor"),
		}})
	}
	return p
}

// settle plays a policy for so many steps, and says how often it moved in the second half, how long a step takes in the
// end and how long it would at best, in seconds.
func settle(t *rapid.T, p Problem, policy Policy, steps int) (late int, got, best float64) {
	start, _ := policy.Step(nil, 1)
	s := newScenario(p, rapid.IntRange(1, 5).Draw(t, "lag"), policy, start.BatchSizes, 1)
	var d Decision
	for step := range steps {
		var changed bool
		if _, d, changed = s.next(-1, 0); changed && step >= steps/2 {
			late++
		}
	}
	return late, p.StepSeconds(d.BatchSizes), s.best()
}

func TestGPUAnalyticReachesTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawStationary(t, 0.5, 0.8)
		policy, err := NewGPUAnalytic(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		late, got, best := settle(t, p, policy, 300)
		if got > 1.02*best || late > 5 {
			t.Fatalf("%v: %v s, optimum %v s, %d late moves", policy.decision.BatchSizes, got, best, late)
		}
	})
}

func TestGPUTuningReachesTheOptimumAndStops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawStationary(t, 0.5, 0.8)
		policy, err := NewGPUTuning(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		late, got, best := settle(t, p, policy, 4000)
		// It stops within the dead-band, or where no whole quantum helps.
		quantum := 0.0
		for _, w := range p.Workers {
			quantum = max(quantum, w.Curve.(speed.Affine).PerSample*float64(p.Quantum))
		}
		if got > (1+tuningBand)*best+quantum || late > 0 {
			t.Fatalf("%v: %v s, optimum %v s, %d late moves", policy.decision.BatchSizes, got, best, late)
		}
	})
}

// LB-BSP on CPUs is exact where time is proportional to samples.
func TestProportionalIsOptimalForProportionalWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawStationary(t, 0, 0)
		policy, err := NewCPU(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if late, got, best := settle(t, p, policy, 60); got > 1.001*best || late > 2 {
			t.Fatalf("%v: %v s, optimum %v s, %d late moves", policy.decision.BatchSizes, got, best, late)
		}
	})
}
