package main

import (
	"fmt"
	"io"
	"log/syslog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/slurm"
)

// hookTime is when a hook ends, whatever it was at: Slurm drains a node whose prolog takes its time.
const hookTime = 800 * time.Millisecond

// newSlurmHookCommands are what the scripts in slurm/scripts run. They exit 0 whatever happens, bad flags included.
func newSlurmHookCommands() []*cobra.Command {
	return []*cobra.Command{
		newSlurmHookCommand("prolog", "Keep the job's words for its tasks; run by Slurm's prolog",
			func(h slurm.Hooks, _ io.Writer) error { return h.Prolog() }),
		newSlurmHookCommand("epilog", "Remove what the prolog kept; run by Slurm's epilog",
			func(h slurm.Hooks, _ io.Writer) error { return h.Epilog() }),
		newSlurmHookCommand("task-prolog", "Tell a task its batch sizes; run by Slurm's task prolog", slurm.Hooks.TaskProlog),
	}
}

func newSlurmHookCommand(name, short string, run func(slurm.Hooks, io.Writer) error) *cobra.Command {
	hooks := slurm.Hooks{Env: os.Getenv}
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			time.AfterFunc(hookTime, func() { os.Exit(0) })
			defer func() {
				if p := recover(); p != nil {
					sayToSystem(name, fmt.Errorf("panic: %v", p))
				}
			}()
			if err := run(hooks, cmd.OutOrStdout()); err != nil {
				sayToSystem(name, err)
			}
		},
	}
	cmd.Flags().StringVar(&hooks.Folder, "folder", "/run/evenstep/jobs", "`FOLDER` of what is kept of jobs on this node")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		sayToSystem(name, err)
		return nil
	})
	return cmd
}

// sayToSystem says a failure to the system's log: nobody reads the stderr of a hook.
func sayToSystem(name string, err error) {
	message := "slurm " + name + ": " + oneLine(err.Error())
	fmt.Fprintln(os.Stderr, "evenstep "+message)
	if log, err := syslog.New(syslog.LOG_WARNING|syslog.LOG_DAEMON, "evenstep"); err == nil {
		_ = log.Warning(message)
		log.Close()
	}
}
