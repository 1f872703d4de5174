package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/identity"
	"github.com/evenstep/evenstep/core/profile"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// Bounds of registrations.
const (
	maxRegistered        = 1 << 16 // in a core
	maxRegisteredNodes   = 1 << 12 // of a job
	maxRegisteredDevices = 64      // of a node
)

// registration is what a scheduler's side said of a job before its workers come. It is never changed, but replaced.
type registration struct {
	owner       string
	workload    string
	globalBatch uint32
	devices     map[string][]string // by node; a node may have none
}

// covering is the registration under which an id falls: its own, or that of an id which it begins with, up to a slash. It
// is nil where there is none. The Balancer's mutex is held.
func (b *Balancer) covering(id string) (registered string, r *registration) {
	for {
		if r := b.registered[id]; r != nil {
			return id, r
		}
		last := strings.LastIndexByte(id, '/')
		if last < 0 {
			return "", nil
		}
		id = id[:last]
	}
}

// whose says which job the caller means by an id: one of their own, unless it is registered. One that is registered for
// another is refused, but to operators.
func (b *Balancer) whose(id string, caller identity.Caller) (jobKey, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, r := b.covering(id)
	switch {
	case r == nil:
		return jobKey{caller.Owner, id}, nil
	case r.owner != caller.Owner && !caller.Operator:
		return jobKey{}, status.Errorf(codes.PermissionDenied, "open.job: %s is registered for another user; give another id", id)
	}
	return jobKey{r.owner, id}, nil
}

// Register makes a job a user's, as the service definition says.
func (b *Balancer) Register(_ context.Context, r *evenstepv1.RegisterRequest) (*evenstepv1.RegisterResponse, error) {
	if err := checkRegistration(r); err != nil {
		return nil, invalid("%v", err)
	}
	n := &registration{identity.User(r.GetUid()), r.GetWorkload(), r.GetGlobalBatch(), map[string][]string{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.registered[r.GetJob()]
	switch {
	case before != nil && before.owner != n.owner:
		return nil, status.Errorf(codes.AlreadyExists, "job: %s is registered for %s; unregister it first", r.GetJob(),
			before.owner)
	case before == nil && len(b.registered) >= maxRegistered:
		return nil, status.Errorf(codes.ResourceExhausted, "%d jobs are registered; unregister some", maxRegistered)
	case before != nil:
		maps.Copy(n.devices, before.devices)
	}
	if r.GetNode() != "" {
		n.devices[r.GetNode()] = r.GetDevices()
	}
	if len(n.devices) > maxRegisteredNodes {
		return nil, status.Errorf(codes.ResourceExhausted, "node: job %s has %d already", r.GetJob(), maxRegisteredNodes)
	}
	b.registered[r.GetJob()] = n
	return &evenstepv1.RegisterResponse{}, nil
}

func checkRegistration(r *evenstepv1.RegisterRequest) error {
	if err := checkJobID(r.GetJob()); err != nil {
		return err
	}
	if r.GetWorkload() != "" {
		if err := profile.CheckWorkload(r.GetWorkload()); err != nil {
			return err
		}
	}
	if isTooLong(r.GetNode()) {
		return fmt.Errorf("node: more than %d characters", maxText)
	}
	if n := len(r.GetDevices()); n > maxRegisteredDevices {
		return fmt.Errorf("devices: %d of them; give at most %d", n, maxRegisteredDevices)
	}
	for i, d := range r.GetDevices() {
		if isTooLong(d) {
			return fmt.Errorf("devices[%d]: more than %d characters", i, maxText)
		}
	}
	return nil
}

// Unregister forgets a registration, as the service definition says.
func (b *Balancer) Unregister(
	_ context.Context, r *evenstepv1.UnregisterRequest,
) (*evenstepv1.UnregisterResponse, error) {
	if b.forget(r.GetJob(), r.GetNode()) {
		for _, j := range b.under(r.GetJob()) {
			b.record(j)
		}
		if b.Keep != nil {
			b.Keep()
		}
	}
	return &evenstepv1.UnregisterResponse{}, nil
}

// forget takes a node out of a registration, and says whether the registration went with it.
func (b *Balancer) forget(id, node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.registered[id]
	if before == nil {
		return false
	}
	n := *before
	n.devices = maps.Clone(before.devices)
	delete(n.devices, node)
	if node != "" && len(n.devices) > 0 {
		b.registered[id] = &n
		return false
	}
	delete(b.registered, id)
	return true
}

// under are the open jobs of which an id is, or of which it is the beginning, up to a slash.
func (b *Balancer) under(id string) (jobs []*job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, j := range b.jobs {
		if key.id == id || strings.HasPrefix(key.id, id+"/") {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// status is what a registration shows that no job has opened under.
func (r *registration) status(id string) *evenstepv1.JobStatus {
	s := &evenstepv1.JobStatus{Job: id, Owner: r.owner, Workload: r.workload, GlobalBatch: r.globalBatch,
		Waiting: "registered; no worker is here"}
	for _, node := range slices.Sorted(maps.Keys(r.devices)) {
		for _, device := range r.devices[node] {
			s.Workers = append(s.Workers, &evenstepv1.WorkerStatus{Node: node, Device: device})
		}
	}
	return s
}
