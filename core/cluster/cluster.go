// Package cluster is the vocabulary of Evenstep as plain types: what the other packages say about devices, workers,
// jobs and allocations, they say in these words.
package cluster

import (
	"math"
	"strconv"
)

// Device is one accelerator, or a CPU share, that one worker trains on.
type Device struct {
	Type        string // the vendor's model name; empty when not known
	MemoryBytes uint64 // 0 when not known
}

// Clock is how fast a device's processors run now and how fast they could, in MHz; 0 is not known.
type Clock struct{ MHz, MaxMHz float64 }

// String is the clock for people: 1,410 of 1,980 MHz. It is empty where nothing is known.
func (c Clock) String() string {
	switch {
	case c.MHz > 0 && c.MaxMHz > 0:
		return thousands(c.MHz) + " of " + thousands(c.MaxMHz) + " MHz"
	case c.MHz > 0:
		return thousands(c.MHz) + " MHz"
	case c.MaxMHz > 0:
		return "up to " + thousands(c.MaxMHz) + " MHz"
	}
	return ""
}

// thousands writes a whole number with commas.
func thousands(x float64) string {
	digits := strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Worker is one training process: one rank, one device.
type Worker struct {
	Node   string // host name; empty when not known
	Device Device
	Limits Limits
}

// Limits bound a worker's batch size: 0 <= Min <= Max, in samples.
type Limits struct {
	Min, Max int
}

// Job is a training run with a fixed global batch.
type Job struct {
	ID       string
	Workload string // the key under which throughput is profiled; may be empty
	// GlobalBatch is the number of samples in a step over all workers. Evenstep never changes it.
	GlobalBatch int
	// Quantum divides GlobalBatch; batch sizes are multiples of it. At least 1.
	Quantum int
	Workers []Worker // in rank order
}

// Allocation is the vector of batch sizes of a job.
type Allocation struct {
	Version     uint64  // rises by one at each change, from 1
	FromStep    uint64  // the step from which it holds
	BatchSizes  []int   // in rank order; sums to the job's GlobalBatch
	StepSeconds float64 // predicted compute time of a step; 0 while nothing is known
	Reason      string  // why, in words
}
