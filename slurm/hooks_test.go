package slurm

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// scriptedAgent stands for a node's agent: it takes down what it is asked, and answers as it is told.
type scriptedAgent struct {
	evenstepv1.UnimplementedJobsServer
	registered   []*evenstepv1.RegisterRequest
	unregistered []*evenstepv1.UnregisterRequest
	answer       error
}

func (a *scriptedAgent) Register(
	_ context.Context, r *evenstepv1.RegisterRequest,
) (*evenstepv1.RegisterResponse, error) {
	a.registered = append(a.registered, r)
	return &evenstepv1.RegisterResponse{}, a.answer
}

func (a *scriptedAgent) Unregister(
	_ context.Context, r *evenstepv1.UnregisterRequest,
) (*evenstepv1.UnregisterResponse, error) {
	a.unregistered = append(a.unregistered, r)
	return &evenstepv1.UnregisterResponse{}, a.answer
}

// serve serves it at the socket until stop; with a core or, it seems, without.
func (a *scriptedAgent) serve(t *testing.T, socket string, hasCore bool) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s, h := grpc.NewServer(), health.NewServer()
	if hasCore {
		h.SetServingStatus("evenstep.v1.Balancer", healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(s, h)
	evenstepv1.RegisterJobsServer(s, a)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return func() {
		s.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}
}

// newHooks are hooks of a job with a comment, in a folder of their own, and the socket that they look at.
func newHooks(t *testing.T, comment string) (h Hooks, socket string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "hooks") // t.TempDir would be too long for a socket under some names of tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	env := map[string]string{
		"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "m2", "SLURM_JOB_UID": "1001", "SLURM_JOB_COMMENT": comment,
		"SLURM_JOB_GPUS": "0,3", "SLURM_JOB_NODELIST": "m[10,2]",
	}
	return Hooks{Folder: filepath.Join(folder, "jobs"), Env: func(name string) string { return env[name] }},
		filepath.Join(folder, "agent.sock")
}

const asks = "evenstep workload=w global_batch=100 samples=4 | sizes=60,40"

func TestTheCoreIsToldOfJobsThatAskForEvenstep(t *testing.T) {
	a := &scriptedAgent{}
	for _, comment := range []string{asks, "", "for evenstep", "evenstep workload=$(w)"} {
		h, socket := newHooks(t, comment)
		stop := a.serve(t, socket, true)
		for name, err := range map[string]error{"prolog": h.Prolog(), "epilog": h.Epilog()} {
			if wrong := comment == "evenstep workload=$(w)" && name == "prolog"; (err != nil) != wrong {
				t.Errorf("%s of %q: %v", name, comment, err)
			}
		}
		stop()
	}
	if diff := cmp.Diff([]*evenstepv1.RegisterRequest{{Job: "slurm-7", Uid: 1001, Workload: "w", GlobalBatch: 100, Node: "m2",
		Devices: []string{"0", "3"}}}, a.registered, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]*evenstepv1.UnregisterRequest{{Job: "slurm-7", Node: "m2"}}, a.unregistered, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestAFaultOfTheCoreIsSaidOnceAndCostsNothing(t *testing.T) {
	h, socket := newHooks(t, asks)
	a := &scriptedAgent{}
	address := func() bool {
		t.Helper()
		var lines strings.Builder
		if err := h.TaskProlog(&lines); err != nil || !strings.Contains(lines.String(), "export EVENSTEP_BATCH_SIZES=60,40\n") ||
			!strings.HasPrefix(lines.String(), "export EVENSTEP_NODE_RANK=1\n") {
			t.Errorf("a task is told %q, %v", &lines, err)
		}
		return strings.Contains(lines.String(), "export EVENSTEP_ADDR=unix:"+socket+"\n")
	}
	says := func(when string, hasAddress bool, words ...string) {
		t.Helper()
		err := h.Prolog()
		if got := address(); got != hasAddress {
			t.Errorf("%s: tasks are told of a core: %t", when, got)
		}
		for _, err := range []error{err, h.Epilog(), h.Prolog(), h.Epilog()} {
			if len(words) == 0 && err != nil || len(words) > 0 && (err == nil || !strings.Contains(err.Error(), words[0])) {
				t.Errorf("%s: got %v, want %q", when, err, words)
			}
			words = nil // said once
		}
	}
	says("without an agent", false)
	stop := a.serve(t, socket, false)
	says("an agent without a core", false)
	stop()
	stop = a.serve(t, socket, true)
	says("a core", true)
	a.answer = status.Error(codes.Unavailable, "the core is away")
	says("a core that is away", true, "agent.sock does not take the job: rpc error: code = Unavailable desc = the core is away")
	a.answer = status.Error(codes.PermissionDenied, "no")
	says("a core that refuses", true, "code = PermissionDenied")
	a.answer = nil
	says("a core that is back", true)
	a.answer = status.Error(codes.Unavailable, "the core is away")
	says("a core that is away again", true, "code = Unavailable desc = the core is away")
	stop()

	// What a killed agent leaves.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	says("a socket of nobody", false, "the agent at "+socket+" does not answer: rpc error: code = Unavailable")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	// One that was stopped: nobody accepts.
	l, err = net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	says("an agent that hangs", false, "the agent at "+socket+" does not answer: rpc error: code = DeadlineExceeded")
}
