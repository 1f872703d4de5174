package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	nodeAgent = "/run/evenstep/agent.sock" // where an agent for all users of a node listens
	// statusTimeout bounds the wait for one answer of the core.
	statusTimeout = 10 * time.Second
	// maxStatusBytes bounds what the core says of one job.
	maxStatusBytes = 64 << 20
)

// statusFlags are what the user said.
type statusFlags struct {
	core, output string
	tls          identity.Files
	watch        time.Duration // between two looks; 0 for one look
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
	flags.StringVar(&f.core, "core", "", "`ADDRESS` of the core, or of an agent: unix:PATH or tcp:HOST:PORT")
	addTLS(cmd, &f.tls, "a controller", "the core's certificate")
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

// address is where the core is, or an agent that leads to it.
func (f *statusFlags) address() (address, error) {
	if f.core != "" {
		return parseAddressOf("--core", f.core)
	}
	if where := os.Getenv("EVENSTEP_ADDR"); where != "" {
		return parseAddressOf("EVENSTEP_ADDR", where)
	}
	if folder := os.Getenv("XDG_RUNTIME_DIR"); folder != "" {
		path := filepath.Join(folder, "evenstep", "core.sock")
		if _, err := os.Lstat(path); err == nil {
			return address{"unix", path}, nil
		}
	}
	if _, err := os.Lstat(nodeAgent); err == nil {
		return address{"unix", nodeAgent}, nil
	}
	return address{}, errors.New("--core: missing, and neither a core of yours nor this node's agent is there; " +
		"give unix:PATH or tcp:HOST:PORT")
}

// dial prepares the connection; TCP asks for certificates.
func (f *statusFlags) dial(a address) (*grpc.ClientConn, error) {
	target, creds := a.String(), insecure.NewCredentials()
	switch {
	case a.network == "tcp":
		config, err := f.tls.Client()
		if err != nil {
			return nil, err
		}
		target, creds = "dns:"+a.where, credentials.NewTLS(config)
	case f.tls.Given():
		return nil, fmt.Errorf("--tls-cert, --tls-key, --tls-ca: %s is no TCP address; leave them out", a)
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxStatusBytes)))
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
		return errors.New("it does not show jobs; it is an agent without a core, or older than this evenstep")
	}
	return errors.New(cmp.Or(status.Convert(err).Message(), err.Error()))
}
