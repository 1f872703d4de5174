package service

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// policyFunc is a policy without memory but for what it closes over.
type policyFunc func([]speed.Observation) (sizing.Decision, bool)

func (f policyFunc) Step(seen []speed.Observation, _ int) (sizing.Decision, bool) { return f(seen) }

// testPolicies are ways to behave, good and bad.
var testPolicies = Policies{
	// auto turns the sizes by one worker whenever the first worker's time is above a second.
	"auto": func(p sizing.Problem, start []int) (Policy, error) {
		sizes := slices.Clone(start)
		return policyFunc(func(seen []speed.Observation) (sizing.Decision, bool) {
			if seen[0].Seconds <= 1 {
				return sizing.Decision{BatchSizes: sizes, Reason: "even"}, false
			}
			sizes = append(sizes[1:], sizes[0])
			return sizing.Decision{BatchSizes: sizes, StepSeconds: 2, Reason: "turned"}, true
		}), nil
	},
	// verbose fills a connection soon.
	"verbose": func(_ sizing.Problem, start []int) (Policy, error) {
		return policyFunc(func([]speed.Observation) (sizing.Decision, bool) {
			return sizing.Decision{BatchSizes: start, Reason: strings.Repeat("so ", 5000)}, false
		}), nil
	},
	"panics": func(sizing.Problem, []int) (Policy, error) {
		return policyFunc(func([]speed.Observation) (sizing.Decision, bool) { panic("as told") }), nil
	},
	"lies": func(_ sizing.Problem, start []int) (Policy, error) {
		return policyFunc(func([]speed.Observation) (sizing.Decision, bool) {
			return sizing.Decision{BatchSizes: make([]int, len(start))}, true
		}), nil
	},
}

// startServer serves a Balancer on a unix socket until the test ends.
func startServer(t testing.TB, policies Policies) (*Balancer, evenstepv1.BalancerClient) {
	t.Helper()
	b, conn := connectToServer(t, policies)
	return b, evenstepv1.NewBalancerClient(conn)
}

func connectToServer(t testing.TB, policies Policies) (*Balancer, *grpc.ClientConn) {
	t.Helper()
	// t.TempDir would be too long for a socket under some names of tests.
	dir, err := os.MkdirTemp("", "evenstep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBalancer("test", policies, hclog.NewNullLogger())
	s := NewServer(b, NewPlacer(placement.Place), insecure.NewCredentials(), hclog.NewNullLogger())
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		b.Stop()
		s.Stop(time.Second)
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
	})
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return b, conn
}

// client is one stream of a test.
type client struct {
	t testing.TB
	grpc.BidiStreamingClient[evenstepv1.BalanceRequest, evenstepv1.BalanceResponse]
	stop func()
}

func dial(t testing.TB, c evenstepv1.BalancerClient) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	s, err := c.Balance(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, s, cancel}
}

// open opens a job and waits for the acknowledgement.
func open(t testing.TB, c evenstepv1.BalancerClient, o *evenstepv1.Open) *client {
	t.Helper()
	s := dial(t, c)
	s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}})
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if r.GetOpened().GetCoreVersion() != "test" {
		t.Fatalf("got %v, want opened", r)
	}
	return s
}

func (c *client) send(r *evenstepv1.BalanceRequest) {
	c.t.Helper()
	if err := c.Send(r); err != nil {
		c.t.Fatal(err)
	}
}

// report sends a report of step, with the sizes to hold from two steps later, in which the given ranks took that long.
func (c *client) report(step uint64, seconds float64, ranks ...uint32) {
	c.t.Helper()
	c.send(request(newReport(step, seconds, ranks...)))
}

func newReport(step uint64, seconds float64, ranks ...uint32) *evenstepv1.StepReport {
	r := &evenstepv1.StepReport{Step: step, NextFreeStep: step + 2}
	for _, rank := range ranks {
		r.Workers = append(r.Workers, &evenstepv1.WorkerReport{Rank: rank, ComputeSeconds: seconds, Samples: 4})
	}
	return r
}

