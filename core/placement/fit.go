package placement

import (
	"math"
	"slices"
)

// fitTries bounds the search for a way to give every job its minimum at once, in types tried for jobs of a single type, and
// fitFlows in choices of types for all of them.
const (
	fitTries = 20_000
	fitFlows = 300
)

// fit gives every job its minimum, all at once; if stay, those that run keep what they have. It is nil where that cannot
// be, or, with many jobs of a single type, where no way was found.
func (in *instance) fit(stay bool) *assignment {
	f := &fitting{assignment: newAssignment(in), tries: fitTries, flows: fitFlows, only: make([]string, len(in.jobs)),
		left: make(map[string]int)}
	var single []int
	for i := range in.jobs {
		switch j := &in.jobs[i]; {
		case j.fixed:
		case stay && j.current != nil && !math.IsInf(in.costIfAlike(i, j.current), 1):
			f.give(i, j.current)
		default:
			f.jobs = append(f.jobs, i)
			if j.single && j.min > 1 {
				single = append(single, i)
			}
		}
	}
	for k, kd := range in.kinds {
		f.left[kd.typ] += f.free[k]
	}
	slices.SortStableFunc(single, func(x, y int) int { return in.jobs[y].min - in.jobs[x].min })
	if !f.choose(single) {
		return nil
	}
	for i := range in.jobs {
		f.reckon(i)
	}
	return f.assignment
}

// fitting is a search for minimums: a type for each job of a single type by trying, then a flow.
type fitting struct {
	*assignment
	jobs         []int          // to be given their minimum
	only         []string       // by job: its type where it takes a single one
	left         map[string]int // devices by type, but for those that jobs of a single type have chosen
	tries, flows int
}

// choose picks a type for each of the jobs, the largest first: that with most left, or another if the rest then finds no
// place.
func (f *fitting) choose(single []int) bool {
	if len(single) == 0 {
		f.flows--
		return f.flow()
	}
	i := single[0]
	for _, typ := range f.roomiest(i) {
		if f.tries--; f.tries < 0 || f.flows <= 0 {
			return false
		}
		f.only[i] = typ
		f.left[typ] -= f.in.jobs[i].min
		if f.choose(single[1:]) {
			return true
		}
		f.left[typ] += f.in.jobs[i].min
	}
	return false
}

// roomiest lists the types that the job can run on and that have its minimum left, that with most first.
func (f *fitting) roomiest(i int) (types []string) {
	for _, k := range f.in.jobs[i].usable {
		if typ := f.in.kinds[k].typ; f.left[typ] >= f.in.jobs[i].min && !slices.Contains(types, typ) {
			types = append(types, typ)
		}
	}
	slices.SortStableFunc(types, func(x, y string) int { return f.left[y] - f.left[x] })
	return types
}

// may lists the kinds that a job may have in this try.
func (f *fitting) may(i int) []int {
	if f.only[i] == "" {
		return f.in.jobs[i].usable
	}
	return slices.DeleteFunc(slices.Clone(f.in.jobs[i].usable), func(k int) bool { return f.in.kinds[k].typ != f.only[i] })
}

// flow gives all their minimums, by augmenting paths: exact for the types chosen. It takes everything back where there is
// no way.
func (f *fitting) flow() bool {
	may := make([][]int, len(f.in.jobs))
	for _, i := range f.jobs {
		may[i] = f.may(i)
	}
	for _, i := range f.jobs {
		for range f.in.jobs[i].min {
			if !f.augment(i, may) {
				for _, i := range f.jobs {
					f.give(i, make([]int, len(f.free)))
				}
				return false
			}
		}
	}
	return true
}

// augment gives a job one more device: of a kind with a free one, or of a kind of which another job gives one up for one of
// another kind, and so on.
func (f *fitting) augment(i int, may [][]int) bool {
	const none = -1
	kinds := len(f.in.kinds)
	from, giver := make([]int, kinds), make([]int, kinds) // the way to a kind: by whom, from which
	for k := range kinds {
		from[k], giver[k] = none, none
	}
	reached := slices.Clone(may[i])
	for _, k := range reached {
		giver[k] = i
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
		for _, other := range f.jobs {
			if f.counts[other][k] == 0 {
				continue
			}
			for _, to := range may[other] {
				if giver[to] == none {
					from[to], giver[to] = k, other
					reached = append(reached, to)
				}
			}
		}
	}
	return false
}
