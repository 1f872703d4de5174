package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/plugin/devices"
	devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// ScriptedCore answers an open with who it was told calls, each report with a step, and ends as its client does.
type ScriptedCore struct {
	evenstepv1.UnimplementedBalancerServer
	evenstepv1.UnimplementedJobsServer

	ended chan error // how each stream of it did
}

func (c ScriptedCore) Balance(s evenstepv1.Balancer_BalanceServer) error {
	for {
		r, err := s.Recv()
		if err != nil {
			c.ended <- err
			return nil
		}
		if r.GetOpen().GetJob() == "refused" {
			return status.Error(codes.InvalidArgument, "open.job: as told")
		}
		if r.GetOpen() != nil {
			err = s.Send(&evenstepv1.BalanceResponse{Message: &evenstepv1.BalanceResponse_Opened{
				Opened: &evenstepv1.Opened{CoreVersion: told(s.Context())}}})
		} else {
			err = s.Send(&evenstepv1.BalanceResponse{Message: &evenstepv1.BalanceResponse_Allocation{
				Allocation: &evenstepv1.Allocation{AnswersStep: r.GetReport().GetStep()}}})
		}
		if err != nil {
			return err
		}
	}
}

func (ScriptedCore) List(_ *evenstepv1.ListRequest, s evenstepv1.Jobs_ListServer) error {
	return errors.Join(s.Send(&evenstepv1.JobStatus{Job: "a", Owner: told(s.Context())}),
		s.Send(&evenstepv1.JobStatus{Job: "b"}))
}

func (ScriptedCore) Register(
	ctx context.Context, r *evenstepv1.RegisterRequest,
) (*evenstepv1.RegisterResponse, error) {
	return nil, status.Errorf(codes.PermissionDenied, "%s for %d by %s", r.GetJob(), r.GetUid(), told(ctx))
}

func (ScriptedCore) Unregister(
	ctx context.Context, r *evenstepv1.UnregisterRequest,
) (*evenstepv1.UnregisterResponse, error) {
	return nil, status.Errorf(codes.PermissionDenied, "%s by %s", r.GetJob(), told(ctx))
}

