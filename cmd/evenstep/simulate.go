package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newSimulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Replay what was recorded under policies of choice",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badInput(fmt.Errorf("unknown command %q; evenstep simulate --help lists them", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimulateStepsCommand())
	return cmd
}
