package placement

import (
	"math"
	"slices"
)

// assignment is how many devices of each kind every job has: a solution of the static model.
type assignment struct {
	in     *instance
	counts [][]int // by job, then by kind
	free   []int   // by kind: devices that no job has
	cost   []float64
}

// newAssignment gives nobody anything but the fixed jobs what they have.
func newAssignment(in *instance) *assignment {
	a := &assignment{in: in, counts: make([][]int, len(in.jobs)), free: in.capacity(), cost: make([]float64, len(in.jobs))}
	for i := range in.jobs {
		a.counts[i] = make([]int, len(in.kinds))
		if j := &in.jobs[i]; j.fixed {
			a.give(i, j.current)
		}
	}
	return a
}

// capacity is the devices by kind.
func (in *instance) capacity() []int {
	free := make([]int, len(in.kinds))
	for k := range in.kinds {
		free[k] = in.kinds[k].cap
	}
	return free
}

// give sets what a job has. The caller sees to it that there is enough.
func (a *assignment) give(i int, counts []int) {
	for k, c := range counts {
		a.free[k] += a.counts[i][k] - c
	}
	copy(a.counts[i], counts)
	a.reckon(i)
}

// reckon brings a job's cost up to date.
func (a *assignment) reckon(i int) {
	a.cost[i] = a.in.jobs[i].cost(a.counts[i])
}

// cost is what the job adds to the weighted sum of completion times; infinite for counts that it cannot run on.
func (j *job) cost(counts []int) float64 {
	n := sum(counts)
	if n < j.min || n > j.max {
		return math.Inf(1)
	}
	for k, c := range counts {
		if c > 0 && j.rate[k] == 0 {
			return math.Inf(1)
		}
	}
	return j.weight * j.seconds(counts)
}

// total is the weighted sum of completion times.
func (a *assignment) total() float64 {
	t := 0.0
	for _, c := range a.cost {
		t += c
	}
	return t
}

func (a *assignment) clone() *assignment {
	b := &assignment{in: a.in, counts: make([][]int, len(a.counts)), free: slices.Clone(a.free), cost: slices.Clone(a.cost)}
	for i, c := range a.counts {
		b.counts[i] = slices.Clone(c)
	}
	return b
}

func sum(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
