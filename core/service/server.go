package service

import (
	"net"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/frame"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	// maxMessageBytes holds an Open or a report of maxWorkers workers with names of the usual length.
	maxMessageBytes = 4 << 20
	// maxStreams bounds the streams of one connection; a client opens one, a launcher one for each of its workers.
	maxStreams = 4096
	// maxHeaderBytes bounds what is beside a call, as it unpacks.
	maxHeaderBytes = 8 << 10
	// What is taken before it is read: of each stream, and of all of a connection while it is on its way. GRPC would let
	// both grow to 16 MiB.
	streamWindowBytes = 64 << 10
	connWindowBytes   = 1 << 20
)

// Server is a gRPC server with the services of the core.
type Server struct {
	grpc *grpc.Server
}

// NewServer returns a server that lets in whom creds let in. A panic in a service ends the call that caused it with
// INTERNAL and is logged; the server lives on.
func NewServer(b *Balancer, p *Placer, creds credentials.TransportCredentials, log hclog.Logger) *Server {
	s := grpc.NewServer(
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(frame.NewCodec()),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindowBytes), grpc.StaticConnWindowSize(connWindowBytes),
		grpc.ConnectionTimeout(10*time.Second),
		// A job may rest for hours; only a peer that no longer answers is given up, so that its ranks count as gone.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.ChainStreamInterceptor(recoverer(log), b.admit),
	)
	all := frame.Registrar{Server: s}
	evenstepv1.RegisterBalancerServer(all, b)
	evenstepv1.RegisterJobsServer(all, b)
	evenstepv1.RegisterProfilesServer(all, b)
	evenstepv1.RegisterPlacerServer(all, p)
	return &Server{grpc: s}
}

// Serve answers on l and closes it in the end. It returns nil after Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop takes no more connections, waits for the open streams, but no longer than that, and ends those that are left.
// Streams of the Balancer end only when it is stopped before.
func (s *Server) Stop(atMost time.Duration) {
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(atMost):
		// Not to be waited for: it waits for clients that connected and said nothing, until their time is up.
		go s.grpc.Stop()
	}
}

func recoverer(log hclog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer recovered(log, info.FullMethod, &err)
		return handler(srv, s)
	}
}

// recovered is deferred: it makes a panic of a handler an error.
func recovered(log hclog.Logger, method string, err *error) {
	if r := recover(); r != nil {
		// Quoted, since a message is one line.
		stack := strconv.Quote(string(debug.Stack()))
		log.Error("a handler panicked", "method", method, "panic", r, "stack", stack)
		*err = status.Error(codes.Internal, "the core failed at this; its log says more")
	}
}
