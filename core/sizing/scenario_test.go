package sizing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/evenstep/evenstep/core/speed"
)

// policy is what the service feeds and asks.
type policy interface {
	Step([]Observation) (Decision, bool)
}

// scenario plays a policy against workers whose true speed is known. The decision after step k holds from step k + lag.
type scenario struct {
	problem Problem // with the true curves, which the policy is not told
	policy  policy
	names   []string
	factor  []float64 // by which each worker is slower than its curve
	missing []bool    // workers whose time is not measured
	noise   float64   // sigma of the logarithm of a step's time
	random  *rand.Rand
	step    int
	coming  [][]int // sizes of the next steps, lag of them
}

func newScenario(p Problem, lag int, pol policy, sizes []int, seed uint64) *scenario {
	s := &scenario{
		problem: p, policy: pol, factor: make([]float64, len(sizes)), missing: make([]bool, len(sizes)),
		random: rand.New(rand.NewPCG(seed, 0)),
	}
	for i := range s.factor {
		s.factor[i] = 1
	}
	for range lag {
		s.coming = append(s.coming, sizes)
	}
	return s
}

// next plays one step; pause is added to the time of one worker, if any.
func (s *scenario) next(pauses map[string]float64) (sizes []int, took float64, d Decision, changed bool) {
	sizes, s.coming = s.coming[0], s.coming[1:]
	observed := make([]Observation, len(sizes))
	for i, n := range sizes {
		t := s.problem.Workers[i].seconds(n) * s.factor[i] * math.Exp(s.noise*s.random.NormFloat64())
		if s.names != nil {
			t += pauses[s.names[i]]
		}
		took = max(took, t)
		if !s.missing[i] {
			observed[i] = Observation{float64(n), t}
		}
	}
	d, changed = s.policy.Step(observed)
	s.coming = append(s.coming, d.BatchSizes)
	s.step++
	return sizes, took, d, changed
}

// best is the least step time for the workers as they now are, without noise.
func (s *scenario) best() float64 {
	p := s.problem
	p.Workers = slices.Clone(p.Workers)
	for i := range p.Workers {
		a := p.Workers[i].Curve.(speed.Affine)
		a.Fixed, a.PerSample, a.Floor = a.Fixed*s.factor[i], a.PerSample*s.factor[i], a.Floor*s.factor[i]
		p.Workers[i].Curve = a
	}
	t, err := MinMax(p, make([]int, len(p.Workers)))
	if err != nil {
		panic(err)
	}
	return t
}

// truth is the step time with the given sizes for the workers as they now are, without noise.
func (s *scenario) truth(sizes []int) float64 {
	t := 0.0
	for i, n := range sizes {
		t = max(t, s.problem.Workers[i].seconds(n)*s.factor[i])
	}
	return t
}

// TestScenarios plays the scripts in testdata/scenarios. Their commands:
//
//	job batch=N [quantum=Q] [lag=L] [policy=equal]   the workers follow, one a line: name key=number…
//	factor|noise|missing worker=NAME …               what changes about the workers, from the next step on
//	run steps=N [pause=NAME seconds=S]               prints each move, then where the job stands; pauses the first step
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, file string) {
		var s *scenario
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "job":
				s = parseJob(t, d)
				return s.describe(s.coming[0])
			case "factor", "missing":
				var name string
				d.ScanArgs(t, "worker", &name)
				i := slices.Index(s.names, name)
				if d.Cmd == "missing" {
					s.missing[i] = !d.HasArg("no")
				} else {
					fmt.Sscan(d.CmdArgs[1].Vals[0], &s.factor[i])
				}
				return ""
			case "noise":
				fmt.Sscan(d.CmdArgs[0].Vals[0], &s.noise)
				return ""
			case "run":
				return s.run(t, d)
			}
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			return ""
		})
	})
}

func parseJob(t *testing.T, d *datadriven.TestData) *scenario {
	p, lag, named := Problem{Quantum: 1}, 1, "auto"
	d.ScanArgs(t, "batch", &p.GlobalBatch)
	d.MaybeScanArgs(t, "quantum", &p.Quantum)
	d.MaybeScanArgs(t, "lag", &lag)
	d.MaybeScanArgs(t, "policy", &named)
	var names []string
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		names = append(names, words[0])
		w, a := Worker{Max: p.GlobalBatch}, speed.Affine{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			into := map[string]any{"min": &w.Min, "max": &w.Max, "fixed": &a.Fixed, "per_sample": &a.PerSample,
				"floor": &a.Floor, "communicate": &w.CommunicateSeconds}[key]
			if _, err := fmt.Sscan(value, into); err != nil {
				t.Fatalf("%s: %s: %v", d.Pos, word, err)
			}
		}
		w.Curve = a
		p.Workers = append(p.Workers, w)
	}
	sizes := make([]int, len(p.Workers))
	err := Equal(p, sizes)
	if err != nil {
		t.Fatal(err)
	}
	var pol policy
	if named == "equal" {
		pol, err = NewEqual(p, nil)
	} else {
		pol, err = NewAuto(p, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newScenario(p, lag, pol, sizes, 1)
	s.names = names
	return s
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	var steps int
	var paused string
	var seconds float64
	d.ScanArgs(t, "steps", &steps)
	if d.HasArg("pause") {
		d.ScanArgs(t, "pause", &paused)
		fmt.Sscan(d.CmdArgs[2].Vals[0], &seconds)
	}
	var last Decision
	for i := range steps {
		pauses := map[string]float64{}
		if i == 0 {
			pauses[paused] = seconds
		}
		step := s.step
		_, _, decision, changed := s.next(pauses)
		checkSizes(t, s.problem, decision.BatchSizes)
		if changed {
			fmt.Fprintf(&out, "after step %d: %s\n  %s\n", step, s.describe(decision.BatchSizes), decision.Reason)
		}
		last = decision
	}
	fmt.Fprintf(&out, "at step %d: %s, %.3g s, predicted %.3g s, best %.3g s\n", s.step, s.describe(last.BatchSizes),
		s.truth(last.BatchSizes), last.StepSeconds, s.best())
	return out.String()
}

func (s *scenario) describe(sizes []int) string {
	var parts []string
	for i, n := range sizes {
		parts = append(parts, fmt.Sprintf("%s %d", s.names[i], n))
	}
	return strings.Join(parts, " ")
}
