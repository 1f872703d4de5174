package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/evenstep/evenstep/agent"
	"github.com/evenstep/evenstep/core/identity"
	"github.com/evenstep/evenstep/plugin/devices"
	"github.com/evenstep/evenstep/plugin/devices/cpu"
)

const (
	// maxStatusBytes holds what the core shows of the largest job, a 4 MiB open and what its workers reported.
	maxStatusBytes = 8 << 20
	// What an agent takes from the core before it is read: of each stream, and of all while it is on its way.
	streamWindowBytes = 64 << 10
	connWindowBytes   = 1 << 20
)

// agentFlags are what the user said.
type agentFlags struct {
	listen, plugins, core string
	tls                   identity.Files
	private               bool
}

func newAgentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Sample this node's devices for the workers on it, and connect them to a shared core",
		Long: `Agent runs once per node. It samples the devices, as evenstep devices shows them, every second, and serves them to
the node's workers, who pass them on to the core: with them it explains why a worker is slow.

It prints "listening ADDRESS" when it is ready. Everybody who can enter the socket's folder may ask it; devices are no
secret. With --core it passes on what workers, and evenstep status, say to the core, over mutual TLS with the node's
certificate: all users of the node may connect then, and the core learns from the agent who each of them is, as the kernel
says. Workers name the socket as their core: core=unix:PATH, or EVENSTEP_ADDR. docs/core.md says how to install it.

Torchrun's extension looks for it at /run/evenstep/agent.sock and at $XDG_RUNTIME_DIR/evenstep/agent.sock, and
starts one of its own where there is none. SIGTERM and SIGINT end it.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilTold(f.private)
			defer stop()
			return runAgent(ctx, f, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "",
		"`ADDRESS`: unix:PATH (default unix:$XDG_RUNTIME_DIR/evenstep/agent.sock)")
	flags.StringVar(&f.core, "core", "", "`ADDRESS` of the core to connect workers to: tcp:HOST:PORT")
	addTLS(cmd, &f.tls, "this node", "the core's certificate")
	flags.BoolVar(&f.private, "private", false,
		"belong to the process at the other end of stdin: end with it, and remove the folder of the socket")
	_ = flags.MarkHidden("private")
	addPluginDir(cmd, &f.plugins)
	return cmd
}

// runAgent samples and serves until ctx ends, which is success.
func runAgent(ctx context.Context, f agentFlags, out io.Writer) error {
	a, err := f.address()
	if err != nil {
		return badInput(err)
	}
	core, err := f.dial()
	if err != nil {
		return badInput(err)
	}
	if f.private {
		defer removeFolders([]address{a})
	}
	log := newLog()
	watchCertificate(ctx, f.tls, log)
	plugins, err := openPlugins(f.plugins, log)
	if err != nil {
		return err
	}
	defer plugins.Close()
	if core != nil {
		defer core.Close()
		if err := openFolder(filepath.Dir(a.where)); err != nil {
			return badInput(err)
		}
	}
	mode := forAll
	if f.private {
		mode = forOwner
	}
	l, err := listenUnix(ctx, a.where, mode)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	defer l.Close()
	sampler := agent.NewSampler(devices.NewNode(cpu.New(), plugins, log))
	go sampler.Run(ctx)
	server := agent.NewServer(version, sampler)
	if core != nil {
		server = agent.NewForwardingServer(version, sampler, core)
	}
	defer server.Stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	if _, err := fmt.Fprintln(out, "listening", a); err != nil && !f.private {
		return fmt.Errorf("stdout: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func (f *agentFlags) address() (address, error) {
	if f.listen == "" {
		folder := os.Getenv("XDG_RUNTIME_DIR")
		if folder == "" {
			return address{}, errors.New("--listen: missing, and XDG_RUNTIME_DIR is not set; give unix:PATH")
		}
		f.listen = "unix:" + filepath.Join(folder, "evenstep", "agent.sock")
	}
	a, err := parseAddress(f.listen)
	if err == nil && a.network != "unix" {
		err = fmt.Errorf("--listen: %s is not on this node alone; give unix:PATH", a)
	}
	return a, err
}

// dial prepares the connection to the core, which is made when the first worker needs it; nil where there is none.
func (f *agentFlags) dial() (*grpc.ClientConn, error) {
	switch {
	case f.core == "" && f.tls.Given():
		return nil, errors.New("--core: missing, and --tls-cert, --tls-key and --tls-ca are for it; give tcp:HOST:PORT")
	case f.core == "":
		return nil, nil
	case f.private:
		return nil, errors.New("--private: contradicts --core; an agent that connects to a core is for all users")
	}
	a, err := parseAddressOf("--core", f.core)
	if err == nil && a.network != "tcp" {
		err = fmt.Errorf("--core: %s is not a shared core's; give tcp:HOST:PORT", a)
	}
	if err != nil {
		return nil, err
	}
	config, err := f.tls.Client()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("dns:"+a.where, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxStatusBytes)),
		// What users do not read does not pile up here.
		grpc.WithStaticStreamWindowSize(streamWindowBytes), grpc.WithStaticConnWindowSize(connWindowBytes),
		// It notices a core that is gone without a word, and one that is back, soon.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second, Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 5 * time.Second}}))
}

// openFolder makes the folder of a socket for all users, if it is missing. In one that others may write to, they could put
// a socket of theirs in the place.
func openFolder(folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	// Not to be read by others: who can read a folder can lock it.
	switch err := os.Mkdir(folder, 0o711); {
	case err == nil:
		return os.Chmod(folder, 0o711) // whatever the umask
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("--listen: %w", err)
	}
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	by := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case by != 0 && int(by) != os.Geteuid():
		return fmt.Errorf("--listen: %s belongs to user %d, who could replace the socket; give a path in a folder of root's",
			folder, by)
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("--listen: others may write to %s and replace the socket; chmod go-w", folder)
	case info.Mode()&0o011 != 0o011:
		return fmt.Errorf("--listen: users cannot enter %s; chmod 711", folder)
	}
	return nil
}
