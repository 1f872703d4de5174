package service

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/frame"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// realPolicies are the ones of package sizing.
var realPolicies = func() Policies {
	policies := Policies{}
	for _, k := range sizing.Kinds() {
		policies[k.Name] = func(p sizing.Problem, start []int) (Policy, error) { return k.New(p, start) }
	}
	return policies
}()

// reader is a client that reads all its answers and checks that each is an allocation of the job.
type reader struct {
	*stream
	opening  *opening
	version  uint64
	answered uint64 // the first step that it knows no answer to
}

func (r *reader) read(t *rapid.T) {
	for len(r.answers) > 0 {
		a := (<-r.answers).GetAllocation()
		var sizes []int
		for _, n := range a.GetBatchSizes() {
			sizes = append(sizes, int(n))
		}
		if err := new(r.opening.problem()).CheckSizes(sizes); err != nil {
			t.Fatal(err)
		}
		if a.GetVersion() < r.version || a.GetVersion() > r.version+1 && r.version > 0 {
			t.Fatalf("version %d after %d", a.GetVersion(), r.version)
		}
		if a.GetAnswersStep() < r.answered || a.GetFromStep() <= a.GetAnswersStep() {
			t.Fatalf("answer to step %d, from step %d, where %d was the next",
				a.GetAnswersStep(), a.GetFromStep(), r.answered)
		}
		r.version, r.answered = a.GetVersion(), a.GetAnswersStep()+1
	}
}

// Whatever workers report, lose, repeat and delay, and whenever they come and go, each answer is an allocation.
func TestEveryAnswerSumsToTheGlobalBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := append(slices.Sorted(maps.Keys(realPolicies)), "")
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		quantum := rapid.IntRange(1, 4).Draw(t, "quantum")
		proposal := &evenstepv1.Open{
			Job:         "job",
			Quantum:     uint32(quantum),
			GlobalBatch: uint32(quantum * workers * rapid.IntRange(1, 50).Draw(t, "quanta")),
			Workers:     make([]*evenstepv1.Worker, workers),
			Policy:      rapid.SampledFrom(names).Draw(t, "policy"),
		}
		for i := range proposal.Workers {
			proposal.Workers[i] = &evenstepv1.Worker{}
		}
		slots := 1
		if rapid.Bool().Draw(t, "a stream for each") {
			slots = workers
		}
		j := &job{log: hclog.NewNullLogger(), comebacks: rate.NewLimiter(1, 1), measures: newMeasures()}
		readers := make([]*reader, slots)
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			slot := rapid.IntRange(0, slots-1).Draw(t, "slot")
			switch r := readers[slot]; {
			case r == nil || rapid.IntRange(0, 30).Draw(t, "comes again") == 0:
				if slots > 1 {
					proposal.Rank = proto.Uint32(uint32(slot))
				}
				o, err := newOpening(proposal, realPolicies)
				if err != nil {
					t.Fatal(err)
				}
				r = &reader{stream: newStream(), opening: o}
				if err := j.join(o, r.stream, realPolicies); err != nil {
					t.Fatal(err)
				}
				readers[slot] = r
			case rapid.IntRange(0, 30).Draw(t, "goes") == 0:
				j.leave(r.stream)
				readers[slot] = nil
			default:
				report := drawReport(t, r, workers)
				if err := checkReport(report, r.opening.rank, workers); err != nil {
					t.Fatal(err)
				}
				j.report(r.stream, report)
			}
			for _, r := range readers {
				if r != nil {
					r.read(t)
				}
			}
		}
	})
}

