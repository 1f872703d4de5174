package scheduler

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/request"
	"github.com/evenstep/evenstep/plugin"
	schedulerv1 "github.com/evenstep/evenstep/plugin/scheduler/v1"
)

var words = request.Request{Workload: "w", GlobalBatch: 100, Samples: 1e6}

// full has something in every field.
var full = reconcile.Snapshot{
	Pools: []reconcile.Pool{{Node: "m1", Type: "fast", Total: 2, Others: 1}, {Node: "m1", Type: "slow", Total: 1}, {Node: "m2", Type: "fast", Total: 2}},
	Room:  map[string]reconcile.Room{"m1": {CPUs: -1, Memory: 4000}},
	Jobs: []reconcile.Job{
		{ID: "waits", Request: words, MinNodes: 1, MaxNodes: 2, PerNode: 2, Types: []string{"fast", "slow"}, Nodes: []string{}, Required: []string{"m1"},
			Needs: reconcile.Room{CPUs: 3, Memory: 7}, Crowded: true, Waited: time.Minute, Held: true, Lease: 90 * time.Second},
		{ID: "named", Request: words, State: reconcile.Named, MinNodes: 1, MaxNodes: 1, PerNode: 1, Nodes: []string{"m1"}, For: time.Second,
			On: []placement.Share{{Node: "m2", Type: "fast", Count: 1}}},
		{ID: "runs", Request: words, State: reconcile.Running, MinNodes: 1, MaxNodes: 1, PerNode: 1, For: time.Hour,
			On: []placement.Share{{Node: "m2", Type: "fast", Count: 1}}},
		{ID: "odd", Unsteerable: "it asks for the moon", Held: true},
	},
}

// toyScheduler stands for a batch scheduler.
type toyScheduler struct {
	snapshot reconcile.Snapshot
	fails    error
	hangs    bool
	panics   bool
}

func (s *toyScheduler) Snapshot(context.Context) (*reconcile.Snapshot, error) {
	switch {
	case s.hangs:
		select {}
	case s.panics:
		panic("oh no")
	}
	return &s.snapshot, s.fails
}

// Apply refuses all but one job, whose update shows in the next snapshot.
func (s *toyScheduler) Apply(_ context.Context, u reconcile.Update) error {
	if u.Job != "waits" {
		return errors.New("it has\nmoved on")
	}
	s.snapshot.Jobs = s.snapshot.Jobs[:1:1]
	s.snapshot.Jobs[0].Lease, s.snapshot.Jobs[0].On = u.Lease, u.Shares
	s.snapshot.Jobs[0].MaxNodes = len(u.BatchSizes)
	s.snapshot.Jobs[0].Unsteerable = string(u.Kind) + ": " + u.Why
	return nil
}

// This test binary is a plugin as well, by the name that it is started by.
var plugins = map[string]*toyScheduler{
	"toy":     {snapshot: full},
	"broken":  {fails: errors.New("no answer\nfrom the cluster")},
	"hangs":   {hangs: true},
	"panics":  {panics: true},
	"liar":    {snapshot: reconcile.Snapshot{Pools: []reconcile.Pool{{Node: "m1", Type: "fast", Total: 1, Others: 2}}}},
	"endless": {snapshot: reconcile.Snapshot{Jobs: []reconcile.Job{{ID: "a", Unsteerable: "-", Lease: -1}, {ID: "b", Unsteerable: strings.Repeat("x", 5<<20)}}}},
}

func TestMain(m *testing.M) {
	name, ours := strings.CutPrefix(filepath.Base(os.Args[0]), "evenstep-scheduler-")
	if !ours {
		goleak.VerifyTestMain(m)
	}
	Serve("1.2.3", plugins[name])
}

// external is this binary as a plugin of the name.
func external(t *testing.T, name string) *plugin.External {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "evenstep-scheduler-"+name)); err != nil {
		t.Fatal(err)
	}
	f, err := plugin.Open(dir, hclog.NewNullLogger())
	if err != nil || len(f.OfKind(plugin.Scheduler)) != 1 {
		t.Fatal(f.Plugins, err)
	}
	t.Cleanup(f.Close)
	return f.Plugins[0]
}

func TestASnapshotAndAnUpdateCrossTheWireWhole(t *testing.T) {
	p := external(t, "toy")
	if version, err := Describe(p); version != "1.2.3" || err != nil {
		t.Errorf("version %q, %v", version, err)
	}
	s := New(p)
	got, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&full, got); diff != "" {
		t.Error(diff)
	}
	if err := s.Apply(t.Context(), reconcile.Update{Job: "gone", Kind: reconcile.Release}); err == nil || err.Error() != "scheduler toy: it has moved on" {
		t.Errorf("got %v", err)
	}
	shares := []placement.Share{{Node: "m1", Type: "fast", Count: 2}}
	for _, u := range []reconcile.Update{
		{Job: "waits", Kind: reconcile.Start, Shares: shares, BatchSizes: []int{70, 30}, Seconds: 5, Why: "the plan"},
		{Job: "waits", Kind: reconcile.Hold, Lease: time.Minute, Why: "the plan"},
		{Job: "waits", Kind: reconcile.Release, Why: "the plan"},
	} {
		if err := s.Apply(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		got, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		j := got.Jobs[0]
		if j.Unsteerable != string(u.Kind)+": the plan" || j.Lease != u.Lease || len(j.On) != len(u.Shares) || j.MaxNodes != len(u.BatchSizes) {
			t.Errorf("%v came as %+v", u, j)
		}
	}
	if err := s.Apply(t.Context(), reconcile.Update{Job: "waits", Kind: "another"}); err == nil || !strings.Contains(err.Error(), "kind: UNKNOWN is none") {
		t.Errorf("got %v", err)
	}
}

