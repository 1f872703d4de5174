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
	maxProbeBytes   = 64 << 10 // of what a worker asks of devices
	maxForwardBytes = 1 << 20  // of a message to the core: a report of some 10,000 workers
	maxStreams      = 64       // of one connection; a worker asks one thing at a time
)

// Server is what workers reach on the agent's socket.
type Server struct {
	grpc *grpc.Server
	wrap func(net.Listener) net.Listener
}

// NewServer serves the prober's devices, by the contract of the plugins of that kind, to whoever can reach it: they are
// no secret.
func NewServer(version string, p devices.Prober) *Server {
	s := newGRPC(maxProbeBytes)
	devices.Register(s, version, p)
	healthv1.RegisterHealthServer(s, health.NewServer())
	return &Server{s, func(l net.Listener) net.Listener { return l }}
}

// NewForwardingServer serves the devices too, and passes on to the core what the node's users say to it, with the id that
// the kernel knows them by. It serves unix sockets only. Its health service says that it leads to a core, whether or not
// that answers now; NewServer's does not know the service Balancer.
func NewForwardingServer(version string, p devices.Prober, core grpc.ClientConnInterface) *Server {
	s := newGRPC(maxForwardBytes, grpc.Creds(kernel{}), grpc.ForceServerCodecV2(frame.NewCodec()))
	devices.Register(s, version, p)
	f := newForwarder(core)
	evenstepv1.RegisterBalancerServer(s, f)
	evenstepv1.RegisterJobsServer(s, f)
	evenstepv1.RegisterProfilesServer(s, f)
	leads := health.NewServer()
	leads.SetServingStatus(evenstepv1.Balancer_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(s, leads)
	connections := newCounts(userConnections)
	return &Server{s, func(l net.Listener) net.Listener { return &limitedListener{l, connections} }}
}

func newGRPC(maxBytes int, more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(more, grpc.MaxRecvMsgSize(maxBytes), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(10*time.Second))...)
}

// Serve answers on l and closes it in the end. It returns nil after Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(s.wrap(l)) }

// Stop ends all that is asked at the moment.
func (s *Server) Stop() { s.grpc.Stop() }
