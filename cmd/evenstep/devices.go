package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/plugin/devices"
	"github.com/evenstep/evenstep/plugin/devices/cpu"
)

// devicesFlags are what the user said.
type devicesFlags struct {
	watch   time.Duration // between two looks; 0 for one look
	output  string
	plugins string
}

func newDevicesCommand() *cobra.Command {
	var f devicesFlags
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show the devices of this node, how fast they may run and why they are slow",
		Long: `Devices shows what a worker could train on here: what the plugins of kind devices find, and the CPUs and the memory
that this process may use.

What is not known is left out. A note says why something is missing. --watch looks again and again, in place in a
terminal, one JSON object a line with --output json, until SIGINT or SIGTERM.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("watch") && f.watch <= 0:
				return badInput(fmt.Errorf("--watch: %v is not a time > 0; give one like 2s", f.watch))
			case f.output != "text" && f.output != "json":
				return badInput(fmt.Errorf("--output: unknown form %q; give text or json", f.output))
			}
			ctx, stop := untilTold(false)
			defer stop()
			return showDevices(ctx, f, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.watch, "watch", 0, "look again every `TIME`")
	flags.Lookup("watch").NoOptDefVal = "2s"
	flags.StringVar(&f.output, "output", "text", "text or json")
	addPluginDir(cmd, &f.plugins)
	return cmd
}

// showDevices shows the devices once, or until ctx ends, which is success.
func showDevices(ctx context.Context, f devicesFlags, out io.Writer) error {
	node, err := os.Hostname()
	if err != nil {
		return err
	}
	plugins, err := openPlugins(f.plugins, newLog())
	if err != nil {
		return err
	}
	defer plugins.Close()
	prober := devices.NewNode(cpu.New(), plugins, hclog.NewNullLogger()) // notes say it
	for first := true; ; first = false {
		r, err := prober.Probe(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := showReport(nodeReport{node, r.Devices, r.Notes}, f.output, f.watch > 0, first, out); err != nil {
			return fmt.Errorf("stdout: %w", err)
		}
		if f.watch == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.watch):
		}
	}
}

// nodeReport is the JSON that devices writes.
type nodeReport struct {
	Node    string           `json:"node"`
	Devices []devices.Device `json:"devices"`
	Notes   []string         `json:"notes"`
}
