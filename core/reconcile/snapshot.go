// Package reconcile makes it so, for any scheduler: a snapshot of what is there and what waits, one plan for all jobs
// that wait, and an update for each job that the plan starts, holds or lets go.
//
// A job that waits is held by a lease: the scheduler starts it by itself when nobody renews it for the hold limit. So
// with everything of ours dead each job still starts. Nothing is remembered between rounds but what was said in the log:
// the state is the scheduler's.
package reconcile

import (
	"fmt"
	"time"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/request"
)

// Snapshot is what is there and what waits.
type Snapshot struct {
	// Pools are the devices of all nodes that may start jobs. Devices of one node are listed together, and nodes in the
	// order in which the scheduler gives out ranks.
	Pools []Pool
	Jobs  []Job // who asked for Evenstep, and is not done
	// Room is what nodes have left for jobs that start, beside devices; a node that is missing has enough for any.
	Room map[string]Room
}

// Room is what a node has beside its devices, or what a job takes of one. Units are the scheduler's.
type Room struct{ CPUs, Memory int }

// Holds says whether so much is there.
func (r Room) Holds(need Room) bool { return r.CPUs >= need.CPUs && r.Memory >= need.Memory }

// Pool is devices of one type on one node.
type Pool struct {
	Node, Type string
	Total      int
	Others     int // of them, those held by who is in no Job
}

// State is how far a job is.
type State int

// The states of a job.
const (
	Waiting State = iota
	Named         // it has been given its nodes, and has not started on them
	Running
)

// Job is a job as the scheduler sees it.
type Job struct {
	ID      string
	Request request.Request
	State   State
	// Unsteerable says why the scheduler's own placement is to have it; empty where ours is. Then only ID, State and
	// Held count, and On where it runs.
	Unsteerable string
	// MinNodes and MaxNodes bound the nodes that it gets, each with PerNode devices of one type; all are at least 1.
	MinNodes, MaxNodes, PerNode int
	Type                        string   // of the devices that it asks for; empty for any
	Types                       []string // of devices that it may have, where it asks for several; nil for all
	Nodes                       []string // that it may have; nil for all
	Required                    []string // that it must have, among others
	Needs                       Room     // of each node, beside its devices
	// Crowded says that jobs of others wait for the same nodes: then it may not be held for long.
	Crowded bool
	Waited  time.Duration // since it was submitted
	// Held says that it waits for us, until the lease runs out.
	Held  bool
	Lease time.Duration
	On    []placement.Share // Named, Running: where
	For   time.Duration     // Named, Running: since when
}

// NarrowByWorkers narrows the nodes to the workers that the user asked for, one on each device. The answer says why that
// leaves none; empty where it leaves some.
func (j *Job) NarrowByWorkers() string {
	r := &j.Request
	low, high := j.MinNodes, j.MaxNodes
	if r.MaxWorkers > 0 {
		low, high = max(low, (r.MinWorkers+j.PerNode-1)/j.PerNode), min(high, r.MaxWorkers/j.PerNode)
	}
	high = min(high, r.GlobalBatch/j.PerNode)
	if high < low {
		return fmt.Sprintf("no number of nodes in %d-%d with %d devices each gives workers %d-%d and global_batch %d", j.MinNodes,
			j.MaxNodes, j.PerNode, r.MinWorkers, r.MaxWorkers, r.GlobalBatch)
	}
	j.MinNodes, j.MaxNodes = low, high
	return ""
}

// Kind is what an update does.
type Kind string

// The kinds of updates.
const (
	Start   Kind = "start"   // on the nodes of the plan, now
	Hold    Kind = "hold"    // renew the lease
	Release Kind = "release" // to the scheduler's own placement, for good
)

// Update is what to do with a job, in one step that cannot be seen half done.
type Update struct {
	Job  string
	Kind Kind
	// Shares and BatchSizes are of a start: a node's devices each, in the order of Snapshot.Pools, and the samples of
	// every device in that order, which sum to the global batch.
	Shares     []placement.Share
	BatchSizes []int
	Seconds    float64       // of a start: predicted to the job's end; 0 where not known
	Lease      time.Duration // of a hold: how long it is from now
	Why        string
}
