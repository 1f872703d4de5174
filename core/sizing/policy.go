package sizing

import (
	"fmt"

	"github.com/evenstep/evenstep/core/speed"
)

// Decision is what a policy wants the job to train on.
type Decision struct {
	BatchSizes  []int   // in rank order, sums to the global batch; shared until the next change, not to be modified
	StepSeconds float64 // predicted time of a step with these sizes; 0 while nothing is known
	Reason      string  // why these sizes, in words
}

// startSizes is a checked copy of the sizes that a job starts from; nil means equal sizes.
func startSizes(p *Problem, start []int) ([]int, error) {
	sizes := make([]int, len(p.Workers))
	if err := Equal(*p, sizes); err != nil || start == nil {
		return sizes, err
	}
	if len(start) != len(sizes) {
		return nil, fmt.Errorf("batch_sizes: %d of them for %d workers; give one each", len(start), len(sizes))
	}
	sum := 0
	for i, n := range start {
		w := &p.Workers[i]
		least, most := p.least(w), p.most(w)
		if n < least || n > most || n%p.Quantum != 0 {
			return nil, fmt.Errorf("batch_sizes[%d]: %d is not a multiple of %d between %d and %d", i, n, p.Quantum,
				least, most)
		}
		sum = add(sum, n)
	}
	if sum != p.GlobalBatch {
		return nil, fmt.Errorf("batch_sizes: they sum to %d; give sizes that sum to global_batch %d", sum,
			p.GlobalBatch)
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
