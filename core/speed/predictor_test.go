package speed

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestPredictors(t *testing.T) {
	pauses := func(k int) float64 {
		if k%20 == 19 {
			return 2
		}
		return 100
	}
	for name, c := range map[string]struct {
		predictor Predictor
		speed     func(int) float64
		mostRMSE  float64
	}{
		"the last value is off by one step of a ramp":        {&LastValue{}, ramp, 0.004},
		"the last value pays for a jump once":                {&LastValue{}, halved, 0.06},
		"the last value doubles what noise there is":         {&LastValue{}, noisy(1), 0.15},
		"EWMA averages noise":                                {&EWMA{HalfLife: 8}, noisy(1), 0.106},
		"EWMA follows a jump within its half-life":           {&EWMA{HalfLife: 8}, halved, 0.15},
		"EWMA trails a ramp":                                 {&EWMA{HalfLife: 8}, ramp, 0.04},
		"EWMA of half-life 0 is the last value":              {&EWMA{}, ramp, 0.004},
		"EWMA of an endless half-life is the mean":           {&EWMA{HalfLife: math.Inf(1)}, noisy(1), 0.102},
		"the median averages noise":                          {NewMedian(9), noisy(1), 0.115},
		"the median shrugs off pauses":                       {NewMedian(9), pauses, 0.24},
		"the median follows a jump when it has most of it":   {NewMedian(9), halved, 0.13},
		"Holt keeps up with a ramp":                          {&Holt{}, ramp, 0.005},
		"Holt averages noise, less than EWMA":                {&Holt{}, noisy(1), 0.115},
		"Holt follows a jump":                                {&Holt{}, halved, 0.075},
		"the affine curve averages noise":                    {&AffineSpeed{}, noisy(1), 0.105},
		"the affine curve follows a jump within three steps": {&AffineSpeed{}, halved, 0.1},
		"the affine curve shrugs off pauses":                 {&AffineSpeed{}, pauses, 0.24},
		"NARX learns a season from its own past":             {NewNARX(1, 1), seasonal, 0.02},
		"NARX keeps up with a ramp":                          {NewNARX(1, 1), ramp, 0.002},
		"NARX averages noise":                                {NewNARX(1, 1), noisy(1), 0.108},
		"NARX follows a jump":                                {NewNARX(1, 1), halved, 0.1},
	} {
		if got := Errors(steps(300, c.speed), []Predictor{c.predictor}, 1, 100)[0]; !(got.RMSE <= c.mostRMSE) {
			t.Errorf("%s: RMSE %.4f, want at most %v", name, got.RMSE, c.mostRMSE)
		}
	}
}

func TestAConstantIsPredictedExactly(t *testing.T) {
	for _, m := range append(Members(1, 1), Member{"ensemble", NewEnsemble(1, Members(1, 1)...)}) {
		if got := Errors(steps(200, constant), []Predictor{m}, 1, 40)[0]; got.Steps != 160 || got.RMSE > 1e-12 {
			t.Errorf("%s: %+v, want 160 steps without error", m.Name, got)
		}
	}
}

func TestNothingIsKnownBeforeTheFirstStep(t *testing.T) {
	for _, m := range append(Members(1, 1), Member{"ensemble", NewEnsemble(1, Members(1, 1)...)}) {
		for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			m.Observe(Observation{Samples: bad, Seconds: 1, CPU: 4})
			m.Observe(Observation{Samples: 1, Seconds: bad, CPU: 4})
		}
		if v, known := m.Speed(Inputs{CPU: 4}); known || v != 0 {
			t.Errorf("%s: %v samples/s, known: %v", m.Name, v, known)
		}
	}
}

// What was not measured leaves no trace, least of all in what is random.
func TestUnmeasuredStepsAreIgnored(t *testing.T) {
	for i, m := range Members(1, 7) {
		want := Members(1, 7)[i]
		for _, o := range contended(100, 1) {
			m.Observe(o)
			m.Observe(Observation{Samples: math.NaN(), Seconds: 1, CPU: 1})
			want.Observe(o)
		}
		if !reflect.DeepEqual(m, want) {
			t.Errorf("%s differs after steps that were not measured", m.Name)
		}
	}
}

func TestMedianIsOfTheWindow(t *testing.T) {
	for name, c := range map[string]struct {
		window int
		speeds []float64
		want   float64
	}{
		"one":                       {3, []float64{5}, 5},
		"between the middle two":    {3, []float64{5, 7}, 6},
		"the middle one":            {3, []float64{9, 5, 7}, 7},
		"the oldest leave":          {3, []float64{9, 9, 1, 3, 2}, 2},
		"duplicates leave singly":   {3, []float64{4, 4, 4, 1, 1}, 1},
		"no window is the last one": {-1, []float64{4, 8}, 8},
	} {
		m := NewMedian(c.window)
		for _, v := range c.speeds {
			m.Observe(Observation{Samples: v, Seconds: 1})
		}
		if got, _ := m.Speed(Inputs{}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestEWMAStartsAsTheMean(t *testing.T) {
	e := EWMA{HalfLife: 8}
	for _, v := range []float64{1, 2, 6} {
		e.Observe(Observation{Samples: v, Seconds: 1})
	}
	if got, _ := e.Speed(Inputs{}); math.Abs(got-3) > 1e-12 {
		t.Errorf("%v, want 3", got)
	}
}

func TestAffineSpeedIsThatOfTheLastSize(t *testing.T) {
	curve, r := Affine{Fixed: 0.3, PerSample: 0.01}, rand.New(rand.NewPCG(1, 1))
	var a AffineSpeed
	for k := range 200 {
		n := 24 + 8*(k/20%5)
		a.Observe(Observation{Samples: float64(n), Seconds: curve.Seconds(n) * math.Exp(0.01*r.NormFloat64())})
	}
	a.Observe(Observation{Samples: 24, Seconds: curve.Seconds(24)})
	if got, want := must(t)(a.Speed(Inputs{})), 24/curve.Seconds(24); relative(got, want) > 0.03 {
		t.Errorf("%v samples/s, want %v", got, want)
	}
}

func must(t *testing.T) func(float64, bool) float64 {
	return func(v float64, known bool) float64 {
		t.Helper()
		if !known {
			t.Fatal("nothing known")
		}
		return v
	}
}

func FuzzPredictors(f *testing.F) {
	f.Add(1, 32.0, 0.5, 4.0, 1e9, 1e12, 1e-9, math.MaxFloat64, 5e-324)
	f.Add(-9, 1e-3, 1e9, math.Inf(1), math.NaN(), 1e12, 1e-9, -1.0, 0.0)
	f.Fuzz(func(t *testing.T, lag int, n1, t1, c1, m1, n2, t2, c2, m2 float64) {
		all := append(Members(lag, 1), Member{"ensemble", NewEnsemble(lag, Members(lag, 1)...)},
			Member{"EWMA 0", &EWMA{}}, Member{"EWMA odd", &EWMA{HalfLife: c1}})
		for k := range 150 {
			o, next := Observation{n1, t1, c1, m1}, Inputs{c2, m2}
			if k%7 < k%3 {
				o, next = Observation{n2, t2, c2, m2}, Inputs{c1, m1}
			}
			for _, m := range all {
				m.Observe(o)
				if v, known := m.Speed(next); known && !(v > 0 && v < math.Inf(1)) || !known && v != 0 {
					t.Fatalf("%s, step %d: %v samples/s, known: %v", m.Name, k, v, known)
				}
			}
		}
	})
}
