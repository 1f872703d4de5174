package speed

import "math"

// These are our defaults, not published values.
const (
	rolling   = 32    // half-life in steps of the members' errors
	trial     = 16    // steps that a member must have predicted before it is followed
	advantage = 0.1   // share by which its error must be the less
	goodAlike = 0.001 // error up to which a member is good enough not to be left
	mostOff   = 1     // one step's error counts up to this, a factor of e, so that a pause decides nothing
)

// Predictor foretells how fast one worker computes.
type Predictor interface {
	// Observe learns from one step.
	Observe(Observation)
	// Speed is the prediction for the next step, in samples per second, positive and finite, given the driving inputs
	// of that step as far as they are known. It is false while there is none.
	Speed(next Inputs) (samplesPerSecond float64, known bool)
}

// Member is one predictor of an Ensemble.
type Member struct {
	Name string // for reasons in words
	Predictor
}

// Members are all predictors of this package with our defaults, EWMA first. The seed is NARX's.
func Members(lag int, seed uint64) []Member {
	return []Member{
		{"EWMA 8", &EWMA{HalfLife: 8}},
		{"EWMA 1", &EWMA{HalfLife: 1}},
		{"EWMA 32", &EWMA{HalfLife: 32}},
		{"last value", &LastValue{}},
		{"median", NewMedian(9)},
		{"Holt", &Holt{}},
		{"affine curve", &AffineSpeed{}},
		{"NARX", NewNARX(lag, seed)},
	}
}

// Standing is how a member did lately.
type Standing struct {
	Name  string
	Error float64 // rolling root mean square of ln(predicted/seen), about the relative error; 0 while Steps is
	Steps int     // that it predicted
}

// Ensemble predicts as its best member does. It starts with the first one, and follows another when that has had clearly
// the smaller rolling error. It is made by NewEnsemble.
type Ensemble struct {
	members  []Member
	squares  []average   // of the members' errors
	issued   [][]float64 // by step modulo the lag, then by member: predictions not yet due; 0 where there was none
	seen     int         // measured steps
	followed int
	next     Inputs // what was known of the coming step when its speed was last asked for
}

// NewEnsemble judges its members by predictions lag steps ahead (at least 1): a policy whose decisions hold that much
// later asks no less of a prediction. Members must be at least one, fresh, and are the ensemble's from then on.
func NewEnsemble(lag int, members ...Member) *Ensemble {
	e := &Ensemble{members: members, squares: make([]average, len(members)), issued: make([][]float64, withinLag(lag))}
	for i := range e.issued {
		e.issued[i] = make([]float64, len(members))
	}
	return e
}

// Observe learns from one step; one that was not measured is ignored.
func (e *Ensemble) Observe(o Observation) {
	v, known := o.Speed()
	if !known {
		return
	}
	// What the members say now is what they knew before this step, lag steps ahead of the last one that they saw.
	issued := e.issued[e.seen%len(e.issued)]
	for i, m := range e.members {
		issued[i], _ = m.Speed(e.next)
	}
	e.seen++
	due, w := e.issued[e.seen%len(e.issued)], weight(rolling)
	for i, m := range e.members {
		if due[i] > 0 {
			off := min(math.Abs(math.Log(due[i]/v)), mostOff)
			e.squares[i].add(off*off, w)
		}
		m.Observe(o)
	}
	e.next = Inputs{}
	e.follow()
}

// follow changes to the best member if it is clearly better.
func (e *Ensemble) follow() {
	best, now := e.followed, e.squares[e.followed].mean
	for i, err := range e.squares {
		if err.count >= trial && err.mean < e.squares[best].mean {
			best = i
		}
	}
	if now > goodAlike*goodAlike && e.squares[best].mean < (1-advantage)*(1-advantage)*now {
		e.followed = best
	}
}

// Speed is the prediction for the next step, in samples per second; false while the followed member has none. The
// inputs are remembered: the members are judged by what they could know.
func (e *Ensemble) Speed(next Inputs) (samplesPerSecond float64, known bool) {
	e.next = next
	return e.members[e.followed].Speed(next)
}

// Following is the name of the member that is followed.
func (e *Ensemble) Following() string { return e.members[e.followed].Name }

// Standings are the members' errors, in their order.
func (e *Ensemble) Standings() []Standing {
	standings := make([]Standing, len(e.members))
	for i, m := range e.members {
		standings[i] = Standing{m.Name, math.Sqrt(e.squares[i].mean), e.squares[i].count}
	}
	return standings
}
