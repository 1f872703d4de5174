package placement

import (
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

// boxes covers all allotments by the seconds x = work/rate that they compute. From x1 to x2 the joint rate is at least
// work/x2, and the run x + C(1 - 1/n) at least what it is with the most workers that the fewest workers allow: n >=
// min, and n >= rate over the fastest kind's.
func boxes(in *instance, j *job) []option {
	slowest, fastest, top := math.Inf(1), 0.0, in.topRate(j)
	for k, rate := range j.rate {
		if rate > 0 && in.kinds[k].cap > 0 {
			slowest, fastest = min(slowest, rate), max(fastest, rate)
		}
	}
	restart := 0.0
	if j.current != nil {
		restart = j.restart
	}
	first, last := j.work/top, j.work/(float64(j.min)*slowest)*(1+1e-9)
	if j.communicate == 0 && restart == 0 {
		return []option{{area: j.work, run: first}}
	}
	run := func(x float64) float64 {
		return x + float64(j.communicate*max(0, 1-min(float64(x*fastest)/j.work, 1/float64(j.min)))) + restart
	}
	corner := j.work / (float64(j.min) * fastest) // the run is convex in x, with one corner
	ratio := 1.02
	for span := 1.0; ; ratio = 1 + (ratio-1)*1.5 {
		span = 1
		for range mostBoxes - 2 {
			span *= ratio
		}
		if span*first >= last || ratio > 1e6 {
			break
		}
	}
	var options []option
	for x, n := first, 0; n < mostBoxes && (n == 0 || x < last); n++ {
		to := x * ratio
		if n == mostBoxes-1 {
			to = max(to, last)
		}
		least := min(run(x), run(to))
		if x < corner && corner < to {
			least = min(least, run(corner))
		}
		options = append(options, option{area: j.work / to * least, run: least})
		x = to
	}
	return undominated(options)
}

// undominated are the options of which none is smaller both in area and in run.
func undominated(options []option) []option {
	slices.SortStableFunc(options, func(a, b option) int { return compareFloats(a.run, b.run) })
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
	slices.SortStableFunc(supplies, func(a, b supply) int { return compareFloats(b.rate, a.rate) })
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
