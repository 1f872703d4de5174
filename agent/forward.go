package agent

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/frame"
	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// forwarded are the services of the core that the node's users may call. What each of them may do there, the core says.
var forwarded = []string{evenstepv1.Balancer_ServiceDesc.ServiceName, evenstepv1.Jobs_ServiceDesc.ServiceName,
	evenstepv1.Profiles_ServiceDesc.ServiceName}

// forwarder passes the calls of a node's users on to the core, each with the id of its user, which the kernel says.
type forwarder struct{ core grpc.ClientConnInterface }

// call passes a call on, both ways, until either end is done. Only the core parses what is in it.
func (f forwarder) call(_ any, user grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(user)
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if !slices.Contains(forwarded, service) {
		return status.Errorf(codes.Unimplemented, "%.80q is no call of a service that an agent passes on", method)
	}
	id, err := callingUser(user.Context())
	if err != nil {
		return err
	}
	// What it leads to ends with it, whoever of the two ends it.
	ctx, cancel := context.WithCancel(identity.OnBehalfOf(user.Context(), id))
	defer cancel()
	core, err := f.core.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(frame.NewCodec()))
	if err != nil {
		return err
	}
	go func() {
		// What ends the user's stream otherwise ends the core's too, by the context.
		if err := relay(user.RecvMsg, core.SendMsg); errors.Is(err, io.EOF) {
			_ = core.CloseSend() // never fails
		}
	}()
	if err := relay(core.RecvMsg, user.SendMsg); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// relay sends on what is received until either fails; io.EOF is that there is no more.
func relay(receive, send func(any) error) error {
	for {
		var message frame.Frame
		if err := receive(&message); err != nil {
			return err
		}
		if err := send(&message); err != nil {
			return err
		}
	}
}
