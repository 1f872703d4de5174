package device

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evenstep/evenstep/nomad/device/wire"
	"github.com/evenstep/evenstep/plugin/devices"
	devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ScriptedAgent answers as it is told, as the real one and the core behind it never would.
type ScriptedAgent struct {
	devicesv1.UnimplementedDevicesServer
	evenstepv1.UnimplementedProfilesServer
	healthv1.UnimplementedHealthServer

	mu    sync.Mutex
	probe func(context.Context) (*devicesv1.ProbeResponse, error)
	leads error                                     // what it says of whether it leads to a core, which is nil
	rates func() (*evenstepv1.RatesResponse, error) // nil where nobody is to ask
	asked int                                       // for rates
}

func (a *ScriptedAgent) Probe(ctx context.Context, _ *devicesv1.ProbeRequest) (*devicesv1.ProbeResponse, error) {
	a.mu.Lock()
	probe := a.probe
	a.mu.Unlock()
	return probe(ctx)
}

func (a *ScriptedAgent) Check(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return new(healthv1.HealthCheckResponse), a.leads
}

func (a *ScriptedAgent) Rates(context.Context, *evenstepv1.RatesRequest) (*evenstepv1.RatesResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	return a.rates()
}

func (a *ScriptedAgent) sees(d ...devices.Device) {
	a.probes(func(context.Context) (*devicesv1.ProbeResponse, error) { return devices.Report{Devices: d}.Wire(), nil })
}

func (a *ScriptedAgent) probes(probe func(context.Context) (*devicesv1.ProbeResponse, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.probe = probe
}

// serveScripted serves a ScriptedAgent, and returns the plugin that is configured for it and what it logs.
func serveScripted(t *testing.T, a *ScriptedAgent) (*server, *bytes.Buffer) {
	t.Helper()
	dir, err := os.MkdirTemp("", "evenstep") // t.TempDir would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "a#?% 20.sock") // an odd name is one too
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	devicesv1.RegisterDevicesServer(g, a)
	evenstepv1.RegisterProfilesServer(g, a)
	healthv1.RegisterHealthServer(g, a)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	logged := new(bytes.Buffer)
	s := newServer("1.2.3", hclog.New(&hclog.LoggerOptions{Output: logged}))
	s.now, s.patience = func() time.Time { return time.Unix(1e9, 0) }, time.Hour
	configuration := packed(t, map[string]any{"agent": "unix:" + path})
	if _, err := s.SetConfig(t.Context(), &wire.SetConfigRequest{MsgpackConfig: configuration}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.node.close() })
	return s, logged
}

// told is what a round tells Nomad, which it does once.
func told(t *testing.T, s *server) (groups []*wire.DeviceGroup) {
	t.Helper()
	times := 0
	if err := s.round(t.Context(), func(g []*wire.DeviceGroup) error { groups = g; times++; return nil }); err != nil {
		t.Fatal(err)
	}
	if times != 1 {
		t.Errorf("Nomad is told %d times", times)
	}
	return groups
}

var noCore = status.Error(codes.NotFound, "unknown service")

