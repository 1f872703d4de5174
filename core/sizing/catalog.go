package sizing

import "github.com/evenstep/evenstep/core/speed"

// Policy decides the batch sizes of one job from what its steps cost.
type Policy interface {
	// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new.
	// Observations that are not one per worker count as nothing measured.
	Step([]speed.Observation) (d Decision, changed bool)
}

// Kind is a policy that can be asked for by name.
type Kind struct {
	Name  string
	Naive bool // a yardstick for the simulator, which no job should train on
	// New starts from the given sizes, or from equal ones if start is nil. The problem's curves are ignored. The error
	// names the field that is wrong; it is an *InfeasibleError when no vector fits.
	New func(p Problem, start []int) (Policy, error)
}

// Kinds are all policies, the default first.
func Kinds() []Kind {
	return []Kind{
		{"auto", false, func(p Problem, start []int) (Policy, error) { return NewAuto(p, start) }},
		{"equal", false, func(p Problem, start []int) (Policy, error) { return NewEqual(p, start) }},
		{"last", true, naive("last", func() Predictor { return new(lastSpeed) })},
		{"ewma", true, naive("ewma", func() Predictor { return &ewmaSpeed{halfLife: ewmaHalfLife} })},
		{"median", true, naive("median", func() Predictor { return &medianSpeed{window: medianWindow} })},
	}
}

func naive(name string, predictor func() Predictor) func(Problem, []int) (Policy, error) {
	return func(p Problem, start []int) (Policy, error) { return NewProportional(name, p, start, predictor) }
}
