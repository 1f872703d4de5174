package speed

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A lag that is one step longer now and then must not make the forecast forget: its error stays what it is with a steady
// lag, about.
func TestForecastKeepsWhatItLearnedWhenTheLagHiccups(t *testing.T) {
	failure := func(hiccups float64) float64 {
		rng := rand.New(rand.NewPCG(1, 1))
		f := NewForecast(2)
		level, total, steps := [2]float64{}, 0.0, 0
		var predicted [][2]float64
		for step := range 2000 {
			var observed []Observation
			for i := range level {
				level[i] = 0.95*level[i] + 0.02*rng.NormFloat64()
				observed = append(observed, Observation{Samples: 10, Seconds: math.Exp(level[i] + 0.05*rng.NormFloat64())})
			}
			if step >= 503 {
				was := predicted[step-3]
				total += math.Abs((level[0] - level[1]) - (was[0] - was[1]))
				steps++
			}
			lag := 3
			if rng.Float64() < hiccups {
				lag = 4
			}
			f.Observe(observed, lag)
			var now [2]float64
			for i := range now {
				if c, known := f.Curve(i); known {
					now[i] = math.Log(c.at(10))
				}
			}
			predicted = append(predicted, now)
		}
		return total / float64(steps)
	}
	// The same draws but for the hiccups' own, so the two runs see unlike noise: compare with room for that.
	if steady, hiccups := failure(0), failure(0.2); hiccups > 1.1*steady {
		t.Errorf("mean error %.4f with hiccups, %.4f without", hiccups, steady)
	}
}

// A lag that stays another is followed.
func TestForecastFollowsTheLag(t *testing.T) {
	f := NewForecast(1)
	observed := []Observation{{Samples: 1, Seconds: 1}}
	f.Observe(observed, 5)
	if f.lag != 5 {
		t.Fatalf("lag %d after the first step", f.lag)
	}
	for range lagPatience {
		f.Observe(observed, 7)
	}
	if f.lag != 5 {
		t.Fatalf("lag %d after %d steps with 7", f.lag, lagPatience)
	}
	if f.Observe(observed, 7); f.lag != 7 {
		t.Fatalf("lag %d, want 7", f.lag)
	}
}
