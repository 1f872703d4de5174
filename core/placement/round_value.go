package placement

import "math"

// worth says what a way is worth in a round: speed^a · hours^b · devices^c. The hours are those that are left, or,
// where lengths are unknown, those that the job has had. The knapsack charges a job for each device, so that the least
// hours times devices go first where a mean counts. A job that is new or about to end counts as some minutes.
//
// The rule and its exponents are ours, found on simulated traces; see docs/placement.md for what depends on them.
type worth struct{ speed, hours, devices, leastHours float64 }

func (a Aim) worth() worth {
	switch a {
	case MeanJCTUnknown:
		return worth{0.8, -0.1, 0.2, 0.1}
	case Makespan:
		return worth{0.8, 0.5, 0.5, 0.05}
	}
	return worth{0.8, -0.35, 0.2, 0.05}
}

// values are the worth of each way of the job.
func (j *RoundJob) values(aim Aim) item {
	e, seconds := aim.worth(), j.SecondsLeft
	if aim == MeanJCTUnknown {
		seconds = j.SecondsServed
	}
	whole := j.Weight * math.Pow(max(seconds/3600, e.leastHours), e.hours) * math.Pow(float64(j.devices()), e.devices)
	it := item{ways: j.Ways, values: make([]float64, len(j.Ways))}
	for w, way := range j.Ways {
		it.values[w] = whole * math.Pow(way.Speed, e.speed)
		if w == j.Now {
			it.values[w] *= 1 + stayBonus
		}
	}
	return it
}
