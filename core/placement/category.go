package placement

import "math/rand/v2"

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
func (in *instance) byPriority(priority []float64, rng *rand.Rand) category {
	c := in.minimum()
	left := -sum(c)
	for _, kd := range in.kinds {
		left += kd.cap
	}
	total := 0.0
	can := make([]float64, len(c))
	for i := range in.jobs {
		if j := &in.jobs[i]; !j.fixed && c[i] < j.max {
			can[i] = priority[i]
			total += can[i]
		}
	}
	for ; left > 0 && total > 0; left-- {
		at := rng.Float64() * total
		i := 0
		for ; i < len(can)-1 && at >= can[i]; i++ {
			at -= can[i]
		}
		if can[i] == 0 {
			continue // rounding led behind the last
		}
		if c[i]++; c[i] == in.jobs[i].max {
			total -= can[i]
			can[i] = 0
		}
	}
	return c
}

// atPrices samples a category around what the jobs demand at clearing prices: fractions are rounded up with the
// probability that they are.
func (in *instance) atPrices(p *prices, rng *rand.Rand) category {
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
