package speed

import "math"

// PredictionError is how far a predictor was off, relative to the mean speed of the steps that were predicted.
type PredictionError struct {
	Steps int // that were measured and predicted; without any the rest is 0
	RMSE  float64
	MAE   float64
	Bias  float64 // positive where the predictions were too fast
}

// Errors runs fresh predictors over the steps of one worker, and says how far each was off. A prediction is made for
// the step that comes lag steps (at least 1) after the last one seen. It knows the driving inputs of the first step not
// seen, which a worker senses before it computes, and none later. Steps count as soon as warmup steps were seen.
func Errors(series []Observation, predictors []Predictor, lag, warmup int) []PredictionError {
	errors := make([]PredictionError, len(predictors))
	for i, p := range predictors {
		errors[i] = errorOf(series, p, max(lag, 1), warmup)
	}
	return errors
}

func errorOf(series []Observation, p Predictor, lag, warmup int) (e PredictionError) {
	var sum float64 // of the speeds
	for seen, next := range series {
		if target := seen + lag - 1; seen >= warmup && target < len(series) {
			predicted, known := p.Speed(next.Inputs())
			if v, measured := series[target].Speed(); known && measured {
				off := predicted - v
				sum += v
				e.Steps++
				e.RMSE += off * off
				e.MAE += math.Abs(off)
				e.Bias += off
			}
		}
		p.Observe(next)
	}
	if e.Steps == 0 {
		return e
	}
	n, mean := float64(e.Steps), sum/float64(e.Steps)
	e.RMSE = math.Sqrt(e.RMSE/n) / mean
	e.MAE /= n * mean
	e.Bias /= n * mean
	return e
}
