package sizing

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/speed"
)

func alike(workers int) Problem {
	p := Problem{GlobalBatch: 32 * workers, Quantum: 1}
	for range workers {
		p.Workers = append(p.Workers, Worker{Max: p.GlobalBatch, Curve: speed.Affine{PerSample: 0.01}})
	}
	return p
}

func TestAutoAgainstNoise(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		loss, moves := playAlike(t, 0.03, seed)
		if moves > 20 || loss > 0.0005 {
			t.Errorf("seed %d: noise of 3 %% moved sizes %d times, loss %.3f %%", seed, moves, 100*loss)
		}
		loss, _ = playAlike(t, 0.1, seed)
		if loss > 0.02 {
			t.Errorf("seed %d: noise of 10 %% costs %.2f %% over equal sizes", seed, 100*loss)
		}
	}
}

// playAlike returns what Auto loses to equal sizes over 2,000 steps of 8 workers that are alike but for noise, as a
// share of the mean step time, and how often it moved.
func playAlike(t *testing.T, noise float64, seed uint64) (loss float64, moves int) {
	p := alike(8)
	total := map[bool]float64{}
	for _, auto := range []bool{true, false} {
		var pol policy
		pol, err := NewEqual(p, nil)
		if auto {
			pol, err = NewAuto(p, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := newScenario(p, 1, pol, []int{32, 32, 32, 32, 32, 32, 32, 32}, seed)
		s.noise = noise
		for range 2000 {
			took, _, changed := s.next(-1, 0)
			total[auto] += took
			if changed {
				moves++
			}
		}
	}
	return total[true]/total[false] - 1, moves
}

func TestAutoConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Problem{GlobalBatch: 4096, Quantum: 1}
		for range rapid.IntRange(2, 8).Draw(t, "workers") {
			p.Workers = append(p.Workers, Worker{Max: p.GlobalBatch, Curve: speed.Affine{
				Fixed:     rapid.Float64Range(0, 0.3).Draw(t, "fixed"),
				PerSample: 0.001 * math.Pow(10, rapid.Float64Range(0, 1).Draw(t, "slower")),
			}})
		}
		auto, err := NewAuto(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		lag, seed := rapid.IntRange(1, 5).Draw(t, "lag"), rapid.Uint64().Draw(t, "seed")
		s := newScenario(p, lag, auto, auto.decision.BatchSizes, seed)
		s.noise = rapid.SampledFrom([]float64{0, 0.01}).Draw(t, "noise")
		moves := 0
		for step := range 300 {
			_, _, changed := s.next(-1, 0)
			if changed && step >= 150 {
				moves++
			}
		}
		if got, best := p.StepSeconds(auto.decision.BatchSizes), s.best(); got > (1.02+s.noise)*best {
			t.Fatalf("%v takes %v s, optimum %v s: %.1f %%", auto.decision.BatchSizes, got, best, 100*(got/best-1))
		}
		if s.noise == 0 && moves > 10 {
			t.Fatalf("%d moves in the last 150 steps though nothing changed", moves)
		}
	})
}

// Where a filter drops rows, a job counts fewer than the sizes that it was told.
func TestAutoMovesThoughRowsAreDropped(t *testing.T) {
	auto, err := NewAuto(alike(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	sizes, moves := auto.decision.BatchSizes, 0
	for step := range 40 {
		slower := 1.0
		if step > 20 {
			slower = 3
		}
		a, b := 0.9*float64(sizes[0]), 0.8*float64(sizes[1])
		d, changed := auto.Step([]speed.Observation{{Samples: a, Seconds: a}, {Samples: b, Seconds: b * slower}}, 1)
		if changed {
			moves++
		}
		sizes = d.BatchSizes
	}
	if moves > 5 || sizes[0] < 45 || sizes[0] > 49 {
		t.Errorf("%d moves to %v, want a few, to about a quarter for the slow worker", moves, sizes)
	}
}

func TestStartSizes(t *testing.T) {
	p := Problem{GlobalBatch: 64, Quantum: 8, Workers: []Worker{{Min: 8, Max: 40}, {Min: 8, Max: 64}}}
	for _, c := range []struct {
		start []int
		want  string
	}{
		{nil, ""},
		{[]int{16, 48}, ""},
		{[]int{64}, "batch_sizes: 1 of them for 2 workers; give one each"},
		{[]int{0, 64}, "batch_sizes[0]: 0 is not a multiple of 8 between 8 and 40"},
		{[]int{16, 44}, "batch_sizes[1]: 44 is not a multiple of 8 between 8 and 64"},
		{[]int{16, 40}, "batch_sizes: they sum to 56; give sizes that sum to global_batch 64"},
	} {
		_, err := NewAuto(p, c.start)
		if got := errorText(err); got != c.want {
			t.Errorf("NewAuto from %v: %q, want %q", c.start, got, c.want)
		}
		e, err := NewEqual(p, c.start)
		if got := errorText(err); got != c.want {
			t.Errorf("NewEqual from %v: %q, want %q", c.start, got, c.want)
		}
		if err == nil && c.start != nil && e.decision.BatchSizes[0] != c.start[0] {
			t.Errorf("NewEqual from %v holds %v", c.start, e.decision.BatchSizes)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FuzzAutoStep feeds arbitrary floats, eight bytes each, to a job with limits and a quantum. The first byte of each
// step is the number of its observations.
func FuzzAutoStep(f *testing.F) {
	f.Add([]byte{3})
	step := []byte{3}
	for _, x := range []float64{8, 1, 16, math.NaN(), 1e308, 5e-324, -1} {
		step = binary.LittleEndian.AppendUint64(step, math.Float64bits(x))
	}
	f.Add(append(step, step...))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := Problem{GlobalBatch: 64, Quantum: 4, Workers: []Worker{
			{Min: 0, Max: 64}, {Min: 5, Max: 30}, {Min: 4, Max: 64, CommunicateSeconds: 0.1}}}
		auto, err := NewAuto(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for len(data) > 0 {
			observed := make([]speed.Observation, data[0]%5)
			data = data[1:]
			for i := range observed {
				observed[i].Samples, data = float(data)
				observed[i].Seconds, data = float(data)
			}
			d, _ := auto.Step(observed, 1)
			checkSizes(t, p, d.BatchSizes)
			if !(d.StepSeconds >= 0) || math.IsInf(d.StepSeconds, 1) {
				t.Fatalf("%v step seconds", d.StepSeconds)
			}
		}
	})
}

// float takes a number off the data. A short number is a plausible one, so that the fuzzer meets those as well.
func float(data []byte) (float64, []byte) {
	if len(data) >= 8 {
		return math.Float64frombits(binary.LittleEndian.Uint64(data)), data[8:]
	}
	if len(data) > 0 {
		return float64(data[0]), data[1:]
	}
	return 0, nil
}
