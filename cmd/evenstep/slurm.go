package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/slurm"
)

func newSlurmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slurm",
		Short: "Steer Slurm's jobs that ask for it in their comment",
		Long: `Slurm places the jobs together whose comment asks for it, and tells their tasks how many samples to take.

A user adds one line to the batch script:

  #SBATCH --comment="evenstep workload=resnet50-amp global_batch=1024 samples=90e6"

An administrator installs three scripts and one service: see docs/slurm.md. Jobs without the comment are never touched.`,
	}
	needsCommand(cmd)
	cmd.AddCommand(newSlurmControllerCommand(), newSlurmSubmitCommand(),
		newReleaseCommand("Slurm", releaseSlurm, slurm.ErrNotWaiting), newJobsCommand(slurmJobs), newCheckCommand(slurm.Check))
	cmd.AddCommand(newSlurmHookCommands()...)
	return cmd
}

func newSlurmSubmitCommand() *cobra.Command {
	var holdLimit time.Duration
	cmd := &cobra.Command{
		Use:   "submit [--hold-limit 5m] SCRIPT [sbatch arguments]",
		Short: "Submit a batch script so that it waits for its plan",
		Long: `Submit calls sbatch with a begin time that is the hold limit ahead: until then the controller gives the job its
nodes, and if it does not, Slurm starts the job by itself. It prints the job's id.

It is not needed where the administrator installed job_submit.lua. The script, or an argument, has to have a comment that
asks for Evenstep; a begin time of the user's own is refused.`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkHoldLimit(holdLimit); err != nil {
				return badInput(err)
			}
			script, err := slurm.Prepare(args[0], args[1:], holdLimit)
			if err != nil {
				return badInput(err)
			}
			id, err := script.Submit(cmd.Context())
			if err != nil {
				return unreachable(err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		},
	}
	// What follows the script is sbatch's.
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().DurationVar(&holdLimit, "hold-limit", defaultHoldLimit, "after so long Slurm starts the job by itself")
	return cmd
}

func releaseSlurm(ctx context.Context, job string) ([]string, error) {
	return new(slurm.Scheduler).Release(ctx, job)
}
