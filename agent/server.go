package agent

import (
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/plugin/devices"
)

const (
	maxRequestBytes = 64 << 10 // of what a worker asks
	maxStreams      = 64       // of one connection; a worker asks one thing at a time
)

// Server is what workers reach on the agent's socket.
type Server struct{ grpc *grpc.Server }

// NewServer serves the prober's devices, by the contract of the plugins of that kind, to whoever can reach it: they are
// no secret.
func NewServer(version string, p devices.Prober) *Server {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequestBytes), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(10*time.Second))
	devices.Register(s, version, p)
	return &Server{s}
}

// Serve answers on l and closes it in the end. It returns nil after Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop ends all that is asked at the moment.
func (s *Server) Stop() { s.grpc.Stop() }
