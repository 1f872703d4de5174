package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/scheduler"
)

// schedulerFlags are what the administrator said, for a scheduler that a plugin knows.
type schedulerFlags struct {
	controllerFlags
	scheduler, plugins string
}

func newControllerCommand() *cobra.Command {
	var f schedulerFlags
	cmd := &cobra.Command{
		Use:   "controller --scheduler NAME",
		Short: "Give the jobs that wait the nodes of one plan, in a scheduler that a plugin knows",
		Long: `Controller does for any batch scheduler what evenstep slurm controller does for Slurm: it looks at what is there and what
waits, places all waiting jobs together that ask for it, and starts each on its nodes. A plugin, evenstep-scheduler-NAME in
the plugin folder, looks and starts; docs/plugins.md says how to write one.

A job that the plan lets wait has a lease, which the controller renews; with the controller or the plugin gone the
scheduler starts the job by itself. What cannot be steered is left to the scheduler, with the reason in the log.

--dry-run prints the updates that it would send, one JSON object a line, and sends none.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return badInput(err)
			}
			ctx, stop := untilTold(false)
			defer stop()
			return steerPlugin(ctx, &f, cmd.OutOrStdout())
		},
	}
	f.add(cmd, "how long a lease lasts: after so long the scheduler starts the job by itself")
	cmd.Flags().StringVar(&f.scheduler, "scheduler", "", "`NAME` of the plugin")
	addPluginDir(cmd, &f.plugins)
	return cmd
}

func (f *schedulerFlags) check() error {
	if f.scheduler == "" {
		return errors.New("--scheduler: missing; give the name of a plugin, or use evenstep slurm controller")
	}
	return f.controllerFlags.check()
}

func steerPlugin(ctx context.Context, f *schedulerFlags, out io.Writer) error {
	log := controllerLog()
	plugins, err := openPlugins(f.plugins, log)
	if err != nil {
		return err
	}
	defer plugins.Close()
	p, err := schedulerNamed(plugins, f.scheduler)
	if err != nil {
		return badInput(fmt.Errorf("--scheduler: %w", err))
	}
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	return f.run(ctx, steeredPlugin{scheduler.New(p)}, log, tick.C, out)
}

// schedulerNamed is the plugin of that name, which may be asked.
func schedulerNamed(plugins *plugin.Folder, name string) (*plugin.External, error) {
	i := slices.IndexFunc(plugins.Plugins, func(p *plugin.External) bool { return p.Kind == plugin.Scheduler && p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no evenstep-scheduler-%s in %s", name, cmp.Or(plugins.Path, "any folder"))
	}
	return plugins.Plugins[i], plugins.Plugins[i].Refused
}

// steeredPlugin sends what an update says.
type steeredPlugin struct{ reconcile.Scheduler }

func (steeredPlugin) sends(context.Context, reconcile.Update, *dryUpdate) error { return nil }
