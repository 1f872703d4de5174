package service

import (
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// job is what the streams of one job share. Its state begins with the first stream and ends with the last; a stream
// for all workers is a job's only one, so a newer one begins anew from the batch sizes that its client says are in
// force.
type job struct {
	holders, charged int // streams that hold it, workers it is charged with; guarded by the Balancer's mutex

	// mu guards all below; whoever holds it never waits.
	mu         sync.Mutex
	log        hclog.Logger
	comebacks  *rate.Limiter // of the core's, so that nobody floods its log
	measures   *measures
	opening    *opening // of the stream that began the state
	problem    sizing.Problem
	policy     Policy
	allocation cluster.Allocation // in force
	answered   bool               // whether any step was
	hints      []hint             // by rank, the newest
	newest     []cost             // by rank, of the newest step
	steps      uint64             // that were decided since it began
	resizes    uint64             // that changed the sizes
	learner    *learner           // nil where nothing is profiled
	nextStep   uint64             // the first that is not answered, in a job with one stream
	gatherer   *gatherer          // in a job with a stream for each worker; else nil
	streams    []*stream          // by rank, or one for all; nil where there is none
	live       int                // streams that there are
}

// join makes the stream a part of the job. An older stream in its place ends with ABORTED: a client that lost its
// connection is back before the core has noticed. A job that is open with other parameters refuses with ALREADY_EXISTS.
func (j *job) join(o *opening, s *stream, policies Policies) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.live > 0 {
		if err := j.agree(o); err != nil {
			return err
		}
	}
	s.slot = max(0, o.rank)
	if j.live > 0 && j.streams[s.slot] != nil {
		j.putOut(j.streams[s.slot], status.Error(codes.Aborted, "a newer stream took the place of this one"))
	}
	if j.live == 0 || o.rank == allRanks {
		if err := j.begin(o, policies); err != nil {
			return err
		}
	}
	j.streams[s.slot] = s
	s.start = newResponse(&j.allocation, 0).GetAllocation()
	j.live++
	if o.rank != allRanks {
		j.gatherer.join(o.rank)
	}
	return nil
}

// agree refuses an opening that differs from the one that began the job.
func (j *job) agree(o *opening) error {
	if field := j.opening.differs(o); field != "" {
		return status.Errorf(codes.AlreadyExists, "open.%s as in the open job %s", field, o.job.ID)
	}
	// Later on, a worker that comes back may know newer sizes than the first one did, or older.
	if o.rank != allRanks && !j.answered && !slices.Equal(j.opening.given, o.given) {
		return status.Errorf(codes.AlreadyExists, "open.batch_sizes: not those of the open job %s", o.job.ID)
	}
	return nil
}

// begin sets the state to that of a job that has seen no step. Whatever the policy refuses, the caller got wrong.
func (j *job) begin(o *opening, policies Policies) error {
	problem := o.problem()
	policy, err := policies[o.policy](problem, o.start)
	if err != nil {
		return invalid("open: %v", err)
	}
	j.closePolicy()
	switch {
	case o.job.Workload == "":
		j.learner = nil
	case j.learner == nil || j.opening.differs(o) != "":
		j.learner = &learner{workers: make([]shown, len(problem.Workers))}
	}
	j.opening, j.problem, j.policy, j.gatherer, j.answered = o, problem, policy, nil, false
	j.allocation = cluster.Allocation{
		Version: 1, BatchSizes: slices.Clone(o.start), StepSeconds: o.stepSeconds, Reason: o.reason,
	}
	j.measures.sizes(o.start)
	j.nextStep = 0
	j.steps, j.resizes = 0, 0
	j.hints = make([]hint, len(problem.Workers))
	j.newest = make([]cost, len(problem.Workers))
	j.streams = make([]*stream, 1)
	if o.rank != allRanks {
		j.gatherer = newGatherer(len(problem.Workers))
		j.streams = make([]*stream, len(problem.Workers))
	}
	return nil
}

// end frees what the job's policy holds. No stream has the job any more.
func (j *job) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closePolicy()
}

func (j *job) closePolicy() {
	if closer, ok := j.policy.(io.Closer); ok {
		closer.Close()
	}
}

// leave takes the stream out of the job, unless it is out already. The steps that waited for it alone are answered.
func (j *job) leave(s *stream) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.has(s) {
		j.forget(s)
		j.settle()
	}
}

func (j *job) has(s *stream) bool { return j.live > 0 && j.streams[s.slot] == s }

func (j *job) forget(s *stream) {
	j.streams[s.slot] = nil
	j.live--
	if j.gatherer != nil {
		j.gatherer.leave(s.slot)
	}
}

// putOut forgets the stream and ends it with err, a gRPC status.
func (j *job) putOut(s *stream, err error) {
	j.forget(s)
	s.err = err
	close(s.out)
}

