package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/slurm"
)

// slurmControllerFlags are what the administrator said.
type slurmControllerFlags struct {
	once, dryRun        bool
	interval, holdLimit time.Duration
	rates               ratesFlags
}

func newSlurmControllerCommand() *cobra.Command {
	var f slurmControllerFlags
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
			return f.run(ctx, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.once, "once", false, "one round, then end")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the updates instead of sending them")
	flags.DurationVar(&f.interval, "interval", 5*time.Second, "time between two rounds")
	flags.DurationVar(&f.holdLimit, "hold-limit", 5*time.Minute, "how far ahead to move the begin time of a job that waits")
	f.rates.add(cmd)
	return cmd
}

func (f *slurmControllerFlags) check() error {
	if err := f.rates.check(); err != nil {
		return err
	}
	switch {
	case f.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval: %v is below 100ms", f.interval)
	case f.holdLimit < 4*f.interval:
		return fmt.Errorf("--hold-limit: %v is below 4 intervals of %v, in which a job would start by itself", f.holdLimit, f.interval)
	}
	return checkHoldLimit(f.holdLimit)
}

func (f *slurmControllerFlags) run(ctx context.Context, out io.Writer) error {
	rates, done, err := f.rates.open()
	if err != nil {
		return badInput(err)
	}
	defer done()
	scheduler := &slurm.Scheduler{HoldLimit: f.holdLimit}
	loop := &reconcile.Loop{
		Scheduler: scheduler,
		Planner:   reconcile.Planner{Place: placement.Place, Profiles: rates, HoldLimit: f.holdLimit},
		Log:       hclog.New(&hclog.LoggerOptions{Name: "evenstep", Output: os.Stderr}),
	}
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	switch {
	case f.dryRun:
		for {
			if err := dryRun(ctx, loop, scheduler, out); err != nil {
				return unreachable(err)
			}
			if f.once {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	case f.once:
		if err := loop.Round(ctx); err != nil {
			return unreachable(err)
		}
		return nil
	}
	loop.Run(ctx, tick.C)
	return nil
}

// dryUpdate is an update as --dry-run prints it.
type dryUpdate struct {
	Job        string   `json:"job"`
	Update     string   `json:"update"`
	Nodes      []string `json:"nodes,omitzero"`
	BatchSizes []int    `json:"batch_sizes,omitzero"`
	JCTSeconds float64  `json:"jct_seconds,omitzero"`
	Why        string   `json:"why"`
	Scontrol   []string `json:"scontrol"` // what scontrol would be called with
}

func dryRun(ctx context.Context, loop *reconcile.Loop, scheduler *slurm.Scheduler, out io.Writer) error {
	snapshot, err := scheduler.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, u := range loop.Updates(snapshot) {
		dry := dryUpdate{Job: u.Job, Update: string(u.Kind), BatchSizes: u.BatchSizes, JCTSeconds: u.Seconds, Why: u.Why}
		for _, s := range u.Shares {
			dry.Nodes = append(dry.Nodes, s.Node)
		}
		if dry.Scontrol, err = scheduler.Arguments(u); err != nil {
			return err
		}
		if err := writeJSON(out, dry); err != nil {
			return err
		}
	}
	return nil
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