// drawReport draws a valid report of a step around the next one.
func drawReport(t *rapid.T, r *reader, workers int) *evenstepv1.StepReport {
	step := r.answered + uint64(rapid.IntRange(0, 4).Draw(t, "ahead"))
	step -= min(step, uint64(rapid.IntRange(0, 2).Draw(t, "behind")))
	report := &evenstepv1.StepReport{Step: step, NextFreeStep: step + uint64(rapid.IntRange(1, 4).Draw(t, "drawn"))}
	for rank := range workers {
		if r.opening.rank == allRanks || r.opening.rank == rank {
			report.Workers = append(report.Workers, &evenstepv1.WorkerReport{
				Rank:           uint32(rank),
				ComputeSeconds: rapid.OneOf(rapid.Float64Range(0, mostQuantity), rapid.Float64Range(0, 2)).Draw(t, "seconds"),
				Samples:        rapid.OneOf(rapid.Float64Range(0, mostQuantity), rapid.Float64Range(0, 99)).Draw(t, "samples"),
			})
		}
	}
	return report
}

// The gatherer counts what steps are missing as it goes along; here each count is taken anew. A rank that repeats
// itself counts once.
func TestTheGathererCountsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		g := newGatherer(workers)
		last, any := uint64(0), false
		reporters := map[uint64]map[int]bool{} // by step
		for range rapid.IntRange(1, 100).Draw(t, "events") {
			rank := rapid.IntRange(0, workers-1).Draw(t, "rank")
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				g.leave(rank)
			case 1:
				g.join(rank)
			default:
				g.join(rank)
				step := g.done + uint64(rapid.OneOf(rapid.IntRange(0, 2), rapid.IntRange(0, 30)).Draw(t, "step"))
				if reporters[step] == nil {
					reporters[step] = map[int]bool{}
				}
				reporters[step][rank] = true
				g.add(rank, step, step+1, speed.Observation{})
			}
			for p := g.pop(); p != nil; p = g.pop() {
				if any && p.step <= last {
					t.Fatalf("step %d after %d", p.step, last)
				}
				last, any = p.step, true
				if p.reports > len(reporters[p.step]) {
					t.Fatalf("step %d: %d reports of %d ranks", p.step, p.reports, len(reporters[p.step]))
				}
			}
			if len(g.pending) > maxPending {
				t.Fatalf("%d steps are pending", len(g.pending))
			}
			var got, want []int
			for _, p := range g.pending {
				missing := 0
				for rank, waited := range g.waited {
					if waited && g.next[rank] <= p.step {
						missing++
					}
				}
				got, want = append(got, p.missing), append(want, missing)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("missing ranks by pending step (-want +got):\n%s", diff)
			}
		}
	})
}

// script is a server's view of a stream whose client sends messages that are known before.
type script struct {
	evenstepv1.Balancer_BalanceServer
	ctx     context.Context
	in      [][]byte
	answers []*evenstepv1.BalanceResponse
}

func (s *script) Context() context.Context { return s.ctx }

func (s *script) RecvMsg(m any) error {
	if len(s.in) == 0 {
		return io.EOF
	}
	*m.(*frame.Frame) = s.in[0]
	s.in = s.in[1:]
	return nil
}

func (s *script) Send(r *evenstepv1.BalanceResponse) error {
	s.answers = append(s.answers, r)
	return nil
}

// A stream may join a job that its last one just left, as another job.
func TestAJobThatBeginsAnewLearnsAnew(t *testing.T) {
	j := &job{log: hclog.NewNullLogger(), comebacks: rate.NewLimiter(1, 1), measures: newMeasures()}
	for _, c := range []struct {
		workload string
		workers  int
	}{{"w", 3}, {"", 4}, {"v", 5}, {"v", 2}, {"", 1}} {
		open := &evenstepv1.Open{Job: "job", GlobalBatch: 60, Workload: c.workload,
			Workers: slices.Repeat([]*evenstepv1.Worker{{}}, c.workers)}
		o, err := newOpening(open, testPolicies)
		if err != nil {
			t.Fatal(err)
		}
		s := newStream()
		if err := j.join(o, s, testPolicies); err != nil {
			t.Fatal(err)
		}
		report := &evenstepv1.StepReport{NextFreeStep: 1}
		for i := range c.workers {
			report.Workers = append(report.Workers, &evenstepv1.WorkerReport{Rank: uint32(i), ComputeSeconds: 1, Samples: 1})
		}
		j.report(s, report)
		if (j.learner != nil) != (c.workload != "") || j.learner != nil && len(j.learner.workers) != c.workers {
			t.Errorf("%+v: learns with %+v", c, j.learner)
		}
		j.leave(s)
	}
}

