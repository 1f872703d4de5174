package agent

import (
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evenstep/evenstep/core/frame"
	"github.com/evenstep/evenstep/plugin/devices"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	maxForwardBytes = 1 << 20  // of a message to the core: a report of some 10,000 workers
	maxHeaderBytes  = 8 << 10  // of what is beside a call
	maxStreams      = 64       // of one connection; a worker asks one thing at a time
	windowBytes     = 64 << 10 // of a stream that were not read; gRPC would let it grow
)

// Server is what workers reach on the agent's socket. It serves unix sockets only.
type Server struct {
	grpc        *grpc.Server
	connections *counts
}

// NewServer serves the prober's devices, by the contract of the plugins of that kind, to whoever can reach it: they are
// no secret.
func NewServer(version string, p devices.Prober) *Server {
	return newServer(version, p, health.NewServer())
}

// NewForwardingServer serves the devices too, and passes on to the core what the node's users say to it, with the id that
// the kernel knows them by. Its health service says that it leads to a core, whether or not that answers now; NewServer's
// does not know the service Balancer.
func NewForwardingServer(version string, p devices.Prober, core grpc.ClientConnInterface) *Server {
	leads := health.NewServer()
	leads.SetServingStatus(evenstepv1.Balancer_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	return newServer(version, p, leads, grpc.UnknownServiceHandler(forwarder{core}.call))
}

func newServer(version string, p devices.Prober, h healthv1.HealthServer, more ...grpc.ServerOption) *Server {
	streams := newCounts(userStreams)
	s := grpc.NewServer(append(more,
		grpc.Creds(kernel{}),
		grpc.ForceServerCodecV2(frame.NewCodec()),
		grpc.MaxRecvMsgSize(maxForwardBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.ReadBufferSize(4<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.StreamInterceptor(streams.admit),
	)...)
	all := frame.Registrar{Server: s}
	devices.Register(all, version, p)
	healthv1.RegisterHealthServer(all, h)
	return &Server{s, newCounts(userConnections)}
}

// Serve answers on l and closes it in the end. It returns nil after Stop.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(&limitedListener{l, s.connections})
}

// Stop ends all that is asked at the moment.
func (s *Server) Stop() { s.grpc.Stop() }
