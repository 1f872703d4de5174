package placement

import (
	"cmp"
	"math"
	"slices"
)

// option is what a job may choose, or less than it: counts (nil for those of many allotments) and a run; area is the
// samples that devices at least as fast as the job's could process meanwhile, worth min_k λ_k/ρ_k each.
type option struct {
	counts    []int
	area, run float64
}

// offer lists a job's options: its menu where that is complete, else boxes that hold every allotment.
func (q *queueSearch) offer(i int) []option {
	var options []option
	j := &q.in.jobs[i]
	if q.complete[i] {
		for _, a := range q.menus[i] {
			options = append(options, option{counts: a.counts, run: a.now})
		}
		return options
	}
	options = boxes(q.in, j)
	if j.current != nil && q.allowed(j, j.current) {
		options = append(options, option{counts: j.current, run: j.seconds(j.current)})
	}
	return options
}

// mostBoxes bounds the options of one job that has too many allotments to enumerate.
const mostBoxes = 150

// boxes covers all allotments by the seconds x = work/rate that they compute. In the box from x to y the joint rate is
// at least work/y, and no run is shorter than x + C·(1 - 1/n) can be there, where n is at least min, and at least the
// rate over that of the fastest kind.
func boxes(in *instance, j *job) []option {
	slowest, fastest := math.Inf(1), 0.0
	for k, rate := range j.rate {
		if rate > 0 && in.kinds[k].cap > 0 {
			slowest, fastest = min(slowest, rate), max(fastest, rate)
		}
	}
	first, last := j.work/in.topRate(j), j.work/(float64(j.min)*slowest)*(1+1e-9)
	restart := 0.0
	if j.current != nil {
		restart = j.restart
	}
	if j.communicate == 0 && restart == 0 { // work/y times the run is the work
		return []option{{area: j.work, run: first}}
	}
	run := func(x float64) float64 {
		return x + float64(j.communicate*max(0, 1-min(float64(x*fastest)/j.work, 1/float64(j.min)))) + restart
	}
	corner := j.work / (float64(j.min) * fastest) // the run is convex in x, with one corner
	ratio := boxRatio(first, last)
	var options []option
	for x, n := first, 0; n < mostBoxes && (n == 0 || x < last); n++ {
		y := x * ratio
		if n == mostBoxes-1 {
			y = max(y, last)
		}
		least := min(run(x), run(y))
		if x < corner && corner < y {
			least = min(least, run(corner))
		}
		options = append(options, option{area: j.work / y * least, run: least})
		x = y
	}
	return undominated(options)
}

// boxRatio is how wide boxes are, so that there are not too many: 2 % or more.
func boxRatio(first, last float64) float64 {
	for width := 0.02; ; width *= 1.5 {
		reach := first
		for range mostBoxes {
			reach *= 1 + width
		}
		if reach >= last || width > 1e6 {
			return 1 + width
		}
	}
}

// undominated leaves out the options that are no smaller than another in area or in run.
func undominated(options []option) []option {
	slices.SortStableFunc(options, func(a, b option) int { return cmp.Compare(a.run, b.run) })
	kept := options[:0]
	for _, o := range options {
		if len(kept) == 0 || o.area < kept[len(kept)-1].area {
			kept = append(kept, o)
		}
	}
	return kept
}

// topRate is at least the joint rate of any allotment of the job.
func (in *instance) topRate(j *job) float64 {
	type supply struct {
		rate float64
		cap  int
	}
	byType := make(map[string]int)
	var supplies []supply
	for k, kd := range in.kinds {
		if !(j.rate[k] > 0) {
			continue
		}
		at, known := byType[kd.typ]
		if !known {
			at = len(supplies)
			byType[kd.typ] = at
			supplies = append(supplies, supply{rate: j.rate[k]})
		}
		supplies[at].cap += kd.cap
	}
	slices.SortStableFunc(supplies, func(a, b supply) int { return cmp.Compare(b.rate, a.rate) })
	sum, left, single := 0.0, j.max, 0.0
	for _, s := range supplies {
		single = max(single, float64(min(s.cap, j.max))*s.rate)
		c := min(s.cap, left)
		sum += float64(float64(c) * s.rate)
		left -= c
	}
	if j.single {
		return single
	}
	return sum
}
