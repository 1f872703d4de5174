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
	Step([]speed.Observation, int) (Decision, bool)
}

// scenario plays a policy against workers whose true speed is known. The decision after step k holds from step k + lag.
type scenario struct {
	problem Problem // as it now is, with the true curves, which the policy is not told
	policy  policy
	names   []string
	curves  []speed.Affine // as they were at the start
	missing []bool         // workers whose time is not measured
	noise   float64        // sigma of the logarithm of a step's compute time
	random  *rand.Rand
	step    int
	coming  [][]int // sizes of the next steps, lag of them
}

func newScenario(p Problem, lag int, pol policy, sizes []int, seed uint64) *scenario {
	s := &scenario{problem: p, policy: pol, missing: make([]bool, len(sizes)), random: rand.New(rand.NewPCG(seed, 0))}
	for _, w := range p.Workers {
		s.curves = append(s.curves, w.Curve.(speed.Affine))
	}
	for range lag {
		s.coming = append(s.coming, sizes)
	}
	return s
}

// slow makes a worker slower than at the start by a factor.
func (s *scenario) slow(worker int, by float64) {
	a := s.curves[worker]
	s.problem.Workers[worker].Curve = speed.Affine{Fixed: a.Fixed * by, PerSample: a.PerSample * by, Floor: a.Floor * by}
}

// next plays one step, in which the paused worker, if any, takes some seconds longer.
func (s *scenario) next(paused int, pause float64) (took float64, d Decision, changed bool) {
	sizes := s.coming[0]
	observed := make([]speed.Observation, len(sizes))
	for i, n := range sizes {
		if n == 0 {
			continue
		}
		w := &s.problem.Workers[i]
		t := w.Curve.Seconds(n) * math.Exp(s.noise*s.random.NormFloat64())
		if i == paused {
			t += pause
		}
		took = max(took, w.CommunicateSeconds+t)
		if !s.missing[i] {
			observed[i] = speed.Observation{Samples: float64(n), Seconds: t}
		}
	}
	d, changed = s.policy.Step(observed, len(s.coming))
	s.coming = append(s.coming[1:], d.BatchSizes)
	s.step++
	return took, d, changed
}

// best is the least step time, without noise.
func (s *scenario) best() float64 {
	t, err := MinMax(s.problem, make([]int, len(s.curves)))
	if err != nil {
		panic(err)
	}
	return t
}

// TestScenarios plays the scripts in testdata/scenarios. Their commands:
//
//	job batch=N [quantum=Q] [lag=L] [policy=NAME]    the workers follow, one a line: name key=number…
//	slow worker=NAME by=FACTOR                       against its speed at the start, from the next step on
//	missing worker=NAME [no]                         its time is not measured
//	noise sigma=SIGMA                                of the logarithm of the compute times
//	run steps=N [pause=NAME seconds=S]               prints each move, then where the job stands; a pause is in the
//	                                                 first of the steps
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, file string) {
		var s *scenario
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "job":
				s = parseJob(t, d)
				return s.describe(s.coming[0])
			case "slow":
				s.slow(s.worker(t, d, "worker"), number(t, d, "by"))
				return ""
			case "missing":
				s.missing[s.worker(t, d, "worker")] = !d.HasArg("no")
				return ""
			case "noise":
				s.noise = number(t, d, "sigma")
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
	kind, known := Named(named)
	if !known {
		t.Fatalf("%s: no policy %s", d.Pos, named)
	}
	pol, err := kind.New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newScenario(p, lag, pol, sizes, 1)
	s.names = names
	return s
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	steps, paused, pause := int(number(t, d, "steps")), -1, 0.0
	if d.HasArg("pause") {
		paused, pause = s.worker(t, d, "pause"), number(t, d, "seconds")
	}
	var last Decision
	for range steps {
		step := s.step
		_, decision, changed := s.next(paused, pause)
		paused = -1
		checkSizes(t, s.problem, decision.BatchSizes)
		if changed {
			fmt.Fprintf(&out, "after step %d: %s\n  %s\n", step, s.describe(decision.BatchSizes), decision.Reason)
		}
		last = decision
	}
	fmt.Fprintf(&out, "at step %d: %s, %.3g s, predicted %.3g s, best %.3g s\n", s.step, s.describe(last.BatchSizes),
		s.problem.StepSeconds(last.BatchSizes), last.StepSeconds, s.best())
	return out.String()
}

// worker is the index of the worker that an argument names.
func (s *scenario) worker(t *testing.T, d *datadriven.TestData, key string) int {
	var name string
	d.ScanArgs(t, key, &name)
	i := slices.Index(s.names, name)
	if i < 0 {
		t.Fatalf("%s: no worker %s", d.Pos, name)
	}
	return i
}

func number(t *testing.T, d *datadriven.TestData, key string) (x float64) {
	var text string
	d.ScanArgs(t, key, &text)
	if _, err := fmt.Sscan(text, &x); err != nil {
		t.Fatalf("%s: %s=%s: %v", d.Pos, key, text, err)
	}
	return x
}

func (s *scenario) describe(sizes []int) string {
	var parts []string
	for i, n := range sizes {
		parts = append(parts, fmt.Sprintf("%s %d", s.names[i], n))
	}
	return strings.Join(parts, " ")
}
