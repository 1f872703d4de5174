// Package device is Nomad's device plugin for the GPUs of a node: which there are, how fast each is known to run what
// was trained on its type, and how it does now.
//
// All of that comes from the node's agent, and through it from the core. Neither has to be there: what does not answer
// changes nothing, and where nothing ever answered there are no devices. Nomad does not start with a plugin that fails,
// so this one never does: what is wrong, it logs.
//
// Nothing of Nomad's own code is in here. Package wire says what goes over the wire.
package device

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/nomad/device/wire"
)

// Name is the plugin's, and that of its executable, as Nomad wants it.
const Name = "evenstep-device"

// Vendor is whose devices these are to Nomad. It is not NVIDIA, so that no job gets a GPU from another plugin by
// chance.
const Vendor = "evenstep"

// apiVersion is that of Nomad's API of device plugins.
const apiVersion = "v0.1.0"

// handshake is how Nomad knows its plugins.
var handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  2,
	MagicCookieKey:   "NOMAD_PLUGIN_MAGIC_COOKIE",
	MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
}

// Serve is the whole plugin: it answers Nomad until Nomad ends the process. In a process that Nomad has not started it
// says so and exits 1.
func Serve(version string) {
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		fmt.Fprintln(os.Stderr, os.Args[0],
			"is a plugin of Nomad's: put it into the plugin_dir of Nomad's client, which starts it")
		os.Exit(1)
	}
	s := newServer(version, hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: os.Stderr, JSONFormat: true}))
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins: goplugin.PluginSet{
			"base":   &service{register: func(g *grpc.Server) { wire.RegisterBasePluginServer(g, s) }},
			"device": &service{register: func(g *grpc.Server) { wire.RegisterDevicePluginServer(g, s) }},
		},
		GRPCServer: goplugin.DefaultGRPCServer,
		Logger:     s.log,
	})
}

// service joins one of the plugin's services to go-plugin.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(*grpc.Server)
}

func (s *service) GRPCServer(_ *goplugin.GRPCBroker, g *grpc.Server) error {
	s.register(g)
	return nil
}

// GRPCClient is for hosts, which this is not.
func (*service) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// server answers Nomad.
type server struct {
	wire.UnimplementedBasePluginServer
	wire.UnimplementedDevicePluginServer

	version  string
	log      hclog.Logger
	now      func() time.Time
	patience time.Duration // with speeds

	mu   sync.Mutex
	node *node // nil before the configuration, and where it is wrong
}

func newServer(version string, log hclog.Logger) *server {
	return &server{version: version, log: log, now: time.Now, patience: speedsPatience}
}

// PluginInfo says what it is.
func (s *server) PluginInfo(context.Context, *wire.PluginInfoRequest) (*wire.PluginInfoResponse, error) {
	return &wire.PluginInfoResponse{Type: wire.PluginType_DEVICE, PluginApiVersions: []string{apiVersion},
		PluginVersion: s.version, Name: Name}, nil
}

// ConfigSchema takes values of any type: where one does not fit, SetConfig says so, and Nomad starts.
func (s *server) ConfigSchema(context.Context, *wire.ConfigSchemaRequest) (*wire.ConfigSchemaResponse, error) {
	agent := &wire.Spec{Block: &wire.Spec_Attr{Attr: &wire.Attr{Name: agentKey, Type: "any"}}}
	return &wire.ConfigSchemaResponse{Spec: &wire.Spec{Block: &wire.Spec_Object{
		Object: &wire.Object{Attributes: map[string]*wire.Spec{agentKey: agent}}}}}, nil
}

// SetConfig takes the configuration. It never fails; a wrong one is logged, and there are no devices then.
func (s *server) SetConfig(_ context.Context, r *wire.SetConfigRequest) (*wire.SetConfigResponse, error) {
	var n *node
	socket, err := parseConfig(r.GetMsgpackConfig())
	if err == nil {
		n, err = newNode(socket, s.log)
	}
	if err != nil {
		s.log.Error("there are no devices, since the configuration of the plugin is wrong", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		s.node.close()
	}
	s.node = n
	return new(wire.SetConfigResponse), nil
}

// current is the node that is configured, or nil.
func (s *server) current() *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}
