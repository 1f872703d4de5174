package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/plugin"
	policyv1 "github.com/evenstep/evenstep/plugin/policy/v1"
)

// planTimeout is from a problem to its plan.
const planTimeout = 5 * time.Second

// Place plans a problem by a policy, as placement.Place does.
type Place func(p *placement.Problem, policy string, s placement.Search) (*placement.Plan, error)

// NewPlace returns a Place that asks the plugins for policies of their names and leaves all others to builtin. Auto of
// builtin plans the problem at the same time: its bound is the plan's, and its plan is taken where the plugin fails or the
// search has to stop first, which Plan.Policy says and the log why.
func NewPlace(plugins []*plugin.External, builtin Place, log hclog.Logger) Place {
	byName := make(map[string]*plugin.External)
	for _, p := range plugins {
		byName[p.Name] = p
	}
	return func(p *placement.Problem, policy string, s placement.Search) (*placement.Plan, error) {
		external := byName[policy]
		if external == nil {
			return builtin(p, policy, s)
		}
		if err := p.Check(); err != nil {
			return nil, err
		}
		planned := make(chan answer, 1)
		go func() {
			plan, err := plan(external, p)
			planned <- answer{plan, err}
		}()
		auto, err := builtin(p, "auto", s)
		if err != nil {
			return nil, err
		}
		a := waitFor(planned, s.Stop)
		if a.err != nil {
			log.Warn("a policy plugin failed, so auto plans", "plugin", external.Path, "error", a.err)
			return auto, nil
		}
		a.plan.LowerBoundSeconds = min(auto.LowerBoundSeconds, a.plan.MeanSeconds)
		a.plan.Complete = auto.Complete
		return a.plan, nil
	}
}

// answer is a plugin's plan, or why there is none.
type answer struct {
	plan *placement.Plan
	err  error
}

// waitFor waits for the answer, which takes no longer than a plugin may, until stop says not to; nil never does.
func waitFor(planned <-chan answer, stop func() bool) answer {
	ask := time.NewTicker(10 * time.Millisecond)
	defer ask.Stop()
	for {
		select {
		case a := <-planned:
			return a
		case <-ask.C:
			if stop != nil && stop() {
				return answer{err: errors.New("no plan before the deadline")}
			}
		}
	}
}

// plan asks a plugin and checks its answer.
func plan(external *plugin.External, p *placement.Problem) (*placement.Plan, error) {
	for i := range p.Jobs {
		if n := p.Jobs[i].GlobalBatch; n > math.MaxUint32 {
			return nil, fmt.Errorf("jobs[%d].global_batch: %d is more than plugins are told; give at most %d", i, n,
				math.MaxUint32)
		}
	}
	conn, err := external.Conn()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), planTimeout)
	defer cancel()
	response, err := policyv1.NewPolicyClient(conn).Place(ctx, placeRequest(p))
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		err := fmt.Errorf("no plan within %v", planTimeout)
		external.KillIfHung(err)
		return nil, err
	case err != nil:
		return nil, external.Fault(err)
	}
	plan, err := placement.Adopt(p, external.Name, placed(response))
	if err != nil {
		return nil, errors.New(plugin.Line(err.Error())) // it quotes the plugin
	}
	return plan, nil
}

func (s *server) Place(_ context.Context, r *policyv1.PlaceRequest) (*policyv1.PlaceResponse, error) {
	if s.policy.Place == nil {
		return nil, status.Error(codes.Unimplemented, "it places no jobs")
	}
	plan, err := s.policy.Place(placementProblem(r))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	response := &policyv1.PlaceResponse{}
	for _, p := range plan {
		response.Placed = append(response.Placed, &policyv1.Placed{Job: uint32(p.Job), StartSeconds: p.StartSeconds,
			Shares: wireShares(p.Shares)})
	}
	return response, nil
}

func placeRequest(p *placement.Problem) *policyv1.PlaceRequest {
	r := &policyv1.PlaceRequest{BandwidthBytesPerSecond: p.Bandwidth, Seed: p.Seed}
	for _, pool := range p.Pools {
		r.Pools = append(r.Pools, &policyv1.Pool{Node: pool.Node, Type: pool.Type, Count: uint32(pool.Count),
			MemoryBytes: pool.MemoryBytes})
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		r.Jobs = append(r.Jobs, &policyv1.Job{
			Id: j.ID, RemainingSamples: j.RemainingSamples, GlobalBatch: uint32(j.GlobalBatch),
			SamplesPerSecond: j.SamplesPerSecond, MinWorkers: uint32(j.MinWorkers), MaxWorkers: uint32(j.MaxWorkers),
			AllreduceBytes: j.AllreduceBytes, SingleType: j.SingleType, MemoryBytes: j.MemoryBytes, Nodes: j.Nodes,
			Weight: j.Weight, Current: wireShares(j.Current), RestartSeconds: j.RestartSeconds,
			WaitedSeconds: j.WaitedSeconds, Fixed: j.Fixed,
		})
	}
	return r
}

func placementProblem(r *policyv1.PlaceRequest) *placement.Problem {
	p := &placement.Problem{Bandwidth: r.GetBandwidthBytesPerSecond(), Seed: r.GetSeed()}
	for _, pool := range r.GetPools() {
		p.Pools = append(p.Pools, placement.Pool{Node: pool.GetNode(), Type: pool.GetType(), Count: int(pool.GetCount()),
			MemoryBytes: pool.GetMemoryBytes()})
	}
	for _, j := range r.GetJobs() {
		p.Jobs = append(p.Jobs, placement.Job{
			ID: j.GetId(), RemainingSamples: j.GetRemainingSamples(), GlobalBatch: int(j.GetGlobalBatch()),
			SamplesPerSecond: j.GetSamplesPerSecond(), MinWorkers: int(j.GetMinWorkers()),
			MaxWorkers: int(j.GetMaxWorkers()), AllreduceBytes: j.GetAllreduceBytes(), SingleType: j.GetSingleType(),
			MemoryBytes: j.GetMemoryBytes(), Nodes: j.GetNodes(), Weight: j.GetWeight(), Current: shares(j.GetCurrent()),
			RestartSeconds: j.GetRestartSeconds(), WaitedSeconds: j.GetWaitedSeconds(), Fixed: j.GetFixed(),
		})
	}
	return p
}

func placed(r *policyv1.PlaceResponse) (placed []placement.Placed) {
	for _, p := range r.GetPlaced() {
		placed = append(placed, placement.Placed{Job: int(p.GetJob()), StartSeconds: p.GetStartSeconds(),
			Shares: shares(p.GetShares())})
	}
	return placed
}

func shares(wire []*policyv1.Share) (shares []placement.Share) {
	for _, s := range wire {
		shares = append(shares, placement.Share{Node: s.GetNode(), Type: s.GetType(), Count: int(s.GetCount())})
	}
	return shares
}

func wireShares(shares []placement.Share) (wire []*policyv1.Share) {
	for _, s := range shares {
		wire = append(wire, &policyv1.Share{Node: s.Node, Type: s.Type, Count: uint32(s.Count)})
	}
	return wire
}
