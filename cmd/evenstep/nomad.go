package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/nomad"
)

func newNomadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nomad",
		Short: "Steer Nomad's jobs that ask for it in their meta",
		Long: `Nomad's jobs that ask for it are placed together, and their tasks told how many samples to take.

A user adds one line to the job's specification, and submits it by evenstep nomad run:

  meta { evenstep = "workload=resnet50-amp global_batch=1024 samples=90e6" }

An administrator runs evenstep nomad controller: see docs/nomad.md. Jobs without it are never touched, but
for those that are held all the same, which nobody else would let go.

Where Nomad is, and with which token, is said as for Nomad's own commands: NOMAD_ADDR, NOMAD_NAMESPACE (* for all),
NOMAD_REGION, NOMAD_TOKEN, NOMAD_CACERT, NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY, and the others.`,
	}
	needsCommand(cmd)
	release := newReleaseCommand("Nomad", releaseNomad, nomad.ErrNotWaiting)
	release.Long = release.Short + ", for good.\n\n" +
		"With NOMAD_NAMESPACE=* a job is named NAMESPACE/JOB, as evenstep nomad status does."
	cmd.AddCommand(newNomadControllerCommand(), newNomadRunCommand(), release, newJobsCommand(nomadJobs),
		newCheckCommand(nomad.Check))
	return cmd
}

func newNomadRunCommand() *cobra.Command {
	holdLimit := defaultHoldLimit
	cmd := &cobra.Command{
		Use:   "run [SPEC]",
		Short: "Register a job so that it waits for its plan",
		Long: `Run registers a job with a constraint that no node satisfies, until the controller gives it its nodes. It prints the
job's id. The specification is in HCL, which Nomad itself parses, or in JSON as nomad job run -output prints it: that
way for one with variables or files of its own.

A job that has allocations is left alone: held, it would wait for their end.

Nomad has nothing that would start a job that waits by itself. Where no controller runs, run says so, and lets those jobs
go that were held for longer than the hold limit meanwhile.`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkHoldLimit(holdLimit); err != nil {
				return badInput(err)
			}
			text, err := readText(args, cmd.InOrStdin())
			if err != nil {
				return badInput(err)
			}
			return runOnNomad(cmd, text, nomad.Options{HoldLimit: holdLimit})
		},
	}
	cmd.Flags().DurationVar(&holdLimit, "hold-limit", holdLimit, "how long jobs wait at most while no controller runs")
	return cmd
}

// runOnNomad registers a specification.
func runOnNomad(cmd *cobra.Command, text []byte, o nomad.Options) error {
	ctx := cmd.Context()
	scheduler, err := nomad.New(o)
	if err != nil {
		return badInput(err)
	}
	spec, err := scheduler.Prepare(ctx, text)
	var bad *nomad.SpecError
	if errors.As(err, &bad) {
		return badInput(err)
	}
	if err != nil {
		return unreachable(err)
	}
	name, err := scheduler.Submit(ctx, spec)
	if errors.Is(err, nomad.ErrRuns) {
		return infeasible(err)
	}
	if err != nil {
		return unreachable(err)
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), name); err != nil {
		return err
	}
	released, err := scheduler.ReleaseAbandoned(ctx)
	for _, job := range released {
		fmt.Fprintf(cmd.ErrOrStderr(), "evenstep nomad run: let go of job %s: it was held while no controller ran\n", job)
	}
	// What was registered is a success, whatever became of the rest.
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "evenstep nomad run: job %s is registered; "+
			"jobs that nobody attends to could not be let go: %s\n", name, oneLine(err.Error()))
	}
	if scheduler.Unattended() {
		fmt.Fprintf(cmd.ErrOrStderr(), "evenstep nomad run: no controller runs: job %s waits for one, or for evenstep nomad release %s\n",
			name, name)
	}
	return nil
}

func releaseNomad(ctx context.Context, job string) ([]string, error) {
	scheduler, err := nomad.New(nomad.Options{HoldLimit: defaultHoldLimit})
	if err != nil {
		return nil, err
	}
	return scheduler.Release(ctx, job)
}

func nomadJobs(ctx context.Context) (jobs []jobStatus, err error) {
	scheduler, err := nomad.New(nomad.Options{HoldLimit: defaultHoldLimit})
	if err != nil {
		return nil, err
	}
	snapshot, err := scheduler.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range snapshot.Jobs {
		s := statusOf(j)
		if s.State == "waiting" {
			s.StartsSeconds, s.Why = 0, "for its plan"
			if scheduler.Unattended() {
				s.Why += "; no controller runs"
			}
		}
		if nodes := scheduler.Nodes(j.ID); len(nodes) > 0 {
			s.Nodes = nodes
		}
		if needs := scheduler.Lacks(&j); needs != "" {
			s.State, s.Why = "short", needs
		}
		if why := scheduler.WhyReleased(ctx, j.ID); why != "" {
			s.Why = why
		}
		jobs = append(jobs, s)
	}
	return jobs, nil
}
