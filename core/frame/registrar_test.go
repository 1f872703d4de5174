package frame

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

type jobs struct {
	evenstepv1.UnimplementedJobsServer
}

func (jobs) Register(_ context.Context, r *evenstepv1.RegisterRequest) (*evenstepv1.RegisterResponse, error) {
	if r.GetUid() != 7 {
		return nil, status.Error(codes.NotFound, r.GetJob())
	}
	return &evenstepv1.RegisterResponse{}, nil
}

// Calls of one message work as ever, and an interceptor is asked before the message is there.
func TestCallsAreSeenBeforeTheirMessage(t *testing.T) {
	refuse := false
	s := grpc.NewServer(grpc.StreamInterceptor(
		func(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if refuse {
				return status.Error(codes.PermissionDenied, "no")
			}
			return handle(service, s)
		}))
	evenstepv1.RegisterJobsServer(Registrar{s}, jobs{})
	l := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-served })
	conn, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := evenstepv1.NewJobsClient(conn)
	if _, err := client.Register(t.Context(), &evenstepv1.RegisterRequest{Uid: 7}); err != nil {
		t.Error(err)
	}
	if _, err := client.Register(t.Context(), &evenstepv1.RegisterRequest{Job: "j"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	refuse = true
	open, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, evenstepv1.Jobs_Register_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := open.RecvMsg(new(evenstepv1.RegisterResponse)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("before its message: %v", err)
	}
}
