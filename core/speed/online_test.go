package speed

import (
	"math"
	"math/rand/v2"
	"testing"
)

// watch feeds steps of the curve, with noise of the given sigma, all of n samples.
func watch(o *Online, a Affine, n, steps int, noise float64, r *rand.Rand) {
	for range steps {
		o.Observe(float64(n), a.Seconds(n)*math.Exp(noise*r.NormFloat64()))
	}
}

func relative(got, want float64) float64 { return math.Abs(got/want - 1) }

func seconds(t *testing.T, o *Online, n int) float64 {
	t.Helper()
	c, known := o.Curve()
	if !known {
		t.Fatal("nothing known")
	}
	return c.Seconds(n)
}

func TestOnlineStartsProportionalAndForgetsSlowFirstSteps(t *testing.T) {
	var o Online
	for i, step := range []struct{ took, want float64 }{
		{99, 198}, // all that is known
		{98, 196}, // the faster of two
		{1, 2},    // the others were slow for reasons of their own
		{50, 2},   // a pause
		{1.5, 2},  // the faster of the two that are no pause
	} {
		o.Observe(32, step.took)
		if got := seconds(t, &o, 64); got != step.want {
			t.Errorf("step %d: %v s for twice the samples, want %v", i, got, step.want)
		}
	}
}

func TestOnlineLearnsTheFixedShare(t *testing.T) {
	a, r := Affine{Fixed: 0.3, PerSample: 0.01}, rand.New(rand.NewPCG(1, 1))
	var o Online
	for _, n := range []int{32, 48, 24, 40, 64, 32} {
		watch(&o, a, n, 20, 0.01, r)
	}
	for _, n := range []int{24, 48, 64} {
		if got := seconds(t, &o, n); relative(got, a.Seconds(n)) > 0.03 {
			t.Errorf("%v s for %d samples, want %v", got, n, a.Seconds(n))
		}
	}
	if got := math.Sqrt(o.noiseVar); relative(got, 0.01) > 0.5 {
		t.Errorf("noise %v, want about 0.01", got)
	}
}

func TestOnlineIgnoresOnePause(t *testing.T) {
	for _, noise := range []float64{0, 0.03, 0.1} {
		a, r := Affine{PerSample: 0.01}, rand.New(rand.NewPCG(2, 2))
		var o Online
		watch(&o, a, 32, 50, noise, r)
		before := seconds(t, &o, 32)
		o.Observe(32, 50*a.Seconds(32))
		if got := seconds(t, &o, 32); relative(got, before) > 0.02 {
			t.Errorf("noise %v: a pause moves %v s to %v s", noise, before, got)
		}
		watch(&o, a, 32, 10, noise, r)
		if got := seconds(t, &o, 32); relative(got, before) > 0.02 {
			t.Errorf("noise %v: ten steps after a pause %v s, want %v s", noise, got, before)
		}
	}
}

func TestOnlineFollowsAJumpWithinThreeSteps(t *testing.T) {
	for _, factor := range []float64{2, 0.5, 1.3} {
		a, r := Affine{Fixed: 0.05, PerSample: 0.01}, rand.New(rand.NewPCG(3, 3))
		var o Online
		watch(&o, a, 32, 50, 0.02, r)
		slow := Affine{Fixed: a.Fixed * factor, PerSample: a.PerSample * factor}
		watch(&o, slow, 32, 3, 0.02, r)
		if got := seconds(t, &o, 32); relative(got, slow.Seconds(32)) > 0.05 {
			t.Errorf("by %v: %v s, want %v s", factor, got, slow.Seconds(32))
		}
	}
}

func TestOnlineIgnoresWhatIsNotMeasured(t *testing.T) {
	var o Online
	for range 9 {
		o.Observe(32, 0.5)
	}
	want := o
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, 1e-300} {
		o.Observe(bad, 0.5)
		o.Observe(32, bad)
	}
	if o != want {
		t.Errorf("learned from what is not measured: %+v, want %+v", o, want)
	}
}

func FuzzOnline(f *testing.F) {
	f.Add(32.0, 0.5, 1e12, 1e9, 1e-3, 1e-9)
	f.Fuzz(func(t *testing.T, n1, t1, n2, t2, n3, t3 float64) {
		var o Online
		for i := range 40 {
			o.Observe(n1, t1)
			if i%3 == 0 {
				o.Observe(n2, t2)
			}
			if i%7 < 4 {
				o.Observe(n3, t3)
			}
			c, known := o.Curve()
			if known && !(c.Fixed >= 0 && c.PerSample > 0 && c.Seconds(1<<53) < math.Inf(1) && o.Sigma(1) >= 0) {
				t.Fatalf("%+v, sigma %v", c, o.Sigma(1))
			}
		}
	})
}
