package service

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// cost is what one step cost a worker, in seconds.
type cost struct {
	compute float64 // 0 where not measured
	wait    float64 // for the others, and for the all-reduce
	told    bool    // whether wait is known
}

func newCost(w *evenstepv1.WorkerReport) cost {
	return cost{w.GetComputeSeconds(), w.GetWaitSeconds(), w.WaitSeconds != nil}
}

// stepCost is what a step took, in seconds, and the share of it that workers waited, as means over those that told both;
// zeros where none did.
func stepCost(costs []cost) (seconds, waitShare float64) {
	var sum, waited float64
	told := 0
	for _, c := range costs {
		if c.told && c.compute > 0 {
			sum += c.compute + c.wait
			waited += c.wait
			told++
		}
	}
	if told == 0 {
		return 0, 0
	}
	return sum / float64(told), waited / sum
}

// status is what the job shows; nil before its first stream joined.
func (j *job) status(owner string) *evenstepv1.JobStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.opening == nil {
		return nil
	}
	o := j.opening
	s := &evenstepv1.JobStatus{
		Job: o.job.ID, Owner: owner, Workload: o.job.Workload, Policy: o.policy, GlobalBatch: uint32(o.job.GlobalBatch),
		Allocation: newResponse(&j.allocation, 0).GetAllocation(), Resizes: j.resizes, Steps: j.steps,
		Waiting: j.waiting(),
	}
	s.StepSeconds, s.WaitShare = stepCost(j.newest)
	for i, w := range o.job.Workers {
		stream := 0 // the one for all
		if j.gatherer != nil {
			stream = i
		}
		worker := &evenstepv1.WorkerStatus{Node: w.Node, DeviceType: w.Device.Type, Device: w.Device.ID,
			ComputeSeconds: j.newest[i].compute, Here: j.streams[stream] != nil}
		if j.newest[i].told {
			worker.WaitSeconds = proto.Float64(j.newest[i].wait)
		}
		s.Workers = append(s.Workers, worker)
	}
	return s
}

// waiting says which workers the job's oldest step, or its first one, waits for.
func (j *job) waiting() string {
	if j.gatherer == nil {
		return ""
	}
	first, more := -1, 0
	for rank, waited := range j.gatherer.waited {
		absent := waited && j.streams[rank] == nil
		if len(j.gatherer.pending) > 0 {
			absent = waited && j.gatherer.next[rank] <= j.gatherer.pending[0].step
		}
		switch {
		case absent && first < 0:
			first = rank
		case absent:
			more++
		}
	}
	switch {
	case first < 0:
		return ""
	case j.streams[first] == nil:
		return fmt.Sprintf("for rank %d, which has not come%s", first, andMore(more))
	}
	return fmt.Sprintf("for rank %d, which has not reported step %d%s", first, j.gatherer.pending[0].step, andMore(more))
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}
