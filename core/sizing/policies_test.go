package sizing

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/speed"
)

// lags are those that may be asked for, and some that may not.
var lags = []int{1, 1, 2, 12, 64, 0, -1, math.MaxInt}

// Whatever is reported, in whatever order, every policy keeps to the sum, the limits and the quantum.
func TestPoliciesKeepTheirPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		start := make([]int, len(p.Workers))
		if _, err := MinMax(p, start); err != nil || rapid.Bool().Draw(t, "equal") {
			start = nil
		}
		workers := reporters{away: make([]bool, len(p.Workers)+1)}
		for range p.Workers {
			workers.pace = append(workers.pace, rapid.Float64Range(0.1, 10).Draw(t, "pace"))
		}
		var policies []Policy
		sizes := make([][]int, len(Kinds()))
		for i, k := range Kinds() {
			policy, err := k.New(p, start)
			if err != nil {
				t.Skip(err)
			}
			policies = append(policies, policy)
			sizes[i] = checkStep(t, p, policy, nil, 1, nil)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if repeated := rapid.IntRange(0, 9).Draw(t, "repeated") == 0; !repeated {
				workers.draw(t)
			}
			lag := rapid.SampledFrom(lags).Draw(t, "lag")
			for i, policy := range policies {
				sizes[i] = checkStep(t, p, policy, workers.report(sizes[i]), lag, sizes[i])
			}
		}
	})
}

// reporters are workers of constant pace who report as they like.
type reporters struct {
	pace   []float64 // seconds per sample
	away   []bool
	honest []bool
	lies   []speed.Observation // of those who are not
}

// draw draws for a step who is away, who tells the truth and what others say. Now and then there is one too few of them
// or too many.
func (r *reporters) draw(t *rapid.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(1e-3, 100),
		rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e308, 5e-324}))
	r.lies = make([]speed.Observation, len(r.pace)+rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1, -1}).Draw(t, "more"))
	r.honest = make([]bool, len(r.lies))
	for i := range r.lies {
		if rapid.IntRange(0, 19).Draw(t, "comes or goes") == 0 {
			r.away[i] = !r.away[i]
		}
		r.honest[i] = i < len(r.pace) && rapid.IntRange(0, 9).Draw(t, "lies") > 0
		if !r.away[i] && !r.honest[i] {
			r.lies[i] = speed.Observation{Samples: number.Draw(t, "samples"), Seconds: number.Draw(t, "seconds"),
				CPU: number.Draw(t, "cpu"), MemoryBytes: number.Draw(t, "memory")}
		}
	}
}

// report is what they report of a step with the given sizes.
func (r *reporters) report(sizes []int) []speed.Observation {
	observed := slices.Clone(r.lies)
	for i, honest := range r.honest {
		if honest && !r.away[i] {
			observed[i] = speed.Observation{Samples: float64(sizes[i]), Seconds: r.pace[i] * float64(sizes[i])}
		}
	}
	return observed
}

// checkStep is a step of the policy, which trained on the sizes before.
func checkStep(t interface{ Fatalf(string, ...any) }, p Problem, policy Policy, observed []speed.Observation, lag int,
	before []int) []int {
	d, changed := policy.Step(observed, lag)
	checkSizes(t, p, d.BatchSizes)
	if !(d.StepSeconds >= 0) || math.IsInf(d.StepSeconds, 1) {
		t.Fatalf("%T: %v step seconds", policy, d.StepSeconds)
	}
	if before != nil && !changed && !slices.Equal(d.BatchSizes, before) {
		t.Fatalf("%T: %v after %v, and said to be unchanged", policy, d.BatchSizes, before)
	}
	return d.BatchSizes
}

// FuzzPolicies feeds arbitrary floats, eight bytes each, to jobs with limits and a quantum. The first byte of each step
// is the number of its observations and its lag.
func FuzzPolicies(f *testing.F) {
	f.Add([]byte{3})
	step := []byte{3}
	for _, x := range []float64{8, 1, 4, 16, math.NaN(), 0, 1e308, 1, -1} {
		step = binary.LittleEndian.AppendUint64(step, math.Float64bits(x))
	}
	f.Add(slices.Repeat(step, 30))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := Problem{GlobalBatch: 64, Quantum: 4, Workers: []Worker{
			{Min: 0, Max: 64}, {Min: 5, Max: 30}, {Min: 4, Max: 64, CommunicateSeconds: 0.1}}}
		for _, k := range Kinds() {
			policy, err := k.New(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			var sizes []int
			for data := data; len(data) > 0; {
				observed, lag := make([]speed.Observation, data[0]%5), lags[int(data[0]/5)%len(lags)]
				data = data[1:]
				for i := range observed {
					observed[i].Samples, data = float(data)
					observed[i].Seconds, data = float(data)
					observed[i].CPU, data = float(data)
				}
				sizes = checkStep(t, p, policy, observed, lag, sizes)
			}
		}
	})
}

