package sizing

import (
	"errors"
	"fmt"
	"math"
)

// MinMax writes into sizes, one entry per worker, batch sizes that minimise the time of the slowest worker, and returns
// that time in seconds. The optimum is exact over whole quanta for any curves that do not fall; of several optimal
// vectors any may come out. It allocates nothing of its own.
//
// With cap_i(T) the most samples that worker i finishes within T seconds, the least T with Σ cap_i(T) >= N is the
// answer, and Σ cap is a staircase that changes only where some worker finishes one more quantum. The search closes in
// on that stair from both sides. The caps just below it are what handing out one quantum at a time to whoever finishes
// first would have given by then, and the rest goes to the workers that finish their next quantum at T.
//
// The error names the field that is wrong; it is an *InfeasibleError when no vector fits.
func MinMax(p Problem, sizes []int) (stepSeconds float64, err error) {
	minSum, maxSum, err := p.solvable(sizes)
	if err != nil {
		return 0, err
	}
	if !p.climb(p.search(minSum, maxSum), sizes) {
		return 0, errFalls
	}
	return p.StepSeconds(sizes), nil
}

// solvable checks all that a solver needs; the sums are those of check.
func (p *Problem) solvable(sizes []int) (minSum, maxSum int, err error) {
	if minSum, maxSum, err = p.check(); err != nil {
		return 0, 0, err
	}
	if err := p.room(sizes); err != nil {
		return 0, 0, err
	}
	for i := range p.Workers {
		if p.Workers[i].Curve == nil {
			return 0, 0, fmt.Errorf("workers[%d].curve: missing", i)
		}
	}
	return minSum, maxSum, nil
}

// errFalls is of curves that no solver can do with.
var errFalls = errors.New("workers: a curve falls or is not a number; give seconds that do not fall")

// stair is a place on the staircase Σ cap(T). All times are seconds.
type stair struct {
	t    float64
	sum  int     // Σ cap(t)
	last float64 // the time at which the staircase came up to sum, at most t; -1 if it started there
	next float64 // the time at which it leaves it, above t
}

// mostPasses is more than the search takes for curves that do not fall.
const mostPasses = 200

// search returns the highest stair below the global batch; its next is the optimal T. It is the foot of the staircase
// where the minimums are the whole batch.
func (p *Problem) search(minSum, maxSum int) stair {
	// Before time 0 the workers hold their minimums, and in the end their maximums.
	lo := stair{t: -1, sum: minSum, last: -1, next: 0}
	hi := stair{t: math.Inf(1), sum: maxSum, last: math.Inf(1), next: math.Inf(1)}
	var room [1024]int
	var few contenders
	for pass := 0; lo.sum < p.GlobalBatch && lo.next < hi.last && pass < mostPasses; pass++ {
		if few.workers == nil && (hi.sum-lo.sum)/p.Quantum <= len(room) {
			few = p.contenders(lo, hi, room[:0])
		}
		if s := p.stair(p.between(lo, hi, pass), few); s.sum < p.GlobalBatch {
			lo = s
		} else {
			hi = s
		}
	}
	return lo
}

// contenders are the workers that finish more at hi than at lo. Only they matter between the two, and once they are few
// a pass over them costs nothing.
type contenders struct {
	workers []int // nil means all workers
	others  int   // samples that the others finish
}

func (p *Problem) contenders(lo, hi stair, room []int) contenders {
	c := contenders{room, 0}
	for i := range p.Workers {
		if n, _, next := p.capacity(&p.Workers[i], lo.t); next <= hi.last && len(c.workers) < cap(room) {
			c.workers = append(c.workers, i)
		} else {
			c.others += n
		}
	}
	return c
}

// between picks the next time to look at, lo.next <= t < hi.last, so that each pass leaves at least one stair behind.
func (p *Problem) between(lo, hi stair, pass int) float64 {
	var t float64
	want := float64(p.GlobalBatch)
	switch {
	case pass >= 16 && pass%2 == 0:
		// Curves of wildly different scale. Halving the distance in representable numbers ends after 64 passes.
		a, b := math.Float64bits(lo.next), math.Float64bits(hi.last)
		t = math.Float64frombits(a + (b-a)/2)
	case pass == 0:
		t = p.evenSeconds(p.GlobalBatch / len(p.Workers))
	case math.IsInf(hi.t, 1):
		t = lo.t * 1.02 * want / float64(lo.sum)
	case lo.t < 0:
		t = hi.t * 0.98 * want / float64(hi.sum)
	default:
		// Σ cap is nearly linear for affine curves: interpolate, and where the answer is close to one side aim a little
		// past it, or the other side would never move.
		f := (want - float64(lo.sum)) / float64(hi.sum-lo.sum)
		if f < 0.05 {
			f *= 2
		} else if f > 0.95 {
			f -= 1 - f
		}
		t = lo.next + f*(hi.last-lo.next)
	}
	if t >= lo.next && t < hi.last {
		return t
	}
	return lo.next
}

// evenSeconds is how long the workers would take together if none waited: the harmonic mean of their times if all had n
// samples.
func (p *Problem) evenSeconds(n int) float64 {
	rate := 0.0
	for i := range p.Workers {
		rate += 1 / p.Workers[i].seconds(n)
	}
	return float64(len(p.Workers)) / rate
}

// stair finds the place on the staircase at t.
func (p *Problem) stair(t float64, few contenders) stair {
	s := stair{t: t, sum: few.others, last: -1, next: math.Inf(1)}
	if few.workers == nil {
		for i := range p.Workers {
			s.add(p.capacity(&p.Workers[i], t))
		}
	}
	for _, i := range few.workers {
		s.add(p.capacity(&p.Workers[i], t))
	}
	return s
}

// add adds a worker's capacity.
func (s *stair) add(n int, last, next float64) {
	s.sum = add(s.sum, n)
	if last > s.last {
		s.last = last
	}
	if next < s.next {
		s.next = next
	}
}

// climb writes the caps at the stair into sizes and deals what is missing to the workers that finish more by its next.
// It is false where that does not make up the global batch, which takes a curve that falls.
func (p *Problem) climb(s stair, sizes []int) bool {
	left, sum := p.GlobalBatch-s.sum, 0
	for i := range p.Workers {
		n, _, next := p.capacity(&p.Workers[i], s.t)
		if next <= s.next && left > 0 {
			more, _, _ := p.capacity(&p.Workers[i], s.next)
			more = min(more-n, left)
			n += more
			left -= more
		}
		sizes[i] = n
		sum = add(sum, n)
	}
	return sum == p.GlobalBatch
}
