package speed

import (
	"math"
	"slices"
)

// Our defaults, not published values: chosen on two public traces of per-worker times and on white noise. Half-lives are
// in steps, sigmas are of what was not predicted.
const (
	nearHalfLife = 0.7 // times the lag: what the newest steps say
	farHalfLife  = 2.2 // times the lag
	longHalfLife = 80

	nearPrior   = 0.4   // weight of near before anything is learned; that of far is 0
	priorDoubt  = 9     // what that expectation counts for, in observations one sigma off
	memory      = 0.995 // of the regression, by step
	firstSigma  = 0.05
	leastSigma  = 0.002
	sigmaGain   = 0.05 // weight of one step in sigma
	outlying    = 10   // an observation of more sigma counts only where the one before it was such a one too
	robustSigma = 5    // residuals of more sigma count less in the regression

	jumpPatience = 0.5 // times the lag: a level that lasted so long is expected to last

	lagPatience = 10 // steps in a row with another lag, after which it is another and no hiccup of the exchange
)

// Forecast predicts the curves of all workers of a job some steps ahead: a batch size decided now meets them when it takes
// effect. A worker's learned curve says what it is like; to it Forecast adds how far the worker lately was off it, as far
// as such deviations were seen to last. Three moving averages of the deviation, near, far and long, predict
//
//	long + a·(near - long) + b·(far - long)
//
// for a lag later, with a and b from a linear regression that all workers share, by recursive least squares. In white
// noise both go to nothing and the averages stand; where speeds wander, the newest steps count. A deviation may last but is
// not expected to grow: -1 <= a, b <= 1.
//
// Deviations are logarithms of time over the curve's, less their median over the workers: what slows all alike changes no
// batch size.
type Forecast struct {
	lag     int
	other   int // steps in a row with another lag
	workers []forecastWorker
	now     []outlook   // by worker
	past    [][]outlook // of the last lag steps, the oldest first
	sigma   float64     // of the deviations that were not predicted

	gram    [3]float64 // near·near, near·far, far·far
	cross   [2]float64
	weights [2]float64 // a and b

	deviations, sorted []float64 // room
}

type forecastWorker struct {
	learned  Online
	averaged float64 // deviations in the averages
	outlier  float64 // the last deviation if it was left out as an outlier
}

// outlook is what a worker's forecast is made from.
type outlook struct {
	curve           Affine
	known           bool
	near, far, long float64 // averages of the deviation from curve
}

// NewForecast is for so many workers.
func NewForecast(workers int) *Forecast {
	f := &Forecast{workers: make([]forecastWorker, workers), now: make([]outlook, workers)}
	f.aim(1)
	return f
}

// aim sets how many steps ahead to predict and forgets what was learned about another lag.
func (f *Forecast) aim(lag int) {
	f.lag, f.other = lag, 0
	f.past = nil
	f.sigma = firstSigma
	f.gram = [3]float64{priorDoubt, 0, priorDoubt}
	f.cross = [2]float64{priorDoubt * nearPrior, 0}
	f.weights = [2]float64{nearPrior, 0}
	for i := range f.workers {
		f.workers[i].learned.jumpRun = int(jumpPatience * float64(lag))
	}
}

// Observe learns from one step of all workers. What is decided upon it takes effect lag steps later, 1 to 64; what is
// outside counts as the nearer end. A lag is followed once it has lasted: what was learned for one is of little use for
// another, and a lag of 3 that is sometimes 4 is best taken for 3.
func (f *Forecast) Observe(observed []Observation, lag int) {
	switch lag = withinLag(lag); {
	case lag == f.lag:
		f.other = 0
	case f.past == nil || f.other == lagPatience:
		f.aim(lag)
	default:
		f.other++
	}
	if len(f.past) == f.lag {
		f.regress(f.past[0], observed)
	}
	for i := range f.workers {
		f.workers[i].observe(&f.now[i], observed[i])
	}
	f.average(observed)
	f.remember()
}

// Curve is the curve predicted for a worker. It is false while nothing is known.
func (f *Forecast) Curve(worker int) (Affine, bool) {
	w := &f.now[worker]
	factor := math.Exp(w.long + w.predicted(f.weights))
	return Affine{Fixed: w.curve.Fixed * factor, PerSample: w.curve.PerSample * factor}, w.known
}

// Sigma is how far the learned curve of a worker may be off at n samples, as in Online.
func (f *Forecast) Sigma(worker, n int) float64 { return f.workers[worker].learned.Sigma(n) }

// Doubt is how far, relative to its time, the forecast of a worker may be off since the weights are known so badly: one
// sigma.
func (f *Forecast) Doubt(worker int) float64 {
	w := &f.now[worker]
	return math.Abs(w.near-w.long) / math.Sqrt(f.gram[0])
}

// Settled says whether a worker's first steps are behind, as in Online.
func (f *Forecast) Settled(worker int) bool { return f.workers[worker].learned.Settled() }

// predicted is what the weights make of the averages, beyond long.
func (l *outlook) predicted(weights [2]float64) float64 {
	return weights[0]*(l.near-l.long) + weights[1]*(l.far-l.long)
}

