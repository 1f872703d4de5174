package reconcile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/evenstep/evenstep/core/placement"
)

// Place plans a problem by a policy; it is placement.Place, or a plugin's.
type Place func(p *placement.Problem, policy string, s placement.Search) (*placement.Plan, error)

// Rate is how fast a workload runs on one device of a type.
type Rate struct {
	SamplesPerSecond float64 // above 0
	Source           string  // "profile" where it was measured, else "estimate"
}

// Profiles know how fast workloads run.
type Profiles interface {
	// Rates is by device type; a type of which nothing is known is missing.
	Rates(workload string, types []string) (map[string]Rate, error)
}

// Planner makes updates from snapshots.
type Planner struct {
	Place     Place
	Profiles  Profiles
	HoldLimit time.Duration // how long a lease lasts
	Stop      func() bool   // ends the search for a better plan; nil for never
}

const (
	// patience is how long a job may take to start on the nodes that it was given, before they are given up.
	patience = 30 * time.Second
	// longestWait is how long a job is held at most; the placement lets who waited that long go first.
	longestWait = 24 * time.Hour
	// leastLeft keeps a job from ending in the plan before it ends: of its samples, that share is left.
	leastLeft = 0.01
)

// Updates plans all jobs that wait together. They come in the order of the snapshot's jobs.
func (p *Planner) Updates(s *Snapshot) []Update {
	r := &round{Planner: p, snapshot: s, free: map[pool]int{}, room: maps.Clone(s.Room), ours: map[string]bool{},
		updates: make([]*Update, len(s.Jobs))}
	for _, d := range s.Pools {
		r.free[pool{d.Node, d.Type}] = max(0, d.Total-d.Others)
	}
	r.enter()
	if len(r.waiting) > 0 {
		r.plan()
	}
	r.hold()
	var updates []Update
	for _, u := range r.updates {
		if u != nil {
			updates = append(updates, *u)
		}
	}
	return updates
}

type pool struct{ node, typ string }

// round is the work on one snapshot.
type round struct {
	*Planner
	snapshot *Snapshot
	problem  placement.Problem
	// entered are the indices of the snapshot's jobs in the order of the problem's; waiting those among them that the
	// plan may start.
	entered, waiting []int
	rates            []map[string]float64 // by the snapshot's jobs
	free             map[pool]int         // devices that no job in the plan holds
	room             map[string]Room      // what is left of nodes beside devices; of those that are not in it enough is
	ours             map[string]bool      // nodes on which jobs of ours are
	updates          []*Update            // by the snapshot's jobs; nil for none
}

// enter decides which jobs are planned, and lets go of those that cannot be.
func (r *round) enter() {
	s := r.snapshot
	r.rates = make([]map[string]float64, len(s.Jobs))
	types := r.types()
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Unsteerable != "" {
			r.release(i, j.Unsteerable)
			if j.State == Running {
				r.seize(j)
			}
			continue
		}
		why := ""
		if r.rates[i], why = r.ratesOf(j, types); why != "" {
			if j.State == Waiting {
				r.release(i, why)
			}
			r.seize(j)
			continue
		}
		if j.State == Running || j.State == Named && j.For < patience {
			if r.seize(j) {
				r.add(i)
			}
			continue
		}
		switch few := j.slots(s.Pools, r.rates[i], func(p Pool) int { return p.Total }); {
		case few < j.MinNodes:
			r.release(i, fmt.Sprintf("at most %d nodes can ever give it %d devices each, and it needs %d", few, j.PerNode,
				j.MinNodes))
		case j.State == Named && j.For >= r.HoldLimit:
			r.release(i, "its nodes did not come free in time")
		case j.Crowded && j.Held && j.Waited >= r.HoldLimit:
			r.release(i, "jobs of others wait for the same nodes, so it queues among them")
		case j.Held && j.Waited >= longestWait:
			r.release(i, "it has waited a day for its plan")
		default:
			r.waiting = append(r.waiting, i)
		}
	}
}

// types are the device types there are, in the order of the snapshot.
func (r *round) types() []string {
	var types []string
	for _, p := range r.snapshot.Pools {
		if !slices.Contains(types, p.Type) {
			types = append(types, p.Type)
		}
	}
	return types
}

// ratesOf is how fast the job runs on the types that it may have; why says what is missing.
func (r *round) ratesOf(j *Job, types []string) (rates map[string]float64, why string) {
	known, err := r.Profiles.Rates(j.Request.Workload, types)
	if err != nil {
		return nil, fmt.Sprintf("no profiles: %v", err)
	}
	rates = map[string]float64{}
	for _, t := range types {
		asked := (j.Type == "" || j.Type == t) && (j.Types == nil || slices.Contains(j.Types, t))
		if rate := known[t].SamplesPerSecond; rate > 0 && asked {
			rates[t] = rate
		}
	}
	if len(rates) == 0 {
		return nil, fmt.Sprintf("workload %s has no profile on the devices that it may have", j.Request.Workload)
	}
	return rates, ""
}

// seize takes the devices that a job holds, and says whether they are all known.
func (r *round) seize(j *Job) bool {
	for _, s := range j.On {
		if r.free[pool{s.Node, s.Type}] < s.Count {
			return false
		}
	}
	for _, s := range j.On {
		r.free[pool{s.Node, s.Type}] -= s.Count
		r.ours[s.Node] = true
		if j.State == Named { // else the scheduler has counted it
			r.take(s.Node, j.Needs)
		}
	}
	return len(j.On) > 0
}

