package speed

import (
	"math"
	"testing"
)

func TestErrors(t *testing.T) {
	series := func(speeds ...float64) []Observation {
		return steps(len(speeds), func(k int) float64 { return speeds[k] })
	}
	rms := math.Sqrt(5. / 12) // of 0, -4 and 8 around 8
	for name, c := range map[string]struct {
		series      []Observation
		lag, warmup int
		want        PredictionError
	}{
		"nothing seen, nothing off":       {nil, 1, 0, PredictionError{}},
		"the first step is not predicted": {series(5), 1, 0, PredictionError{}},
		"as shares of the mean":           {series(8, 8, 12, 4), 1, 0, PredictionError{3, rms, 0.5, 1. / 6}},
		"too slow is a negative bias":     {series(1, 2, 3), 1, 0, PredictionError{2, 0.4, 0.4, -0.4}},
		"two steps ahead":                 {series(1, 2, 3), 2, 0, PredictionError{1, 2. / 3, 2. / 3, -2. / 3}},
		"no lag is one step":              {series(1, 2, 3), 0, 0, PredictionError{2, 0.4, 0.4, -0.4}},
		"warm-up does not count":          {series(9, 1, 1, 1), 1, 2, PredictionError{Steps: 2}},
		"steps not measured do not count": {series(4, math.Inf(1), 4, math.NaN()), 1, 0, PredictionError{Steps: 1}},
	} {
		got := Errors(c.series, []Predictor{&LastValue{}}, c.lag, c.warmup)[0]
		off := max(math.Abs(got.RMSE-c.want.RMSE), math.Abs(got.MAE-c.want.MAE), math.Abs(got.Bias-c.want.Bias))
		if got.Steps != c.want.Steps || !(off < 1e-12) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
