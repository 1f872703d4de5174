package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// statusTimeout bounds the wait for one answer of the core.
const statusTimeout = 10 * time.Second

// statusFlags are what the user said.
type statusFlags struct {
	coreFlags
	output string
	watch  time.Duration // between two looks; 0 for one look
}

func newStatusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the jobs of a core: workers, batch sizes, why, and who waits",
		Long: `Status shows what a core knows of its jobs: the batch sizes in force and why, what the newest step cost each worker, what
share of it was wait, and which workers a job waits for.

The core is --core, else EVENSTEP_ADDR, else one that serves this user, else that of the node's agent. Through an agent
each user sees their own jobs; root, a controller's certificate, and whoever runs the core, see all.

--watch looks again and again, in place in a terminal, one JSON object a line with --output json, until SIGINT or
SIGTERM; a core that goes away is waited for.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("watch") && f.watch <= 0:
				return badInput(fmt.Errorf("--watch: %v is not a time > 0; give one like 2s", f.watch))
			case f.output != "text" && f.output != "json":
				return badInput(fmt.Errorf("--output: unknown form %q; give text or json", f.output))
			}
			ctx, stop := untilTold(false)
			defer stop()
			return showStatus(ctx, f, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	f.add(cmd)
	flags.DurationVar(&f.watch, "watch", 0, "look again every `TIME`")
	flags.Lookup("watch").NoOptDefVal = "2s"
	flags.StringVar(&f.output, "output", "text", "text or json")
	return cmd
}

// showStatus shows the jobs once, or until ctx ends, which is success.
func showStatus(ctx context.Context, f statusFlags, out io.Writer) error {
	a, err := f.address()
	if err != nil {
		return badInput(err)
	}
	conn, err := f.dial(a)
	if err != nil {
		return badInput(err)
	}
	defer conn.Close()
	shown := false
	for {
		r, err := askStatus(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !shown:
			return unreachable(fmt.Errorf("%s: %w", a, err))
		case err != nil:
			fmt.Fprintf(os.Stderr, "evenstep status: %s: %s\n", a, oneLine(err.Error()))
		default:
			r.Core = a.String()
			if err := showReport(r, f.output, f.watch > 0, !shown, out); err != nil {
				return fmt.Errorf("stdout: %w", err)
			}
			shown = true
		}
		if f.watch == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.watch):
		}
	}
}

// askStatus asks the core for all that it shows.
func askStatus(ctx context.Context, conn *grpc.ClientConn) (statusReport, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	r := statusReport{Jobs: []jobReport{}}
	s, err := evenstepv1.NewJobsClient(conn).List(ctx, &evenstepv1.ListRequest{})
	if err != nil {
		return r, asked(err)
	}
	for {
		j, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return r, asked(err)
		}
		r.Jobs = append(r.Jobs, newJobReport(j))
	}
}

// asked says why the core did not answer.
func asked(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return errors.New("it does not know this call; it is an agent without a core, or older than this evenstep")
	}
	return errors.New(cmp.Or(status.Convert(err).Message(), err.Error()))
}
