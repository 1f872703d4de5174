package placement

import (
	"math/rand/v2"
	"sort"
)

// category is the number of workers of every job: a class of placements alike in what their all-reduces take (paper, step
// 2). The market decides which devices they are.
type category []int

// minimum is the category in which every job has its minimum.
func (in *instance) minimum() category {
	c := make(category, len(in.jobs))
	for i := range in.jobs {
		c[i] = in.jobs[i].min
		if in.jobs[i].fixed {
			c[i] = sum(in.jobs[i].current)
		}
	}
	return c
}

// byPriority samples a category as the paper does, by job priority: devices beyond the minimums go to jobs at random, in
// proportion to their priority. Our choice of priority is the job's weighted run time in an equal share.
func (in *instance) byPriority(priority []float64, rng *rand.Rand, w *work) category {
	c := in.minimum()
	left := -sum(c)
	for _, kd := range in.kinds {
		left += kd.cap
	}
	upTo := in.standing(c, priority)
	for ; left > 0 && upTo[len(upTo)-1] > 0 && w.spend(1); left-- {
		at := rng.Float64() * upTo[len(upTo)-1]
		i := sort.Search(len(upTo), func(i int) bool { return upTo[i] > at })
		if c[i]++; c[i] == in.jobs[i].max {
			upTo = in.standing(c, priority)
		}
	}
	return c
}

// standing sums the priorities of the jobs, up to each, that may have more than the category gives them.
func (in *instance) standing(c category, priority []float64) (upTo []float64) {
	total := 0.0
	for i := range in.jobs {
		if j := &in.jobs[i]; !j.fixed && c[i] < j.max {
			total += priority[i]
		}
		upTo = append(upTo, total)
	}
	return upTo
}

// atPrices samples a category around what the jobs demand at clearing prices: fractions are rounded up with the
// probability that they are.
func (in *instance) atPrices(p *clearingPrices, rng *rand.Rand) category {
	c := in.minimum()
	for i := range in.jobs {
		j := &in.jobs[i]
		if j.fixed {
			continue
		}
		n := 0.0
		for _, d := range p.demand[i] {
			n += d
		}
		whole := int(n)
		if rng.Float64() < n-float64(whole) {
			whole++
		}
		c[i] = max(j.min, min(whole, j.max))
	}
	return c
}
