package placement

import "math"

const (
	quickExact = 40_000_000     // comparisons up to which auto solves exactly
	mostExact  = 40_000_000_000 // and exact at all
	mostStates = 200_000_000    // jobs times states to remember
)

// exactWork is how many comparisons the exact programme takes, about.
func (in *instance) exactWork() float64 {
	states, options := 1.0, 1.0
	most := 0
	for i := range in.jobs {
		most = max(most, in.jobs[i].max)
	}
	for _, f := range newAssignment(in).free {
		states *= float64(f + 1)
		options *= float64(min(f, most) + 1)
	}
	if states*float64(len(in.jobs)) > mostStates {
		return math.Inf(1)
	}
	return states * options * float64(len(in.jobs)) / math.Exp2(float64(len(in.kinds)))
}

// exact solves the static model by dynamic programming over the jobs; the state is what is left of every kind. It is nil
// when the work is spent before it is done, or nothing fits.
func (in *instance) exact(w *work) *assignment {
	a := newAssignment(in)
	d := &programme{in: in, free: a.free, stride: make([]int, len(a.free)), states: 1}
	for k, f := range a.free {
		d.stride[k] = d.states
		d.states *= f + 1
	}
	d.best, d.next = make([]float64, d.states), make([]float64, d.states)
	for i := len(in.jobs) - 1; i >= 0; i-- {
		if !d.add(i, w) {
			return nil
		}
	}
	if math.IsInf(d.best[d.states-1], 1) {
		return nil
	}
	state := d.states - 1
	for s := len(d.chosen) - 1; s >= 0; s-- {
		option := d.options[s][d.chosen[s][state]]
		a.give(d.jobs[s], option)
		state -= d.index(option)
	}
	return a
}

// programme is the dynamic programme after some of the jobs, the last first.
type programme struct {
	in      *instance
	free    []int
	stride  []int // of each kind's count in a state
	states  int
	best    []float64 // by state: the least cost of the jobs so far on what the state leaves
	next    []float64
	jobs    []int     // so far, without the fixed ones
	options [][][]int // by jobs
	chosen  [][]int32 // by jobs, then by state
}

func (d *programme) index(counts []int) int {
	at := 0
	for k, c := range counts {
		at += c * d.stride[k]
	}
	return at
}

// add takes in one more job.
func (d *programme) add(i int, w *work) bool {
	j := &d.in.jobs[i]
	if j.fixed {
		return true
	}
	options := j.options(d.in, d.free)
	chosen := make([]int32, d.states)
	for s := range d.next {
		d.next[s] = math.Inf(1)
	}
	left := make([]int, len(d.free))
	for o, option := range options {
		if !w.spend(d.states) {
			return false
		}
		cost, back := j.cost(option), d.index(option)
		for s := d.states - 1; s >= back; s-- {
			if c := cost + d.best[s-back]; c < d.next[s] && d.covers(s, option, left) {
				d.next[s], chosen[s] = c, int32(o)
			}
		}
	}
	d.best, d.next = d.next, d.best
	d.jobs, d.options, d.chosen = append(d.jobs, i), append(d.options, options), append(d.chosen, chosen)
	return true
}

// covers says whether a state has what an option takes.
func (d *programme) covers(state int, option, left []int) bool {
	for k := len(left) - 1; k >= 0; k-- {
		left[k] = state / d.stride[k]
		state %= d.stride[k]
		if left[k] < option[k] {
			return false
		}
	}
	return true
}
