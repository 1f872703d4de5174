package simulate

import (
	"math"
	"slices"
)

// JCTs are the completion times of the jobs in seconds, from arrival to finish, in the order of Rounds.Jobs.
func (r *ClusterResult) JCTs() []float64 {
	jcts := make([]float64, len(r.Jobs))
	for i, j := range r.Jobs {
		jcts[i] = j.FinishSeconds - r.Rounds.Jobs[i].ArrivalSeconds
	}
	return jcts
}

// MakespanSeconds is the time from the first arrival to the last finish.
func (r *ClusterResult) MakespanSeconds() float64 {
	last := 0.0
	for _, j := range r.Jobs {
		last = max(last, j.FinishSeconds)
	}
	return last - r.Rounds.Jobs[0].ArrivalSeconds
}

// Utilization is the share of all device time, from the first arrival to the last finish, that jobs ran.
func (r *ClusterResult) Utilization() float64 {
	used := 0.0
	for _, j := range r.Jobs {
		for _, s := range j.DeviceSeconds {
			used += s
		}
	}
	return used / (float64(r.Rounds.Cluster.Devices()) * r.MakespanSeconds())
}

// Fairness compares with the fluid equal share: Jain's index of the jobs' ratios, in (0, 1], and the worst ratio.
func (r *ClusterResult) Fairness(equal []float64) (jain, maxRho float64) {
	sum, squares := 0.0, 0.0
	for i, jct := range r.JCTs() {
		rho := jct / equal[i]
		sum += rho
		squares += rho * rho
		maxRho = max(maxRho, rho)
	}
	return sum * sum / (float64(len(equal)) * squares), maxRho
}

// EqualShare are the completion times, in seconds, in a fluid that nobody can schedule: of n jobs that are there each
// has an n-th of the devices of every type at all times, at most as many as it can use, which its workers take in
// turns. So a job of g devices runs on type k for the share cap_k / (n·g) of the time, scaled down to a sum of 1.
func (r *Rounds) EqualShare() []float64 {
	type fluid struct {
		index int
		left  float64
	}
	jcts := make([]float64, len(r.Jobs))
	var here []fluid
	arrived, now := 0, 0.0
	rates := func(n int) []float64 { // by job that is here
		out := make([]float64, len(here))
		memo := map[*workClass]float64{}
		for i, f := range here {
			class := r.classes[f.index]
			rate, known := memo[class]
			if !known {
				rate = r.equalRate(class, r.Jobs[f.index].Devices, n)
				memo[class] = rate
			}
			out[i] = rate
		}
		return out
	}
	for arrived < len(r.Jobs) || len(here) > 0 {
		if len(here) == 0 {
			now = max(now, r.Jobs[arrived].ArrivalSeconds)
		}
		for ; arrived < len(r.Jobs) && r.Jobs[arrived].ArrivalSeconds <= now; arrived++ {
			here = append(here, fluid{arrived, float64(r.Jobs[arrived].Steps)})
		}
		until := math.Inf(1)
		if arrived < len(r.Jobs) {
			until = r.Jobs[arrived].ArrivalSeconds
		}
		speed := rates(len(here))
		for i, f := range here {
			until = min(until, now+f.left/speed[i])
		}
		stay := here[:0]
		for i, f := range here {
			if now+f.left/speed[i] <= until {
				jcts[f.index] = until - r.Jobs[f.index].ArrivalSeconds
				continue
			}
			f.left -= (until - now) * speed[i]
			stay = append(stay, f)
		}
		here, now = stay, until
	}
	return jcts
}

// equalRate is the speed in steps per second of a job that shares with n-1 others.
func (r *Rounds) equalRate(class *workClass, devices, n int) float64 {
	rate, all := 0.0, 0.0
	ways := class.ways[:class.singles]
	if len(ways) == 0 { // it fits on devices of several types alone
		ways = class.ways[:1]
	}
	for w, way := range ways {
		for k, count := range way.Counts {
			if count > 0 {
				share := float64(r.Cluster.Counts[k]) / float64(n*devices)
				all += share
				rate += share * class.rates[w]
			}
		}
	}
	return rate / max(1, all)
}

// Quantile is the q-quantile of the values, interpolated between neighbours.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Mean is the mean of the values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
