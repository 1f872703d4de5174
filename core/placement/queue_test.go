package placement

import (
	"math"
	"math/rand/v2"
	"slices"
)

// queueOptimum is the oracle: the least weighted mean over every order and every allotment, each job as early as it fits
// after those before it in the order. With ageing, fixed jobs and then overdue ones come first.
func queueOptimum(in *instance, ageing bool) float64 {
	o := &queueOracle{in: in, best: math.Inf(1), slots: make([]slot, len(in.jobs)), ends: make([]float64, len(in.jobs))}
	for i := range in.jobs {
		o.allotments = append(o.allotments, everyAllotment(in, &in.jobs[i]))
		o.open = append(o.open, i)
	}
	if ageing {
		o.first = in.firstInQueue()
	} else {
		for i := range in.jobs {
			if in.jobs[i].stays() {
				o.first = append(o.first, i)
			}
		}
	}
	o.try(0)
	return o.best / in.weight
}

type queueOracle struct {
	in         *instance
	allotments [][][]int
	first      []int
	open       []int // jobs not placed
	placed     []int
	slots      []slot
	ends       []float64
	best       float64
}

func everyAllotment(in *instance, j *job) (all [][]int) {
	if j.stays() {
		return [][]int{j.current}
	}
	counts := make([]int, len(in.kinds))
	var fill func(k int)
	fill = func(k int) {
		if k < len(counts) {
			for counts[k] = 0; counts[k] <= in.kinds[k].cap; counts[k]++ {
				fill(k + 1)
			}
			counts[k] = 0
			return
		}
		n, types := 0, map[string]bool{}
		for k, c := range counts {
			if c > 0 && j.rate[k] == 0 {
				return
			}
			if n += c; c > 0 {
				types[in.kinds[k].typ] = true
			}
		}
		if n >= j.min && n <= j.max && !(j.single && len(types) > 1) {
			all = append(all, slices.Clone(counts))
		}
	}
	fill(0)
	return all
}

func (o *queueOracle) try(cost float64) {
	if cost >= o.best {
		return
	}
	if len(o.open) == 0 {
		o.best = cost
		return
	}
	for n, i := range o.open {
		if len(o.placed) < len(o.first) && i != o.first[len(o.placed)] {
			continue
		}
		o.open = slices.Delete(slices.Clone(o.open), n, n+1)
		j := &o.in.jobs[i]
		for _, counts := range o.allotments[i] {
			s := slot{o.earliest(j, counts), counts}
			o.slots[i], o.ends[i] = s, j.completion(s)
			o.placed = append(o.placed, i)
			o.try(cost + j.weight*o.ends[i])
			o.placed = o.placed[:len(o.placed)-1]
		}
		o.open = slices.Insert(slices.Clone(o.open), n, i)
	}
}

func (o *queueOracle) earliest(j *job, counts []int) float64 {
	best := math.Inf(1)
	for n := -1; n < len(o.placed); n++ {
		start := 0.0
		if n >= 0 {
			start = o.ends[o.placed[n]]
		}
		if start < best && o.fits(counts, start, j.completion(slot{start, counts})) {
			best = start
		}
	}
	return best
}

func (o *queueOracle) fits(counts []int, start, end float64) bool {
	at := []float64{start}
	for _, i := range o.placed {
		if s := o.slots[i].start; s > start && s < end {
			at = append(at, s)
		}
	}
	for _, t := range at {
		for k := range counts {
			used := counts[k]
			for _, i := range o.placed {
				if o.slots[i].start <= t && t < o.ends[i] {
					used += o.slots[i].counts[k]
				}
			}
			if used > o.in.kinds[k].cap {
				return false
			}
		}
	}
	return true
}

