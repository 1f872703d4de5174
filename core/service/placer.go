package service

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/placement"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// maxSearches bounds the searches that run at once; each may take a core.
const maxSearches = 4

// Placer implements the Placer service. It owns the clock that placement does not have.
type Placer struct {
	evenstepv1.UnimplementedPlacerServer
	place    Place
	searches chan struct{} // has room for each that runs

	placements *placements
}

// Place plans a problem by a policy, as placement.Place does.
type Place func(p *placement.Problem, policy string, s placement.Search) (*placement.Plan, error)

// NewPlacer returns a Placer that plans with place.
func NewPlacer(place Place) *Placer {
	return &Placer{place: place, searches: make(chan struct{}, maxSearches), placements: newPlacements()}
}

// Place answers one request, as the service definition says.
func (p *Placer) Place(ctx context.Context, r *evenstepv1.PlaceRequest) (*evenstepv1.PlaceResponse, error) {
	select {
	case p.searches <- struct{}{}:
		defer func() { <-p.searches }()
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d searches run already; try again", maxSearches)
	}
	problem, err := placementProblem(r)
	if err != nil {
		return nil, err
	}
	policy := r.GetPolicy()
	if policy == "" {
		policy = "auto"
	}
	budget, began := int(min(r.GetBudget(), 1<<50)), time.Now()
	plan, err := p.place(problem, policy, placement.Search{Budget: budget, Stop: stopAt(ctx, r.GetDeadlineMilliseconds())})
	switch {
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, invalid("%v", err)
	}
	p.placements.planned(plan.MeanSeconds, plan.LowerBoundSeconds, time.Since(began).Seconds())
	return placeResponse(problem, plan), nil
}

// stopAt says when a search is to end: when the call is cancelled, after so many milliseconds if any, and early enough for
// the answer to arrive before the call's deadline.
func stopAt(ctx context.Context, milliseconds uint64) func() bool {
	begin := time.Now()
	limit, limited := time.Duration(0), false
	if milliseconds > 0 {
		limit, limited = time.Duration(min(milliseconds, 1<<40))*time.Millisecond, true
	}
	if deadline, ok := ctx.Deadline(); ok {
		if early := time.Until(deadline) * 3 / 4; !limited || early < limit {
			limit, limited = early, true
		}
	}
	return func() bool { return ctx.Err() != nil || limited && time.Since(begin) >= limit }
}

// placementProblem fills in the defaults. What is wrong in the values is left to placement.
func placementProblem(r *evenstepv1.PlaceRequest) (*placement.Problem, error) {
	p := &placement.Problem{Bandwidth: r.GetBandwidthBytesPerSecond(), Seed: r.GetSeed()}
	devices := 0
	for _, d := range r.GetDevices() {
		p.Pools = append(p.Pools, placement.Pool{Node: d.GetNode(), Type: d.GetType(), Count: int(d.GetCount()),
			MemoryBytes: d.GetMemoryBytes()})
		devices += int(d.GetCount())
	}
	for i, j := range r.GetJobs() {
		if len(j.GetId()) > maxText {
			return nil, invalid("jobs[%d].id: longer than %d characters", i, maxText)
		}
		job := placement.Job{
			ID: j.GetId(), RemainingSamples: j.GetRemainingSamples(), GlobalBatch: int(j.GetGlobalBatch()),
			SamplesPerSecond: j.GetSamplesPerSecond(), MinWorkers: max(1, int(j.GetMinWorkers())),
			MaxWorkers: int(j.GetMaxWorkers()), AllreduceBytes: j.GetAllreduceBytes(), SingleType: j.GetSingleType(),
			MemoryBytes: j.GetMemoryBytes(), Nodes: j.GetNodes(), Weight: j.GetWeight(),
			RestartSeconds: j.GetRestartSeconds(), WaitedSeconds: j.GetWaitedSeconds(), Fixed: j.GetFixed(),
		}
		if job.MaxWorkers == 0 {
			job.MaxWorkers = max(devices, job.MinWorkers)
		}
		if job.Weight == 0 {
			job.Weight = 1
		}
		for _, s := range j.GetCurrent() {
			job.Current = append(job.Current, placement.Share{Node: s.GetNode(), Type: s.GetType(), Count: int(s.GetCount())})
		}
		p.Jobs = append(p.Jobs, job)
	}
	return p, nil
}

func placeResponse(p *placement.Problem, plan *placement.Plan) *evenstepv1.PlaceResponse {
	out := &evenstepv1.PlaceResponse{
		Model: string(plan.Model), Complete: plan.Complete, MeanJctSeconds: plan.MeanSeconds,
		LowerBoundSeconds: plan.LowerBoundSeconds, Jain: plan.Fairness.Jain, MaxRho: plan.Fairness.MaxRho,
	}
	for _, placed := range plan.Placed {
		job := &evenstepv1.PlacedJob{Id: p.Jobs[placed.Job].ID, StartSeconds: placed.StartSeconds,
			JctSeconds: placed.JCTSeconds, Reason: placed.Reason}
		for _, s := range placed.Shares {
			job.Devices = append(job.Devices, &evenstepv1.DeviceShare{Node: s.Node, Type: s.Type, Count: uint32(s.Count)})
		}
		for _, n := range placed.BatchSizes {
			job.BatchSizes = append(job.BatchSizes, uint32(n))
		}
		out.Jobs = append(out.Jobs, job)
	}
	for _, i := range plan.Impossible {
		out.Impossible = append(out.Impossible, &evenstepv1.ImpossibleJob{Id: p.Jobs[i.Job].ID, Reason: i.Reason})
	}
	return out
}