func request(r *evenstepv1.StepReport) *evenstepv1.BalanceRequest {
	return &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Report{Report: r}}
}

// allocation waits for the next answer and checks which step it answers, its version and its sizes.
func (c *client) allocation(step, version uint64, sizes ...uint32) *evenstepv1.Allocation {
	c.t.Helper()
	r, err := c.Recv()
	if err != nil {
		c.t.Fatalf("waiting for the answer to step %d: %v", step, err)
	}
	a := r.GetAllocation()
	if a.GetAnswersStep() != step || a.GetVersion() != version || !slices.Equal(a.GetBatchSizes(), sizes) {
		c.t.Fatalf("got %v, want the answer to step %d with version %d, sizes %v", a, step, version, sizes)
	}
	if a.GetFromStep() < step+2 {
		c.t.Fatalf("from step %d, want at least %d", a.GetFromStep(), step+2)
	}
	return a
}

// fails waits for the end of the stream with the code, and with each of the words in the message.
func (c *client) fails(code codes.Code, words ...string) {
	c.t.Helper()
	var err error
	for err == nil {
		_, err = c.Recv()
	}
	if status.Code(err) != code {
		c.t.Fatalf("got %v, want %v", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			c.t.Fatalf("got %q, want %q in it", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		c.t.Fatalf("more than one line: %q", err)
	}
}

// newOpen is a job of 12 samples over three workers of 2 to 8.
func newOpen(change ...func(*evenstepv1.Open)) *evenstepv1.Open {
	o := &evenstepv1.Open{Job: "job", GlobalBatch: 12, BatchSizes: []uint32{2, 4, 6}}
	for range 3 {
		o.Workers = append(o.Workers, &evenstepv1.Worker{Node: "n", MinBatchSize: 2, MaxBatchSize: 8})
	}
	for _, f := range change {
		f(o)
	}
	return o
}

func rank(r uint32) func(*evenstepv1.Open) {
	return func(o *evenstepv1.Open) { o.Rank = proto.Uint32(r) }
}

func TestEachStepOfAJobGetsOneAnswer(t *testing.T) {
	_, c := startServer(t, testPolicies)
	s := open(t, c, newOpen())
	s.report(0, 1, 2, 1, 0) // in any order of ranks
	s.allocation(0, 1, 2, 4, 6)
	s.report(1, 2, 0, 1, 2)
	if a := s.allocation(1, 2, 4, 6, 2); a.GetStepSeconds() != 2 || a.GetReason() != "turned" || a.GetFromStep() != 3 {
		t.Fatalf("got %v", a)
	}
	s.report(1, 2, 0, 1, 2) // repeated
	s.report(0, 2, 0, 1, 2) // late
	s.report(9, 0, 0, 1, 2) // steps in between got lost; nothing was measured
	s.allocation(9, 2, 4, 6, 2)
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	s.fails(codes.Unknown, "EOF")
}

func TestAJobStartsFromEqualSizes(t *testing.T) {
	_, c := startServer(t, testPolicies)
	s := open(t, c, newOpen(func(o *evenstepv1.Open) { o.BatchSizes = nil }))
	s.report(0, 1, 0, 1, 2)
	s.allocation(0, 1, 4, 4, 4)
}

func TestTheCoreGathersWhatWorkersReport(t *testing.T) {
	_, c := startServer(t, testPolicies)
	a := open(t, c, newOpen(rank(0)))
	a.report(0, 2, 0)
	b := open(t, c, newOpen(rank(1)))
	b.report(0, 2, 1)
	d := open(t, c, newOpen(rank(2)))
	late := newReport(0, 2, 2)
	late.NextFreeStep = 7
	d.send(request(late))
	for _, s := range []*client{a, b, d} {
		if got := s.allocation(0, 2, 4, 6, 2); got.GetFromStep() != 7 {
			t.Fatalf("from step %d, want the largest next_free_step, 7", got.GetFromStep())
		}
	}
}

func TestTheFasterWorkerGetsMore(t *testing.T) {
	_, c := startServer(t, realPolicies)
	s := open(t, c, &evenstepv1.Open{Job: "job", GlobalBatch: 90, Workers: []*evenstepv1.Worker{{}, {}}})
	sizes, speeds := []uint32{45, 45}, []float64{100, 200}
	for step := range uint64(40) {
		r := newReport(step, 0, 0, 1)
		for i, w := range r.Workers {
			w.Samples, w.ComputeSeconds = float64(sizes[i]), float64(sizes[i])/speeds[i]
		}
		s.send(request(r))
		answer, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		sizes = answer.GetAllocation().GetBatchSizes()
	}
	if sizes[0] < 29 || sizes[0] > 31 || sizes[0]+sizes[1] != 90 {
		t.Fatalf("got %v, want about 30 and 60", sizes)
	}
}

// A worker that reports and goes would not learn of a change by the step.
func TestNothingChangesByAStepWhoseReporterIsGone(t *testing.T) {
	_, c := startServer(t, testPolicies)
	a, b, d := open(t, c, newOpen(rank(0))), open(t, c, newOpen(rank(1))), open(t, c, newOpen(rank(2)))
	d.report(0, 2, 2)
	if err := d.CloseSend(); err != nil {
		t.Fatal(err)
	}
	d.fails(codes.Unknown, "EOF")
	a.report(0, 2, 0)
	b.report(0, 2, 1)
	a.allocation(0, 1, 2, 4, 6)
	b.allocation(0, 1, 2, 4, 6)
}

func TestTheOthersGoOnWithTheirSizesWhenAWorkerIsGone(t *testing.T) {
	_, c := startServer(t, testPolicies)
	a, b, d := open(t, c, newOpen(rank(0))), open(t, c, newOpen(rank(1))), open(t, c, newOpen(rank(2)))
	a.report(0, 2, 0)
	b.report(0, 2, 1)
	d.stop()
	a.allocation(0, 1, 2, 4, 6)
	b.allocation(0, 1, 2, 4, 6)
	a.report(1, 2, 0)
	b.report(1, 2, 1)
	a.allocation(1, 1, 2, 4, 6)
	b.allocation(1, 1, 2, 4, 6)

	d = open(t, c, newOpen(rank(2), func(o *evenstepv1.Open) { o.BatchSizes = nil }))
	for r, s := range []*client{a, b, d} {
		s.report(2, 2, uint32(r))
	}
	for _, s := range []*client{a, b, d} {
		s.allocation(2, 2, 4, 6, 2)
	}
}

func TestTheNewestStreamOfAWorkerWins(t *testing.T) {
	for name, rank := range map[string]func(*evenstepv1.Open){
		"one for all": func(*evenstepv1.Open) {},
		"one of many": rank(1),
	} {
		t.Run(name, func(t *testing.T) {
			_, c := startServer(t, testPolicies)
			older := open(t, c, newOpen(rank))
			newer := open(t, c, newOpen(rank))
			older.fails(codes.Aborted, "newer stream")
			newer.stop()
			newer.fails(codes.Canceled)
		})
	}
}

func TestAJobThatComesBackSaysWhereItStands(t *testing.T) {
	_, c := startServer(t, testPolicies)
	older := open(t, c, newOpen())
	older.report(5, 1, 0, 1, 2)
	older.allocation(5, 1, 2, 4, 6)
	newer := open(t, c, newOpen(func(o *evenstepv1.Open) { o.BatchSizes = []uint32{6, 4, 2} }))
	newer.report(5, 1, 0, 1, 2)
	newer.allocation(5, 1, 6, 4, 2)
}

func TestStreamsOfAJobAgreeOnItsParameters(t *testing.T) {
	_, c := startServer(t, testPolicies)
	open(t, c, newOpen(rank(0)))
	for field, change := range map[string]func(*evenstepv1.Open){
		"open.rank:":                   func(o *evenstepv1.Open) { o.Rank = nil },
		"open.global_batch: 14, not":   func(o *evenstepv1.Open) { o.GlobalBatch, o.BatchSizes = 14, nil },
		"open.quantum: 2, not 1":       func(o *evenstepv1.Open) { o.Quantum = 2 },
		"open.policy:":                 func(o *evenstepv1.Open) { o.Policy = "lies" },
		"open.workload:":               func(o *evenstepv1.Open) { o.Workload = "other" },
		"open.workers: 2 entries":      func(o *evenstepv1.Open) { o.Workers, o.BatchSizes = o.Workers[1:], nil },
		"open.workers[2].node":         func(o *evenstepv1.Open) { o.Workers[2].Node = "m" },
		"open.workers[2].device_type":  func(o *evenstepv1.Open) { o.Workers[2].DeviceType = "m" },
		"open.workers[2].device_mem":   func(o *evenstepv1.Open) { o.Workers[2].DeviceMemoryBytes = 1 },
		"open.workers[2].min_batch":    func(o *evenstepv1.Open) { o.Workers[2].MinBatchSize = 1 },
		"open.workers[2].max_batch":    func(o *evenstepv1.Open) { o.Workers[2].MaxBatchSize = 9 },
		"open.batch_sizes: not those":  func(o *evenstepv1.Open) { o.BatchSizes = []uint32{4, 4, 4} },
		"open.batch_sizes: not those ": func(o *evenstepv1.Open) { o.BatchSizes = nil },
	} {
		s := dial(t, c)
		s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: newOpen(rank(1), change)}})
		s.fails(codes.AlreadyExists, field)
	}
}

