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
		if s.namespace == api.AllNamespacesNamespace && s.index(name) < 0 {
			err = fmt.Errorf("%w; with NOMAD_NAMESPACE=* a job is named NAMESPACE/JOB", err)
		}
	}
	return released, err
}

// ReleaseAbandoned leaves to Nomad those jobs that were held for longer than the limit while no controller ran. It is an
// error as well where that may not be known.
func (s *Scheduler) ReleaseAbandoned(ctx context.Context) ([]string, error) {
	released, err := s.release(ctx, func(j *reconcile.Job) string { return s.view.jobs[s.index(j.ID)].givenUp })
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

// Lacks says what a job of the last snapshot needs that lacks an allocation which Nomad does not start as the job is;
// empty where it lacks none.
func (s *Scheduler) Lacks(j *reconcile.Job) string {
	switch i := s.index(j.ID); {
	case i < 0 || !s.view.jobs[i].short:
		return ""
	case s.view.jobs[i].stuck():
		return j.Unsteerable
	}
	return fmt.Sprintf("%s: the controller, or evenstep nomad release %s, has Nomad place another", j.Unsteerable, j.ID)
}

// Nodes are the names of those that a job of the last snapshot has allocations on, in order, one for each allocation.
func (s *Scheduler) Nodes(job string) (names []string) {
	if i := s.index(job); i >= 0 {
		for _, a := range s.view.jobs[i].live {
			names = append(names, s.view.called(a.NodeID))
		}
	}
	slices.Sort(names)
	return names
}

// index is where a job of the last snapshot is, by its name towards users; -1 where there is none.
func (s *Scheduler) index(name string) int {
	return slices.IndexFunc(s.view.jobs, func(j *job) bool { return j.name == name })
}

// WhyReleased is what a job's Variable says of why it was let go; empty where it says nothing.
func (s *Scheduler) WhyReleased(ctx context.Context, name string) string {
	i := s.index(name)
	if i < 0 || s.view.jobs[i].mark != nil {
		return ""
	}
	j := s.view.jobs[i]
	path, err := variablePath(j.ID)
	if err != nil {
		return ""
	}
	v, err := s.variable(ctx, j.Namespace, path)
	if err != nil {
		return ""
	}
	return v.Items[ours+"released"]
}
