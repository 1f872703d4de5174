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

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

	mu    sync.Mutex
	probe func(context.Context) (*devicesv1.ProbeResponse, error)
	rates func() (*evenstepv1.RatesResponse, error)
	asked int // for rates
}

func (a *ScriptedAgent) Probe(ctx context.Context, _ *devicesv1.ProbeRequest) (*devicesv1.ProbeResponse, error) {
	a.mu.Lock()
	probe := a.probe
	a.mu.Unlock()
	return probe(ctx)
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
	path := filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	devicesv1.RegisterDevicesServer(g, a)
	evenstepv1.RegisterProfilesServer(g, a)
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
	s.now = func() time.Time { return time.Unix(1e9, 0) }
	configuration := packed(t, map[string]any{"agent": "unix:" + path})
	if _, err := s.SetConfig(t.Context(), &wire.SetConfigRequest{MsgpackConfig: configuration}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.node.close() })
	return s, logged
}

// told is what a round tells Nomad, both times.
func told(t *testing.T, s *server) (groups [2][]*wire.DeviceGroup) {
	t.Helper()
	i := 0
	if err := s.round(t.Context(), func(g []*wire.DeviceGroup) error { groups[i] = g; i++; return nil }); err != nil {
		t.Fatal(err)
	}
	return groups
}

func TestWhatAScriptedAgentFailsToSayChangesNothing(t *testing.T) {
	a := &ScriptedAgent{rates: func() (*evenstepv1.RatesResponse, error) {
		return nil, status.Error(codes.Unimplemented, "no core")
	}}
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
		nil,
	} {
		if a.probes(probe); probe == nil {
			a.sees(gpu("a", "H200"))
		}
		want := min(i, 1)
		if got := told(t, s)[0]; len(got) != want || want > 0 && !got[0].GetDevices()[0].GetHealthy() {
			t.Errorf("%d: got %v", i, got)
		}
	}
	text := logged.String()
	for _, want := range []string{
		`error="not yet"`, "the agent answers", "error=again", "context deadline exceeded", "none of gpu, mig, cpu",
	} {
		if strings.Count(text, want) == 0 {
			t.Errorf("not %s in:\n%s", want, text)
		}
	}
	if lines := strings.Count(text, "\n"); lines != 6 || strings.Contains(text, "and again") {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}

func TestTheScriptedAgentIsAskedForRatesNowAndThen(t *testing.T) {
	a := &ScriptedAgent{}
	var answer error
	a.rates = func() (*evenstepv1.RatesResponse, error) {
		rate := &evenstepv1.Rate{Workload: "w", Type: "H200", SamplesPerSecond: 7}
		return &evenstepv1.RatesResponse{Rates: []*evenstepv1.Rate{rate}}, answer
	}
	s, logged := serveScripted(t, a)
	now := s.now()
	s.now = func() time.Time { return now }
	a.sees()
	if told(t, s); a.asked != 0 {
		t.Error("it is asked about no type of device")
	}
	a.sees(gpu("a", "H200"))
	reservation := func() map[string]string {
		r, err := s.Reserve(t.Context(), &wire.ReserveRequest{DeviceIds: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetContainerRes().GetEnvs()
	}
	for i, c := range []struct {
		answer error
		asked  int
		core   bool // the task is told of one
	}{
		{status.Error(codes.Unimplemented, "no core"), 1, false},
		{status.Error(codes.PermissionDenied, "not for you"), 2, true},
		{status.Error(codes.Unavailable, "away"), 3, true},
		{nil, 4, true},
		{status.Error(codes.Unavailable, "away"), 5, true},
	} {
		answer = c.answer
		groups := told(t, s)
		told(t, s) // not due
		_, core := reservation()["EVENSTEP_ADDR"]
		if a.asked != c.asked || core != c.core {
			t.Errorf("%d: asked %d times, told of a core: %v", i, a.asked, core)
		}
		_, before := groups[0][0].GetAttributes()["samples_per_second_w"]
		_, after := groups[1][0].GetAttributes()["samples_per_second_w"]
		if before != (i > 3) || after != (i >= 3) {
			t.Errorf("%d: told before: %v, after: %v", i, before, after)
		}
		now = now.Add(ratesPause)
	}
	for text, times := range map[string]int{"the core does not answer": 3, "the core answers": 1} {
		if strings.Count(logged.String(), text) != times {
			t.Errorf("not %d times %q:\n%s", times, text, logged)
		}
	}
}

func TestDevicesOfAGroupThatAreNotAlike(t *testing.T) {
	a := &ScriptedAgent{rates: func() (*evenstepv1.RatesResponse, error) {
		return nil, status.Error(codes.Unimplemented, "no core")
	}}
	s, _ := serveScripted(t, a)
	big, small, other := gpu("b", "A100"), gpu("s", "A100"), gpu("o", "A30")
	big.MemoryBytes, small.MemoryBytes = 80<<30, 40<<30
	big.PCI, big.Cores, big.SMClockMaxMHz, big.ComputeCapability = "0000:01:00.0", 6912, 1410.4, "8.0"
	a.sees(big, other, small)
	groups := told(t, s)[1]
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
