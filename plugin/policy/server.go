package policy

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	policyv1 "github.com/evenstep/evenstep/plugin/policy/v1"
)

// server is the plugin's end of the wire.
type server struct {
	policyv1.UnimplementedPolicyServer
	policy Policy
}

func (s *server) Describe(context.Context, *policyv1.DescribeRequest) (*policyv1.DescribeResponse, error) {
	return &policyv1.DescribeResponse{Version: s.policy.Version}, nil
}

func (s *server) Size(stream policyv1.Policy_SizeServer) error {
	if s.policy.Size == nil {
		return status.Error(codes.Unimplemented, "it sizes no batches")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetOpen() == nil {
		return status.Error(codes.InvalidArgument, "request: the first one of a stream is not an open")
	}
	p, start := problem(first.GetOpen())
	policy, err := s.policy.Size(p, start)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		d, changed := policy.Step(observations(request.GetStep()), int(request.GetStep().GetLag()))
		if err := stream.Send(sizeResponse(d, changed)); err != nil {
			return err
		}
	}
}

func problem(open *policyv1.SizeOpen) (p sizing.Problem, start []int) {
	p = sizing.Problem{GlobalBatch: int(open.GetGlobalBatch()), Quantum: int(open.GetQuantum())}
	for _, w := range open.GetWorkers() {
		p.Workers = append(p.Workers, sizing.Worker{Min: int(w.GetMin()), Max: int(w.GetMax())})
	}
	return p, ints(open.GetBatchSizes())
}

func observations(step *policyv1.SizeStep) []speed.Observation {
	seen := make([]speed.Observation, len(step.GetObserved()))
	for i, o := range step.GetObserved() {
		seen[i] = speed.Observation{Samples: o.GetSamples(), Seconds: o.GetSeconds(), CPU: o.GetCpu(),
			MemoryBytes: o.GetMemoryBytes()}
	}
	return seen
}

func sizeResponse(d sizing.Decision, changed bool) *policyv1.SizeResponse {
	r := &policyv1.SizeResponse{StepSeconds: d.StepSeconds, Reason: d.Reason}
	if changed {
		r.BatchSizes = uint32s(d.BatchSizes)
	}
	return r
}

func ints(numbers []uint32) []int {
	out := make([]int, len(numbers))
	for i, n := range numbers {
		out[i] = int(n)
	}
	return out
}

func uint32s(numbers []int) []uint32 {
	out := make([]uint32, len(numbers))
	for i, n := range numbers {
		out[i] = uint32(n)
	}
	return out
}