func TestPoliciesRefuse(t *testing.T) {
	p := Problem{GlobalBatch: 64, Quantum: 8, Workers: []Worker{{Min: 8, Max: 40}, {Min: 8, Max: 64}}}
	for _, k := range Kinds() {
		if _, err := k.New(p, []int{16, 40}); errorText(err) !=
			"batch_sizes: they sum to 56; give sizes that sum to global_batch 64" {
			t.Errorf("%s: %v", k.Name, err)
		}
		policy, err := k.New(p, []int{16, 48})
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		if d, changed := policy.Step(nil, 1); changed || !slices.Equal(d.BatchSizes, []int{16, 48}) {
			t.Errorf("%s: starts at %v, not where it was told", k.Name, d.BatchSizes)
		}
	}
}

// As published: the first few steps keep the initial batch.
func TestLBBSPKeepsTheSizesOfTheFirstSteps(t *testing.T) {
	for _, name := range []string{"lbbsp-cpu", "lbbsp-gpu-analytic", "lbbsp-gpu-tuning"} {
		kind, _ := Named(name)
		policy, err := kind.New(alike(2), nil)
		if err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= firstSteps; step++ {
			_, changed := policy.Step([]speed.Observation{{Samples: 32, Seconds: 1}, {Samples: 32, Seconds: 2}}, 1)
			if changed != (step == firstSteps) {
				t.Errorf("%s: sizes change after %d steps: %v", name, step, changed)
			}
		}
	}
}

func TestCPUJudgesItsPredictorsAtTheLag(t *testing.T) {
	policy, err := NewCPU(alike(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		policy.Step([]speed.Observation{{Samples: 32, Seconds: 1}, {Samples: 32, Seconds: 2}}, 12)
	}
	// The EWMA knows nothing before the first step, and its last twelve predictions are not due.
	if got := policy.predictors[0].(*speed.Ensemble).Standings()[0]; got.Steps != 40-12 {
		t.Errorf("%+v, want 28 steps judged", got)
	}
}

// fixedSpeed predicts one speed; 0 is not known.
type fixedSpeed float64

func (fixedSpeed) Observe(speed.Observation) {}

func (f fixedSpeed) Speed(speed.Inputs) (float64, bool) { return float64(f), f > 0 }

func TestAWorkerOfUnknownSpeedKeepsItsSize(t *testing.T) {
	for _, unknown := range []fixedSpeed{0, 5e-324, fixedSpeed(math.Inf(1))} {
		speeds := []fixedSpeed{unknown, 1, 3}
		policy, err := NewProportional("test", alike(3), nil, func(i int) speed.Predictor { return speeds[i] })
		if err != nil {
			t.Fatal(err)
		}
		if d, _ := policy.Step(make([]speed.Observation, 3), 1); !slices.Equal(d.BatchSizes, []int{32, 16, 48}) {
			t.Errorf("speed %v: %v, want 32 to stay and the rest to be split", unknown, d.BatchSizes)
		}
	}
}

func TestAnalyticIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		sizes, other := make([]int, len(p.Workers)), make([]int, len(p.Workers))
		got, err := Analytic(p, sizes)
		want, wantErr := MinMax(p, other)
		if errorText(err) != errorText(wantErr) {
			t.Fatalf("%v, MinMax %v", err, wantErr)
		}
		if err != nil {
			t.Skip(err)
		}
		checkSizes(t, p, sizes)
		if got != want || got != p.StepSeconds(sizes) {
			t.Fatalf("%v said to take %v s, optimum %v with %v s", sizes, got, other, want)
		}
	})
}

func TestAnalyticSurvivesAnyCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		for i := range p.Workers {
			p.Workers[i].Curve = wild(rapid.SliceOfN(rapid.Float64(), 1, 9).Draw(t, "wild"))
		}
		sizes := make([]int, len(p.Workers))
		if _, err := Analytic(p, sizes); err == nil {
			checkSizes(t, p, sizes)
		}
	})
}

func TestProportionalSizes(t *testing.T) {
	p := Problem{GlobalBatch: 120, Quantum: 1, Workers: []Worker{
		{Min: 1, Max: 120, Curve: speed.Affine{PerSample: 1}},
		{Min: 1, Max: 120, Curve: speed.Affine{Fixed: 40, PerSample: 1}}, // 2 seconds a sample at 40
		{Min: 1, Max: 120, Curve: speed.Affine{PerSample: 2}, CommunicateSeconds: 40},
	}}
	sizes := make([]int, 3)
	seconds, err := ProportionalSizes(p, sizes)
	if err != nil {
		t.Fatal(err)
	}
	checkSizes(t, p, sizes)
	// At 40 samples they take 1, 2 and 3 seconds a sample: 6/11, 3/11 and 2/11 of 120 at best, that is 65.45 seconds.
	if slowest := max(sizes[0], 2*sizes[1], 3*sizes[2]); slowest != 66 {
		t.Errorf("%v", sizes)
	}
	if seconds != p.StepSeconds(sizes) {
		t.Errorf("%v s, takes %v s", seconds, p.StepSeconds(sizes))
	}
}
