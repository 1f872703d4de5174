package sizing

import "sort"

// Equal writes the equal batch sizes into sizes, one entry per worker: quanta dealt evenly, the remainder to the first
// workers; what the limits take from some or force on others is dealt again among the rest. That is a water level:
// every worker stands at the same height or at the limit that keeps it from there.
//
// The error names the field that is wrong; it is an *InfeasibleError when no vector fits.
func Equal(p Problem, sizes []int) error {
	if _, _, err := p.check(); err != nil {
		return err
	}
	if err := p.room(sizes); err != nil {
		return err
	}
	at := func(level int) (sum int) {
		for i := range p.Workers {
			sizes[i] = p.clamp(&p.Workers[i], level*p.Quantum)
			sum = add(sum, sizes[i])
		}
		return sum
	}
	// The highest level that does not exceed the global batch. Without limits in the way it is the even share.
	quanta := p.GlobalBatch / p.Quantum
	level := quanta / len(p.Workers)
	if at(level) > p.GlobalBatch || at(level+1) <= p.GlobalBatch {
		level = sort.Search(quanta, func(k int) bool { return at(k+1) > p.GlobalBatch })
	}
	left := p.GlobalBatch - at(level)
	for i := range p.Workers {
		w := &p.Workers[i]
		if left > 0 && p.clamp(w, (level+1)*p.Quantum) > sizes[i] {
			sizes[i] += p.Quantum
			left -= p.Quantum
		}
	}
	return nil
}
