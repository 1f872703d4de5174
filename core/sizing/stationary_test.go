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

// settle plays a policy for so many steps, says how often it moved in the second half and how much longer than the
// optimum a step takes in the end.
func settle(t *rapid.T, p Problem, policy Policy, steps int) (late int, loss float64) {
	start, _ := policy.Step(nil)
	s := newScenario(p, rapid.IntRange(1, 5).Draw(t, "lag"), policy, start.BatchSizes, 1)
	var d Decision
	for step := range steps {
		var changed bool
		if _, d, changed = s.next(-1, 0); changed && step >= steps/2 {
			late++
		}
	}
	return late, p.StepSeconds(d.BatchSizes)/s.best() - 1
}

func TestGPUAnalyticReachesTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawStationary(t, 0.5, 0.8)
		policy, err := NewGPUAnalytic(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		late, loss := settle(t, p, policy, 300)
		if loss > 0.02 || late > 5 {
			t.Fatalf("%v: %.1f %% above the optimum, %d late moves", policy.decision.BatchSizes, 100*loss, late)
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
		late, loss := settle(t, p, policy, 4000)
		// The dead-band stops it where no worker is 5 % behind another, or a quantum decides.
		coarse := 0.0
		for _, w := range p.Workers {
			coarse = max(coarse, w.Curve.(speed.Affine).PerSample*float64(p.Quantum))
		}
		if loss > tuningBand+coarse || late > 0 {
			t.Fatalf("%v: %.1f %% above the optimum, %d late moves", policy.decision.BatchSizes, 100*loss, late)
		}
	})
}

// LB-BSP on CPUs is exact where time is proportional to samples.
func TestProportionalIsOptimalForProportionalWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawStationary(t, 0, 0)
		policy, err := NewProportional("lbbsp-cpu", p, nil, NARXOrEWMA)
		if err != nil {
			t.Fatal(err)
		}
		if late, loss := settle(t, p, policy, 60); loss > 0.001 || late > 2 {
			t.Fatalf("%v: %.2f %% above the optimum, %d late moves", policy.decision.BatchSizes, 100*loss, late)
		}
	})
}
