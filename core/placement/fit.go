package placement

import (
	"math"
	"slices"
)

// fitTries bounds the search for a way to give every job its minimum at once, in types tried for jobs of a single type.
const fitTries = 20_000

// fit gives every job its minimum, all at once; if stay, those that run keep what they have. It is nil where that cannot
// be, or, with many jobs of a single type, where no way was found.
func (in *instance) fit(stay bool) *assignment {
	a := newAssignment(in)
	var single, mixed []int
	for i := range in.jobs {
		switch j := &in.jobs[i]; {
		case j.fixed:
		case stay && j.current != nil && !math.IsInf(in.costIfAlike(i, j.current), 1):
			a.give(i, j.current)
		case j.single && j.min > 1:
			single = append(single, i)
		default:
			mixed = append(mixed, i)
		}
	}
	larger := func(x, y int) int { return in.jobs[y].min - in.jobs[x].min }
	slices.SortStableFunc(single, larger)
	f := fitting{a, mixed, fitTries}
	if !f.place(single) {
		return nil
	}
	for i := range in.jobs {
		a.reckon(i)
	}
	return a
}

type fitting struct {
	*assignment
	mixed []int
	tries int
}

// place gives the jobs of a single type, the largest first, devices of the type with most left, or of another if the rest
// then finds no place; at last it fits in the others.
func (f *fitting) place(single []int) bool {
	if len(single) == 0 {
		return f.flow()
	}
	i := single[0]
	for _, typ := range f.roomiest(i) {
		if f.tries--; f.tries < 0 {
			return false
		}
		f.fill(i, typ)
		if f.place(single[1:]) {
			return true
		}
		f.empty(i)
	}
	return false
}

// roomiest lists the types that have the job's minimum free, that with most first.
func (f *fitting) roomiest(i int) []string {
	j := &f.in.jobs[i]
	free := make(map[string]int)
	var types []string
	for k, kd := range f.in.kinds {
		if j.rate[k] > 0 {
			if _, seen := free[kd.typ]; !seen {
				types = append(types, kd.typ)
			}
			free[kd.typ] += f.free[k]
		}
	}
	types = slices.DeleteFunc(types, func(t string) bool { return free[t] < j.min })
	slices.SortStableFunc(types, func(x, y string) int { return free[y] - free[x] })
	return types
}

// fill gives a job its minimum of one type.
func (f *fitting) fill(i int, typ string) {
	j := &f.in.jobs[i]
	for k, kd := range f.in.kinds {
		if kd.typ == typ && j.rate[k] > 0 {
			n := min(j.min-sum(f.counts[i]), f.free[k])
			f.counts[i][k] += n
			f.free[k] -= n
		}
	}
}

func (f *fitting) empty(i int) {
	for k, c := range f.counts[i] {
		f.free[k] += c
		f.counts[i][k] = 0
	}
}

// flow gives the others their minimums, by augmenting paths: exact. It takes everything back where there is no way.
func (f *fitting) flow() bool {
	for _, i := range f.mixed {
		for range f.in.jobs[i].min {
			if !f.augment(i) {
				for _, i := range f.mixed {
					f.empty(i)
				}
				return false
			}
		}
	}
	return true
}

// augment gives a job one more device: of a kind with a free one, or of a kind of which another job gives one up for one of
// another kind, and so on.
func (f *fitting) augment(i int) bool {
	const none = -1
	kinds := len(f.in.kinds)
	from, giver := make([]int, kinds), make([]int, kinds) // the way to a kind: by whom, from which
	var reached []int
	for k, rate := range f.in.jobs[i].rate {
		from[k], giver[k] = none, none
		if rate > 0 {
			giver[k] = i
			reached = append(reached, k)
		}
	}
	for at := 0; at < len(reached); at++ {
		k := reached[at]
		if f.free[k] > 0 {
			f.free[k]--
			for ; from[k] != none; k = from[k] {
				f.counts[giver[k]][k]++
				f.counts[giver[k]][from[k]]--
			}
			f.counts[i][k]++
			return true
		}
		for _, other := range f.mixed {
			if f.counts[other][k] == 0 {
				continue
			}
			for to, rate := range f.in.jobs[other].rate {
				if rate > 0 && giver[to] == none {
					from[to], giver[to] = k, other
					reached = append(reached, to)
				}
			}
		}
	}
	return false
}
