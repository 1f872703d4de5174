package service

import (
	"cmp"
	"slices"

	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// List gives the caller's jobs, or all to an operator, as the service definition says.
func (b *Balancer) List(_ *evenstepv1.ListRequest, s evenstepv1.Jobs_ListServer) error {
	call := callIn(s.Context())
	u := call.user
	if err := u.wait(s.Context(), costOf(b.allJobs(), 0)); err != nil {
		return err
	}
	for _, j := range b.seenBy(call.caller) {
		shown := j.status()
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

// allJobs is how many are looked through to find a caller's.
func (b *Balancer) allJobs() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs) + len(b.registered)
}

// seenBy are the caller's jobs in order.
func (b *Balancer) seenBy(caller identity.Caller) (all []seen) {
	theirs := func(owner string) bool { return caller.Operator || owner == caller.Owner }
	b.mu.Lock()
	opened := map[string]bool{} // of the registrations
	for key, j := range b.jobs {
		if !theirs(key.owner) {
			continue
		}
		all = append(all, seen{key: key, job: j})
		if id, r := b.covering(key.id); r != nil && r.owner == key.owner {
			opened[id] = true
		}
	}
	for id, r := range b.registered {
		if theirs(r.owner) && !opened[id] {
			all = append(all, seen{key: jobKey{r.owner, id}, registered: r})
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(a, b seen) int {
		return cmp.Or(cmp.Compare(a.key.owner, b.key.owner), cmp.Compare(a.key.id, b.key.id))
	})
	return all
}
