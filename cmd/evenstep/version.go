package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// version is set by releases: -ldflags "-X main.version=1.2.3".
var version = "0.1.0"

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
