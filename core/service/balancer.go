// Package service serves the core's algorithms over gRPC.
//
// A Balancer keeps the open jobs and speaks the wire of proto/evenstep/v1; the policies that decide are handed to it. A
// Placer answers one problem of placement at a time. A Server is the gRPC server around both. Whatever clients send, in
// whatever order, each bad message ends its own stream with an error that names the field, and nothing that is kept for a
// client outlives its streams, but for what operators register.
package service

import (
	"context"
	"errors"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/evenstep/evenstep/core/frame"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// maxAllWorkers bounds the workers of all open jobs together, and with them what the jobs keep.
const maxAllWorkers = 1 << 20

// largeFrame is from how many bytes on a message is parsed in turns, since it may become many times as much.
const largeFrame = 64 << 10

// Policy decides the batch sizes of one job. One that is an io.Closer as well is closed when its job ends or begins anew.
type Policy interface {
	// Step takes what the step cost each worker, in rank order, and returns the sizes that hold from lag steps later on
	// and whether they are others than before. Calls come one at a time, in the order of the steps.
	Step(seen []speed.Observation, lag int) (d sizing.Decision, changed bool)
}

// Policies makes policies by the name that an Open asks for. start are the sizes in force, which satisfy the problem.
type Policies map[string]func(p sizing.Problem, start []int) (Policy, error)

// Balancer implements the services Balancer, Jobs and Profiles. Its methods may be called at the same time.
type Balancer struct {
	evenstepv1.UnimplementedBalancerServer
	evenstepv1.UnimplementedJobsServer
	evenstepv1.UnimplementedProfilesServer

	// Profiles is set before the first stream, or nil: then jobs begin as they say, and nothing is learned of devices.
	Profiles Profiles
	// Keep is set before the first stream, or nil: it is told that a job's profiles are complete and are to be kept on disk
	// soon. It waits for nothing.
	Keep func()

	version   string
	policies  Policies
	log       hclog.Logger
	comebacks *rate.Limiter // of jobs that the log tells
	measures  *measures
	parsing   chan struct{} // has room for each large frame that is parsed
	stopping  chan struct{}
	stop      sync.Once

	mu         sync.Mutex
	jobs       map[jobKey]*job
	workers    int                      // that all jobs are charged with
	users      map[string]*user         // by owner
	registered map[string]*registration // by job id
}

// jobKey names a job. Owners do not see each other: the same id under two owners is two jobs.
type jobKey struct{ owner, id string }

// NewBalancer returns a Balancer without jobs that tells its clients the given version.
func NewBalancer(version string, policies Policies, log hclog.Logger) *Balancer {
	return &Balancer{
		version:    version,
		policies:   policies,
		log:        log,
		comebacks:  rate.NewLimiter(1, 100),
		measures:   newMeasures(),
		parsing:    make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		stopping:   make(chan struct{}),
		jobs:       make(map[jobKey]*job),
		users:      make(map[string]*user),
		registered: make(map[string]*registration),
	}
}

// Stop ends all streams, and those to come, with UNAVAILABLE. It does not wait for them.
func (b *Balancer) Stop() { b.stop.Do(func() { close(b.stopping) }) }

// Balance serves one stream, as the service definition says, until its client closes its side.
func (b *Balancer) Balance(s evenstepv1.Balancer_BalanceServer) error {
	call := callIn(s.Context())
	u, st := call.user, newStream()
	requests := receive(s)
	o, err := b.opening(s.Context(), requests, u, st)
	if err != nil {
		return orNil(err)
	}
	key, err := b.whose(o.job.ID, call.caller)
	if err != nil {
		return err
	}
	j, err := b.hold(key, len(o.job.Workers))
	if err != nil {
		return err
	}
	defer b.release(key, j)
	workers := len(o.job.Workers)
	if err := b.tell(u, workers); err != nil {
		return err
	}
	defer func() { _ = b.tell(u, -workers) }() // giving back never fails
	if err := j.join(o, st, b.policies); err != nil {
		return err
	}
	sent := send(s, &evenstepv1.BalanceResponse{Message: &evenstepv1.BalanceResponse_Opened{
		Opened: &evenstepv1.Opened{CoreVersion: b.version, Policy: o.policy, Allocation: st.start},
	}}, st.answers)
	st.start = nil
	// Not with the opening: a stream for each worker would keep one for all.
	err = b.reports(s.Context(), requests, u, j, st, o.rank, workers)
	// What is queued still goes out, unless the queue is why the stream ends, or there is no time.
	close(st.answers)
	select {
	case <-sent:
	case <-st.out:
	case <-b.stopping:
	}
	return orNil(err)
}

// opening waits for the first request of a stream.
func (b *Balancer) opening(ctx context.Context, requests <-chan received, u *user, st *stream) (*opening, error) {
	f, err := b.next(ctx, requests, st)
	if err != nil {
		return nil, err
	}
	workers, err := workersIn(f, maxWorkers)
	if err != nil {
		return nil, err
	}
	if workers > maxWorkers {
		return nil, wrongWorkers(workers)
	}
	if err := u.wait(ctx, costOf(workers, len(f))); err != nil {
		return nil, err
	}
	o, err := b.parseOpening(f)
	if err == nil {
		o.choose(b.Profiles)
	}
	return o, err
}

func (b *Balancer) parseOpening(f frame.Frame) (*opening, error) {
	defer b.parse(f)()
	r := new(evenstepv1.BalanceRequest)
	if err := f.Parse(r); err != nil {
		return nil, notAMessage(err)
	}
	if r.GetOpen() == nil {
		return nil, invalid("request: the first one of a stream is not an open; send open, then reports")
	}
	return newOpening(r.GetOpen(), b.policies)
}

// reports hands the job what comes in on a stream that has joined it, for one rank or for all, and takes the stream out of
// the job in the end.
func (b *Balancer) reports(
	ctx context.Context, requests <-chan received, u *user, j *job, st *stream, rank, workers int,
) error {
	defer j.leave(st)
	for {
		f, err := b.next(ctx, requests, st)
		if err != nil {
			return err
		}
		entries, err := workersIn(f, workers)
		if err != nil {
			return err
		}
		if entries > workers {
			return wrongNumber(entries, workers)
		}
		if err := u.wait(ctx, costOf(entries, len(f))); err != nil {
			return err
		}
		answered, err := b.report(f, j, st, rank, workers)
		if err != nil {
			return err
		}
		// One worker's report is cheap, but not an answer to all of them.
		if rank != allRanks && answered > 0 {
			if err := u.wait(ctx, answered*costOf(workers, 0)); err != nil {
				return err
			}
		}
	}
}

// report hands the job one report, and says how many steps that answered.
func (b *Balancer) report(f frame.Frame, j *job, st *stream, rank, workers int) (answered int, err error) {
	defer b.parse(f)()
	r := new(evenstepv1.BalanceRequest)
	if err := f.Parse(r); err != nil {
		return 0, notAMessage(err)
	}
	if r.GetReport() == nil {
		return 0, invalid("request: not a report; after its open a stream carries nothing else")
	}
	if err := checkReport(r.GetReport(), rank, workers); err != nil {
		return 0, err
	}
	return j.report(st, r.GetReport()), nil
}

// parse waits for a turn to parse the frame, until done. Small ones have no turns.
func (b *Balancer) parse(f frame.Frame) (done func()) {
	if len(f) < largeFrame {
		return func() {}
	}
	b.parsing <- struct{}{}
	return func() { <-b.parsing }
}

// workersIn counts the workers that a request is about, to one more than the most, before it is parsed.
func workersIn(f frame.Frame, most int) (int, error) {
	const open, openWorkers, report, reportWorkers = 1, 4, 2, 3
	n, err := f.Entries(map[protowire.Number]protowire.Number{open: openWorkers, report: reportWorkers}, most)
	if err != nil {
		return 0, notAMessage(err)
	}
	return n, nil
}

func notAMessage(err error) error { return invalid("request: %v; send a BalanceRequest", err) }

// next waits for the next request. It fails with io.EOF when the client is done, and with a status when the stream is
// to end for another reason.
func (b *Balancer) next(ctx context.Context, requests <-chan received, st *stream) (frame.Frame, error) {
	select {
	case r := <-requests:
		return r.frame, r.err
	case <-st.out:
		return nil, st.err
	case <-b.stopping:
		return nil, status.Error(codes.Unavailable, "the core is stopping; connect again")
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// orNil turns the client's orderly end into success.
func orNil(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// hold finds or makes a job and keeps it until release, charging it with the workers.
func (b *Balancer) hold(key jobKey, workers int) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[key]
	if j == nil {
		j = &job{log: b.log.With("job", key.id, "owner", key.owner), comebacks: b.comebacks, measures: b.measures}
	}
	more := max(0, workers-j.charged)
	if b.workers+more > maxAllWorkers {
		return nil, status.Errorf(codes.ResourceExhausted,
			"open.workers: %d more than the %d of the open jobs; a core takes %d", more, b.workers, maxAllWorkers)
	}
	jobs := 0
	if j.holders == 0 {
		jobs = 1
	}
	if err := b.user(key.owner).charge(jobs, more); err != nil {
		return nil, err
	}
	b.jobs[key] = j
	b.workers += more
	j.charged += more
	j.holders++
	return j, nil
}

// release drops the job when nobody holds it any more, and records what it showed.
func (b *Balancer) release(key jobKey, j *job) {
	b.mu.Lock()
	j.holders--
	ended := j.holders == 0
	if ended {
		b.workers -= j.charged
		_ = b.user(key.owner).charge(-1, -j.charged) // giving back never fails
		delete(b.jobs, key)
		j.end()
	}
	b.mu.Unlock()
	if ended {
		b.record(j)
	}
}

// Record takes what the open jobs showed of their devices into the profiles. What jobs show that have ended is in them.
func (b *Balancer) Record() {
	b.mu.Lock()
	jobs := slices.Collect(maps.Values(b.jobs))
	b.mu.Unlock()
	for _, j := range jobs {
		b.record(j)
	}
}

func (b *Balancer) record(j *job) {
	if b.Profiles == nil {
		return
	}
	workload, sightings := j.sightings()
	for _, s := range sightings {
		b.Profiles.Record(workload, s.on, s.seen)
	}
}

// received is a message from the client or why there are no more.
type received struct {
	frame frame.Frame
	err   error
}

// receive reads a stream in the background until it ends, since reading cannot be interrupted but by returning from the
// handler.
func receive(s evenstepv1.Balancer_BalanceServer) <-chan received {
	requests := make(chan received)
	go func() {
		for {
			var f frame.Frame
			err := s.RecvMsg(&f)
			select {
			case requests <- received{f, err}:
			case <-s.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return requests
}

// send writes first and then the answers in the background, until they are closed or the stream ends, then closes what
// it returns.
func send(
	s evenstepv1.Balancer_BalanceServer, first *evenstepv1.BalanceResponse, answers <-chan *evenstepv1.BalanceResponse,
) <-chan struct{} {
	sent := make(chan struct{})
	// Not captured: it would be kept as long as the stream.
	go func(a *evenstepv1.BalanceResponse) {
		defer close(sent)
		for more := true; more && s.Send(a) == nil; {
			select {
			case a, more = <-answers:
			case <-s.Context().Done():
				return
			}
		}
	}(first)
	return sent
}
