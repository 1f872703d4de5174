package service

import (
	"fmt"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/sizing"
)

// These are our defaults.
const (
	// startGain is the share of the step time that other sizes than the given must save.
	startGain = 0.01
	// startGrowth bounds a size that was not seen to fit into a device's memory, relative to the given one or to the
	// largest seen.
	startGrowth = 1.25
	// startMemory is the part of a device's memory that samples may fill.
	startMemory = 0.8
	// startSigma is what an estimate may be off to be used, one sigma, relative to it.
	startSigma = 0.5
)

// choose puts the sizes in force that the profiles promise the shortest step for, if the client leaves the choice and
// something is known of every worker's device. The reason says where the numbers came from.
func (o *opening) choose(profiles Profiles) {
	if !o.leaves || profiles == nil || o.job.Workload == "" || o.policy == "equal" {
		return
	}
	devices := make([]cluster.Device, len(o.job.Workers))
	for i, w := range o.job.Workers {
		devices[i] = w.Device
	}
	p, seen := o.problem(), profiles.Expect(o.job.Workload, devices)
	var own, ofType, estimated int
	for i, e := range seen {
		switch {
		case e.Source == "" || e.Source == profile.Estimated && e.Sigma > startSigma:
			o.reason = fmt.Sprintf("given sizes: no profile of %s says how fast worker %d will be", o.job.Workload, i)
			return
		case e.OwnDevice:
			own++
		case e.Source == profile.Measured:
			ofType++
		default:
			estimated++
		}
		p.Workers[i].Curve = e.Curve.Curve()
		p.Workers[i].Max = min(p.Workers[i].Max, most(e, o.start[i], devices[i]))
	}
	sizes := make([]int, len(o.start))
	before := p.StepSeconds(o.start)
	then, err := sizing.MinMax(p, sizes)
	from := fmt.Sprintf("profiles of %s: %d workers by their own device's, %d by their device type's, %d estimated",
		o.job.Workload, own, ofType, estimated)
	if err != nil || !(before-then > startGain*before) {
		o.reason, o.stepSeconds = "given sizes are as good as any by "+from, before
		return
	}
	o.start, o.stepSeconds = sizes, then
	o.reason = fmt.Sprintf("%s; predicted step %.3g s, %.3g s with the sizes given", from, then, before)
}

// most is the most samples that a worker may start with, at least those given: a size that its device was not seen to hold
// may not fit.
func most(e profile.Expectation, given int, on cluster.Device) int {
	samples := startGrowth * max(float64(given), e.LargestBatch)
	if memory := float64(on.MemoryBytes); e.MemoryPerSample > 0 && memory > 0 {
		samples = min(samples, max(e.LargestBatch, startMemory*memory/e.MemoryPerSample))
	}
	return max(given, int(samples))
}
