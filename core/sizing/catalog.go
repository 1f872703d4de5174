package sizing

import (
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// Policy decides the batch sizes of one job from what its steps cost.
type Policy interface {
	// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new. They
	// take effect lag steps later, at least 1. Observations that are not one per worker count as nothing measured.
	Step(observed []speed.Observation, lag int) (d Decision, changed bool)
}

// Kind is a policy that can be asked for by name.
type Kind struct {
	Name  string
	Naive bool // a yardstick for the simulator, which no job should train on
	New   Constructor
}

// Constructor makes a policy that starts from the given sizes, or from equal ones if start is nil. The problem's curves
// are ignored. The error names the field that is wrong; it is an *InfeasibleError when no vector fits.
type Constructor func(p Problem, start []int) (Policy, error)

// Kinds are all policies, the default first.
func Kinds() []Kind {
	return []Kind{
		{"auto", false, func(p Problem, start []int) (Policy, error) { return NewAuto(p, start) }},
		{"equal", false, func(p Problem, start []int) (Policy, error) { return NewEqual(p, start) }},
		{"lbbsp-cpu", false, func(p Problem, start []int) (Policy, error) { return NewCPU(p, start) }},
		{"lbbsp-gpu-analytic", false, func(p Problem, start []int) (Policy, error) { return NewGPUAnalytic(p, start) }},
		{"lbbsp-gpu-tuning", false, func(p Problem, start []int) (Policy, error) { return NewGPUTuning(p, start) }},
		{"last", true, proportional("last", naiveLast)},
		{"ewma", true, proportional("ewma", naiveEWMA)},
		{"median", true, proportional("median", naiveMedian)},
	}
}

// Named is the kind with a name; false where there is none.
func Named(name string) (Kind, bool) {
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

func proportional(name string, predictor func(worker int) speed.Predictor) Constructor {
	return func(p Problem, start []int) (Policy, error) { return NewProportional(name, p, start, predictor) }
}
