package reconcile

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// fakeScheduler has one node's device and jobs that wait for it; it starts those whose lease is over by itself.
type fakeScheduler struct {
	snapshot Snapshot
	down     error            // of snapshots
	refused  map[string]error // of updates, by job
	applied  []Update
}

func (f *fakeScheduler) Snapshot(context.Context) (*Snapshot, error) { return &f.snapshot, f.down }

func (f *fakeScheduler) Apply(_ context.Context, u Update) error {
	f.applied = append(f.applied, u)
	if err := f.refused[u.Job]; err != nil {
		return err
	}
	for i := range f.snapshot.Jobs {
		j := &f.snapshot.Jobs[i]
		if j.ID != u.Job {
			continue
		}
		switch u.Kind {
		case Start:
			j.State, j.Held, j.On = Running, false, u.Shares
		case Hold:
			j.Lease = 5 * time.Minute
		case Release:
			j.Held = false
			j.Unsteerable = u.Why
		}
	}
	return nil
}

func loop(f *fakeScheduler) (*Loop, *bytes.Buffer) {
	var log bytes.Buffer
	return &Loop{Scheduler: f, Planner: planner(), Log: hclog.New(&hclog.LoggerOptions{Output: &log})}, &log
}

func TestALoopStartsHoldsAndReleasesOnceEach(t *testing.T) {
	f := &fakeScheduler{snapshot: Snapshot{Pools: mixed[:1], Jobs: []Job{
		held("a"), held("b", func(j *Job) { j.Lease = time.Minute }),
		held("c", func(j *Job) { j.Request.Workload = "unseen" }),
	}}}
	l, _ := loop(f)
	for range 3 {
		if err := l.Round(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	want := "a start: the plan starts it on m1 [60]\nb hold: the plan lets it wait\n" +
		"c release: workload unseen has no profile on the devices that it may have"
	if got := told(f.applied); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAFaultIsSaidOnceAndTriedAgain(t *testing.T) {
	f := &fakeScheduler{snapshot: Snapshot{Pools: mixed, Jobs: []Job{held("a")}}, refused: map[string]error{"a": errors.New("busy")}}
	l, log := loop(f)
	ctx := context.Background()
	for range 3 {
		_ = l.Round(ctx)
	}
	if len(f.applied) != 3 || strings.Count(log.String(), "busy") != 1 {
		t.Errorf("%d updates, log %s", len(f.applied), log)
	}
	f.down = errors.New("no answer")
	if l.Round(ctx) == nil {
		t.Error("a round without a snapshot succeeded")
	}
	if strings.Contains(log.String(), "no answer") {
		t.Errorf("who makes one round says by itself that it failed; log %s", log)
	}
	running, stop := context.WithCancel(ctx)
	ticks, done := make(chan time.Time), make(chan struct{})
	go func() {
		l.Run(running, ticks)
		close(done)
	}()
	for range 3 {
		ticks <- time.Time{}
	}
	stop()
	<-done
	if strings.Count(log.String(), "no answer") != 1 {
		t.Errorf("log %s", log)
	}
	f.down, f.refused = nil, nil
	for range 3 {
		_ = l.Round(ctx)
	}
	if got := log.String(); strings.Count(got, "answers again") != 1 || strings.Count(got, "start: job=a") != 1 {
		t.Errorf("log %s", got)
	}
}

func TestWhatCannotBeSteeredIsSaidOnce(t *testing.T) {
	f := &fakeScheduler{snapshot: Snapshot{Pools: mixed, Jobs: []Job{
		{ID: "a", Unsteerable: "it asks for licences"}, {ID: "b", Unsteerable: "it asks for licences"}}}}
	l, log := loop(f)
	for range 3 {
		_ = l.Round(context.Background())
	}
	f.snapshot.Jobs = nil
	_ = l.Round(context.Background())
	if got := strings.Count(log.String(), "licences"); got != 2 || len(f.applied) != 0 || len(l.said) != 0 {
		t.Errorf("said %d times, %d updates, %v kept; log %s", got, len(f.applied), l.said, log)
	}
}
