package sizing

import (
	"container/heap"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/speed"
)

// greedy is the oracle: from the minimums, one quantum at a time to the worker that would finish first with it. That is
// exact for curves that do not fall.
func greedy(p Problem) []int {
	sizes := make([]int, len(p.Workers))
	left := p.GlobalBatch
	var h nextUp
	for i := range p.Workers {
		w := &p.Workers[i]
		least, most := p.least(w), p.most(w)
		sizes[i] = least
		left -= least
		if least < most {
			h = append(h, quantumOf{i, w.seconds(least + p.Quantum)})
		}
	}
	heap.Init(&h)
	for ; left > 0; left -= p.Quantum {
		i := h[0].worker
		sizes[i] += p.Quantum
		if w := &p.Workers[i]; sizes[i] < p.most(w) {
			h[0].seconds = w.seconds(sizes[i] + p.Quantum)
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return sizes
}

type quantumOf struct {
	worker  int
	seconds float64
}

type nextUp []quantumOf

func (h nextUp) Len() int           { return len(h) }
func (h nextUp) Less(i, j int) bool { return h[i].seconds < h[j].seconds }
func (h nextUp) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *nextUp) Push(x any)        { *h = append(*h, x.(quantumOf)) }
func (h *nextUp) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// poor is a curve without an inverse: the solver must do with Seconds.
type poor struct{ Curve }

func (poor) Samples(float64) float64 { return math.NaN() }

type notANumber struct{}

func (notANumber) Seconds(int) float64     { return math.NaN() }
func (notANumber) Samples(float64) float64 { return math.NaN() }

func drawCurve(t *rapid.T) Curve {
	// Few distinct values, so that ties and flat stretches are common.
	seconds := rapid.OneOf(rapid.SampledFrom([]float64{0, 0, 0.1, 0.25, 1, 3}), rapid.Float64Range(0, 10))
	var c Curve
	if rapid.Bool().Draw(t, "affine") {
		c = speed.Affine{Fixed: seconds.Draw(t, "fixed"), PerSample: seconds.Draw(t, "per_sample"),
			Floor: seconds.Draw(t, "floor")}
	} else {
		var points []speed.Point
		at := speed.Point{}
		for range rapid.IntRange(1, 5).Draw(t, "points") {
			at.Samples += rapid.IntRange(1, 20).Draw(t, "samples")
			at.Seconds += seconds.Draw(t, "seconds")
			points = append(points, at)
		}
		measured, err := speed.NewPoints(points)
		if err != nil {
			t.Fatal(err)
		}
		c = measured
	}
	if rapid.IntRange(0, 4).Draw(t, "poor") == 0 {
		return poor{c}
	}
	return c
}

func drawProblem(t *rapid.T) Problem {
	p := Problem{Quantum: rapid.SampledFrom([]int{1, 1, 2, 8}).Draw(t, "quantum")}
	p.GlobalBatch = p.Quantum * rapid.IntRange(1, 200).Draw(t, "quanta")
	for range rapid.IntRange(1, 12).Draw(t, "workers") {
		least := rapid.IntRange(0, 20).Draw(t, "min")
		p.Workers = append(p.Workers, Worker{
			Min: least, Max: least + rapid.OneOf(rapid.IntRange(0, 80), rapid.Just(1<<53)).Draw(t, "above"),
			Curve:              drawCurve(t),
			CommunicateSeconds: rapid.SampledFrom([]float64{0, 0, 0.1, 2}).Draw(t, "communicate"),
		})
	}
	return p
}

// checkSizes fails where sizes break a promise of every answer: the sum, the limits, the quantum.
func checkSizes(t interface{ Fatalf(string, ...any) }, p Problem, sizes []int) {
	sum := 0
	for i, n := range sizes {
		sum += n
		if w := p.Workers[i]; n < w.Min || n > w.Max || n%p.Quantum != 0 {
			t.Fatalf("worker %d has %d samples, quantum %d, limits %d to %d", i, n, p.Quantum, w.Min, w.Max)
		}
	}
	if len(sizes) != len(p.Workers) || sum != p.GlobalBatch {
		t.Fatalf("sizes %v sum to %d, global batch %d", sizes, sum, p.GlobalBatch)
	}
}

func TestMinMaxIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		sizes := make([]int, len(p.Workers))
		got, err := MinMax(p, sizes)
		if err != nil {
			t.Skip(err)
		}
		checkSizes(t, p, sizes)
		if got != p.StepSeconds(sizes) {
			t.Fatalf("says %v seconds, takes %v", got, p.StepSeconds(sizes))
		}
		if want := p.StepSeconds(greedy(p)); got != want {
			t.Fatalf("%v with %v seconds, optimum %v with %v", sizes, got, greedy(p), want)
		}
	})
}