func TestAWrongOpenNamesItsField(t *testing.T) {
	longName := strings.Repeat("é", 257)
	_, c := startServer(t, testPolicies)
	for want, change := range map[string]func(*evenstepv1.Open){
		"open.job: empty": func(o *evenstepv1.Open) { o.Job = "" },
		"open.job: ' '":   func(o *evenstepv1.Open) { o.Job = "a b" },
		`open.job: '\n'`:  func(o *evenstepv1.Open) { o.Job = "a\nb" },
		"open.job: more":  func(o *evenstepv1.Open) { o.Job = longName },
		"open.workload":   func(o *evenstepv1.Open) { o.Workload = longName },
		`open.policy: "none" is none of ["auto" "lies"`: func(o *evenstepv1.Open) { o.Policy = "none" },
		"open.global_batch: 0":                          func(o *evenstepv1.Open) { o.GlobalBatch = 0 },
		"open.global_batch: 12 is not":                  func(o *evenstepv1.Open) { o.Quantum = 5 },
		"open.workers: 0 entries; give 1 to 65536":      func(o *evenstepv1.Open) { o.Workers = nil },
		"open.workers[0]: more":                         func(o *evenstepv1.Open) { o.Workers[0].Node = longName },
		"open.workers[1].max_batch_size: 1 is below":    func(o *evenstepv1.Open) { o.Workers[1].MaxBatchSize = 1 },
		"open.workers[1].max_batch_size: no multiple": func(o *evenstepv1.Open) {
			o.Quantum, o.Workers[1].MinBatchSize, o.Workers[1].MaxBatchSize = 4, 5, 7
		},
		"open.global_batch: 12 is outside": func(o *evenstepv1.Open) {
			o.Workers[0].MinBatchSize, o.Workers[0].MaxBatchSize = 9, 9
		},
		"open.global_batch: 12 is outside what the workers can take, 44 (sum of min) to 28": func(o *evenstepv1.Open) {
			o.Workers[0].MinBatchSize, o.Workers[0].MaxBatchSize = 40, 0
		},
		"open.global_batch: 25 is outside": func(o *evenstepv1.Open) { o.GlobalBatch = 25 },
		"open.rank: 3 of 3":                func(o *evenstepv1.Open) { o.Rank = proto.Uint32(3) },
		"open.batch_sizes: 2 of them":      func(o *evenstepv1.Open) { o.BatchSizes = []uint32{6, 6} },
		"open.batch_sizes[0]: 5 is not":    func(o *evenstepv1.Open) { o.Quantum, o.BatchSizes = 2, []uint32{5, 3, 4} },
		"open.batch_sizes[2]: 9 is not":    func(o *evenstepv1.Open) { o.BatchSizes = []uint32{2, 2, 9} },
		"open.batch_sizes: they sum to 13": func(o *evenstepv1.Open) { o.BatchSizes = []uint32{5, 4, 4} },
	} {
		t.Run(want, func(t *testing.T) {
			s := dial(t, c)
			s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: newOpen(change)}})
			s.fails(codes.InvalidArgument, want)
		})
	}
}

