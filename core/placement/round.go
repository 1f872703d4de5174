package placement

import (
	"fmt"
	"math"
)

// A RoundProblem asks who runs until the next decision, after which all may change: the preemptive model, in which a
// job has a fixed number of devices and waits or runs.
type RoundProblem struct {
	Devices []int // that are free, by type; at least 0
	Jobs    []RoundJob
	Aim     Aim
	// Hold leaves who runs where it is until its end; Devices are then those that nobody has. Lengths are known.
	Hold bool
	// Order is where a search with Hold starts from: jobs that the plan before had in this order. Who is missing comes
	// last.
	Order []int
	// Seconds is the length of a round, at whose end devices are free again; 0 where they are at once. With Hold.
	Seconds float64
	Seed    uint64 // of the search with Hold
}

// RoundJob is one job that could run in the round.
type RoundJob struct {
	Ways []Way // at most maxWays; none where nothing is free that it can run on
	// SecondsLeft is what is left of it, on the fastest devices that it could ever have; at least 0. Not used where
	// lengths are unknown.
	SecondsLeft float64
	// SecondsServed is what it has had, in the same measure; at least 0. Used where lengths are unknown.
	SecondsServed float64
	Weight        float64 // above 0
	Now           int     // the way in which it ran in the last round; -1 where it did not
}

// Way is one way for a job to run: so many devices of each type.
type Way struct {
	Counts []int   // by type; at least one device
	Speed  float64 // over that of the fastest way the job could ever have; in (0, 1]
}

// Aim is what rounds are to be good for in the end.
type Aim int

// The aims of a round.
const (
	MeanJCT        Aim = iota // the mean completion time, where lengths are known
	MeanJCTUnknown            // the same, where they are not
	Makespan                  // the time when all jobs are done, where lengths are known
)

// RoundPlan says who runs.
type RoundPlan struct {
	Ways  []int   // by job: which of its ways; -1 where it waits
	Value float64 // of the jobs that run
	Bound float64 // no choice is worth more
	Order []int   // with Hold: who waits, in the order in which the search has them start
}

const (
	maxWays = 1<<15 - 1
	// stayBonus is what running on in the same way adds to a job's value: a restart costs, and whom two values that are
	// nearly equal would swap in and out each round gains nothing.
	stayBonus = 0.1
)

// Round chooses the jobs of the next round: each job's ways have values, and the sum of those chosen is the largest
// there is on the free devices, a knapsack. It is exact where the states of the dynamic programme are few, and within
// Bound - Value elsewhere.
func Round(p *RoundProblem) (*RoundPlan, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.Hold {
		ways, order := p.holding()
		return &RoundPlan{Ways: ways, Order: order}, nil
	}
	return p.knapsack().solve(), nil
}

func (p *RoundProblem) knapsack() *knapsack {
	k := &knapsack{free: p.Devices}
	for i := range p.Jobs {
		k.items = append(k.items, p.Jobs[i].values(p.Aim))
	}
	return k
}

func (p *RoundProblem) check() error {
	if !(p.Seconds >= 0 && !math.IsInf(p.Seconds, 1)) {
		return fmt.Errorf("seconds: %v is not a finite number >= 0", p.Seconds)
	}
	for t, n := range p.Devices {
		if n < 0 || n > maxDevices {
			return fmt.Errorf("devices[%d]: %d is not in 0 ... %d", t, n, maxDevices)
		}
	}
	for i := range p.Jobs {
		if err := p.Jobs[i].check(len(p.Devices)); err != nil {
			return fmt.Errorf("jobs[%d].%w", i, err)
		}
	}
	return nil
}

func (j *RoundJob) check(types int) error {
	finite := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	switch {
	case len(j.Ways) > maxWays:
		return fmt.Errorf("ways: %d are more than %d", len(j.Ways), maxWays)
	case !finite(j.SecondsLeft):
		return fmt.Errorf("seconds_left: %v is not a finite number >= 0", j.SecondsLeft)
	case !finite(j.SecondsServed):
		return fmt.Errorf("seconds_served: %v is not a finite number >= 0", j.SecondsServed)
	case !(j.Weight > 0 && !math.IsInf(j.Weight, 1)):
		return fmt.Errorf("weight: %v is not a finite number > 0", j.Weight)
	case j.Now < -1 || j.Now >= len(j.Ways):
		return fmt.Errorf("now: %d is not in -1 ... %d", j.Now, len(j.Ways)-1)
	}
	for w, way := range j.Ways {
		devices := 0
		for _, n := range way.Counts {
			if n < 0 {
				return fmt.Errorf("ways[%d].counts: %v has a number below 0", w, way.Counts)
			}
			devices += n
		}
		switch {
		case len(way.Counts) != types:
			return fmt.Errorf("ways[%d].counts: %d numbers for %d types", w, len(way.Counts), types)
		case devices == 0:
			return fmt.Errorf("ways[%d].counts: no device", w)
		case !(way.Speed > 0 && way.Speed <= 1):
			return fmt.Errorf("ways[%d].speed: %v is not in (0, 1]", w, way.Speed)
		}
	}
	return nil
}

// devices is how many the job needs.
func (j *RoundJob) devices() int {
	devices := 0
	if len(j.Ways) > 0 {
		for _, n := range j.Ways[0].Counts {
			devices += n
		}
	}
	return devices
}
