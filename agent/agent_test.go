package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/plugin/devices"
	devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked is a prober that is told what to answer, each time that it is asked.
type asked chan func() (devices.Report, error)

func (a asked) Probe(ctx context.Context) (devices.Report, error) {
	select {
	case answer := <-a:
		return answer()
	case <-ctx.Done():
		return devices.Report{}, ctx.Err()
	}
}

var sample = devices.Report{Devices: []devices.Device{{ID: "cpu", Kind: devices.CPU}}, Notes: []string{"n"}}

func TestASampleIsThereUntilItIsStale(t *testing.T) {
	now := time.Unix(0, 0)
	p := make(asked)
	s := &Sampler{prober: p, now: func() time.Time { return now }}
	if _, err := s.Probe(t.Context()); err == nil {
		t.Error("a sample before the first look")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	p <- func() (devices.Report, error) { return sample, nil }
	p <- func() (devices.Report, error) { return devices.Report{}, errors.New("not now") } // the first is in
	for _, c := range []struct {
		after time.Duration
		there bool
	}{{0, true}, {fresh, true}, {1, false}} {
		now = now.Add(c.after)
		r, err := s.Probe(t.Context())
		if (err == nil) != c.there || c.there && len(r.Devices) != 1 {
			t.Errorf("%v later: %+v, %v", c.after, r, err)
		}
	}
	stop()
	<-ended
}

func TestWorkersAskTheServer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	p := make(asked, 1)
	p <- func() (devices.Report, error) { return sample, nil }
	s := NewServer("1.2.3", p)
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := devicesv1.NewDevicesClient(conn).Probe(t.Context(), &devicesv1.ProbeRequest{})
	if err != nil || len(r.GetDevices()) != 1 || r.GetDevices()[0].GetId() != "cpu" || r.GetNotes()[0] != "n" {
		t.Errorf("got %v, %v", r, err)
	}
	health := &healthv1.HealthCheckRequest{Service: "evenstep.v1.Balancer"}
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), health); status.Code(err) != codes.NotFound {
		t.Errorf("it seems to lead to a core: %v", err)
	}
	s.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