func TestMinMaxOfScalesFarApart(t *testing.T) {
	for name, workers := range map[string][]speed.Affine{
		"free samples":     {{}, {PerSample: 1}},
		"nearly free":      {{PerSample: 1e-300}, {PerSample: 1e300}, {Fixed: 1, PerSample: 1e-17}},
		"past the largest": {{PerSample: 1e308}, {PerSample: 1e308, Floor: 1e308}},
		"lost in rounding": {{Fixed: 1e16, PerSample: 1e-9}, {Fixed: 1e16, PerSample: 1e-10}},
		"all alike":        {{PerSample: 0.1}, {PerSample: 0.1}, {PerSample: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Problem{GlobalBatch: 1 << 53, Quantum: 1}
			for _, a := range workers {
				p.Workers = append(p.Workers, Worker{Max: 1 << 53, Curve: a})
			}
			sizes := make([]int, len(workers))
			if _, err := MinMax(p, sizes); err != nil {
				t.Fatal(err)
			}
			checkSizes(t, p, sizes)
		})
	}
}

// wild is a curve that rises and falls as it likes.
type wild []float64

func (w wild) Seconds(n int) float64   { return w[n%len(w)] }
func (w wild) Samples(float64) float64 { return w[0] }

func TestMinMaxSurvivesAnyCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		for i := range p.Workers {
			p.Workers[i].Curve = wild(rapid.SliceOfN(rapid.Float64(), 1, 9).Draw(t, "wild"))
		}
		sizes := make([]int, len(p.Workers))
		if _, err := MinMax(p, sizes); err == nil {
			checkSizes(t, p, sizes)
		}
	})
}

func TestMinMaxRefuses(t *testing.T) {
	affine := speed.Affine{PerSample: 1}
	for _, c := range []struct {
		problem Problem
		want    string
	}{
		{Problem{Quantum: 1}, "global_batch: 0 is below 1"},
		{Problem{GlobalBatch: 8}, "quantum: 0 is below 1"},
		{Problem{5, 8, nil}, "global_batch: 5 is not a multiple of the quantum 8; give 8"},
		{Problem{10, 8, nil}, "global_batch: 10 is not a multiple of the quantum 8; give 8 or 16"},
		{Problem{8, 8, nil}, "workers: none; give at least one"},
		{Problem{8, 1, []Worker{{Min: -1}}}, "workers[0].min: -1 is below 0"},
		{Problem{8, 1, []Worker{{Min: 8, Max: 4}}}, "workers[0].max: 4 is below min 8; give max >= min"},
		{Problem{8, 8, []Worker{{Min: 5, Max: 7}}},
			"workers[0].max: no multiple of the quantum 8 between min 5 and max 7"},
		{Problem{8, 8, []Worker{{0, 8, affine, math.NaN()}}},
			"workers[0].communicate_seconds: NaN is not a finite number >= 0"},
		{Problem{8, 1, []Worker{{Max: 8}}}, "workers[0].curve: missing"},
		{Problem{8, 1, []Worker{{0, 7, affine, 0}}},
			"global_batch: 8 is outside what the workers can take, 0 (sum of min) to 7 (sum of max)"},
		{Problem{8, 8, []Worker{{9, 39, affine, 0}}},
			"global_batch: 8 is outside what the workers can take, 16 (sum of min) to 32 (sum of max)"},
		{Problem{8, 8, []Worker{{9, 8, affine, 0}}},
			"global_batch: 8 is outside what the workers can take, 16 (sum of min) to 8 (sum of max)"},
		{Problem{8, 1, []Worker{{0, 8, notANumber{}, 0}, {0, 8, notANumber{}, 0}}},
			"workers: a curve falls or is not a number; give seconds that do not fall"},
	} {
		_, err := MinMax(c.problem, make([]int, len(c.problem.Workers)))
		if got := errorText(err); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if err := Equal(Problem{8, 1, []Worker{{Max: 8}}}, nil); err == nil {
		t.Error("Equal took no room for 1 worker")
	}
	var infeasible *InfeasibleError
	_, err := MinMax(Problem{8, 1, []Worker{{0, 7, affine, 0}}}, make([]int, 1))
	if !errors.As(err, &infeasible) || infeasible.MaxSum != 7 {
		t.Errorf("got %#v, want an InfeasibleError", err)
	}
}

func TestMinMaxAllocatesNothing(t *testing.T) {
	p := uneven(100, false)
	sizes := make([]int, len(p.Workers))
	if n := testing.AllocsPerRun(10, func() { MinMax(p, sizes) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// uneven is a job of workers whose speeds lie within a factor of ten, some at a limit.
func uneven(workers int, points bool) Problem {
	r := rand.New(rand.NewPCG(1, 1))
	p := Problem{GlobalBatch: 256 * workers, Quantum: 8}
	for range workers {
		a := speed.Affine{Fixed: 0.05 * r.Float64(), PerSample: 1e-4 * math.Pow(10, r.Float64()), Floor: 0.02}
		w := Worker{Min: 8, Max: 128 + r.IntN(2048), Curve: a, CommunicateSeconds: 0.003}
		if points {
			var at []speed.Point
			for n := 8; n <= 512; n *= 2 {
				at = append(at, speed.Point{Samples: n, Seconds: a.Seconds(n)})
			}
			c, err := speed.NewPoints(at)
			if err != nil {
				panic(err)
			}
			w.Curve = c
		}
		p.Workers = append(p.Workers, w)
	}
	return p
}
