package speed

import (
	"math"
	"testing"
)

func TestEnsembleIsNeverMuchWorseThanItsBest(t *testing.T) {
	for name, series := range map[string][]Observation{
		"constant":  steps(600, constant),
		"halved":    steps(600, halved),
		"ramp":      steps(600, ramp),
		"seasonal":  steps(600, seasonal),
		"noisy":     steps(600, noisy(1)),
		"contended": contended(600, 1),
	} {
		for _, lag := range []int{1, 12} {
			var all []Predictor
			for _, m := range Members(lag, 1) {
				all = append(all, m)
			}
			errors := Errors(series, append(all, NewEnsemble(lag, Members(lag, 1)...)), lag, 200)
			got, best := errors[len(all)].RMSE, math.Inf(1)
			for _, e := range errors[:len(all)] {
				best = min(best, e.RMSE)
			}
			if !(got <= 1.15*best+0.002) {
				t.Errorf("%s, lag %d: RMSE %.4f, the best member's %.4f", name, lag, got, best)
			}
		}
	}
}

func TestEnsembleFollows(t *testing.T) {
	for name, c := range map[string]struct {
		series []Observation
		want   string
	}{
		"the first member at first":                 {steps(10, seasonal), "EWMA 8"},
		"nobody else while they tie":                {steps(300, constant), "EWMA 8"},
		"NARX where it knows what drives the speed": {contended(300, 1), "NARX"},
		"NARX where the past repeats itself":        {steps(300, seasonal), "NARX"},
	} {
		e := NewEnsemble(1, Members(1, 1)...)
		for _, o := range c.series {
			e.Speed(o.Inputs())
			e.Observe(o)
		}
		if got := e.Following(); got != c.want {
			t.Errorf("%s: follows %s, want %s; %+v", name, got, c.want, e.Standings())
		}
	}
}

// Who is asked without the coming step's inputs must not be credited for knowing them.
func TestEnsembleJudgesByWhatWasKnown(t *testing.T) {
	asked, unasked := NewEnsemble(1, Members(1, 1)...), NewEnsemble(1, Members(1, 1)...)
	for _, o := range contended(300, 1) {
		asked.Speed(o.Inputs())
		asked.Observe(o)
		unasked.Observe(o)
	}
	narx := len(asked.Standings()) - 1
	if with, without := asked.Standings()[narx], unasked.Standings()[narx]; !(with.Error < without.Error/2) {
		t.Errorf("with inputs %+v, without %+v", with, without)
	}
}

func TestEnsembleDoesNotFlap(t *testing.T) {
	series, e := steps(2000, noisy(1)), NewEnsemble(1, Members(1, 1)...)
	changes := 0
	for _, o := range series {
		before := e.Following()
		if e.Observe(o); e.Following() != before {
			changes++
		}
	}
	if changes > 5 {
		t.Errorf("%d changes in 2,000 steps of noise", changes)
	}
}

func TestStandingsAreErrorsAtTheLag(t *testing.T) {
	made := NewEnsemble(3, Member{"last value", &LastValue{}})
	told := NewEnsemble(1, Member{"last value", &LastValue{}})
	told.JudgeAt(3)
	for name, e := range map[string]*Ensemble{"made for the lag": made, "told the lag": told} {
		grow(e, 0, 10)
		// The first step is predicted by nobody; the prediction after it is for the fourth.
		if got := e.Standings()[0]; got.Name != "last value" || math.Abs(got.Error-0.3) > 1e-12 || got.Steps != 7 {
			t.Errorf("%s: %+v, want an error of 0.3 in 7 steps", name, got)
		}
	}
}

// grow shows e a worker that gets faster by a tenth of a factor e at each step.
func grow(e *Ensemble, from, steps int) {
	for k := range steps {
		e.Observe(Observation{Samples: math.Exp(0.1 * float64(from+k)), Seconds: 1})
	}
}

func TestAnotherLagIsJudgedFromWhatWasForetoldBefore(t *testing.T) {
	e := NewEnsemble(2, Member{"last value", &LastValue{}})
	grow(e, 0, 100)
	e.JudgeAt(64)
	grow(e, 100, 1) // foretold when 37 steps were seen, off by more than counts
	want := math.Sqrt(0.2*0.2 + weight(rolling)*(mostOff*mostOff-0.2*0.2))
	if got := e.Standings()[0]; math.Abs(got.Error-want) > 1e-9 || got.Steps != 99 {
		t.Errorf("%+v, want an error of %v in 99 steps", got, want)
	}
}
