package sizing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/speed"
)

// drawStationary is a cluster whose workers differ by up to a factor of four and whose curves may have a floor.
func drawStationary(t *rapid.T, fixed, floor float64) Problem {
	p := Problem{GlobalBatch: 4096, Quantum: rapid.SampledFrom([]int{1, 8, 64}).Draw(t, "quantum")}
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

// settle plays a policy for so many steps, and says how often it moved in the second half, how long the longest step
// took there and how long one would take at best, in seconds.
func settle(t *rapid.T, p Problem, policy Policy, steps int) (late int, longest, best float64) {
	start, _ := policy.Step(nil, 1)
	s := newScenario(p, rapid.IntRange(1, 12).Draw(t, "lag"), policy, start.BatchSizes, 1)
	for step := range steps {
		took, _, changed := s.next(-1, 0)
		if step < steps/2 {
			continue
		}
		longest = max(longest, took)
		if changed {
			late++
		}
	}
	return late, longest, s.best()
}

// quantumSeconds is how long the slowest worker takes for one quantum more.
func quantumSeconds(p Problem) (seconds float64) {
	for _, w := range p.Workers {
		seconds = max(seconds, w.Curve.(speed.Affine).PerSample*float64(p.Quantum))
	}
	return seconds
}

func TestGPUAnalyticReachesTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawStationary(t, 0.5, 0.8)
		policy, err := NewGPUAnalytic(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, longest, best := settle(t, p, policy, 300); longest > 1.02*best+quantumSeconds(p) {
			t.Fatalf("%v: up to %v s, optimum %v s", policy.decision.BatchSizes, longest, best)
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
		late, longest, best := settle(t, p, policy, 4000)
		// It stops within the dead-band, or where no whole quantum helps.
		if longest > (1+tuningBand)*best+quantumSeconds(p) || late > 0 {
			t.Fatalf("%v: up to %v s, optimum %v s, %d late moves", policy.decision.BatchSizes, longest, best, late)
		}
	})
}

// A worker that is timed in some steps only is not the faster for it.
func TestGPUTuningAveragesWhatWasTimed(t *testing.T) {
	policy, err := NewGPUTuning(alike(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	for step := range 100 {
		observed := []speed.Observation{{Samples: 32, Seconds: 1}, {Samples: 32, Seconds: 1}}
		if step%2 == 1 {
			observed[1] = speed.Observation{}
		}
		if d, changed := policy.Step(observed, 1); changed {
			t.Fatalf("step %d: %v", step, d)
		}
	}
}

// LB-BSP on CPUs is exact where time is proportional to samples.
func TestProportionalIsOptimalForProportionalWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawStationary(t, 0, 0)
		policy, err := NewCPU(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if late, longest, best := settle(t, p, policy, 60); longest > 1.001*best || late > 2 {
			t.Fatalf("%v: up to %v s, optimum %v s, %d late moves", policy.decision.BatchSizes, longest, best, late)
		}
	})
}