func TestWhatAPluginGetsWrongIsOneLine(t *testing.T) {
	for name, want := range map[string]string{
		"broken":  "scheduler broken: no answer from the cluster",
		"panics":  "scheduler panics: its process died",
		"liar":    "scheduler liar: snapshot: pools[0]: 1 devices, 2 of them others'; give 0 to 65536",
		"endless": "scheduler endless: grpc: received message larger than max",
	} {
		_, err := New(external(t, name)).Snapshot(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAPluginThatHangsIsEnded(t *testing.T) {
	before := answerTimeout
	answerTimeout = 300 * time.Millisecond
	t.Cleanup(func() { answerTimeout = before })
	p := external(t, "hangs")
	s := New(p)
	if _, err := s.Snapshot(t.Context()); err == nil || err.Error() != "scheduler hangs: no answer within 300ms" {
		t.Errorf("got %v", err)
	}
	if healthy, known := p.Health(); healthy || !known {
		t.Errorf("it lives on: %t, %t", healthy, known)
	}
	// Whoever gives up does not end it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(external(t, "hangs")).Snapshot(ctx); err == nil {
		t.Error("no error")
	}
}

// What a plugin in another language may send.
func TestWhatCannotBeIsRefused(t *testing.T) {
	job := func(edit func(*schedulerv1.Job)) *schedulerv1.SnapshotResponse {
		j := jobTo(&full.Jobs[0])
		edit(j)
		return &schedulerv1.SnapshotResponse{Jobs: []*schedulerv1.Job{j}}
	}
	for want, w := range map[string]*schedulerv1.SnapshotResponse{
		"job waits: waited, lease, for: -1ns is not in": job(func(j *schedulerv1.Job) { j.WaitedSeconds = math.NaN() }),
		"job waits: waited, lease, for: ":               job(func(j *schedulerv1.Job) { j.LeaseSeconds = math.Inf(1) }),
		"job waits: per_node: 0 is not":                 job(func(j *schedulerv1.Job) { j.PerNode = 0 }),
		"job waits: state: 9 is none":                   job(func(j *schedulerv1.Job) { j.State = 9 }),
		"job waits: on[0]: 4294967295 devices":          job(func(j *schedulerv1.Job) { j.On = []*schedulerv1.Share{{Count: math.MaxUint32}} }),
	} {
		if _, err := fromWire(w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// The user's words are the user's: what is wrong with them is no fault of the snapshot's.
	for want, edit := range map[string]func(*schedulerv1.Job){
		"batch: unknown key; give":                  func(j *schedulerv1.Job) { j.Words = "batch=1" },
		"workload: missing; give":                   func(j *schedulerv1.Job) { j.Words = "" },
		"no number of nodes in 1-2 with 2 devices ": func(j *schedulerv1.Job) { j.Words += " workers=9" },
	} {
		if s, err := fromWire(job(edit)); err != nil || !strings.HasPrefix(s.Jobs[0].Unsteerable, want) {
			t.Errorf("got %+v, %v, want %s", s, err, want)
		}
	}
	s, err := fromWire(job(func(j *schedulerv1.Job) { j.Words += " workers=2"; j.Nodes, j.Types = nil, nil }))
	if err != nil || s.Jobs[0].MaxNodes != 1 || s.Jobs[0].Nodes != nil || s.Jobs[0].Types != nil {
		t.Errorf("got %+v, %v", s, err)
	}
}

func FuzzFromWire(f *testing.F) {
	f.Add(1.5, "workload=w global_batch=1 samples=1", int64(7), uint32(1))
	f.Fuzz(func(t *testing.T, seconds float64, words string, room int64, count uint32) {
		s, err := fromWire(&schedulerv1.SnapshotResponse{
			Pools: []*schedulerv1.Pool{{Node: "m1", Type: "fast", Total: count, Others: count / 2}},
			Room:  []*schedulerv1.NodeRoom{{Node: "m1", Left: &schedulerv1.Room{Cpus: room, Memory: -room}}},
			Jobs: []*schedulerv1.Job{{Id: "a", Words: words, MinNodes: 1, MaxNodes: count, PerNode: count / 3, Held: true,
				WaitedSeconds: seconds, LeaseSeconds: seconds / 2, Needs: &schedulerv1.Room{Cpus: room}}},
		})
		if err != nil {
			return
		}
		p := reconcile.Planner{Place: placement.Place, Profiles: knows{}, HoldLimit: time.Minute}
		p.Updates(s)
	})
}

// knows the speed of everything.
type knows struct{}

func (knows) Rates(string, []string) (map[string]reconcile.Rate, error) {
	return map[string]reconcile.Rate{"fast": {SamplesPerSecond: 1, Source: "profile"}}, nil
}
