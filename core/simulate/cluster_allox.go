package simulate

import (
	"cmp"
	"math"
	"slices"
)

// allox matches jobs of one device to the devices that are free (AlloX, Le et al., EuroSys 2020): a job that a device
// runs k-th from its last delays k jobs by its length, so that the cheapest matching of jobs to places (device, k) has
// the least mean completion time if nobody else arrives. Who comes first on its device starts and keeps it.
//
// It is that of Gavel's simulator, which matches at reviews only. In each round, type by type, others fill what is
// free, who has had least beyond its due first; they may be matched to devices of a later type.
type allox struct {
	review
	chosen map[int]int       // way by job
	lag    map[int][]float64 // by job and type: seconds that it is behind what it was due
	had    map[int][]float64 // by job and type: seconds at the last review
}

// mostMatched bounds the jobs of one matching, the longest waiting first: its time grows with their cube.
const mostMatched = 512

func (a *allox) decide(s *situation) error {
	since := s.now - a.last
	if a.isDue(s) {
		a.account(s, since)
		a.match(s)
	}
	for t, free := range s.counts {
		for _, j := range s.jobs {
			if w, runs := a.chosen[j.index]; runs && j.next < 0 && j.ways[w].Counts[t] > 0 {
				j.next = w
				free--
			}
		}
		a.fill(s, t, free)
	}
	return nil
}

// account adds up what the jobs were due and had since the last review.
func (a *allox) account(s *situation, since float64) {
	lag, had := make(map[int][]float64), make(map[int][]float64)
	for _, j := range s.jobs {
		lag[j.index], had[j.index] = make([]float64, len(s.counts)), slices.Clone(j.deviceSeconds)
		copy(lag[j.index], a.lag[j.index])
		for t, seconds := range j.deviceSeconds {
			if before := a.had[j.index]; before != nil {
				seconds -= before[t]
			}
			lag[j.index][t] -= seconds
		}
		if w, held := a.chosen[j.index]; held {
			for t, n := range j.ways[w].Counts {
				lag[j.index][t] += since * float64(n)
			}
		}
	}
	a.lag, a.had = lag, had
}

// fill gives so many devices of a type to those who have none yet.
func (a *allox) fill(s *situation, t, free int) {
	if free == 0 {
		return
	}
	behind := func(j *runningJob) float64 {
		if lag := a.lag[j.index]; lag != nil {
			return lag[t]
		}
		return 0
	}
	jobs := slices.Clone(s.jobs)
	slices.SortStableFunc(jobs, func(x, y *runningJob) int { return cmp.Compare(behind(y), behind(x)) })
	for _, j := range jobs {
		if w := j.singleWay(t); j.next < 0 && w >= 0 && free > 0 {
			j.next = w
			free--
		}
	}
}

// match chooses who starts beside those who run.
func (a *allox) match(s *situation) {
	free, chosen := slices.Clone(s.counts), make(map[int]int)
	var waiting []*runningJob
	for _, j := range s.jobs {
		if w, held := a.chosen[j.index]; held {
			chosen[j.index] = w
			take(j.ways[w].Counts, free)
		} else {
			waiting = append(waiting, j)
		}
	}
	a.chosen = chosen
	total := 0
	for _, n := range free {
		total += n
	}
	waiting = waiting[:min(len(waiting), max(mostMatched, total))]
	if len(waiting) == 0 || total == 0 {
		return
	}
	places := newPlaces(free, len(waiting))
	at := assign(len(waiting), len(places), func(row, column int) float64 {
		j, p := waiting[row], places[column]
		if w := j.singleWay(p.typ); w >= 0 {
			return float64(p.fromLast) * j.secondsLeft() * j.fastest / j.rates[w]
		}
		return 1e30
	})
	next := make(map[device]int) // index into waiting of who starts
	for i, column := range at {
		d := places[column].device
		if first, taken := next[d]; !taken || places[column].fromLast > places[at[first]].fromLast {
			next[d] = i
		}
	}
	for d, i := range next {
		if w := waiting[i].singleWay(d.typ); w >= 0 {
			a.chosen[waiting[i].index] = w
		}
	}
}

// singleWay is the job's way on one type, -1 where it has none.
func (j *runningJob) singleWay(typ int) int {
	for w, way := range j.ways[:j.singles] {
		if way.Counts[typ] > 0 {
			return w
		}
	}
	return -1
}

// device is a free device of a type.
type device struct{ typ, number int }

// place is a device's job at so many from its last, which counts 1.
type place struct {
	device
	fromLast int
}

// newPlaces lists those that so many jobs could need: of each type the cheapest.
func newPlaces(free []int, jobs int) []place {
	var places []place
	for t, n := range free {
		if n == 0 {
			continue
		}
		for i := range jobs {
			places = append(places, place{device{t, i % n}, 1 + i/n})
		}
	}
	return places
}

// assign gives each row a column of its own so that the sum of the costs is least (the Hungarian method with potentials
// and shortest augmenting paths). There are at least as many columns as rows.
func assign(rows, columns int, cost func(row, column int) float64) []int {
	u, v := make([]float64, rows+1), make([]float64, columns+1)
	match := make([]int, columns+1) // row of a column; rows and columns count from 1, 0 is none
	way := make([]int, columns+1)
	for row := 1; row <= rows; row++ {
		match[0] = row
		column := 0
		least := slices.Repeat([]float64{math.Inf(1)}, columns+1)
		used := make([]bool, columns+1)
		for match[column] != 0 {
			used[column] = true
			from, delta, next := match[column], math.Inf(1), 0
			for c := 1; c <= columns; c++ {
				if used[c] {
					continue
				}
				if d := cost(from-1, c-1) - u[from] - v[c]; d < least[c] {
					least[c], way[c] = d, column
				}
				if least[c] < delta {
					delta, next = least[c], c
				}
			}
			for c := range used {
				if used[c] {
					u[match[c]] += delta
					v[c] -= delta
				} else {
					least[c] -= delta
				}
			}
			column = next
		}
		for column != 0 {
			before := way[column]
			match[column] = match[before]
			column = before
		}
	}
	out := make([]int, rows)
	for c := 1; c <= columns; c++ {
		if match[c] != 0 {
			out[match[c]-1] = c - 1
		}
	}
	return out
}
