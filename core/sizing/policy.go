package sizing

import "github.com/evenstep/evenstep/core/speed"

// Decision is what a policy wants the job to train on.
type Decision struct {
	BatchSizes  []int   // in rank order, sums to the global batch; shared until the next change, not to be modified
	StepSeconds float64 // predicted time of a step with these sizes; 0 while nothing is known
	Reason      string  // why these sizes, in words
}

// firstSteps keep the initial batch sizes in LB-BSP. That the first few do is published; how many is ours.
const firstSteps = 5

// startSizes is a checked copy of the sizes that a job starts from; nil means equal sizes.
func startSizes(p *Problem, start []int) ([]int, error) {
	sizes := make([]int, len(p.Workers))
	if err := Equal(*p, sizes); err != nil || start == nil {
		return sizes, err
	}
	if err := p.CheckSizes(start); err != nil {
		return nil, err
	}
	copy(sizes, start)
	return sizes, nil
}

// EqualPolicy stays with the sizes that it starts from.
type EqualPolicy struct{ decision Decision }

// NewEqual starts from the given sizes, or from equal ones if start is nil. The error names the field that is wrong; it
// is an *InfeasibleError when no vector fits.
func NewEqual(p Problem, start []int) (*EqualPolicy, error) {
	sizes, err := startSizes(&p, start)
	if err != nil {
		return nil, err
	}
	return &EqualPolicy{Decision{BatchSizes: sizes, Reason: "policy equal"}}, nil
}

// Step never changes anything.
func (e *EqualPolicy) Step([]speed.Observation, int) (d Decision, changed bool) {
	return e.decision, false
}
