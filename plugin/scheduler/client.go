package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/plugin"
	schedulerv1 "github.com/evenstep/evenstep/plugin/scheduler/v1"
)

// answerTimeout is from a call to its answer; tests shorten it.
var answerTimeout = 30 * time.Second

// Describe asks a plugin for its version. It takes as long as a start and that answer may.
func Describe(p *plugin.External) (version string, err error) {
	conn, err := p.Conn()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), plugin.DescribeTimeout)
	defer cancel()
	r, err := schedulerv1.NewSchedulerClient(conn).Describe(ctx, &schedulerv1.DescribeRequest{})
	return plugin.VersionOf(r.GetVersion()), p.Fault(err)
}

// New returns the scheduler that the plugin stands for.
func New(p *plugin.External) reconcile.Scheduler { return &remote{p} }

type remote struct{ plugin *plugin.External }

// Snapshot asks the plugin, and refuses what cannot be.
func (r *remote) Snapshot(ctx context.Context) (s *reconcile.Snapshot, err error) {
	err = r.ask(ctx, func(ctx context.Context, c schedulerv1.SchedulerClient) error {
		response, err := c.Snapshot(ctx, &schedulerv1.SnapshotRequest{})
		if err != nil {
			return err
		}
		s, err = fromWire(response)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Apply has the plugin make an update.
func (r *remote) Apply(ctx context.Context, u reconcile.Update) error {
	return r.ask(ctx, func(ctx context.Context, c schedulerv1.SchedulerClient) error {
		_, err := c.Apply(ctx, updateTo(u))
		return err
	})
}

// ask makes a call of the plugin. One that does not answer in time is ended, and started again for a later call.
func (r *remote) ask(ctx context.Context, call func(context.Context, schedulerv1.SchedulerClient) error) error {
	conn, err := r.plugin.Conn()
	if err != nil {
		return r.named(err)
	}
	asked, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err = call(asked, schedulerv1.NewSchedulerClient(conn))
	_, answered := status.FromError(err)
	switch {
	case err == nil:
		return nil
	case !answered: // with what cannot be
		return r.named(errors.New(plugin.Line(err.Error())))
	case status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil:
		err := fmt.Errorf("no answer within %v", answerTimeout)
		r.plugin.Kill(err)
		return r.named(err)
	}
	return r.named(r.plugin.Fault(err))
}

func (r *remote) named(err error) error { return fmt.Errorf("scheduler %s: %w", r.plugin.Name, err) }
