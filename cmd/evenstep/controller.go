package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/nomad"
)

// controllerFlags are what the administrator said, the same for the controller of each scheduler.
type controllerFlags struct {
	once, dryRun        bool
	interval, holdLimit time.Duration
	rates               ratesFlags
}

// add adds the flags; limit says what the hold limit is to this scheduler.
func (f *controllerFlags) add(cmd *cobra.Command, limit string) {
	flags := cmd.Flags()
	flags.BoolVar(&f.once, "once", false, "one round, then end")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the updates instead of sending them")
	flags.DurationVar(&f.interval, "interval", 5*time.Second, "time between two rounds")
	flags.DurationVar(&f.holdLimit, "hold-limit", defaultHoldLimit, limit)
	f.rates.add(cmd)
}

func (f *controllerFlags) check() error {
	if err := f.rates.check(); err != nil {
		return err
	}
	switch {
	case f.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval: %v is below 100ms", f.interval)
	case f.holdLimit < 4*f.interval:
		return fmt.Errorf("--hold-limit: %v is below 4 intervals of %v, in which jobs would be let go", f.holdLimit, f.interval)
	}
	return checkHoldLimit(f.holdLimit)
}

func checkHoldLimit(limit time.Duration) error {
	if limit < time.Second || limit > 24*time.Hour {
		return fmt.Errorf("--hold-limit: %v is not in 1s ... 24h", limit)
	}
	return nil
}

// defaultHoldLimit is how long a job may wait that nobody attends to.
const defaultHoldLimit = 5 * time.Minute

// steered is a scheduler that a controller steers.
type steered interface {
	reconcile.Scheduler
	// sends fills in what an update of a job in the last snapshot would send.
	sends(ctx context.Context, u reconcile.Update, to *dryUpdate) error
}

// run makes rounds until ctx ends, one at each tick, or but one.
func (f *controllerFlags) run(ctx context.Context, scheduler steered, log hclog.Logger, tick <-chan time.Time, out io.Writer) error {
	rates, done, err := f.rates.open()
	if err != nil {
		return badInput(err)
	}
	defer done()
	loop := &reconcile.Loop{
		Scheduler: scheduler,
		Planner:   reconcile.Planner{Place: placement.Place, Profiles: rates, HoldLimit: f.holdLimit},
		Log:       log,
	}
	if !f.dryRun && !f.once {
		loop.Run(ctx, tick)
		return nil
	}
	for {
		err := error(nil)
		if f.dryRun {
			err = dryRun(ctx, loop, scheduler, out)
		} else {
			err = loop.Round(ctx)
		}
		if err != nil {
			return unreachable(err)
		}
		if f.once {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// controllerLog is where a controller says what it does.
func controllerLog() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "evenstep", Output: os.Stderr})
}

// dryUpdate is an update as --dry-run prints it.
type dryUpdate struct {
	Job        string          `json:"job"`
	Update     string          `json:"update"`
	Nodes      []string        `json:"nodes,omitzero"`
	BatchSizes []int           `json:"batch_sizes,omitzero"`
	JCTSeconds float64         `json:"jct_seconds,omitzero"`
	Why        string          `json:"why"`
	Scontrol   []string        `json:"scontrol,omitzero"` // what scontrol would be called with
	Requests   []nomad.Request `json:"requests,omitzero"` // what Nomad would be sent
}

func dryRun(ctx context.Context, loop *reconcile.Loop, scheduler steered, out io.Writer) error {
	snapshot, err := scheduler.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, u := range loop.Updates(snapshot) {
		dry := dryUpdate{Job: u.Job, Update: string(u.Kind), BatchSizes: u.BatchSizes, JCTSeconds: u.Seconds, Why: u.Why}
		for _, s := range u.Shares {
			dry.Nodes = append(dry.Nodes, s.Node)
		}
		if err := scheduler.sends(ctx, u, &dry); err != nil {
			return err
		}
		if err := writeJSON(out, dry); err != nil {
			return err
		}
	}
	return nil
}
