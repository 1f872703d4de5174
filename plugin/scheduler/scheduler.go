// Package scheduler holds the plugins of kind scheduler: those that stand between evenstep and a batch scheduler.
//
// A Scheduler of package reconcile says what is there and what waits, and makes updates; Serve is for a plugin's main
// function, New for who asks it. A snapshot is checked as a whole: see reconcile.Snapshot.Check. With a plugin that dies,
// hangs or answers otherwise no job is steered, and those that wait start by themselves when their leases run out.
package scheduler

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/plugin"
	schedulerv1 "github.com/evenstep/evenstep/plugin/scheduler/v1"
)

// Serve makes a plugin of the process: it serves the scheduler until evenstep ends it. Calls come one at a time. Of an
// update, Lease says what a hold is to last.
func Serve(version string, s reconcile.Scheduler) {
	plugin.Serve(plugin.Scheduler, func(server *grpc.Server) {
		schedulerv1.RegisterSchedulerServer(server, &serving{version: version, scheduler: s})
	})
}

// serving is the plugin's end of the wire.
type serving struct {
	schedulerv1.UnimplementedSchedulerServer
	version   string
	scheduler reconcile.Scheduler
}

func (s *serving) Describe(context.Context, *schedulerv1.DescribeRequest) (*schedulerv1.DescribeResponse, error) {
	return &schedulerv1.DescribeResponse{Version: s.version}, nil
}

func (s *serving) Snapshot(ctx context.Context, _ *schedulerv1.SnapshotRequest) (*schedulerv1.SnapshotResponse, error) {
	snapshot, err := s.scheduler.Snapshot(ctx)
	if err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return toWire(snapshot), nil
}

func (s *serving) Apply(ctx context.Context, r *schedulerv1.ApplyRequest) (*schedulerv1.ApplyResponse, error) {
	u, err := updateFrom(r)
	if err == nil {
		err = s.scheduler.Apply(ctx, u)
	}
	if err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &schedulerv1.ApplyResponse{}, nil
}
