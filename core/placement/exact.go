package placement

import (
	"math"
	"slices"
)

const (
	quickExact = 40_000_000     // comparisons up to which auto solves exactly
	mostExact  = 40_000_000_000 // and exact at all
	mostStates = 200_000_000    // jobs times states to remember
)

// exactWork is at least how many comparisons the exact programme takes: for each job, all pairs of what it may have and of
// states that cover it.
func (in *instance) exactWork() float64 {
	states, pairs := 1.0, 1.0
	most := 0
	for i := range in.jobs {
		most = max(most, in.jobs[i].max)
	}
	for _, f := range newAssignment(in).free {
		states *= float64(f + 1)
		n := float64(min(f, most) + 1)
		pairs *= n * (float64(f+1) - (n-1)/2)
	}
	if states*float64(len(in.jobs)) > mostStates {
		return math.Inf(1)
	}
	return pairs * float64(len(in.jobs))
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
	for o, option := range options {
		cost, back := j.cost(option), d.index(option)
		covering, states := slices.Clone(option), 1
		for k, c := range option {
			states *= d.free[k] - c + 1
		}
		if !w.spend(states) {
			return false
		}
		for s := back; s >= 0; s = d.nextCovering(s, covering, option) {
			if c := cost + d.best[s-back]; c < d.next[s] {
				d.next[s], chosen[s] = c, int32(o)
			}
		}
	}
	d.best, d.next = d.next, d.best
	d.jobs, d.options, d.chosen = append(d.jobs, i), append(d.options, options), append(d.chosen, chosen)
	return true
}

// nextCovering counts a state up among those that have what an option takes; it is -1 after the last.
func (d *programme) nextCovering(s int, covering, option []int) int {
	for k := range covering {
		s += d.stride[k]
		if covering[k]++; covering[k] <= d.free[k] {
			return s
		}
		s -= d.stride[k] * (covering[k] - option[k])
		covering[k] = option[k]
	}
	return -1
}
