package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/slurm"
)

func newSlurmControllerCommand() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Give the jobs that wait the nodes of one plan",
		Long: `Controller looks at Slurm's queue and nodes, places all waiting jobs together that ask for it in their comment, and
starts each on its nodes by one update that names the nodes, their count and the start. It runs as an operator of Slurm's,
not as root, and keeps nothing of its own: it may be killed at any moment and run anywhere.

A job that the plan lets wait has a begin time that the controller moves on, always less than the hold limit ahead; with
the controller gone Slurm starts it by itself. What cannot be steered is left to Slurm, with the reason in the log.

--dry-run prints the updates that it would send, one JSON object a line, and sends none.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return badInput(err)
			}
			ctx, stop := untilTold(false)
			defer stop()
			return steerSlurm(ctx, &f, cmd.OutOrStdout())
		},
	}
	f.add(cmd, "how far ahead to move the begin time of a job that waits")
	return cmd
}

func steerSlurm(ctx context.Context, f *controllerFlags, out io.Writer) error {
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	return f.run(ctx, steeredSlurm{&slurm.Scheduler{HoldLimit: f.holdLimit}}, controllerLog(), tick.C, out)
}

// steeredSlurm says what an update would send, too.
type steeredSlurm struct{ *slurm.Scheduler }

func (s steeredSlurm) sends(_ context.Context, u reconcile.Update, to *dryUpdate) (err error) {
	to.Scontrol, err = s.Arguments(u)
	return err
}

func slurmJobs(ctx context.Context) (jobs []jobStatus, err error) {
	snapshot, err := new(slurm.Scheduler).Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range snapshot.Jobs {
		jobs = append(jobs, statusOf(j))
	}
	return jobs, nil
}
