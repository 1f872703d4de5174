// Package sizing decides how many samples each worker processes in a step.
package sizing

// Problem is one instance of batch sizing.
type Problem struct {
	GlobalBatch, Quantum int
	Workers              []Worker
}

// Worker is one worker's limits.
type Worker struct {
	Min, Max int
}

// Observation is what one step cost one worker; Seconds 0 means not measured.
type Observation struct {
	Samples, Seconds float64
}

// Decision is the vector of batch sizes.
type Decision struct {
	BatchSizes  []int
	StepSeconds float64
	Reason      string
}

// Equal writes the equal batch sizes into sizes, one entry per worker.
func Equal(p Problem, sizes []int) error {
	left := p.GlobalBatch
	for i, w := range p.Workers {
		sizes[i] = w.Min
		left -= w.Min
	}
	for moved := true; moved && left > 0; {
		moved = false
		for i, w := range p.Workers {
			if left > 0 && sizes[i]+p.Quantum <= w.Max {
				sizes[i] += p.Quantum
				left -= p.Quantum
				moved = true
			}
		}
	}
	return nil
}

// Auto keeps the sizes that it starts from.
type Auto struct{ decision Decision }

// NewAuto starts from the given sizes.
func NewAuto(_ Problem, start []int) (*Auto, error) { return &Auto{Decision{BatchSizes: start}}, nil }

// Step changes nothing.
func (a *Auto) Step([]Observation) (Decision, bool) { return a.decision, false }

// NewEqual starts from the given sizes.
func NewEqual(p Problem, start []int) (*Auto, error) { return NewAuto(p, start) }
