package simulate

import (
	"math"
	"slices"
	"testing"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
)

// scripted decides what it was told to, one vector a step.
type scripted struct {
	seen      [][]speed.Observation
	decisions [][]int
}

func (s *scripted) Step(observed []speed.Observation, _ int) (sizing.Decision, bool) {
	s.seen = append(s.seen, slices.Clone(observed))
	return sizing.Decision{BatchSizes: s.decisions[len(s.seen)-1]}, true
}

func TestRun(t *testing.T) {
	trace := &Trace{Workers: []string{"a", "b"}, Seconds: [][]float64{{1, 2}, {1, 2}, {4, 2}, {1, 2}}}
	policy := &scripted{decisions: [][]int{{8, 4}, {6, 6}, {2, 10}, {1, 11}}}
	job, ticks := Job{GlobalBatch: 12, Quantum: 1, Lag: 2, Warmup: 1}, 0
	newPolicy := func(sizing.Problem, []int) (sizing.Policy, error) { return policy, nil }
	r, err := job.Run(trace, newPolicy, func() { ticks++ })
	if err != nil {
		t.Fatal(err)
	}
	// The first decision holds in the third step, where worker a is slow: 4·8·2/12 s.
	for k, want := range [][]int{{6, 6}, {6, 6}, {8, 4}, {6, 6}} {
		if !slices.Equal(r.Sizes[k], want) {
			t.Errorf("step %d ran with %v, want %v", k, r.Sizes[k], want)
		}
	}
	if want := []float64{2, 2, 16. / 3, 2}; !slices.Equal(r.StepSeconds, want) {
		t.Errorf("steps took %v, want %v", r.StepSeconds, want)
	}
	if want := (speed.Observation{Samples: 4, Seconds: 2 * 4 * 2 / 12.}); policy.seen[2][1] != want {
		t.Errorf("worker b was seen as %v in step 2, want %v", policy.seen[2][1], want)
	}
	if r.Resizes != 2 || r.MovedShare != 4./12/4 || ticks != 4 {
		t.Errorf("%d resizes, %v moved, %d ticks", r.Resizes, r.MovedShare, ticks)
	}
}

// Warm-up wins over what was decided, and a lag beyond the end means that nothing decided ever holds.
func TestRunKeepsEqualSizes(t *testing.T) {
	trace, err := Synthetic("static", 4, 50, 1)
	if err != nil {
		t.Fatal(err)
	}
	last, _ := sizing.Named("last")
	for _, job := range []Job{{Quantum: 1, Lag: 1, Warmup: 50}, {Quantum: 1, Lag: math.MaxInt, Warmup: 0}} {
		r, err := job.Run(trace, last.New, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if r.Resizes != 0 {
			t.Errorf("%+v: %d resizes", job, r.Resizes)
		}
	}
}

func TestCaptured(t *testing.T) {
	for _, c := range []struct {
		equal, policy, clairvoyant, want float64
		ok                               bool
	}{
		{10, 8, 6, 0.5, true},
		{10, 12, 6, -0.5, true},
		{10, 10, 10, 0, false},
		{10, 10, 10 - 1e-12, 0, false},
	} {
		if got, ok := Captured(c.equal, c.policy, c.clairvoyant); got != c.want || ok != c.ok {
			t.Errorf("%v: %v %v", c, got, ok)
		}
	}
}

// Every policy splits every kind of trace within its promises, and no policy beats the clairvoyant.
func TestPoliciesOverGenerators(t *testing.T) {
	for _, name := range Synthetics() {
		trace, err := Synthetic(name, 5, 100, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range sizing.Kinds() {
			for _, job := range []Job{{Quantum: 1, Lag: 1, Warmup: 5}, {GlobalBatch: 320, Quantum: 8, Lag: 3}} {
				r, err := job.Run(trace, k.New, func() {})
				if err != nil {
					t.Fatal(err)
				}
				checkReplay(t, job, trace, r)
			}
		}
	}
}

func checkReplay(t *testing.T, job Job, trace *Trace, r *Replay) {
	t.Helper()
	for k, sizes := range r.Sizes {
		sum := 0
		for _, n := range sizes {
			sum += n
			if n < job.Quantum || n%job.Quantum != 0 {
				t.Fatalf("step %d: %v", k, sizes)
			}
		}
		if sum != job.Problem(len(sizes)).GlobalBatch {
			t.Fatalf("step %d: %v sum to %d", k, sizes, sum)
		}
	}
	if best := Clairvoyant(trace); r.Seconds < best {
		t.Fatalf("%v s, clairvoyant %v s", r.Seconds, best)
	}
}