func TestWhatAScriptedAgentFailsToSayChangesNothing(t *testing.T) {
	a := &ScriptedAgent{leads: noCore}
	s, logged := serveScripted(t, a)
	for i, probe := range []func(context.Context) (*devicesv1.ProbeResponse, error){
		func(context.Context) (*devicesv1.ProbeResponse, error) {
			return nil, status.Error(codes.Unavailable, "not yet")
		},
		nil,
		func(context.Context) (*devicesv1.ProbeResponse, error) {
			return nil, status.Error(codes.Unavailable, "again")
		},
		func(context.Context) (*devicesv1.ProbeResponse, error) {
			return nil, status.Error(codes.Unavailable, "and again")
		},
		func(ctx context.Context) (*devicesv1.ProbeResponse, error) { <-ctx.Done(); return nil, ctx.Err() },
		func(context.Context) (*devicesv1.ProbeResponse, error) {
			return &devicesv1.ProbeResponse{Devices: []*devicesv1.Device{{Id: "x", Kind: "tpu"}}}, nil
		},
		func(context.Context) (*devicesv1.ProbeResponse, error) {
			return &devicesv1.ProbeResponse{Notes: []string{strings.Repeat("x", 5<<20)}}, nil
		},
		nil,
	} {
		if a.probes(probe); probe == nil {
			a.sees(gpu("a", "H200"))
		}
		want := min(i, 1)
		if got := told(t, s); len(got) != want || want > 0 && !got[0].GetDevices()[0].GetHealthy() {
			t.Errorf("%d: got %v", i, got)
		}
	}
	text := logged.String()
	for _, want := range []string{
		`error="not yet"`, "the agent answers", "error=again", "context deadline exceeded", "none of gpu, mig, cpu",
		"received message larger than max",
	} {
		if strings.Count(text, want) == 0 {
			t.Errorf("not %s in:\n%s", want, text)
		}
	}
	if lines := strings.Count(text, "\n"); lines != 7 || strings.Contains(text, "and again") {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}

func TestTheScriptedAgentIsAskedForRatesNowAndThen(t *testing.T) {
	var answer error
	a := &ScriptedAgent{leads: noCore, rates: func() (*evenstepv1.RatesResponse, error) {
		return &evenstepv1.RatesResponse{Rates: []*evenstepv1.Rate{ratesOf("w")}}, answer
	}}
	s, logged := serveScripted(t, a)
	now := s.now()
	s.now = func() time.Time { return now }
	a.sees(gpu("a", "H200"))
	if told(t, s); a.asked != 0 {
		t.Error("an agent without a core is asked")
	}
	a.leads = nil
	a.sees()
	if told(t, s); a.asked != 1 {
		t.Errorf("asked %d times; devices are known that are missing now", a.asked)
	}
	now = now.Add(ratesPause)
	a.sees(gpu("a", "H200"))
	for i, answer1 := range []error{
		status.Error(codes.PermissionDenied, "not for you"), status.Error(codes.Unavailable, "away"), nil,
		status.Error(codes.Unavailable, "away"),
	} {
		answer = answer1
		groups := told(t, s)
		told(t, s) // not due
		if a.asked != i+2 {
			t.Errorf("%d: asked %d times", i, a.asked)
		}
		if rate := groups[0].GetAttributes()["samples_per_second_w"].GetFloatVal(); rate != 7 {
			t.Errorf("%d: told %v", i, rate)
		}
		now = now.Add(ratesPause)
	}
	for text, times := range map[string]int{"the core does not answer": 3, "the core answers": 1} {
		if strings.Count(logged.String(), text) != times {
			t.Errorf("not %d times %q:\n%s", times, text, logged)
		}
	}
	// An agent that was away may know another core.
	answer, now = nil, now.Add(ratesPause)
	told(t, s)
	a.probes(func(context.Context) (*devicesv1.ProbeResponse, error) {
		return nil, status.Error(codes.Unavailable, "")
	})
	told(t, s)
	before := a.asked
	a.sees(gpu("a", "H200"))
	if told(t, s); a.asked != before+1 {
		t.Errorf("asked %d times after the agent was away", a.asked-before)
	}
}

// ratesOf is how fast a workload runs on what the scripted agent sees.
func ratesOf(workload string) *evenstepv1.Rate {
	return &evenstepv1.Rate{Workload: workload, Type: "H200", SamplesPerSecond: 7}
}

// Nomad is told of devices and their speeds at once: else jobs that ask for a speed would find none for a while, each
// time that Nomad starts. A core that is slow does not keep devices from being told of.
func TestDevicesAreToldOfBeforeTheSpeedsOfAScriptedAgentThatIsSlow(t *testing.T) {
	early := make(chan struct{})
	a := &ScriptedAgent{rates: func() (*evenstepv1.RatesResponse, error) {
		<-early
		return &evenstepv1.RatesResponse{Rates: []*evenstepv1.Rate{ratesOf("w")}}, nil
	}}
	s, _ := serveScripted(t, a)
	a.sees(gpu("a", "H200"))
	s.patience = 0
	var speeds []float64
	if err := s.round(t.Context(), func(groups []*wire.DeviceGroup) error {
		speeds = append(speeds, groups[0].GetAttributes()["samples_per_second_w"].GetFloatVal())
		if len(speeds) == 1 {
			close(early)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(speeds) != 2 || speeds[0] != 0 || speeds[1] != 7 {
		t.Errorf("got %v", speeds)
	}
}

// A plugin that has just been started anew knows nothing yet, and Nomad may still ask for what the last one told.
func TestReserveAsksTheScriptedAgent(t *testing.T) {
	a := &ScriptedAgent{leads: noCore}
	s, _ := serveScripted(t, a)
	reserve := func(id string) (map[string]string, error) {
		r, err := s.Reserve(t.Context(), &wire.ReserveRequest{DeviceIds: []string{id}})
		return r.GetContainerRes().GetEnvs(), err
	}
	away := func(context.Context) (*devicesv1.ProbeResponse, error) {
		return nil, status.Error(codes.Unavailable, "")
	}
	a.probes(away)
	if _, err := reserve("a"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
	a.sees(gpu("a", "H200"))
	if _, err := reserve("b"); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
	for i, c := range []struct {
		leads error
		core  bool // the task is told of one
	}{
		{noCore, false}, {nil, true}, {status.Error(codes.Unavailable, "?"), true}, {noCore, false},
		{status.Error(codes.Unavailable, "?"), false}, {status.Error(codes.Unimplemented, "no health"), false},
	} {
		a.leads = c.leads
		envs, err := reserve("a")
		if _, core := envs["EVENSTEP_ADDR"]; err != nil || core != c.core {
			t.Errorf("%d: got %v, %v", i, envs, err)
		}
	}
	a.probes(away)
	if _, err := reserve("a"); err != nil {
		t.Errorf("while the agent is away: %v", err)
	}
}

// Nomad shows what it was told last, however old that is.
func TestStatsOfAScriptedAgentSayThatNothingIsKnown(t *testing.T) {
	a := &ScriptedAgent{leads: noCore}
	s, _ := serveScripted(t, a)
	first, second := gpu("a", "A30"), gpu("b", "A30")
	free := uint64(1 << 30)
	first.MemoryBytes, first.MemoryFreeBytes = 4<<30, &free
	a.sees(first, second)
	shown := func() string {
		n := s.current()
		groups := n.measured(n.look(t.Context(), s.now()), s.now())
		if len(groups) != 1 || len(groups[0].GetInstanceStats()) != 2 {
			t.Fatalf("got %v", groups)
		}
		stats := groups[0].GetInstanceStats()["a"]
		return fmt.Sprintf("%v%v %d", stats.GetSummary().GetStringVal().GetValue(),
			stats.GetSummary().GetIntNumeratorVal().GetValue(), len(stats.GetStats().GetAttributes()))
	}
	if got := shown(); got != "3072 1" {
		t.Errorf("got %q", got)
	}
	a.sees(second)
	if got := shown(); got != "the agent does not see it0 0" {
		t.Errorf("got %q", got)
	}
	a.probes(func(context.Context) (*devicesv1.ProbeResponse, error) {
		return nil, status.Error(codes.Unavailable, "")
	})
	if got := shown(); got != "the agent does not answer0 0" {
		t.Errorf("got %q", got)
	}
}

// The plugins of an agent that ends may end before it does.
func TestWhatAScriptedAgentDidNotSeeAsItEndedIsNotMissing(t *testing.T) {
	a := &ScriptedAgent{leads: noCore}
	s, _ := serveScripted(t, a)
	now := s.now()
	s.now = func() time.Time { return now }
	a.sees(gpu("a", "A30"))
	before := told(t, s)
	a.sees()
	told(t, s)
	a.probes(func(context.Context) (*devicesv1.ProbeResponse, error) {
		return nil, status.Error(codes.Unavailable, "")
	})
	told(t, s)
	a.sees()
	now = now.Add(2 * grace)
	if diff := cmp.Diff(before, told(t, s), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	now = now.Add(grace)
	if groups := told(t, s); groups[0].GetDevices()[0].GetHealthy() {
		t.Errorf("got %v", groups)
	}
}

// Drivers fail at times to say what a device is like. It is the same device.
func TestWhatAScriptedAgentDoesNotSayOnceStays(t *testing.T) {
	a := &ScriptedAgent{leads: noCore}
	s, _ := serveScripted(t, a)
	d := gpu("a", "A30")
	d.MemoryBytes, d.SMClockMaxMHz, d.MemoryClockMaxMHz, d.Cores, d.ComputeCapability, d.PCI =
		24<<30, 1440, 1215, 3584, "8.0", "0000:01:00.0"
	a.sees(d)
	before := told(t, s)
	a.sees(gpu("a", "A30"))
	if diff := cmp.Diff(before, told(t, s), protocmp.Transform()); diff != "" || len(before[0].GetAttributes()) != 5 {
		t.Error(before, diff)
	}
}

func TestDevicesOfAGroupThatAreNotAlike(t *testing.T) {
	a := &ScriptedAgent{leads: noCore}
	s, _ := serveScripted(t, a)
	big, small, other := gpu("b", "A100"), gpu("s", "A100"), gpu("o", "A30")
	big.MemoryBytes, small.MemoryBytes = 80<<30, 40<<30
	big.PCI, big.Cores, big.SMClockMaxMHz, big.ComputeCapability = "0000:01:00.0", 6912, 1410.4, "8.0"
	a.sees(big, other, small)
	groups := told(t, s)
	if len(groups) != 2 || len(groups[0].GetDevices()) != 2 || len(groups[1].GetAttributes()) != 0 {
		t.Fatalf("got %v", groups)
	}
	attributes := groups[0].GetAttributes()
	for name, want := range map[string]string{"memory": "40960 MiB", "cores": "6912 ", "sm_clock": "1410 MHz",
		"compute_capability": "8.0 "} {
		if got := shownAttribute(attributes[name]); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := groups[0].GetDevices()[0].GetHwLocality().GetPciBusId(); got != big.PCI {
		t.Errorf("at %q", got)
	}
}

func shownAttribute(a *wire.Attribute) string {
	switch v := a.GetValue().(type) {
	case *wire.Attribute_IntVal:
		return fmt.Sprint(v.IntVal, " ", a.GetUnit())
	case *wire.Attribute_StringVal:
		return v.StringVal + " " + a.GetUnit()
	}
	return a.String()
}
