package service

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// maxRegistered bounds the registrations of a core.
const maxRegistered = 1 << 16

// whose says which job the caller means by an id: one of their own, unless it is registered. One that is registered for
// another is refused, but to operators.
func (b *Balancer) whose(id string, caller identity.Caller) (jobKey, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	owner, registered := b.registered[id]
	switch {
	case !registered:
		return jobKey{caller.Owner, id}, nil
	case owner != caller.Owner && !caller.Operator:
		return jobKey{}, status.Errorf(codes.PermissionDenied, "open.job: %s is registered for another user; give another id", id)
	}
	return jobKey{owner, id}, nil
}

// List gives the caller's jobs, or all to an operator, as the service definition says.
func (b *Balancer) List(_ *evenstepv1.ListRequest, s evenstepv1.Jobs_ListServer) error {
	call := callIn(s.Context())
	u := call.user
	if err := u.wait(s.Context(), costOf(b.allJobs(), 0)); err != nil {
		return err
	}
	jobs, keys := b.seenBy(call.caller)
	for _, key := range keys {
		shown := &evenstepv1.JobStatus{Job: key.id, Owner: key.owner, Waiting: "registered; no worker has come yet"}
		if j := jobs[key]; j != nil {
			shown = j.status(key.owner)
		}
		if shown == nil {
			continue
		}
		if err := u.wait(s.Context(), costOf(len(shown.GetWorkers()), 0)); err != nil {
			return err
		}
		if err := s.Send(shown); err != nil {
			return err
		}
	}
	return nil
}

// allJobs is how many are looked through to find a caller's.
func (b *Balancer) allJobs() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs) + len(b.registered)
}

// seenBy are the caller's jobs, and their keys in order. Those that are registered only have a key.
func (b *Balancer) seenBy(caller identity.Caller) (map[jobKey]*job, []jobKey) {
	jobs := map[jobKey]*job{}
	see := func(key jobKey, j *job) {
		if caller.Operator || key.owner == caller.Owner {
			jobs[key] = j
		}
	}
	b.mu.Lock()
	for id, owner := range b.registered {
		see(jobKey{owner, id}, nil)
	}
	for key, j := range b.jobs {
		see(key, j)
	}
	b.mu.Unlock()
	return jobs, slices.SortedFunc(maps.Keys(jobs), func(a, b jobKey) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.id, b.id))
	})
}

// Register makes a job a user's, as the service definition says.
func (b *Balancer) Register(_ context.Context, r *evenstepv1.RegisterRequest) (*evenstepv1.RegisterResponse, error) {
	if err := checkJobID(r.GetJob()); err != nil {
		return nil, invalid("%v", err)
	}
	owner := identity.User(r.GetUid())
	b.mu.Lock()
	defer b.mu.Unlock()
	before, registered := b.registered[r.GetJob()]
	switch {
	case registered && before != owner:
		return nil, status.Errorf(codes.AlreadyExists, "job: %s is registered for %s; unregister it first", r.GetJob(), before)
	case !registered && len(b.registered) >= maxRegistered:
		return nil, status.Errorf(codes.ResourceExhausted, "%d jobs are registered; unregister some", maxRegistered)
	}
	b.registered[r.GetJob()] = owner
	return &evenstepv1.RegisterResponse{}, nil
}

// Unregister forgets a registration, as the service definition says.
func (b *Balancer) Unregister(
	_ context.Context, r *evenstepv1.UnregisterRequest,
) (*evenstepv1.UnregisterResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.registered, r.GetJob())
	return &evenstepv1.UnregisterResponse{}, nil
}