// checkQueue fails the test when a schedule breaks the model.
func checkQueue(t interface{ Fatalf(string, ...any) }, in *instance, schedule []slot, bound float64) (mean float64) {
	if len(schedule) != len(in.jobs) {
		t.Fatalf("%d slots for %d jobs", len(schedule), len(in.jobs))
	}
	type event struct {
		at   float64
		sign int
		job  int
	}
	var events []event
	heaviest := 0.0
	for i := range in.jobs {
		heaviest = max(heaviest, in.jobs[i].weight)
	}
	total := 0.0
	for i, s := range schedule {
		j := &in.jobs[i]
		if j.stays() && !(s.start == 0 && slices.Equal(s.counts, j.current)) {
			t.Fatalf("fixed job %d moved: %v", i, s)
		}
		n, types := 0, map[string]bool{}
		for k, c := range s.counts {
			if c < 0 || c > 0 && j.rate[k] == 0 {
				t.Fatalf("job %d has %v at rates %v", i, s.counts, j.rate)
			}
			if n += c; c > 0 {
				types[in.kinds[k].typ] = true
			}
		}
		if !j.stays() && (n < j.min || n > j.max || j.single && len(types) > 1) {
			t.Fatalf("job %d has %v, min %d, max %d, single %v", i, s.counts, j.min, j.max, j.single)
		}
		end := j.completion(s)
		if !(s.start >= 0) || !(end >= s.start) || math.IsInf(end, 1) {
			t.Fatalf("job %d runs from %v to %v", i, s.start, end)
		}
		mean += j.weight / heaviest * end
		total += j.weight / heaviest
		if end > s.start {
			events = append(events, event{s.start, 1, i}, event{end, -1, i})
		}
	}
	slices.SortFunc(events, func(a, b event) int {
		if a.at != b.at {
			return compareFloats(a.at, b.at)
		}
		return a.sign - b.sign
	})
	used := make([]int, len(in.kinds))
	for _, e := range events {
		for k, c := range schedule[e.job].counts {
			if used[k] += e.sign * c; used[k] > in.kinds[k].cap {
				t.Fatalf("%d of %d devices of kind %d used at %v s", used[k], in.kinds[k].cap, k, e.at)
			}
		}
	}
	mean /= total
	if !(bound >= 0) || bound > mean*(1+1e-12) {
		t.Fatalf("the bound %v is not in 0 ... %v, the mean", bound, mean)
	}
	return mean
}

// queueSetting is a family of small instances.
type queueSetting struct {
	jobs, types, devices, min int // devices of each type
	bandwidth                 float64
}

// draw is one instance as in the published experiments (algorithms of this repository's issue), with minimums.
func (s queueSetting) draw(r *rand.Rand) *Problem {
	uniform := func(a, b float64) float64 { return a + (b-a)*r.Float64() }
	p := &Problem{Bandwidth: s.bandwidth, Seed: 1}
	base := []float64{300, 700, 1500}
	names := []string{"slow", "middle", "fast"}
	for k := range s.types {
		p.Pools = append(p.Pools, Pool{Node: names[k], Type: names[k], Count: s.devices})
	}
	for i := range s.jobs {
		j := Job{
			ID: string(rune('a' + i)), GlobalBatch: 20_000 + r.IntN(180_000), MinWorkers: s.min, MaxWorkers: s.types * s.devices,
			AllreduceBytes: uniform(1e7, 5e8), Weight: 1, SamplesPerSecond: map[string]float64{},
		}
		j.RemainingSamples = float64(j.GlobalBatch) * float64(5+r.IntN(36))
		faster := uniform(0.8, 1.6)
		for k := range s.types {
			j.SamplesPerSecond[names[k]] = base[k] * faster * uniform(0.7, 1.3)
		}
		p.Jobs = append(p.Jobs, j)
	}
	return p
}

var queueSettings = []queueSetting{
	{2, 3, 2, 4, 1e12}, {2, 3, 2, 4, 1e8}, {3, 2, 2, 2, 1e12}, {3, 2, 2, 2, 1e8}, {3, 3, 1, 2, 1e8}, {3, 3, 2, 3, 1e8},
	{4, 1, 3, 1, 1e8}, {4, 2, 2, 2, 1e12}, {4, 2, 2, 2, 1e8}, {4, 3, 1, 1, 1e8}, {5, 1, 4, 1, 1e8}, {5, 1, 4, 1, 1e12},
	{5, 2, 1, 1, 1e8}, {5, 2, 1, 1, 1e12},
}