// A core that restarted says which jobs came back; one that begins is none of them.
func TestAJobThatComesBackIsLogged(t *testing.T) {
	for step, want := range map[uint64]string{0: "", 7: `a job is back: job=job owner="" step=7 workers=3`} {
		var log bytes.Buffer
		b := NewBalancer("test", realPolicies, hclog.New(&hclog.LoggerOptions{Output: &log}))
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.Balance(&script{ctx: ctx, in: [][]byte{
			marshal(t, &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: newOpen()}}),
			marshal(t, request(newReport(step, 2, 0, 1, 2))), marshal(t, request(newReport(step+1, 2, 0, 1, 2))),
		}}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if got := log.String(); want == "" && got != "" || strings.Count(got, want) != 1 && want != "" {
			t.Errorf("step %d: the log says %q, want %q", step, got, want)
		}
	}
}

// Any three messages end in answers that are allocations, or in an error of the client's.
func FuzzBalance(f *testing.F) {
	f.Add(marshal(f, &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: newOpen()}}),
		marshal(f, request(newReport(0, 2, 0, 1, 2))), marshal(f, request(newReport(1, 2, 0, 1, 2))))
	f.Add(marshal(f, &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: newOpen(rank(1))}}),
		marshal(f, request(newReport(0, 2, 1))), []byte{})
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := NewBalancer("test", realPolicies, hclog.NewNullLogger())
		s := &script{ctx: ctx, in: [][]byte{first, second, third}}
		err := b.Balance(s)
		switch status.Code(err) {
		case codes.OK, codes.InvalidArgument:
		default:
			t.Fatal(err)
		}
		if len(b.jobs) > 0 || b.workers > 0 {
			t.Fatal("a job outlived its stream")
		}
		request := new(evenstepv1.BalanceRequest)
		if err := proto.Unmarshal(first, request); err != nil {
			return
		}
		for _, answer := range s.answers {
			sum := uint64(0)
			for _, n := range answer.GetAllocation().GetBatchSizes() {
				sum += uint64(n)
			}
			if answer.GetAllocation() != nil && sum != uint64(request.GetOpen().GetGlobalBatch()) {
				t.Fatalf("sizes sum to %d, global batch is %d", sum, request.GetOpen().GetGlobalBatch())
			}
		}
	})
}

func marshal(f testing.TB, m proto.Message) []byte {
	f.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// closable is a policy that knows how often it was closed.
type closable struct {
	*sizing.EqualPolicy
	closed *int
}

func (c closable) Close() error {
	*c.closed++
	return nil
}

func TestAPolicyIsClosedWhenItsJobEndsOrBeginsAnew(t *testing.T) {
	made, closed := 0, 0
	b := NewBalancer("test", Policies{"auto": func(p sizing.Problem, start []int) (Policy, error) {
		made++
		equal, err := sizing.NewEqual(p, start)
		return closable{equal, &closed}, err
	}}, hclog.NewNullLogger())
	key := jobKey{id: "job"}
	join := func() *stream {
		t.Helper()
		j, err := b.hold(key, 2)
		if err != nil {
			t.Fatal(err)
		}
		o, err := newOpening(&evenstepv1.Open{Job: "job", GlobalBatch: 8, Workers: []*evenstepv1.Worker{{}, {}}}, b.policies)
		if err != nil {
			t.Fatal(err)
		}
		s := newStream()
		if err := j.join(o, s, b.policies); err != nil {
			t.Fatal(err)
		}
		return s
	}
	j := func() *job { return b.jobs[key] }
	join()
	second := join()
	if made != 2 || closed != 1 {
		t.Fatalf("a newer stream: %d policies made, %d closed", made, closed)
	}
	last := j()
	last.leave(second)
	b.release(key, last)
	if closed != 1 {
		t.Fatalf("held by a stream: %d closed", closed)
	}
	b.release(key, last)
	if closed != 2 {
		t.Fatalf("ended: %d policies made, %d closed", made, closed)
	}
}
