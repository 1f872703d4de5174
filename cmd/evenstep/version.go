package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// version is that of the Python package too, which a test compares.
const version = "0.1.0"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "evenstep", version)
			return err
		},
	}
}
