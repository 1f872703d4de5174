package agent

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/frame"
	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// forwarder passes the calls of a node's users on to the core, each with the id of its user, which the kernel says.
type forwarder struct {
	evenstepv1.UnimplementedBalancerServer
	evenstepv1.UnimplementedJobsServer
	evenstepv1.UnimplementedProfilesServer

	balancer evenstepv1.BalancerClient
	jobs     evenstepv1.JobsClient
	profiles evenstepv1.ProfilesClient
	streams  *counts
}

func newForwarder(core grpc.ClientConnInterface) *forwarder {
	return &forwarder{balancer: evenstepv1.NewBalancerClient(core), jobs: evenstepv1.NewJobsClient(core),
		profiles: evenstepv1.NewProfilesClient(core), streams: newCounts(userStreams)}
}

// enter is the context of a call on behalf of its user, whose streams it counts until leave.
func (f *forwarder) enter(ctx context.Context) (onBehalf context.Context, leave func(), err error) {
	id, err := callingUser(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !f.streams.take(id) {
		return nil, nil, status.Errorf(codes.ResourceExhausted, "%d streams of uid %d are open at this node; end some",
			userStreams, id)
	}
	// What it leads to ends with it, whoever of the two ends it.
	ctx, cancel := context.WithCancel(identity.OnBehalfOf(ctx, id))
	return ctx, func() { cancel(); f.streams.giveBack(id) }, nil
}

// Balance passes a stream on, both ways, until either end is done. Only the core parses what is in it.
func (f *forwarder) Balance(worker evenstepv1.Balancer_BalanceServer) error {
	ctx, leave, err := f.enter(worker.Context())
	if err != nil {
		return err
	}
	defer leave()
	core, err := f.balancer.Balance(ctx, grpc.ForceCodecV2(frame.NewCodec()))
	if err != nil {
		return err
	}
	go func() {
		for {
			var message frame.Frame
			err := worker.RecvMsg(&message)
			if errors.Is(err, io.EOF) {
				_ = core.CloseSend() // never fails
				return
			}
			// What ends the worker's stream ends the core's too, by the context.
			if err != nil || core.SendMsg(&message) != nil {
				return
			}
		}
	}()
	return relay(func() (*frame.Frame, error) {
		message := new(frame.Frame)
		return message, core.RecvMsg(message)
	}, func(message *frame.Frame) error { return worker.SendMsg(message) })
}

// List passes on what the core shows the user.
func (f *forwarder) List(r *evenstepv1.ListRequest, user evenstepv1.Jobs_ListServer) error {
	ctx, leave, err := f.enter(user.Context())
	if err != nil {
		return err
	}
	defer leave()
	core, err := f.jobs.List(ctx, r)
	if err != nil {
		return err
	}
	return relay(core.Recv, user.Send)
}

// relay sends on what is received until there is no more.
func relay[T any](receive func() (T, error), send func(T) error) error {
	for {
		message, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = send(message)
		}
		if err != nil {
			return err
		}
	}
}

// Register passes on what root registers; the core refuses it to others.
func (f *forwarder) Register(
	ctx context.Context, r *evenstepv1.RegisterRequest,
) (*evenstepv1.RegisterResponse, error) {
	return passOn(ctx, f, r, f.jobs.Register)
}

// Unregister passes on what root forgets.
func (f *forwarder) Unregister(
	ctx context.Context, r *evenstepv1.UnregisterRequest,
) (*evenstepv1.UnregisterResponse, error) {
	return passOn(ctx, f, r, f.jobs.Unregister)
}

// Rates passes on what root asks; the core refuses it to others.
func (f *forwarder) Rates(ctx context.Context, r *evenstepv1.RatesRequest) (*evenstepv1.RatesResponse, error) {
	return passOn(ctx, f, r, f.profiles.Rates)
}

// passOn makes a call of one message each way for its user.
func passOn[Request, Response any](
	ctx context.Context, f *forwarder, r *Request,
	call func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
) (*Response, error) {
	ctx, leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return call(ctx, r)
}
