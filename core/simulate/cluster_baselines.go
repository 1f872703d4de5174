package simulate

import (
	"cmp"
	"slices"
)

// reviewSeconds is how long a decision of fifo and allox holds at least, whoever comes and goes: the
// minimum_time_between_allocation_resets of Gavel's simulator, whose numbers they reproduce.
const reviewSeconds = 1920

// review says when a policy decides anew, as Gavel's simulator does.
type review struct {
	last float64
	due  bool
}

func (r *review) isDue(s *situation) bool {
	r.due = r.due || s.changed
	if s.deadlock {
		r.last = 0
	}
	if !r.due || r.last != 0 && s.now-r.last < reviewSeconds {
		return false
	}
	r.last, r.due = s.now, false
	return true
}

// fifo gives devices in the order of arrival, and stops at the first job for which no type has enough that are free;
// one that cannot run on those that have is passed over. Type-aware it starts over at each review; type-blind, who has
// devices keeps them.
type fifo struct {
	review
	choose chooser
	holds  bool
	chosen map[int]int // way by job
}

func (f *fifo) decide(s *situation) error {
	if f.isDue(s) {
		before := f.chosen
		f.chosen = make(map[int]int)
		free := slices.Clone(s.counts)
		if f.holds {
			for _, j := range s.jobs {
				if w, held := before[j.index]; held {
					f.chosen[j.index] = w
					take(j.ways[w].Counts, free)
				}
			}
		}
		for _, j := range s.jobs {
			if _, held := f.chosen[j.index]; held {
				continue
			}
			if slices.Max(free) < j.devices {
				break
			}
			if w := f.choose(j, free); w >= 0 {
				f.chosen[j.index] = w
				take(j.ways[w].Counts, free)
			}
		}
	}
	for _, j := range s.jobs {
		if w, runs := f.chosen[j.index]; runs {
			j.next = w
		}
	}
	return nil
}

// order is the key by which jobs go first, the smallest before.
type order func(j *runningJob) float64

func shortestFirst(j *runningJob) float64 { return j.secondsLeft() }
func leastAttained(j *runningJob) float64 { return j.used / j.weight }

// shortestTypical does not know how fast a job is on which type.
func shortestTypical(j *runningJob) float64 { return float64(j.left) / j.typical * j.belief }

// inOrder gives devices by a key in each round, of equal ones in the order of arrival, and passes over who finds none.
// Type-blind, who runs on goes on where it is.
type inOrder struct {
	order  order
	choose chooser
}

func (o *inOrder) decide(s *situation) error {
	jobs := slices.Clone(s.jobs)
	slices.SortStableFunc(jobs, func(a, b *runningJob) int { return cmp.Compare(o.order(a), o.order(b)) })
	free := slices.Clone(s.counts)
	for _, j := range jobs {
		j.next = o.choose(j, free)
		if j.next >= 0 {
			take(j.ways[j.next].Counts, free)
		}
	}
	return nil
}
