package placement

import "math"

// share is how long a job takes in a fluid equal share: it has an S-th of every kind that it can run on, of S jobs, or of
// the best type alone if it takes a single one, and no more in all than it may have.
func (in *instance) share(j *job) float64 {
	type part struct{ rate, n float64 }
	parts := make(map[string]part)
	all := part{}
	for k, kd := range in.kinds {
		if j.rate[k] > 0 {
			n := float64(kd.cap) / float64(len(in.jobs))
			all.rate, all.n = all.rate+float64(n*j.rate[k]), all.n+n
			p := parts[kd.typ]
			parts[kd.typ] = part{p.rate + float64(n*j.rate[k]), p.n + n}
		}
	}
	seconds := func(p part) float64 {
		if p.n > float64(j.max) {
			p.rate, p.n = p.rate*float64(j.max)/p.n, float64(j.max)
		}
		return j.work/p.rate + float64(j.communicate*(1-1/max(1, p.n)))
	}
	if !j.single {
		return seconds(all)
	}
	least := math.Inf(1)
	for _, p := range parts {
		least = min(least, seconds(p))
	}
	return least
}

// fairness compares the completion times, in the order of the instance's jobs, with those in an equal share (paper:
// Jain's index of J / J^equal; what an equal share is, is our choice).
func (in *instance) fairness(jct []float64) (f Fairness) {
	total, squares := 0.0, 0.0
	for i := range in.jobs {
		rho := jct[i] / in.share(&in.jobs[i])
		total += rho
		squares += float64(rho * rho)
		f.MaxRho = max(f.MaxRho, rho)
	}
	if squares > 0 {
		f.Jain = float64(total*total) / (float64(len(jct)) * squares)
	}
	return f
}
