package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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

// jobStatus is a job as status shows it.
type jobStatus struct {
	Job   string   `json:"job"`
	State string   `json:"state"`
	Nodes []string `json:"nodes,omitzero"`
	// StartsSeconds is when Slurm starts a job that waits by itself, from now.
	StartsSeconds float64 `json:"starts_by_itself_seconds,omitzero"`
	Why           string  `json:"why,omitzero"`
}

func newSlurmStatusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the jobs that ask for Evenstep: which wait, where they were put, which are not steered and why",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return badInput(err)
			}
			snapshot, err := new(slurm.Scheduler).Snapshot(cmd.Context())
			if err != nil {
				return unreachable(err)
			}
			jobs := []jobStatus{}
			for _, j := range snapshot.Jobs {
				jobs = append(jobs, statusOf(j))
			}
			if output == "json" {
				return writeJSON(cmd.OutOrStdout(), jobs)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "JOB\tSTATE\tNODES\tWHY")
			for _, j := range jobs {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", j.Job, j.State, strings.Join(j.Nodes, ","), oneLine(j.Why))
			}
			return table.Flush()
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func statusOf(j reconcile.Job) jobStatus {
	s := jobStatus{Job: j.ID, Why: j.Unsteerable}
	for _, share := range j.On {
		s.Nodes = append(s.Nodes, share.Node)
	}
	switch {
	case j.State == reconcile.Running:
		s.State = "running"
	case j.Unsteerable != "":
		s.State = "not steered"
	case j.State == reconcile.Named:
		s.State = "placed"
	case j.Held:
		s.State, s.StartsSeconds = "waiting", j.Lease.Seconds()
		s.Why = fmt.Sprintf("for its plan; starts by itself in %v", j.Lease.Round(time.Second))
	default:
		s.State = "queued"
		s.Why = "for the nodes that it asks for"
	}
	return s
}

// outputFlag is the --output of commands that list or report.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVar(output, "output", "text", "text or json")
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("--output: unknown output %q; give text or json", output)
	}
	return nil
}