func TestAWrongReportNamesItsField(t *testing.T) {
	_, c := startServer(t, testPolicies)
	type report = evenstepv1.WorkerReport
	worker := func(f func(*report)) *evenstepv1.StepReport {
		r := newReport(0, 1, 0, 1, 2)
		f(r.Workers[1])
		return r
	}
	for want, r := range map[string]*evenstepv1.StepReport{
		"report.next_free_step: 3 is not past step 3": {Step: 3, NextFreeStep: 3},
		"report.workers: 2 entries for 3 workers":     newReport(0, 1, 0, 1),
		"report.workers[2].rank: 3 is unknown":        newReport(0, 1, 0, 1, 3),
		"report.workers[2].rank: 1 is unknown or rep": newReport(0, 1, 0, 1, 1),
		"report.workers[1].compute_seconds: NaN":      worker(func(w *report) { w.ComputeSeconds = math.NaN() }),
		"report.workers[1].compute_seconds: 1e+308":   worker(func(w *report) { w.ComputeSeconds = 1e308 }),
		"report.workers[1].wait_seconds: 2e+12":       worker(func(w *report) { w.WaitSeconds = proto.Float64(2e12) }),
		"report.workers[1].compute_seconds: -1":       worker(func(w *report) { w.ComputeSeconds = -1 }),
		"report.workers[1].samples: +Inf":             worker(func(w *report) { w.Samples = math.Inf(1) }),
		"report.workers[1].cpu_available: -2":         worker(func(w *report) { w.CpuAvailable = new(-2.0) }),
		"report.workers[1].sm_clock_mhz: NaN":         worker(func(w *report) { w.SmClockMhz = new(math.NaN()) }),
	} {
		t.Run(want, func(t *testing.T) {
			s := open(t, c, newOpen())
			s.send(request(r))
			s.fails(codes.InvalidArgument, want)
		})
	}
	for name, r := range map[string]*evenstepv1.StepReport{
		"of another": newReport(0, 1, 0), "of all": newReport(0, 1, 0, 1, 2), "of none": newReport(0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c, newOpen(rank(1)))
			s.send(request(r))
			s.fails(codes.InvalidArgument, "report.workers: give one entry, of rank 1")
		})
	}
}

