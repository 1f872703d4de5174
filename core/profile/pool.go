package profile

import "math"

// pool is what the profiles of one workload on several devices of one type say of the next such device: their mean, and
// in its spread how much they differ. There is at least one.
func pool(profiles []Profile) Profile {
	weights := make([]float64, len(profiles))
	total, samples := 0.0, 0.0
	for i, p := range profiles {
		weights[i] = float64(min(p.Steps, memory))
		total += weights[i]
		samples += weights[i] * p.Curve.Samples
	}
	samples /= total
	var out Profile
	var level, sigma, shareVar, spread float64
	levels := make([]float64, len(profiles))
	for i, p := range profiles {
		w := weights[i] / total
		c := p.Curve.At(samples)
		levels[i] = math.Log(c.Seconds)
		level += w * levels[i]
		sigma += w * w * c.Sigma * c.Sigma
		shareVar += w * c.ShareSigma * c.ShareSigma
		spread += w * p.Spread * p.Spread
		out.Curve.Share += w * min(c.Share, mostShare)
		out.CommunicateSeconds = max(out.CommunicateSeconds, p.CommunicateSeconds)
		out.MemoryPerSample = max(out.MemoryPerSample, p.MemoryPerSample)
		out.LargestBatch = max(out.LargestBatch, p.LargestBatch)
		out.Steps = min(out.Steps+p.Steps, mostSteps)
		out.LastSeen = latest(out.LastSeen, p.LastSeen)
	}
	for i := range levels {
		spread += weights[i] / total * (levels[i] - level) * (levels[i] - level)
	}
	out.Curve.Samples, out.Curve.Seconds = samples, min(max(math.Exp(level), 1e-9), 1e9)
	out.Curve.Sigma, out.Curve.ShareSigma = min(math.Sqrt(sigma), mostSigma), math.Sqrt(shareVar)
	out.Spread = min(math.Sqrt(spread), mostSigma)
	return out
}