// observe updates the curve. The averages stay true to the curve as it was, unless it has jumped, or first observations
// turned out to be slow for reasons of their own.
func (w *forecastWorker) observe(l *outlook, o Observation) {
	before, wasKnown := l.curve, l.known
	jumped := w.learned.Observe(o.Samples, o.Seconds)
	l.curve, l.known = w.learned.Curve()
	if !wasKnown || !o.Measured() {
		return
	}
	moved := math.Log(l.curve.at(o.Samples) / before.at(o.Samples))
	if jumped || math.Abs(moved) > math.Log(startSlack) {
		l.near, l.far, l.long, w.averaged = 0, 0, 0, 0
		return
	}
	l.near, l.far, l.long = l.near-moved, l.far-moved, l.long-moved
}

// at is the time of samples that may not be whole.
func (a Affine) at(samples float64) float64 { return a.Fixed + a.PerSample*samples }

// deviate returns the workers' deviations, NaN where a worker was not measured.
func (f *Forecast) deviate(workers []outlook, observed []Observation) []float64 {
	f.deviations, f.sorted = f.deviations[:0], f.sorted[:0]
	for i, o := range observed {
		d := math.NaN()
		if workers[i].known && o.Measured() {
			d = math.Log(o.Seconds / workers[i].curve.at(o.Samples))
			f.sorted = append(f.sorted, d)
		}
		f.deviations = append(f.deviations, d)
	}
	common := median(f.sorted)
	for i := range f.deviations {
		f.deviations[i] -= common
	}
	return f.deviations
}

// median sorts x; it is 0 for none.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// average takes the step's deviations into the averages.
func (f *Forecast) average(observed []Observation) {
	near := 1 - math.Exp2(-1/(nearHalfLife*float64(f.lag)))
	far := 1 - math.Exp2(-1/(farHalfLife*float64(f.lag)))
	long := 1 - math.Exp2(-1.0/longHalfLife)
	for i, d := range f.deviate(f.now, observed) {
		w := &f.workers[i]
		if d, counts := w.believe(d, outlying*f.sigma); counts {
			w.averaged++
			least := 1 / w.averaged
			l := &f.now[i]
			l.near += max(near, least) * (d - l.near)
			l.far += max(far, least) * (d - l.far)
			l.long += max(long, least) * (d - l.long)
		}
	}
}

// believe leaves out what is not measured and a single deviation beyond the bound. Of two in a row to the same side the
// smaller counts.
func (w *forecastWorker) believe(d, bound float64) (believed float64, counts bool) {
	before := w.outlier
	w.outlier = 0
	switch {
	case math.IsNaN(d):
		return 0, false
	case math.Abs(d) <= bound:
		return d, true
	}
	w.outlier = d
	if d > 0 {
		return min(d, before), before > 0
	}
	return max(d, before), before < 0
}

// regress learns from how far the workers were from what would have been predicted a lag ago.
func (f *Forecast) regress(then []outlook, observed []Observation) {
	deviations := f.deviate(then, observed)
	f.sorted = f.sorted[:0]
	for i, d := range deviations {
		if !math.IsNaN(d) {
			f.sorted = append(f.sorted, math.Abs(d-then[i].long-then[i].predicted(f.weights)))
		}
	}
	if len(f.sorted) < 2 {
		return
	}
	f.sigma = max(leastSigma, f.sigma+sigmaGain*(1.4826*median(f.sorted)-f.sigma))
	f.fade()
	for i, d := range deviations {
		if !math.IsNaN(d) {
			f.add(then[i].near-then[i].long, then[i].far-then[i].long, d-then[i].long)
		}
	}
	det := f.gram[0]*f.gram[2] - f.gram[1]*f.gram[1]
	a := (f.cross[0]*f.gram[2] - f.cross[1]*f.gram[1]) / det
	b := (f.gram[0]*f.cross[1] - f.gram[1]*f.cross[0]) / det
	f.weights = [2]float64{max(-1, min(a, 1)), max(-1, min(b, 1))}
}

// fade lets the regression forget, towards what was expected before anything was learned.
func (f *Forecast) fade() {
	prior := (1 - memory) * priorDoubt
	f.gram = [3]float64{memory*f.gram[0] + prior, memory * f.gram[1], memory*f.gram[2] + prior}
	f.cross = [2]float64{memory*f.cross[0] + prior*nearPrior, memory * f.cross[1]}
}

// add takes one worker into the regression of y on x0 and x1.
func (f *Forecast) add(x0, x1, y float64) {
	residual := math.Abs(y - f.weights[0]*x0 - f.weights[1]*x1)
	weight := 1 / (f.sigma * f.sigma)
	if residual > robustSigma*f.sigma {
		weight *= robustSigma * f.sigma / residual
	}
	f.gram[0] += weight * x0 * x0
	f.gram[1] += weight * x0 * x1
	f.gram[2] += weight * x1 * x1
	f.cross[0] += weight * x0 * y
	f.cross[1] += weight * x1 * y
}

// remember keeps the outlooks as they are for the regression a lag later.
func (f *Forecast) remember() {
	if len(f.past) < f.lag {
		f.past = append(f.past, slices.Clone(f.now))
		return
	}
	oldest := f.past[0]
	copy(oldest, f.now)
	f.past = append(f.past[1:], oldest)
}