// holds says whether the node has room for the job now.
func (r *round) holds(j *Job, node string) bool {
	room, known := r.room[node]
	return !known || room.Holds(j.Needs)
}

// take takes room from the node; negative room is given back.
func (r *round) take(node string, need Room) {
	if room, known := r.room[node]; known {
		r.room[node] = Room{room.CPUs - need.CPUs, room.Memory - need.Memory}
	}
}

// ever counts the devices of the pool that the job may have when the others of ours are done. Where others left it no room
// on the node, nobody of ours will.
func (r *round) ever(j *Job, p Pool) int {
	if !r.holds(j, p.Node) && !r.ours[p.Node] {
		return 0
	}
	return p.Total - p.Others
}

// add adds a job to the problem.
func (r *round) add(i int) {
	j := &r.snapshot.Jobs[i]
	job := placement.Job{
		ID: j.ID, RemainingSamples: j.Request.Samples, GlobalBatch: j.Request.GlobalBatch, SamplesPerSecond: r.rates[i],
		MinWorkers: j.MinNodes * j.PerNode, MaxWorkers: min(j.MaxNodes*j.PerNode, j.Request.GlobalBatch),
		Nodes: r.large(i), Weight: 1, WaitedSeconds: j.Waited.Seconds(),
	}
	job.MaxWorkers = max(job.MinWorkers, job.MaxWorkers)
	if j.State != Waiting && !slices.Contains(r.waiting, i) {
		job.Current, job.Fixed, job.Nodes = j.On, true, nil
		count, rate := 0, 0.0
		for _, s := range j.On {
			count += s.Count
			rate += float64(float64(s.Count) * r.rates[i][s.Type])
		}
		job.MinWorkers, job.MaxWorkers = count, count
		done := 0.0
		if j.State == Running {
			done = rate * j.For.Seconds()
		}
		// Who is over its time is expected to need as much again, so that nobody waits for its end for good.
		job.RemainingSamples = max(math.Abs(job.RemainingSamples-done), leastLeft*job.RemainingSamples)
	}
	r.problem.Jobs = append(r.problem.Jobs, job)
	r.entered = append(r.entered, i)
}

// large are the nodes that the job may have but for those with too few devices of a type or no room; nil for all.
func (r *round) large(i int) []string {
	j := &r.snapshot.Jobs[i]
	var nodes []string
	all := j.Nodes == nil
	for _, p := range r.snapshot.Pools {
		switch enough := r.ever(j, p) >= j.PerNode; {
		case !enough:
			all = false
		case j.takes(p.Node, p.Type, r.rates[i]):
			nodes = append(nodes, p.Node)
		}
	}
	if all {
		return nil
	}
	return nodes
}

// plan plans the jobs that wait and starts those whose time has come, as far as there are nodes for them. Where none of
// them could start anyway, it saves the search.
func (r *round) plan() {
	if !slices.ContainsFunc(r.waiting, func(i int) bool {
		j := &r.snapshot.Jobs[i]
		free := func(p Pool) int {
			if !r.holds(j, p.Node) {
				return 0
			}
			return r.free[pool{p.Node, p.Type}]
		}
		return j.slots(r.snapshot.Pools, r.rates[i], free) >= j.MinNodes
	}) {
		return
	}
	for _, p := range r.snapshot.Pools {
		r.problem.Pools = append(r.problem.Pools, placement.Pool{Node: p.Node, Type: p.Type, Count: max(0, p.Total-p.Others)})
	}
	for _, i := range r.waiting {
		j := &r.snapshot.Jobs[i]
		// Others may hold its devices for now: then it is no part of the plan, and waits.
		if j.slots(r.snapshot.Pools, r.rates[i], func(p Pool) int { return r.ever(j, p) }) >= j.MinNodes {
			r.add(i)
		}
	}
	plan, err := r.Place(&r.problem, "auto", placement.Search{Stop: r.Stop})
	if err != nil {
		for _, i := range r.waiting {
			r.release(i, fmt.Sprintf("no plan: %v", err))
		}
		return
	}
	var due []fitting
	for _, placed := range plan.Placed {
		i := r.entered[placed.Job]
		if !slices.Contains(r.waiting, i) || placed.StartSeconds > 0 {
			continue
		}
		due = append(due, fitting{job: i, planned: placed.Shares, seconds: placed.JCTSeconds})
	}
	r.fit(due)
	for _, f := range due {
		if len(f.shares) > 0 {
			r.start(f)
		}
	}
}

// hold renews the leases of those that neither start nor are let go, when half of the time is over.
func (r *round) hold() {
	for i := range r.snapshot.Jobs {
		j := &r.snapshot.Jobs[i]
		if r.updates[i] == nil && j.State == Waiting && j.Held && j.Unsteerable == "" && j.Lease < r.HoldLimit/2 {
			r.updates[i] = &Update{Job: j.ID, Kind: Hold, Lease: r.HoldLimit, Why: "the plan lets it wait"}
		}
	}
}

// release lets go of a job that waits for us, or for nodes that we named.
func (r *round) release(i int, why string) {
	if j := &r.snapshot.Jobs[i]; j.Held || j.State == Named {
		r.updates[i] = &Update{Job: j.ID, Kind: Release, Why: why}
	}
}