// report takes a checked report that came in on the stream, and says how many steps it answered. Steps that were answered,
// and streams that are out, are ignored.
func (j *job) report(s *stream, r *evenstepv1.StepReport) (answered int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.has(s) {
		return 0
	}
	if j.gatherer != nil {
		w := r.GetWorkers()[0]
		j.hints[s.slot], j.newest[s.slot] = newHint(w), newCost(w)
		j.learn(r)
		j.gatherer.add(s.slot, r.GetStep(), r.GetNextFreeStep(), observation(j.opening.job.Workers[s.slot], w))
		return j.settle()
	}
	if r.GetStep() < j.nextStep {
		return 0
	}
	j.nextStep = r.GetStep() + 1
	j.learn(r)
	seen := make([]speed.Observation, len(j.opening.job.Workers))
	for _, w := range r.GetWorkers() {
		seen[w.GetRank()] = observation(j.opening.job.Workers[w.GetRank()], w)
		j.hints[w.GetRank()], j.newest[w.GetRank()] = newHint(w), newCost(w)
	}
	j.makeRoom()
	j.decide(seen, r.GetNextFreeStep()-r.GetStep())
	j.answer(r.GetStep(), r.GetNextFreeStep())
	return 1
}

// learn lets the profiles' learner see what the workers report.
func (j *job) learn(r *evenstepv1.StepReport) {
	if j.learner == nil {
		return
	}
	for _, w := range r.GetWorkers() {
		j.learner.see(w)
	}
}

// sightings takes out what the job showed of its devices since it was last asked.
func (j *job) sightings() (workload string, all []sighting) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.learner == nil {
		return "", nil
	}
	return j.opening.job.Workload, j.learner.sightings(j.opening.job.Workers)
}

// settle answers the steps that are complete. Sizes change only where every worker has reported the step, so that its
// next_free_step is known, and has a stream, so that it will learn of the change: else the workers would not agree on
// the sizes of a step, and their sum would be off. It says how many steps it answered.
func (j *job) settle() (answered int) {
	if j.gatherer == nil {
		return 0
	}
	for p := j.gatherer.pop(); p != nil; p = j.gatherer.pop() {
		j.makeRoom()
		if p.reports == len(j.streams) && j.live == len(j.streams) {
			j.decide(p.observations, p.nextFreeStep-p.step)
		} else {
			j.allocation.Reason = "not all workers reported the step and are here to learn of a change"
		}
		j.answer(p.step, p.nextFreeStep)
		answered++
	}
	return answered
}

// decide lets the policy see what a step cost each worker and puts its sizes in force, for lag steps later.
func (j *job) decide(seen []speed.Observation, lag uint64) {
	began := time.Now()
	d, changed := j.policy.Step(seen, int(min(lag, math.MaxInt32)))
	j.measures.decisionSeconds.Observe(time.Since(began).Seconds())
	j.measures.step(j.newest)
	j.steps++
	if changed {
		if err := j.problem.CheckSizes(d.BatchSizes); err != nil {
			j.log.Error("the policy broke its promise; sizes stay", "policy", j.opening.policy, "error", err)
			j.allocation.Reason = "the policy's answer was not an allocation"
			return
		}
		j.measures.resizes.Inc()
		j.measures.sizes(d.BatchSizes)
		j.resizes++
		j.allocation.Version++
		j.allocation.BatchSizes = slices.Clone(d.BatchSizes)
	}
	if j.allocation.Version == 1 && j.opening.stepSeconds > 0 {
		d.Reason = j.opening.reason // still that of the sizes in force
	}
	j.allocation.StepSeconds, j.allocation.Reason = d.StepSeconds, d.Reason
	if why := explain(j.opening.job.Workers, seen, j.hints); why != "" {
		j.allocation.Reason += "; " + why
	}
}

// makeRoom gives each stream room for an answer. A stream for all workers loses its oldest unread one, since each says
// all that is in force. A worker's own is put out, before a decision, since it would not learn of it in time.
func (j *job) makeRoom() {
	for _, s := range j.streams {
		switch {
		case s == nil || len(s.answers) < cap(s.answers):
		case j.gatherer != nil:
			j.putOut(s, status.Errorf(codes.ResourceExhausted, "%d answers are unread; read them", maxUnread))
		default:
			select {
			case <-s.answers:
			default: // just sent
			}
		}
	}
}

// answer queues the allocation in force on every stream, as the answer to a step. There is room: makeRoom saw to it,
// and only the job adds.
func (j *job) answer(step, fromStep uint64) {
	if !j.answered && step > 0 && j.comebacks.Allow() {
		j.log.Info("a job is back", "step", step, "workers", len(j.problem.Workers))
	}
	j.answered = true
	j.allocation.FromStep = fromStep
	response := newResponse(&j.allocation, step)
	for _, s := range j.streams {
		if s != nil {
			s.answers <- response
		}
	}
}

// newResponse puts an allocation on the wire.
func newResponse(a *cluster.Allocation, answersStep uint64) *evenstepv1.BalanceResponse {
	sizes := make([]uint32, len(a.BatchSizes))
	for i, n := range a.BatchSizes {
		sizes[i] = uint32(n)
	}
	return &evenstepv1.BalanceResponse{Message: &evenstepv1.BalanceResponse_Allocation{
		Allocation: &evenstepv1.Allocation{
			Version:     a.Version,
			FromStep:    a.FromStep,
			BatchSizes:  sizes,
			StepSeconds: a.StepSeconds,
			Reason:      a.Reason,
			AnswersStep: answersStep,
		},
	}}
}