func TestAStreamIsAnOpenThenReports(t *testing.T) {
	_, c := startServer(t, testPolicies)
	s := dial(t, c)
	s.report(0, 1, 0, 1, 2)
	s.fails(codes.InvalidArgument, "send open")
	s = dial(t, c)
	s.send(&evenstepv1.BalanceRequest{})
	s.fails(codes.InvalidArgument, "send open")
	s = open(t, c, newOpen())
	s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: newOpen()}})
	s.fails(codes.InvalidArgument, "not a report")
}

func TestASlowReaderIsPutOutAndHoldsUpNobody(t *testing.T) {
	_, c := startServer(t, testPolicies)
	verbose := func(o *evenstepv1.Open) { o.Policy, o.Workers, o.BatchSizes = "verbose", o.Workers[:2], nil }
	slow, quick := open(t, c, newOpen(rank(0), verbose)), open(t, c, newOpen(rank(1), verbose))
	for step := range uint64(200) {
		slow.report(step, 1, 0)
		quick.report(step, 1, 1)
		quick.allocation(step, 1, 6, 6)
	}
	slow.fails(codes.ResourceExhausted, "64 answers are unread")
}

// As after a pause of either side: the client reads late, and what it reads last is what is in force.
func TestABacklogOfAWholeJobLosesTheOldestAnswers(t *testing.T) {
	b, c := startServer(t, testPolicies)
	s := dial(t, c)
	s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{
		Open: newOpen(func(o *evenstepv1.Open) { o.Policy = "verbose" }),
	}})
	const steps = 500
	for step := range uint64(steps) {
		s.report(step, 1, 0, 1, 2)
	}
	s.send(&evenstepv1.BalanceRequest{})
	waitUntil(t, b, func() bool { // the last request was refused
		j := b.jobs[jobKey{id: "job"}]
		if j == nil {
			return false
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.answered && j.live == 0
	})
	if r, err := s.Recv(); r.GetOpened() == nil {
		t.Fatalf("got %v, %v, want opened", r, err)
	}
	answers, next := 0, uint64(0)
	for next < steps {
		r, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d answers: %v", answers, err)
		}
		if got := r.GetAllocation().GetAnswersStep(); got < next {
			t.Fatalf("the answer to step %d, where %d was the next", got, next)
		}
		answers, next = answers+1, r.GetAllocation().GetAnswersStep()+1
	}
	if answers < maxUnread || answers > 2*maxUnread {
		t.Fatalf("got %d answers to %d steps", answers, steps)
	}
	s.fails(codes.InvalidArgument, "not a report")
}