// told is all that the metadata of a call says, but for what gRPC adds.
func told(ctx context.Context) string {
	m, _ := metadata.FromIncomingContext(ctx)
	var all []string
	for key, values := range m {
		if key != "content-type" && key != "user-agent" && key != ":authority" && key != "grpc-accept-encoding" {
			all = append(all, key+"="+strings.Join(values, "+"))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// serveOn serves on a unix socket until the test ends, and returns a connection to it.
func serveOn(t *testing.T, serve func(net.Listener) error, stop func()) *grpc.ClientConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "evenstep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(l) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix:"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// forward serves a forwarding agent before a ScriptedCore.
func forward(t *testing.T) (*grpc.ClientConn, ScriptedCore) {
	t.Helper()
	core := ScriptedCore{ended: make(chan error, 2*userStreams)}
	c := grpc.NewServer()
	evenstepv1.RegisterBalancerServer(c, core)
	evenstepv1.RegisterJobsServer(c, core)
	upstream := serveOn(t, c.Serve, c.Stop)
	p := make(asked, 1)
	p <- func() (devices.Report, error) { return sample, nil }
	s := NewForwardingServer("1.2.3", p, upstream)
	return serveOn(t, s.Serve, s.Stop), core
}

func send(t *testing.T, s evenstepv1.Balancer_BalanceClient, r *evenstepv1.BalanceRequest) {
	t.Helper()
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
}

func opening(job string) *evenstepv1.BalanceRequest {
	return &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: &evenstepv1.Open{Job: job}}}
}

// me is what the core is told of the user that the test is.
func me() string { return "evenstep-uid=" + strconv.Itoa(os.Getuid()) }

func TestAStreamIsPassedOnWithTheUserThatTheKernelNames(t *testing.T) {
	conn, core := forward(t)
	// What the caller says of itself does not go on.
	ctx := metadata.AppendToOutgoingContext(t.Context(), "evenstep-uid", "4711", "x", "y")
	s, err := evenstepv1.NewBalancerClient(conn).Balance(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, opening("job"))
	if r, err := s.Recv(); err != nil || r.GetOpened().GetCoreVersion() != me() {
		t.Fatalf("got %v, %v, want %s", r, err, me())
	}
	for step := range uint64(3) {
		send(t, s, &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Report{
			Report: &evenstepv1.StepReport{Step: step}}})
		if r, err := s.Recv(); err != nil || r.GetAllocation().GetAnswersStep() != step {
			t.Fatalf("got %v, %v, want the answer to step %d", r, err, step)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
	if err := <-core.ended; !errors.Is(err, io.EOF) {
		t.Errorf("the core's stream ends with %v", err)
	}
}

func TestAStreamThatBreaksEndsAtTheCore(t *testing.T) {
	conn, core := forward(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := evenstepv1.NewBalancerClient(conn).Balance(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, opening("job"))
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-core.ended; status.Code(err) != codes.Canceled {
		t.Errorf("the core's stream ends with %v", err)
	}
}

func TestWhatTheCoreRefusesIsPassedBack(t *testing.T) {
	conn, _ := forward(t)
	s, err := evenstepv1.NewBalancerClient(conn).Balance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, opening("refused"))
	if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "open.job: as told") {
		t.Errorf("got %v", err)
	}
	jobs := evenstepv1.NewJobsClient(conn)
	_, err = jobs.Register(t.Context(), &evenstepv1.RegisterRequest{Job: "j", Uid: 7})
	if want := "j for 7 by " + me(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = jobs.Unregister(t.Context(), &evenstepv1.UnregisterRequest{Job: "j"})
	if want := "j by " + me(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	list, err := jobs.List(t.Context(), &evenstepv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{me(), ""} {
		if r, err := list.Recv(); err != nil || r.GetOwner() != want {
			t.Errorf("got %v, %v", r, err)
		}
	}
	if _, err := list.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func TestDevicesAreServedBesides(t *testing.T) {
	conn, _ := forward(t)
	r, err := devicesv1.NewDevicesClient(conn).Probe(t.Context(), &devicesv1.ProbeRequest{})
	if err != nil || len(r.GetDevices()) != 1 {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestItsHealthSaysThatItLeadsToACore(t *testing.T) {
	conn, _ := forward(t)
	r, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "evenstep.v1.Balancer"})
	if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestAMessageThatIsTooLongEndsItsStreamOnly(t *testing.T) {
	conn, _ := forward(t)
	for _, c := range []struct {
		bytes int
		want  codes.Code
	}{{maxForwardBytes - 1000, codes.OK}, {maxForwardBytes + 1, codes.ResourceExhausted}, {10, codes.OK}} {
		s, err := evenstepv1.NewBalancerClient(conn).Balance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(opening(strings.Repeat("j", c.bytes)))
		if _, err := s.Recv(); status.Code(err) != c.want {
			t.Errorf("%d bytes: got %v", c.bytes, err)
		}
	}
}

func TestAUserHasSoManyStreamsAndConnections(t *testing.T) {
	conn, core := forward(t)
	path := strings.TrimPrefix(conn.Target(), "unix:")
	var conns []*grpc.ClientConn
	var open []evenstepv1.Balancer_BalanceClient
	for i := range userStreams {
		if i%(maxStreams/2) == 0 {
			c, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			conns = append(conns, c)
		}
		s, err := evenstepv1.NewBalancerClient(conns[len(conns)-1]).Balance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(t, s, opening("job"))
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	more := func() error {
		s, err := evenstepv1.NewBalancerClient(conn).Balance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(opening("job"))
		_, err = s.Recv()
		return err
	}
	if err := more(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "128 streams of uid ") {
		t.Errorf("got %v", err)
	}
	_ = open[0].CloseSend()
	<-core.ended
	if _, err := open[0].Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for err := more(); err != nil; err = more() { // the place is free a moment later
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
}

// Calls that never say what they are about count too, and calls for devices.
func TestACallCountsBeforeItsMessageComes(t *testing.T) {
	conn, _ := forward(t)
	path := conn.Target()
	for _, method := range []string{evenstepv1.Jobs_Register_FullMethodName, devicesv1.Devices_Probe_FullMethodName} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, userStreams+1)
		for i := range userStreams + 1 {
			if i%(maxStreams/2) == 0 {
				c, err := grpc.NewClient(path, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				conn = c
			}
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			go func() { ended <- s.RecvMsg(new(evenstepv1.RegisterResponse)) }()
		}
		select {
		case err := <-ended:
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s: one stream more than there may be: %v", method, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: %d streams are open", method, userStreams+1)
		}
		cancel()
		for range userStreams {
			<-ended
		}
	}
}

func TestMetadataIsShort(t *testing.T) {
	conn, _ := forward(t)
	for _, c := range []struct {
		bytes int
		works bool
	}{{maxHeaderBytes / 2, true}, {maxHeaderBytes, false}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("v", c.bytes))
		_, err := devicesv1.NewDevicesClient(conn).Probe(ctx, &devicesv1.ProbeRequest{})
		if works := err == nil; works != c.works {
			t.Errorf("%d bytes: %v", c.bytes, err)
		}
	}
}

func TestCountsForgetWhoHasNothing(t *testing.T) {
	c := newCounts(2)
	for i, want := range []bool{true, true, false} {
		if c.take(1) != want {
			t.Errorf("number %d of two", i+1)
		}
	}
	if !c.take(2) {
		t.Error("another has none")
	}
	c.giveBack(1)
	if !c.take(1) {
		t.Error("what was given back is not there")
	}
	c.giveBack(1)
	c.giveBack(1)
	c.giveBack(2)
	if len(c.open) != 0 {
		t.Errorf("%v are kept", c.open)
	}
}

func TestConnectionsPastTheMostAreDropped(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	limited := &limitedListener{l, newCounts(1)}
	accepted := make(chan net.Conn)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	})
	dial := func() net.Conn {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := <-accepted
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the second: %v", err)
	}
	first.Close()
	first.Close() // counts once
	dial()
	(<-accepted).Close()
	l.Close()
	done.Wait()
}
