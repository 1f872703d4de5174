package sizing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/speed"
)

func TestFloorLine(t *testing.T) {
	for name, c := range map[string]struct {
		truth speed.Affine
		sizes []int // five steps at each
		want  map[int]float64
	}{
		"one size says proportional": {speed.Affine{Fixed: 1, PerSample: 0.1}, []int{10},
			map[int]float64{5: 1, 10: 2, 20: 4}},
		"two sizes say a line": {speed.Affine{Fixed: 1, PerSample: 0.1}, []int{10, 20},
			map[int]float64{5: 1.5, 10: 2, 20: 3, 40: 5}},
		"flat so far says a floor, then proportional": {speed.Affine{Floor: 2, PerSample: 0.01}, []int{10, 20},
			map[int]float64{5: 2, 10: 2, 20: 2, 40: 4}},
		"flat, then a line": {speed.Affine{Floor: 2, Fixed: 0.5, PerSample: 0.05}, []int{10, 20, 40, 80},
			map[int]float64{5: 2, 20: 2, 40: 2.5, 80: 4.5, 160: 8.5}},
	} {
		t.Run(name, func(t *testing.T) {
			var f floorLine
			for _, n := range c.sizes {
				for range 5 {
					f.Observe(speed.Observation{Samples: float64(n), Seconds: c.truth.Seconds(n)})
				}
			}
			got, _ := f.Curve()
			for n, want := range c.want {
				if math.Abs(got.Seconds(n)/want-1) > 0.05 {
					t.Errorf("%d samples take %.3g s, want %.3g s; curve %+v", n, got.Seconds(n), want, got)
				}
			}
		})
	}
}

func TestFloorLineForgetsAnotherWorker(t *testing.T) {
	var f floorLine
	for step := range 100 {
		slow := 1.0
		if step >= 96 {
			slow = 3
		}
		n := 10 + 10*(step%2)
		f.Observe(speed.Observation{Samples: float64(n), Seconds: slow * (1 + 0.1*float64(n))})
	}
	// Four steps after it slowed down, three of which made sure.
	if c, _ := f.Curve(); math.Abs(c.Seconds(20)/9-1) > 0.15 {
		t.Errorf("20 samples take %.3g s, want 9 s", c.Seconds(20))
	}
}

// Whatever was seen, the curve is one that a solver can use.
func TestFloorLineNeverFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f floorLine
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f.Observe(speed.Observation{
				Samples: math.Pow(10, rapid.Float64Range(-3, 12).Draw(t, "samples")),
				Seconds: math.Pow(10, rapid.Float64Range(-9, 9).Draw(t, "seconds")),
			})
			c, known := f.Curve()
			if !known || !(c.Fixed >= 0) || !(c.PerSample > 0) || !(c.Floor >= 0) || math.IsInf(c.Seconds(1<<40), 1) {
				t.Fatalf("%+v", c)
			}
		}
	})
}