func TestAPanicEndsItsStreamOnly(t *testing.T) {
	b, c := startServer(t, testPolicies)
	s := open(t, c, newOpen(func(o *evenstepv1.Open) { o.Policy = "panics" }))
	s.report(0, 1, 0, 1, 2)
	s.fails(codes.Internal)
	s = open(t, c, newOpen())
	s.report(0, 1, 0, 1, 2)
	s.allocation(0, 1, 2, 4, 6)
	s.stop()
	waitEmpty(t, b)
}

func TestAPolicyThatLiesChangesNothing(t *testing.T) {
	_, c := startServer(t, testPolicies)
	s := open(t, c, newOpen(func(o *evenstepv1.Open) { o.Policy = "lies" }))
	s.report(0, 1, 0, 1, 2)
	s.allocation(0, 1, 2, 4, 6)
}

func TestNothingIsKeptOfAJobWithoutStreams(t *testing.T) {
	b, c := startServer(t, testPolicies)
	for r := range uint32(3) {
		defer open(t, c, newOpen(rank(r))).stop()
	}
	open(t, c, newOpen(func(o *evenstepv1.Open) { o.Job = "other" })).stop()
	for r := range uint32(3) {
		open(t, c, newOpen(rank(r))).stop()
	}
	waitEmpty(t, b)
}

// waitEmpty waits until the Balancer has no job.
func waitEmpty(t *testing.T, b *Balancer) {
	t.Helper()
	waitUntil(t, b, func() bool { return len(b.jobs) == 0 && b.workers == 0 })
}

// waitUntil waits until it is so, as seen under the Balancer's lock.
func waitUntil(t *testing.T, b *Balancer, so func() bool) {
	t.Helper()
	for range 1000 {
		b.mu.Lock()
		now := so()
		b.mu.Unlock()
		if now {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("waited for five seconds")
}

func TestTheCoreTakesABoundedNumberOfWorkers(t *testing.T) {
	b := NewBalancer("test", testPolicies, hclog.NewNullLogger())
	for i := range maxAllWorkers / maxWorkers {
		key := jobKey{id: fmt.Sprint(i)}
		if _, err := b.hold(key, 1); err != nil {
			t.Fatal(err)
		}
		j, err := b.hold(key, maxWorkers) // a job is charged with the most that a stream of it opened with
		if err != nil {
			t.Fatal(err)
		}
		b.release(key, j)
	}
	if _, err := b.hold(jobKey{id: "more"}, 1); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("got %v", err)
	}
	if len(b.jobs) != maxAllWorkers/maxWorkers {
		t.Fatalf("%d jobs", len(b.jobs))
	}
}

func TestStopEndsEndlessStreams(t *testing.T) {
	b, c := startServer(t, testPolicies)
	s := open(t, c, newOpen())
	unopened := dial(t, c)
	unopened.send(&evenstepv1.BalanceRequest{})
	b.Stop()
	s.fails(codes.Unavailable, "stopping")
	late := dial(t, c)
	late.fails(codes.Unavailable)
}
