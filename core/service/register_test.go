package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/profile"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

func registered(t *testing.T, b *Balancer, r *evenstepv1.RegisterRequest) {
	t.Helper()
	if _, err := b.Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func unregister(t *testing.T, b *Balancer, job, node string) {
	t.Helper()
	if _, err := b.Unregister(t.Context(), &evenstepv1.UnregisterRequest{Job: job, Node: node}); err != nil {
		t.Fatal(err)
	}
}

func TestARegistrationCoversWhatIsUnderIt(t *testing.T) {
	core := startShared(t, testPolicies)
	node := core.dial("node")
	a, b, root := core.user(node, 1001), core.user(node, 1002), core.user(node, 0)
	for i, n := range []string{"m1", "m2"} {
		if _, err := evenstepv1.NewJobsClient(node).Register(root.ctx, &evenstepv1.RegisterRequest{Job: "slurm-7", Uid: 1001,
			Workload: "w", GlobalBatch: 100, Node: n, Devices: []string{fmt.Sprint(2 * i), fmt.Sprint(2*i + 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	shown := a.statuses()
	if len(shown) != 1 || shown[0].GetJob() != "slurm-7" || shown[0].GetWorkload() != "w" || shown[0].GetGlobalBatch() != 100 {
		t.Fatalf("before its workers come: %v", shown)
	}
	var devices []string
	for _, w := range shown[0].GetWorkers() {
		devices = append(devices, w.GetNode()+"/"+w.GetDevice())
	}
	if want := []string{"m1/0", "m1/1", "m2/2", "m2/3"}; !slices.Equal(devices, want) {
		t.Errorf("its devices are %q, want %q", devices, want)
	}
	for id, want := range map[string]codes.Code{"slurm-7/1-ab/0": codes.PermissionDenied, "slurm-70": codes.OK, "slurm-7-1": codes.OK} {
		if _, err := b.open(id); status.Code(err) != want {
			t.Errorf("another user opens %s: %v, want %v", id, err, want)
		}
	}
	a.mustOpen("slurm-7/1-ab/0").reports(0)
	if got := a.list(); !slices.Equal(got, []string{"uid 1001/slurm-7/1-ab/0"}) {
		t.Errorf("once it is open: %q", got)
	}
	// The first node is done with it, the second is not.
	unregister := func(node string) {
		if _, err := evenstepv1.NewJobsClient(root.conn).Unregister(root.ctx,
			&evenstepv1.UnregisterRequest{Job: "slurm-7", Node: node}); err != nil {
			t.Fatal(err)
		}
	}
	unregister("m1")
	if _, err := b.open("slurm-7/2"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("one of two nodes is done with it: %v", err)
	}
	unregister("m2")
	b.mustOpen("slurm-7/2")
}

func TestARegistrationEndsWithWhatIsLearned(t *testing.T) {
	book := profile.NewBook(time.Now)
	b, c := startServer(t, realPolicies)
	kept := 0
	b.Profiles, b.Keep = book, func() { kept++ }
	registered(t, b, &evenstepv1.RegisterRequest{Job: "slurm-7", Node: "m1"})
	registered(t, b, &evenstepv1.RegisterRequest{Job: "slurm-7", Node: "m2"})
	job := open(t, c, &evenstepv1.Open{Job: "slurm-7/0", Workload: "w", GlobalBatch: 10,
		Workers: []*evenstepv1.Worker{{DeviceType: "fast"}}})
	for step := range uint64(40) {
		job.send(request(&evenstepv1.StepReport{Step: step, NextFreeStep: step + 1,
			Workers: []*evenstepv1.WorkerReport{{Samples: 10, ComputeSeconds: 1}}}))
		if _, err := job.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	unregister(t, b, "slurm-7", "m1")
	unregister(t, b, "slurm-8", "m1")
	if got := book.Rates("w", []string{"fast"}); kept != 0 || got[0].Source != "" {
		t.Errorf("before its last node is done: kept %d times, %+v", kept, got)
	}
	unregister(t, b, "slurm-7", "m2")
	if got := book.Rates("w", []string{"fast"}); kept != 1 || got[0].Source != profile.Measured {
		t.Errorf("after its last node is done: kept %d times, %+v", kept, got)
	}
}

func TestRegistrationsAreBounded(t *testing.T) {
	b := NewBalancer("test", testPolicies, hclog.NewNullLogger())
	long := strings.Repeat("x", maxText+1)
	for name, r := range map[string]*evenstepv1.RegisterRequest{
		"workload":                      {Job: "j", Workload: "a b"},
		"node: more than":               {Job: "j", Node: long},
		"devices: 65 of them":           {Job: "j", Node: "n", Devices: make([]string, 65)},
		"devices[1]: more than":         {Job: "j", Node: "n", Devices: []string{"0", long}},
		"job: empty; give 1 to":         {},
		"job: ' ' is in it; give print": {Job: "a b"},
	} {
		if _, err := b.Register(t.Context(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for i := range maxRegisteredNodes {
		registered(t, b, &evenstepv1.RegisterRequest{Job: "j", Node: fmt.Sprint(i)})
	}
	if _, err := b.Register(t.Context(), &evenstepv1.RegisterRequest{Job: "j", Node: "one more"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a node more: %v", err)
	}
	registered(t, b, &evenstepv1.RegisterRequest{Job: "j", Node: "0"}) // known already
	for i := 1; i < maxRegistered; i++ {
		registered(t, b, &evenstepv1.RegisterRequest{Job: fmt.Sprint(i)})
	}
	if _, err := b.Register(t.Context(), &evenstepv1.RegisterRequest{Job: "more"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a job more: %v", err)
	}
}
