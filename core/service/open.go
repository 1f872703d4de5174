package service

import (
	"fmt"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/sizing"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	// maxWorkers bounds the workers of one job; with fewer characters per text than maxText, such an Open still fits
	// into a message.
	maxWorkers = 1 << 16
	// maxText bounds the characters of each name that a client sends and the core keeps.
	maxText = 256
	// allRanks stands for the rank of a stream that reports for all workers.
	allRanks = -1
)

// opening is an Open that was found valid, its defaults filled in.
type opening struct {
	job    cluster.Job
	policy string
	rank   int   // allRanks or the one worker that the stream reports for
	start  []int // batch sizes in force
	leaves bool  // the choice of other sizes to the core

	// What choose found.
	given       []int // sizes in force before it
	reason      string
	stepSeconds float64
}

// newOpening checks an Open against the rules of the wire. The error is INVALID_ARGUMENT, names the field and says what
// would be right.
func newOpening(open *evenstepv1.Open, policies Policies) (*opening, error) {
	o := &opening{
		job: cluster.Job{
			ID:          open.GetJob(),
			Workload:    open.GetWorkload(),
			GlobalBatch: int(open.GetGlobalBatch()),
			Quantum:     max(1, int(open.GetQuantum())),
		},
		policy: open.GetPolicy(),
		rank:   allRanks,
	}
	if o.policy == "" {
		o.policy = "auto"
	}
	if err := checkNames(o, policies); err != nil {
		return nil, err
	}
	var err error
	if o.job.Workers, err = newWorkers(open.GetWorkers(), o.job.GlobalBatch, o.job.Quantum); err != nil {
		return nil, err
	}
	if open.Rank != nil {
		o.rank = int(open.GetRank())
		if o.rank >= len(o.job.Workers) {
			return nil, invalid("open.rank: %d of %d workers; give 0 to %d",
				o.rank, len(o.job.Workers), len(o.job.Workers)-1)
		}
	}
	if o.start, err = newStart(o.problem(), open.GetBatchSizes()); err != nil {
		return nil, invalid("open.%v", err)
	}
	o.given, o.leaves, o.reason = o.start, open.GetChooseStart(), "the job begins"
	return o, nil
}

// newStart checks the job's numbers and the batch sizes that it starts from; without any it makes them equal.
func newStart(p sizing.Problem, given []uint32) ([]int, error) {
	start := make([]int, len(p.Workers))
	if err := sizing.Equal(p, start); err != nil || len(given) == 0 {
		return start, err
	}
	start = start[:0]
	for _, n := range given {
		start = append(start, int(n))
	}
	return start, p.CheckSizes(start)
}

// checkNames checks the texts of an Open but for those of its workers.
func checkNames(o *opening, policies Policies) error {
	if err := checkJobID(o.job.ID); err != nil {
		return invalid("open.%v", err)
	}
	if o.job.Workload != "" {
		if err := profile.CheckWorkload(o.job.Workload); err != nil {
			return invalid("open.%v", err)
		}
	}
	if _, known := policies[o.policy]; !known {
		return invalid("open.policy: %.40q is none of %q", o.policy, slices.Sorted(maps.Keys(policies)))
	}
	return nil
}

func checkJobID(id string) error {
	if id == "" {
		return fmt.Errorf("job: empty; give 1 to %d printable characters without spaces", maxText)
	}
	for _, r := range id {
		// unicode.IsPrint knows one space only, ' '.
		if r == ' ' || !unicode.IsPrint(r) {
			return fmt.Errorf("job: %q is in it; give printable characters without spaces", r)
		}
	}
	if isTooLong(id) {
		return fmt.Errorf("job: more than %d characters", maxText)
	}
	return nil
}

func isTooLong(text string) bool { return utf8.RuneCountInString(text) > maxText }

// newWorkers checks the workers of an Open, one by one.
func newWorkers(reported []*evenstepv1.Worker, globalBatch, quantum int) ([]cluster.Worker, error) {
	if len(reported) == 0 || len(reported) > maxWorkers {
		return nil, wrongWorkers(len(reported))
	}
	workers := make([]cluster.Worker, len(reported))
	for i, r := range reported {
		if isTooLong(r.GetNode()) || isTooLong(r.GetDeviceType()) || isTooLong(r.GetDevice()) {
			return nil, invalid("open.workers[%d]: more than %d characters in node, device_type or device", i, maxText)
		}
		limits, err := newLimits(i, r, globalBatch, quantum)
		if err != nil {
			return nil, err
		}
		workers[i] = cluster.Worker{
			Node:   r.GetNode(),
			Device: cluster.Device{Type: r.GetDeviceType(), ID: r.GetDevice(), MemoryBytes: r.GetDeviceMemoryBytes()},
			Limits: limits,
		}
	}
	return workers, nil
}

