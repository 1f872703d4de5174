package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/nomad"
)

func newNomadControllerCommand() *cobra.Command {
	var f controllerFlags
	var o nomad.Options
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Give the jobs that wait the nodes of one plan",
		Long: `Controller looks at Nomad's jobs, nodes and allocations, places all waiting jobs together that ask for it in their meta,
and registers each anew with a constraint that names its nodes. It keeps nothing of its own: it may be killed at any
moment and run anywhere, as a job of Nomad's too. Of several only one steers, the others stand by.

What cannot be steered is left to Nomad, with the reason in the log, in evenstep nomad status and in the Variable
nomad/jobs/JOB. So are, at the start, jobs that were held for longer than the hold limit while no controller ran.

--dry-run prints the updates that it would send, one JSON object a line, and sends none.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return badInput(err)
			}
			if o.Core != "" && !strings.HasPrefix(o.Core, "unix:/") {
				return badInput(fmt.Errorf("--task-core: %q is not unix:/PATH", o.Core))
			}
			ctx, stop := untilTold(false)
			defer stop()
			return steerNomad(ctx, &f, o, cmd.OutOrStdout())
		},
	}
	f.add(cmd, "how long jobs wait at most while no controller runs")
	cmd.Flags().StringVar(&o.Core, "task-core", "",
		"`ADDRESS` at which tasks find the core or their node's agent (unix:/PATH); without, each torchrun starts its own core")
	return cmd
}

func steerNomad(ctx context.Context, f *controllerFlags, o nomad.Options, out io.Writer) error {
	o.HoldLimit, o.Steer, o.LeaseTime = f.holdLimit, !f.dryRun, max(leastLease, 3*f.interval)
	scheduler, err := nomad.New(o)
	if err != nil {
		return badInput(err)
	}
	log := controllerLog()
	if narrow := scheduler.Narrow(ctx); narrow != "" {
		log.Warn(narrow)
	}
	var tick <-chan time.Time
	if !f.once {
		tick = scheduler.Watch(ctx, f.interval, log)
	}
	err = f.run(ctx, steeredNomad{scheduler}, log, tick, out)
	closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if closed := scheduler.Close(closing); err == nil && closed != nil {
		log.Warn("the lease was not given back; the next controller waits for its end", "error", closed)
	}
	if errors.Is(err, nomad.ErrHeld) {
		return unreachable(err)
	}
	return err
}

// leastLease is how long a controller may be silent before another takes its place.
const leastLease = 30 * time.Second

// steeredNomad says what an update would send, too.
type steeredNomad struct{ *nomad.Scheduler }

func (s steeredNomad) sends(ctx context.Context, u reconcile.Update, to *dryUpdate) (err error) {
	to.Requests, err = s.Requests(ctx, u)
	return err
}
