// Command evenstep removes the wait for the slowest worker from distributed training: it sizes batches inside a job and
// places jobs on devices. One small file per command; what the commands do lives in core.
package main

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

// run is main with the exit code as its result. An error is one line on stderr.
func run() int {
	cmd, err := newRootCommand().ExecuteC()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.CommandPath(), oneLine(err.Error()))
	}
	return exitCode(err)
}

// oneLine makes a message fit for a line of a terminal, whatever the input that it quotes.
func oneLine(message string) string {
	const most = 500
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, message)
	if len(printable) > most {
		return strings.ToValidUTF8(printable[:most], "") + "..."
	}
	return printable
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "evenstep",
		Short: "Even steps for distributed training on uneven GPUs",
		Long: `Evenstep removes the wait for the slowest worker from distributed training.

Results go to stdout, messages to stderr. Exit codes: 0 done, 1 our own failure, 2 bad flag or input, 3 valid but
infeasible, 4 peer unreachable, refused or resource held by another, 128+n killed by signal n.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	needsCommand(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput(err) })
	root.AddCommand(newSizeCommand(), newPlaceCommand(), newSimulateCommand(), newServeCommand(), newAgentCommand(),
		newDevicesCommand(), newPluginsCommand(), newProfilesCommand(), newStatusCommand(),
		newSlurmCommand(), newNomadCommand(), newControllerCommand(), newTLSCommand(), newVersionCommand())
	tightenDefaults(root)
	return root
}

// needsCommand makes a command that only groups others show its help, and refuse a word that is none of them.
func needsCommand(group *cobra.Command) {
	group.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return badInput(fmt.Errorf("unknown command %q; %s --help lists them", args[0], group.CommandPath()))
		}
		return nil
	}
	group.RunE = func(*cobra.Command, []string) error { return group.Help() }
}

// tightenDefaults makes the commands that cobra adds refuse what they do not know; of themselves they exit 0.
func tightenDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				switch {
				case err != nil:
					return badInput(err)
				case len(rest) > 0:
					return badInput(fmt.Errorf("unknown command %q; %s --help lists them", rest[0], found.CommandPath()))
				}
				return nil
			}
		case "completion":
			needsCommand(c)
			for _, shell := range c.Commands() {
				shell.Args = arguments(shell.Args)
			}
		}
	}
}

// arguments makes a refusal of the positional arguments a bad input.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return badInput(err)
		}
		return nil
	}
}
