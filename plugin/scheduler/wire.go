package scheduler

import (
	"fmt"
	"math"
	"time"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/request"
	"github.com/evenstep/evenstep/plugin"
	schedulerv1 "github.com/evenstep/evenstep/plugin/scheduler/v1"
)

// toWire puts a snapshot on the wire.
func toWire(s *reconcile.Snapshot) *schedulerv1.SnapshotResponse {
	w := &schedulerv1.SnapshotResponse{}
	for _, p := range s.Pools {
		w.Pools = append(w.Pools, &schedulerv1.Pool{Node: p.Node, Type: p.Type, Total: uint32(p.Total), Others: uint32(p.Others)})
	}
	for node, r := range s.Room {
		w.Room = append(w.Room, &schedulerv1.NodeRoom{Node: node, Left: roomTo(r)})
	}
	for i := range s.Jobs {
		w.Jobs = append(w.Jobs, jobTo(&s.Jobs[i]))
	}
	return w
}

func jobTo(j *reconcile.Job) *schedulerv1.Job {
	w := &schedulerv1.Job{
		Id: j.ID, Words: j.Request.String(), State: schedulerv1.Job_State(j.State), Unsteerable: j.Unsteerable,
		MinNodes: uint32(j.MinNodes), MaxNodes: uint32(j.MaxNodes), PerNode: uint32(j.PerNode), Types: j.Types,
		Required: j.Required, Needs: roomTo(j.Needs), Crowded: j.Crowded, WaitedSeconds: j.Waited.Seconds(), Held: j.Held,
		LeaseSeconds: j.Lease.Seconds(), On: sharesTo(j.On), ForSeconds: j.For.Seconds(),
	}
	if j.Type != "" {
		w.Types = []string{j.Type}
	}
	if j.Nodes != nil {
		w.Nodes = &schedulerv1.NodeList{Names: j.Nodes}
	}
	return w
}

// fromWire takes a snapshot from the wire and checks it.
func fromWire(w *schedulerv1.SnapshotResponse) (*reconcile.Snapshot, error) {
	s := &reconcile.Snapshot{}
	for _, p := range w.GetPools() {
		s.Pools = append(s.Pools, reconcile.Pool{Node: p.GetNode(), Type: p.GetType(), Total: int(p.GetTotal()),
			Others: int(p.GetOthers())})
	}
	for _, r := range w.GetRoom() {
		if s.Room == nil {
			s.Room = map[string]reconcile.Room{}
		}
		s.Room[r.GetNode()] = roomFrom(r.GetLeft())
	}
	for _, j := range w.GetJobs() {
		s.Jobs = append(s.Jobs, jobFrom(j))
	}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	for i := range s.Jobs {
		// A job that runs has what it has.
		if j := &s.Jobs[i]; j.Unsteerable == "" && j.State != reconcile.Running {
			j.Unsteerable = j.NarrowByWorkers()
		}
	}
	return s, nil
}

func jobFrom(w *schedulerv1.Job) reconcile.Job {
	j := reconcile.Job{
		ID: w.GetId(), State: reconcile.State(w.GetState()), Unsteerable: plugin.Line(w.GetUnsteerable()),
		MinNodes: int(w.GetMinNodes()), MaxNodes: int(w.GetMaxNodes()), PerNode: int(w.GetPerNode()), Types: w.GetTypes(),
		Required: w.GetRequired(), Needs: roomFrom(w.GetNeeds()), Crowded: w.GetCrowded(), Waited: duration(w.GetWaitedSeconds()),
		Held: w.GetHeld(), Lease: duration(w.GetLeaseSeconds()), On: sharesFrom(w.GetOn()), For: duration(w.GetForSeconds()),
	}
	if w.GetNodes() != nil {
		j.Nodes = append([]string{}, w.GetNodes().GetNames()...)
	}
	if j.Unsteerable != "" {
		return j
	}
	r, err := request.Parse(w.GetWords())
	if err != nil {
		j.Unsteerable = err.Error()
		return j
	}
	j.Request = *r
	return j
}

func roomTo(r reconcile.Room) *schedulerv1.Room {
	return &schedulerv1.Room{Cpus: int64(r.CPUs), Memory: int64(r.Memory)}
}

func roomFrom(w *schedulerv1.Room) reconcile.Room {
	return reconcile.Room{CPUs: int(w.GetCpus()), Memory: int(w.GetMemory())}
}

func sharesTo(shares []placement.Share) (wire []*schedulerv1.Share) {
	for _, s := range shares {
		wire = append(wire, &schedulerv1.Share{Node: s.Node, Type: s.Type, Count: uint32(s.Count)})
	}
	return wire
}

func sharesFrom(wire []*schedulerv1.Share) (shares []placement.Share) {
	for _, s := range wire {
		shares = append(shares, placement.Share{Node: s.GetNode(), Type: s.GetType(), Count: int(s.GetCount())})
	}
	return shares
}

// duration of seconds that are no number, or beyond what a duration holds, is negative, which no snapshot may have.
func duration(seconds float64) time.Duration {
	const most = math.MaxInt64 / float64(time.Second)
	if !(seconds >= 0 && seconds < most) {
		return -1
	}
	return time.Duration(seconds * float64(time.Second))
}

var kinds = map[reconcile.Kind]schedulerv1.ApplyRequest_Kind{
	reconcile.Start:   schedulerv1.ApplyRequest_START,
	reconcile.Hold:    schedulerv1.ApplyRequest_HOLD,
	reconcile.Release: schedulerv1.ApplyRequest_RELEASE,
}

func updateTo(u reconcile.Update) *schedulerv1.ApplyRequest {
	w := &schedulerv1.ApplyRequest{Job: u.Job, Kind: kinds[u.Kind], Shares: sharesTo(u.Shares), Seconds: u.Seconds,
		LeaseSeconds: u.Lease.Seconds(), Why: u.Why}
	for _, n := range u.BatchSizes {
		w.BatchSizes = append(w.BatchSizes, uint32(n))
	}
	return w
}

func updateFrom(w *schedulerv1.ApplyRequest) (reconcile.Update, error) {
	u := reconcile.Update{Job: w.GetJob(), Shares: sharesFrom(w.GetShares()), Seconds: w.GetSeconds(),
		Lease: duration(w.GetLeaseSeconds()), Why: w.GetWhy()}
	for kind, wire := range kinds {
		if wire == w.GetKind() {
			u.Kind = kind
		}
	}
	for _, n := range w.GetBatchSizes() {
		u.BatchSizes = append(u.BatchSizes, int(n))
	}
	if u.Kind == "" {
		return u, fmt.Errorf("kind: %v is none that this plugin knows", w.GetKind())
	}
	return u, nil
}
