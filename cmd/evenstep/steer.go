package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/reconcile"
)

// What the commands for each scheduler have in common, beside the controller.

// jobStatus is a job as status shows it.
type jobStatus struct {
	Job   string   `json:"job"`
	State string   `json:"state"`
	Nodes []string `json:"nodes,omitzero"`
	// StartsSeconds is when the scheduler starts a job that waits by itself, from now, where it does.
	StartsSeconds float64 `json:"starts_by_itself_seconds,omitzero"`
	Why           string  `json:"why,omitzero"`
}

// newJobsCommand is the status command of a scheduler.
func newJobsCommand(jobs func(context.Context) ([]jobStatus, error)) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the jobs that ask for Evenstep: which wait, where they were put, which are not steered and why",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return badInput(err)
			}
			jobs, err := jobs(cmd.Context())
			if err != nil {
				return unreachable(err)
			}
			if output == "json" {
				return writeJSON(cmd.OutOrStdout(), append([]jobStatus{}, jobs...))
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

// newReleaseCommand is the release command of a scheduler. release takes a job, or all where it is empty, and says which
// were let go; its error is notWaiting where the job does not wait.
func newReleaseCommand(scheduler string, release func(ctx context.Context, job string) ([]string, error), notWaiting error) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "release JOB|--all",
		Short: "Leave jobs that wait for their plan to " + scheduler + "'s own placement",
		Args:  arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == all {
				return badInput(errors.New("give a job's id or --all"))
			}
			id := ""
			if !all {
				id = args[0]
			}
			released, err := release(cmd.Context(), id)
			for _, job := range released {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), job); err != nil {
					return err
				}
			}
			if errors.Is(err, notWaiting) {
				return infeasible(err)
			}
			if err != nil {
				return unreachable(err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all jobs that wait")
	return cmd
}

// newCheckCommand is the check command of a scheduler.
func newCheckCommand[Finding ~string](check func(context.Context) []Finding) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what is not right with the installation: one line a finding, exit 1 when there are any",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return badInput(err)
			}
			found := check(cmd.Context())
			if output == "json" {
				if err := writeJSON(cmd.OutOrStdout(), append([]Finding{}, found...)); err != nil {
					return err
				}
			} else {
				for _, f := range found {
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), oneLine(string(f))); err != nil {
						return err
					}
				}
			}
			if len(found) > 0 {
				return fmt.Errorf("findings: %d", len(found))
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	return cmd
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
