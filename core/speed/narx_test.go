package speed

import (
	"fmt"
	"testing"
)

// The worker's speed follows the cores that it is about to have and, not linearly, its own past.
func TestNARXLearnsWhatDrivesTheSpeed(t *testing.T) {
	for seed := range uint64(8) {
		predictors := []Predictor{NewNARX(1, seed), &LastValue{}, &EWMA{HalfLife: 8}}
		e := Errors(contended(600, seed), predictors, 1, 200)
		if narx, naive := e[0].RMSE, min(e[1].RMSE, e[2].RMSE); !(narx < naive/2) {
			t.Errorf("seed %d: RMSE %.3f, want below half of the naive %.3f", seed, narx, naive)
		}
	}
}

// Without the cores of the coming step the past ones must do, which are worth less.
func TestNARXMakesDoWithoutInputs(t *testing.T) {
	for name, hide := range map[string]func(k int, o *Observation){
		"no inputs at all":    func(_ int, o *Observation) { o.CPU, o.MemoryBytes = 0, 0 },
		"inputs now and then": func(k int, o *Observation) { o.CPU *= float64(k / 5 % 2) },
		"inputs from the middle on": func(k int, o *Observation) {
			if k < 300 {
				o.CPU, o.MemoryBytes = 0, 0
			}
		},
	} {
		series := contended(600, 1)
		for k := range series {
			hide(k, &series[k])
		}
		e := Errors(series, []Predictor{NewNARX(1, 1), &LastValue{}, &EWMA{HalfLife: 8}}, 1, 200)
		if narx, naive := e[0].RMSE, min(e[1].RMSE, e[2].RMSE); !(narx < 1.05*naive) {
			t.Errorf("%s: RMSE %.3f, want about %.3f, the better of last value and EWMA", name, narx, naive)
		}
	}
}

func TestNARXLooksAhead(t *testing.T) {
	for _, lag := range []int{1, 5, 12} {
		series := steps(600, seasonal)
		e := Errors(series, []Predictor{NewNARX(lag, 1), &EWMA{HalfLife: 8}}, lag, 200)
		if !(e[0].RMSE < 0.03) {
			t.Errorf("lag %d: RMSE %.3f of a season, EWMA's %.3f", lag, e[0].RMSE, e[1].RMSE)
		}
	}
}

func TestNARXIsDeterministic(t *testing.T) {
	predictions := func(seed uint64) string {
		n, s := NewNARX(1, seed), ""
		for _, o := range contended(100, 1) {
			v, known := n.Speed(o.Inputs())
			s += fmt.Sprintln(v, known)
			n.Observe(o)
		}
		return s
	}
	first := predictions(1)
	if again := predictions(1); again != first {
		t.Error("one seed, two answers")
	}
	if predictions(2) == first {
		t.Error("the seed makes no difference")
	}
}

func TestNARXNeedsToWarmUp(t *testing.T) {
	n := NewNARX(1, 1)
	for k, o := range contended(40, 1) {
		if _, known := n.Speed(Inputs{}); known != (k >= narxWarmUp) {
			t.Errorf("known after %d steps: %v", k, known)
		}
		n.Observe(o)
	}
}

func TestAskingNARXChangesNothing(t *testing.T) {
	n := NewNARX(1, 1)
	for _, o := range contended(100, 1) {
		n.Observe(o)
	}
	first := must(t)(n.Speed(Inputs{CPU: 2}))
	n.Speed(Inputs{CPU: 8})
	if again := must(t)(n.Speed(Inputs{CPU: 2})); again != first {
		t.Errorf("%v samples/s, then %v: asking must change nothing", first, again)
	}
	if more := must(t)(n.Speed(Inputs{CPU: 6})); !(more > first) {
		t.Errorf("%v samples/s with six cores, %v with two", more, first)
	}
}
