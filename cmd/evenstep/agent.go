package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/agent"
	"github.com/evenstep/evenstep/plugin/devices"
	"github.com/evenstep/evenstep/plugin/devices/cpu"
)

// agentFlags are what the user said.
type agentFlags struct {
	listen, plugins string
	private         bool
}

func newAgentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Sample this node's devices for the workers on it",
		Long: `Agent runs once per node. It samples the devices, as evenstep devices shows them, every second, and serves them to
the node's workers, who pass them on to the core: with them it explains why a worker is slow.

It prints "listening ADDRESS" when it is ready. Everybody who can enter the socket's folder may ask it; devices are no
secret. Torchrun's extension looks for it at /run/evenstep/agent.sock and at $XDG_RUNTIME_DIR/evenstep/agent.sock, and
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
	if f.private {
		defer removeFolders([]address{a})
	}
	plugins, err := openPlugins(f.plugins, newLog())
	if err != nil {
		return err
	}
	defer plugins.Close()
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
	sampler := agent.NewSampler(devices.NewNode(cpu.New(), plugins))
	go sampler.Run(ctx)
	server := agent.NewServer(version, sampler)
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
