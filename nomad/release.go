package nomad

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/reconcile"
)

// ErrNotWaiting is of a job that does not wait for Evenstep.
var ErrNotWaiting = errors.New("does not wait for Evenstep")

// Release leaves a job, or all jobs where the name is empty, to Nomad's own placement, for good. It returns the names
// of those that waited for us.
func (s *Scheduler) Release(ctx context.Context, name string) ([]string, error) {
	released, err := s.release(ctx, func(j *reconcile.Job) string {
		if name == "" || j.ID == name {
			return "it was released by hand"
		}
		return ""
	})
	if err == nil && name != "" && len(released) == 0 {
		err = fmt.Errorf("job %.40q: %w", name, ErrNotWaiting)
		if s.namespace == api.AllNamespacesNamespace && !s.knows(name) {
			err = fmt.Errorf("%w; with NOMAD_NAMESPACE=* a job is named NAMESPACE/JOB", err)
		}
	}
	return released, err
}

// knows says that a job of the last snapshot has that name.
func (s *Scheduler) knows(name string) bool {
	return slices.ContainsFunc(s.view.jobs, func(j *job) bool { return j.name == name })
}

// ReleaseAbandoned leaves to Nomad those jobs that were held for longer than the limit while no controller ran. It is an
// error as well where that may not be known.
func (s *Scheduler) ReleaseAbandoned(ctx context.Context) ([]string, error) {
	released, err := s.release(ctx, func(j *reconcile.Job) string {
		for _, known := range s.view.jobs {
			if known.name == j.ID {
				return known.givenUp
			}
		}
		return ""
	})
	return released, cmp.Or(err, s.lease.hidden)
}

// release leaves those to Nomad of which why says something.
func (s *Scheduler) release(ctx context.Context, why func(*reconcile.Job) string) (released []string, err error) {
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range snapshot.Jobs {
		reason := why(&j)
		if reason == "" || !j.Held && j.State != reconcile.Named {
			continue
		}
		// One that cannot be let go keeps none of the others.
		if e := s.Apply(ctx, reconcile.Update{Job: j.ID, Kind: reconcile.Release, Why: reason}); e != nil {
			if err != nil {
				e = fmt.Errorf("%w; %w", err, e)
			}
			err = e
			continue
		}
		released = append(released, j.ID)
	}
	return released, err
}

// Unattended says that no controller steers, as far as the last snapshot knows.
func (s *Scheduler) Unattended() bool { return !s.lease.attended.IsZero() }

// Short says that a job of the last snapshot lacks an allocation that Nomad takes for done, and starts no more.
func (s *Scheduler) Short(name string) bool {
	return slices.ContainsFunc(s.view.jobs, func(j *job) bool { return j.name == name && j.stopped != nil })
}

// WhyReleased is what a job's Variable says of why it was let go; empty where it says nothing.
func (s *Scheduler) WhyReleased(ctx context.Context, name string) string {
	for _, j := range s.view.jobs {
		if path, err := variablePath(j.ID); err == nil && j.name == name && j.mark == nil {
			if v, err := s.variable(ctx, j.Namespace, path); err == nil {
				return v.Items[ours+"released"]
			}
		}
	}
	return ""
}
