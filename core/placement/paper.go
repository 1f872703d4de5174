package placement

import "math/rand/v2"

// paperSamples is how many categories the paper's pipeline samples, by job: N = 10·S is our choice, the paper does not say.
const paperSamples = 10

// paper is the pipeline as published, kept for comparison: proportional assignment inside a job; categories sampled by job
// priority; each settled by market-clearing prices on the devices' speeds; the category with the least mean wins. The bound
// is ours.
func (in *instance) paper(fit *assignment, w *work, seed uint64) (best *assignment, bound float64) {
	bound = in.clear(w).bound
	return in.sampled(fit, w, rand.New(rand.NewPCG(seed, 0))), bound - shave*bound
}

// sampled is the best of the sampled categories, or fit where no market clears.
func (in *instance) sampled(fit *assignment, w *work, rng *rand.Rand) (best *assignment) {
	best = fit
	priority := in.priorities()
	for range paperSamples * len(in.jobs) {
		c := in.byPriority(priority, rng, w)
		a := in.market(c, in.speeds(c), false, w)
		if a != nil && a.total() < best.total() {
			best = a
		}
		if !w.spend(1) {
			break
		}
	}
	return best
}

// priorities are weighted run times in an equal share.
func (in *instance) priorities() []float64 {
	p := make([]float64, len(in.jobs))
	for i := range in.jobs {
		p[i] = in.jobs[i].weight * in.share(&in.jobs[i])
	}
	return p
}

// speeds values a device by how fast it is for a job, as the paper does. A job of a single type values only the fastest type
// that has as many devices as it gets in the category.
func (in *instance) speeds(c category) [][]float64 {
	devices := make(map[string]int)
	for _, kd := range in.kinds {
		devices[kd.typ] += kd.cap
	}
	value := make([][]float64, len(in.jobs))
	for i := range in.jobs {
		j := &in.jobs[i]
		value[i] = make([]float64, len(in.kinds))
		fastest := -1
		for k, r := range j.rate {
			if r > 0 && (fastest < 0 || r > j.rate[fastest]) && devices[in.kinds[k].typ] >= c[i] {
				fastest = k
			}
		}
		for k, r := range j.rate {
			if !j.single || fastest >= 0 && in.kinds[k].typ == in.kinds[fastest].typ {
				value[i][k] = r
			}
		}
	}
	return value
}
