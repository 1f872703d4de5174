package speed

import "math"

// These are our defaults, not published values.
const (
	rolling   = 32    // half-life in steps of the members' errors
	trial     = 16    // steps that a member must have predicted before it is followed
	advantage = 0.1   // share by which its error must be the less
	enough    = 0.001 // error up to which no better member is looked for
	mostOff   = 1     // one step's error counts up to this, a factor of e, so that a pause decides nothing
)

// Predictor foretells how fast one worker computes.
type Predictor interface {
	// Observe learns from one step.
	Observe(Observation)
	// Speed is the prediction, in samples per second, positive and finite, for the next step or for a later one if the
	// predictor was made to look ahead. The driving inputs are the next step's, as far as they are known. It is false
	// while there is no prediction.
	Speed(next Inputs) (samplesPerSecond float64, known bool)
}

// Member is one predictor of an Ensemble.
type Member struct {
	Name string // for reasons in words
	Predictor
}

// Members are all predictors of this package with our defaults, EWMA first; a number in a name is a half-life. NARX
// looks lag steps ahead, the others expect that all later steps are like the next. The seed is NARX's.
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

// Ensemble predicts as its best member does. It starts with the first one, and follows another when that has had
// clearly the smaller rolling error. It is made by NewEnsemble.
type Ensemble struct {
	members  []Member
	lag      int         // at which the members are judged
	squares  []average   // of the members' errors
	issued   [][]float64 // by step modulo mostLag, then by member: the latest predictions; 0 where there was none
	seen     int         // measured steps
	followed int
	next     Inputs // what was known of the coming step when its speed was last asked for
}

// NewEnsemble judges its members by what they foretell of the step that comes lag steps (1 to 64) after the last one
// seen: a job that prefetches trains on a decision only then. There must be at least one member, each fresh; they are
// the ensemble's from then on.
func NewEnsemble(lag int, members ...Member) *Ensemble {
	e := &Ensemble{members: members, squares: make([]average, len(members)), issued: make([][]float64, mostLag)}
	for i := range e.issued {
		e.issued[i] = make([]float64, len(members))
	}
	e.JudgeAt(lag)
	return e
}

// JudgeAt judges the members at another lag from the next step on. What they were found to be off by stays in their
// errors and is forgotten in time, since the lag of a job may change now and then.
func (e *Ensemble) JudgeAt(lag int) { e.lag = withinLag(lag) }

// Observe learns from one step; one that was not measured is ignored.
func (e *Ensemble) Observe(o Observation) {
	v, known := o.Speed()
	if !known {
		return
	}
	// The members have not seen this step yet: what they say now is for lag steps after the one before.
	issued := e.issued[e.seen%mostLag]
	for i, m := range e.members {
		issued[i], _ = m.Speed(e.next)
	}
	e.seen++
	due, w := e.issued[(e.seen+mostLag-e.lag)%mostLag], weight(rolling)
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
	if now > enough*enough && e.squares[best].mean < (1-advantage)*(1-advantage)*now {
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
