package plugin

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Version is that of the contracts with plugins: evenstep and a plugin agree on it as the plugin starts.
const Version = 1

// handshake tells evenstep's plugins from other programs. It protects nothing.
var handshake = goplugin.HandshakeConfig{
	MagicCookieKey:   "EVENSTEP_PLUGIN",
	MagicCookieValue: "b1c6e2f0-4d6f-4f5c-9f0e-6e1d7c1a5b0e",
}

// Serve is what the main function of a plugin of the kind comes down to: it serves what register registers, and ends
// the process when evenstep does. In a process that evenstep has not started it says so and exits 1.
func Serve(kind Kind, register func(*grpc.Server)) {
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "%s is a plugin: evenstep starts it from the folder of --plugin-dir, "+
			"where it is called evenstep-%s-NAME; evenstep plugins lists what is there\n", os.Args[0], kind)
		os.Exit(1)
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{Version: {string(kind): &contract{register: register}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr}),
	})
}

// contract joins a kind's services to go-plugin: a plugin registers them, its host gets the connection to them.
type contract struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(*grpc.Server)
}

func (c *contract) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	c.register(s)
	return nil
}

func (*contract) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
