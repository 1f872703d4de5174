package devices

import (
	"context"

	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/plugin"
	devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"
)

// Serve makes a plugin of the process: it serves the prober until evenstep ends it.
func Serve(version string, p Prober) {
	plugin.Serve(plugin.Devices, func(s *grpc.Server) { Register(s, version, p) })
}

// Register adds the Devices service to a server.
func Register(s grpc.ServiceRegistrar, version string, p Prober) {
	devicesv1.RegisterDevicesServer(s, &server{version: version, prober: p})
}

type server struct {
	devicesv1.UnimplementedDevicesServer
	version string
	prober  Prober
}

func (s *server) Describe(context.Context, *devicesv1.DescribeRequest) (*devicesv1.DescribeResponse, error) {
	return &devicesv1.DescribeResponse{Version: s.version}, nil
}

func (s *server) Probe(ctx context.Context, _ *devicesv1.ProbeRequest) (*devicesv1.ProbeResponse, error) {
	r, err := s.prober.Probe(ctx)
	if err != nil {
		return nil, err
	}
	return r.Wire(), nil
}
