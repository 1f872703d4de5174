package service

import (
	"math"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	// leastSeen is how many steps a sighting has at least.
	leastSeen = 5
	// apart is by how much the sizes differ, relative to the smaller, that tell what memory a sample takes.
	apart = 1.1
)

// Profiles is where what jobs show of devices is kept, and what is known of devices comes from.
type Profiles interface {
	// Record takes what a job showed of its workload on a device since it last said.
	Record(workload string, on cluster.Device, seen profile.Sighting)
	// Expect says what is known of a workload on each of the devices.
	Expect(workload string, on []cluster.Device) []profile.Expectation
	// Rates says how fast a workload runs on each of the types.
	Rates(workload string, types []string) []profile.Rate
	// Recent are at most so many of the workloads that were measured on one of the types, the one seen last first.
	Recent(types []string, most int) []string
}

// learner learns what the workers of a job show of their devices, whatever the job's policy learns.
type learner struct {
	workers []shown // by rank
}

// shown is what one worker showed since the last sighting, but for the curve, which it learns all along.
type shown struct {
	curve        speed.Online
	steps        int
	largest      float64 // samples
	waited       float64 // seconds, in sum
	waits        int     // steps that told
	small, large memoryUse
}

// memoryUse is the device memory in use, in bytes, when a size was first trained.
type memoryUse struct{ samples, bytes float64 }

// see takes a checked report of one worker.
func (l *learner) see(r *evenstepv1.WorkerReport) {
	w, o := &l.workers[r.GetRank()], speed.Observation{Samples: r.GetSamples(), Seconds: r.GetComputeSeconds()}
	if _, measured := o.Speed(); !measured {
		return
	}
	w.curve.Observe(o.Samples, o.Seconds)
	w.steps++
	w.largest = max(w.largest, o.Samples)
	if wait := r.GetWaitSeconds(); wait > 0 {
		w.waited += wait
		w.waits++
	}
	if used := float64(r.GetDeviceMemoryUsedBytes()); used > 0 {
		if w.small.bytes == 0 || o.Samples < w.small.samples {
			w.small = memoryUse{o.Samples, used}
		}
		if o.Samples > w.large.samples {
			w.large = memoryUse{o.Samples, used}
		}
	}
}

// sighting is what a job showed of one device.
type sighting struct {
	on   cluster.Device
	seen profile.Sighting
}

// sightings takes out what the workers showed since it was last asked. Workers whose first steps are not behind, or that
// showed little, wait for the next time.
func (l *learner) sightings(workers []cluster.Worker) (all []sighting) {
	communicate := l.communicateSeconds()
	for i := range l.workers {
		w := &l.workers[i]
		curve, known := w.curve.Learned()
		if !known || !w.curve.Settled() || w.steps < leastSeen {
			continue
		}
		all = append(all, sighting{workers[i].Device, profile.Sighting{Curve: curve, Steps: w.steps,
			LargestBatch: w.largest, CommunicateSeconds: communicate, MemoryPerSample: w.memoryPerSample()}})
		w.steps, w.waited, w.waits = 0, 0, 0
	}
	return all
}

// communicateSeconds is about what a step takes after the slowest worker's last gradient: the slowest waits least. It is 0
// where no worker told.
func (l *learner) communicateSeconds() float64 {
	least := math.Inf(1)
	for i := range l.workers {
		if w := &l.workers[i]; w.waits > 0 {
			least = min(least, w.waited/float64(w.waits))
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// memoryPerSample is 0 where the sizes seen do not tell.
func (w *shown) memoryPerSample() float64 {
	if w.small.bytes == 0 || w.large.samples < apart*w.small.samples {
		return 0
	}
	return max(0, (w.large.bytes-w.small.bytes)/(w.large.samples-w.small.samples))
}
