package service

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// List gives the caller's jobs, or all to an operator, as the service definition says.
func (b *Balancer) List(_ *evenstepv1.ListRequest, s evenstepv1.Jobs_ListServer) error {
	caller, err := whoCalls(s.Context())
	if err != nil {
		return err
	}
	u, err := b.enter(caller.Owner)
	if err != nil {
		return err
	}
	defer b.exit(u)
	if err := u.wait(s.Context(), openCost); err != nil {
		return err
	}
	for _, j := range b.seenBy(caller) {
		shown := j.status()
		if shown == nil {
			continue
		}
		if err := u.wait(s.Context(), costOf(len(shown.GetWorkers()))); err != nil {
			return err
		}
		if err := s.Send(shown); err != nil {
			return err
		}
	}
	return nil
}

// seen is a job that is open, or one that is registered only.
type seen struct {
	key        jobKey
	job        *job
	registered *registration
}

func (s *seen) status() *evenstepv1.JobStatus {
	if s.job == nil {
		return s.registered.status(s.key.id)
	}
	return s.job.status(s.key.owner)
}

// seenBy are the caller's jobs in order.
func (b *Balancer) seenBy(caller identity.Caller) (all []seen) {
	b.mu.Lock()
	opened := map[string]bool{} // of the registrations
	for key, j := range b.jobs {
		all = append(all, seen{key: key, job: j})
		if id, r := b.covering(key.id); r != nil && r.owner == key.owner {
			opened[id] = true
		}
	}
	for id, r := range b.registered {
		if !opened[id] {
			all = append(all, seen{key: jobKey{r.owner, id}, registered: r})
		}
	}
	b.mu.Unlock()
	all = slices.DeleteFunc(all, func(s seen) bool { return !caller.Operator && s.key.owner != caller.Owner })
	slices.SortFunc(all, func(a, b seen) int {
		return cmp.Or(cmp.Compare(a.key.owner, b.key.owner), cmp.Compare(a.key.id, b.key.id))
	})
	return all
}

// onlyOperators refuses all others to do what it says.
func onlyOperators(ctx context.Context, what string) error {
	caller, err := whoCalls(ctx)
	if err == nil && !caller.Operator {
		err = status.Error(codes.PermissionDenied, "only root and controllers "+what)
	}
	return err
}
