package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	"github.com/evenstep/evenstep/plugin"
	policyv1 "github.com/evenstep/evenstep/plugin/policy/v1"
)

// answerTimeout is from a step to its answer.
const answerTimeout = 2 * time.Second

// Describe asks a plugin for its version. It takes as long as a start and that answer may.
func Describe(p *plugin.External) (version string, err error) {
	conn, err := p.Conn()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), plugin.DescribeTimeout)
	defer cancel()
	r, err := policyv1.NewPolicyClient(conn).Describe(ctx, &policyv1.DescribeRequest{})
	return plugin.VersionOf(r.GetVersion()), p.Fault(err)
}

// New is the constructor of the policy that a plugin decides. Nothing waits for the plugin: a step is handed to it, and
// what it has answered to earlier ones is put in force. Once it fails, auto takes its place, from the sizes in force,
// and the reason of each decision says so. Such a policy has to be closed.
func New(p *plugin.External, log hclog.Logger) sizing.Constructor {
	return func(problem sizing.Problem, start []int) (sizing.Policy, error) {
		r, err := newRemote(p, log, problem, start)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// Patient is the policy of one job that a plugin decides, for who has the time: each step waits for the answer to it.
// What fails is an error in the end.
type Patient struct {
	remote *remote
}

// NewPatient begins a job. Patient has to be closed.
func NewPatient(p *plugin.External, problem sizing.Problem, start []int) (*Patient, error) {
	r, err := newRemote(p, hclog.NewNullLogger(), problem, start)
	if err != nil {
		return nil, err
	}
	return &Patient{r}, nil
}

// Step hands the step to the plugin and waits for the answer, for as long as an answer may take.
func (p *Patient) Step(seen []speed.Observation, lag int) (d sizing.Decision, changed bool) {
	p.remote.hand(seen, lag)
	<-p.remote.answered
	return p.remote.decide(seen, lag)
}

// Close ends the job. The error says why the plugin decided none but its first steps, if so.
func (p *Patient) Close() error {
	p.remote.cancel()
	p.remote.mu.Lock()
	defer p.remote.mu.Unlock()
	return p.remote.failed
}

func newRemote(p *plugin.External, log hclog.Logger, problem sizing.Problem, start []int) (*remote, error) {
	stays, err := sizing.NewEqual(problem, start) // which checks both
	if err != nil {
		return nil, err
	}
	if problem.GlobalBatch > math.MaxUint32 {
		return nil, fmt.Errorf("global_batch: %d is more than plugins are told; give at most %d", problem.GlobalBatch,
			math.MaxUint32)
	}
	d, _ := stays.Step(nil, 1)
	d.Reason = "no answer from policy " + p.Name + " yet"
	ctx, cancel := context.WithCancel(context.Background())
	r := &remote{
		plugin:   p,
		log:      log,
		problem:  problem,
		steps:    make(chan *policyv1.SizeStep, 1),
		answered: make(chan struct{}, 1),
		cancel:   cancel,
		decision: d,
	}
	go r.run(ctx, d.BatchSizes)
	return r, nil
}

// remote is one job's policy, decided by a plugin.
type remote struct {
	plugin   *plugin.External
	log      hclog.Logger
	problem  sizing.Problem
	steps    chan *policyv1.SizeStep // the newest that was not sent yet
	answered chan struct{}           // told of each answer, unless it is full, and closed after the last
	cancel   context.CancelFunc
	decision sizing.Decision // in force
	builtin  *sizing.Auto    // decides in the plugin's place; nil while it does
	why      string          // it does

	mu     sync.Mutex
	answer *sizing.Decision // the newest that was not put in force yet; sizes are nil where they stay
	failed error
}

// Step hands the step to the plugin and decides what the plugin answered last.
func (r *remote) Step(seen []speed.Observation, lag int) (d sizing.Decision, changed bool) {
	r.hand(seen, lag)
	return r.decide(seen, lag)
}

// decide puts in force what the plugin answered last, or what is built in decides in its place.
func (r *remote) decide(seen []speed.Observation, lag int) (d sizing.Decision, changed bool) {
	if r.builtin != nil {
		return r.stepInstead(seen, lag)
	}
	r.mu.Lock()
	answer, failed := r.answer, r.failed
	r.answer = nil
	r.mu.Unlock()
	if failed != nil {
		r.builtin, _ = sizing.NewAuto(r.problem, r.decision.BatchSizes) // of sizes that were checked
		r.why = fmt.Sprintf("policy %s failed (%v), so auto decides: ", r.plugin.Name, failed)
		return r.stepInstead(seen, lag)
	}
	if answer == nil {
		return r.decision, false
	}
	changed = answer.BatchSizes != nil && !slices.Equal(answer.BatchSizes, r.decision.BatchSizes)
	if changed {
		r.decision.BatchSizes = answer.BatchSizes
	}
	r.decision.StepSeconds, r.decision.Reason = answer.StepSeconds, answer.Reason
	return r.decision, changed
}

// Close ends what the plugin keeps for the job. It waits for nothing.
func (r *remote) Close() error {
	r.cancel()
	return nil
}

// hand queues a step for the plugin, in the place of one that the plugin has not got to.
func (r *remote) hand(seen []speed.Observation, lag int) {
	if r.builtin != nil {
		return
	}
	step := &policyv1.SizeStep{Lag: uint32(max(1, min(lag, math.MaxInt32)))}
	for _, o := range seen {
		step.Observed = append(step.Observed, &policyv1.Observation{Samples: o.Samples, Seconds: o.Seconds, Cpu: o.CPU,
			MemoryBytes: o.MemoryBytes})
	}
	select {
	case <-r.steps:
	default:
	}
	r.steps <- step // there is room: only we add
}

func (r *remote) stepInstead(seen []speed.Observation, lag int) (d sizing.Decision, changed bool) {
	d, changed = r.builtin.Step(seen, lag)
	d.Reason = r.why + d.Reason
	return d, changed
}

// run talks to the plugin until ctx ends or the plugin fails.
func (r *remote) run(ctx context.Context, start []int) {
	defer close(r.answered)
	err := r.talk(ctx, start)
	if ctx.Err() != nil {
		return
	}
	r.log.Warn("a policy plugin failed, so auto decides for the job", "plugin", r.plugin.Path, "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
}

// talk opens the stream of the job and carries steps and answers; the error says why it ends.
func (r *remote) talk(ctx context.Context, start []int) error {
	conn, err := r.plugin.Conn()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := policyv1.NewPolicyClient(conn).Size(ctx)
	if err != nil {
		return r.plugin.Fault(err)
	}
	if err := r.open(stream, start); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case step := <-r.steps:
			late := time.AfterFunc(answerTimeout, func() { cancel(errLate) })
			answer, err := r.ask(stream, step)
			if late.Stop(); errors.Is(context.Cause(ctx), errLate) {
				r.plugin.KillIfHung(errLate)
				return errLate
			}
			if err != nil {
				return err
			}
			r.mu.Lock()
			// Sizes that were not put in force yet must not get lost behind an answer that leaves them as they are.
			if answer.BatchSizes == nil && r.answer != nil {
				answer.BatchSizes = r.answer.BatchSizes
			}
			r.answer = answer
			r.mu.Unlock()
			select {
			case r.answered <- struct{}{}:
			default:
			}
		}
	}
}

var errLate = fmt.Errorf("no answer within %v", answerTimeout)

func (r *remote) open(stream grpc.BidiStreamingClient[policyv1.SizeRequest, policyv1.SizeResponse], start []int) error {
	open := &policyv1.SizeOpen{
		GlobalBatch: uint32(r.problem.GlobalBatch),
		Quantum:     uint32(r.problem.Quantum),
		BatchSizes:  uint32s(start),
	}
	for _, w := range r.problem.Workers {
		open.Workers = append(open.Workers, &policyv1.SizeWorker{Min: uint32(w.Min), Max: uint32(w.Max)})
	}
	return r.send(stream, &policyv1.SizeRequest{Message: &policyv1.SizeRequest_Open{Open: open}})
}

// send sends a request; the error is the one that the plugin ended the stream with.
func (r *remote) send(
	stream grpc.BidiStreamingClient[policyv1.SizeRequest, policyv1.SizeResponse], request *policyv1.SizeRequest,
) error {
	if stream.Send(request) == nil {
		return nil
	}
	_, err := stream.Recv()
	return r.plugin.Fault(err)
}

// ask sends a step and checks the answer.
func (r *remote) ask(
	stream grpc.BidiStreamingClient[policyv1.SizeRequest, policyv1.SizeResponse], step *policyv1.SizeStep,
) (*sizing.Decision, error) {
	if err := r.send(stream, &policyv1.SizeRequest{Message: &policyv1.SizeRequest_Step{Step: step}}); err != nil {
		return nil, err
	}
	response, err := stream.Recv()
	if err != nil {
		return nil, r.plugin.Fault(err)
	}
	d := &sizing.Decision{StepSeconds: response.GetStepSeconds(), Reason: plugin.Line(response.GetReason())}
	if !(d.StepSeconds >= 0 && d.StepSeconds <= math.MaxFloat64) {
		return nil, fmt.Errorf("step_seconds: %v is not a finite number >= 0", d.StepSeconds)
	}
	if len(response.GetBatchSizes()) > 0 {
		d.BatchSizes = ints(response.GetBatchSizes())
		if err := r.problem.CheckSizes(d.BatchSizes); err != nil {
			return nil, err
		}
	}
	return d, nil
}