func wrongWorkers(n int) error {
	return invalid("open.workers: %d entries; give 1 to %d", n, maxWorkers)
}

// newLimits fills in the defaults. Of what may be wrong it looks at what the wire has a name of its own for; the rest,
// sums among it, is left to sizing.
func newLimits(i int, r *evenstepv1.Worker, globalBatch, quantum int) (cluster.Limits, error) {
	limits := cluster.Limits{Min: int(r.GetMinBatchSize()), Max: int(r.GetMaxBatchSize())}
	if limits.Min == 0 {
		limits.Min = quantum
	}
	switch {
	case limits.Max == 0:
		limits.Max = globalBatch
	case limits.Max < limits.Min:
		return limits, invalid("open.workers[%d].max_batch_size: %d is below min_batch_size %d; give max >= min",
			i, limits.Max, limits.Min)
	case limits.Max/quantum < (limits.Min+quantum-1)/quantum:
		return limits, invalid("open.workers[%d].max_batch_size: no multiple of quantum %d is between min %d and max %d",
			i, quantum, limits.Min, limits.Max)
	}
	return limits, nil
}

// problem states the job for a policy.
func (o *opening) problem() sizing.Problem {
	p := sizing.Problem{GlobalBatch: o.job.GlobalBatch, Quantum: o.job.Quantum}
	for _, w := range o.job.Workers {
		p.Workers = append(p.Workers, sizing.Worker{Min: w.Limits.Min, Max: w.Limits.Max})
	}
	return p
}

// differs compares what all streams of a job must agree on and names the first field that is not the same, with both
// values; empty when all are. Batch sizes are not among them: a stream that comes back says where it stands now.
func (o *opening) differs(other *opening) string {
	switch {
	case (o.rank == allRanks) != (other.rank == allRanks):
		return "rank: the job is open as one stream for all workers or one for each, and this one is of the other kind"
	case o.job.GlobalBatch != other.job.GlobalBatch:
		return fmt.Sprintf("global_batch: %d, not %d", other.job.GlobalBatch, o.job.GlobalBatch)
	case o.job.Quantum != other.job.Quantum:
		return fmt.Sprintf("quantum: %d, not %d", other.job.Quantum, o.job.Quantum)
	case o.policy != other.policy:
		return fmt.Sprintf("policy: %q, not %q", other.policy, o.policy)
	case o.job.Workload != other.job.Workload:
		return fmt.Sprintf("workload: %q, not %q", other.job.Workload, o.job.Workload)
	case len(o.job.Workers) != len(other.job.Workers):
		return fmt.Sprintf("workers: %d entries, not %d", len(other.job.Workers), len(o.job.Workers))
	case o.leaves != other.leaves:
		return fmt.Sprintf("choose_start: %v, not %v", other.leaves, o.leaves)
	}
	for i, w := range o.job.Workers {
		switch v := other.job.Workers[i]; {
		case v.Node != w.Node:
			return fmt.Sprintf("workers[%d].node: %q, not %q", i, v.Node, w.Node)
		case v.Device.Type != w.Device.Type:
			return fmt.Sprintf("workers[%d].device_type: %q, not %q", i, v.Device.Type, w.Device.Type)
		case v.Device.ID != w.Device.ID:
			return fmt.Sprintf("workers[%d].device: %q, not %q", i, v.Device.ID, w.Device.ID)
		case v.Device.MemoryBytes != w.Device.MemoryBytes:
			return fmt.Sprintf("workers[%d].device_memory_bytes: %d, not %d",
				i, v.Device.MemoryBytes, w.Device.MemoryBytes)
		case v.Limits.Min != w.Limits.Min:
			return fmt.Sprintf("workers[%d].min_batch_size: %d, not %d", i, v.Limits.Min, w.Limits.Min)
		case v.Limits.Max != w.Limits.Max:
			return fmt.Sprintf("workers[%d].max_batch_size: %d, not %d", i, v.Limits.Max, w.Limits.Max)
		}
	}
	return ""
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
