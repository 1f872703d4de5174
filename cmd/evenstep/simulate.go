package main

import "github.com/spf13/cobra"

func newSimulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Replay what was recorded under policies of choice",
	}
	needsCommand(cmd)
	cmd.AddCommand(newSimulateStepsCommand(), newSimulateClusterCommand())
	return cmd
}
