package policy

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	"github.com/evenstep/evenstep/plugin"
	policyv1 "github.com/evenstep/evenstep/plugin/policy/v1"
)

// step is a policy as a function.
type step func(p sizing.Problem, seen []speed.Observation, lag int) (sizing.Decision, bool)

// This test binary is a plugin as well, by the name that it is started by.
var plugins = map[string]step{
	// Moves a quantum from the first worker to the last, and says what it saw.
	"moves": func(p sizing.Problem, seen []speed.Observation, lag int) (sizing.Decision, bool) {
		if len(seen) != 3 || seen[2] != (speed.Observation{Samples: 8, Seconds: 0.5, CPU: 2, MemoryBytes: 3}) || lag != 4 ||
			p.GlobalBatch != 24 || p.Quantum != 2 || len(p.Workers) != 3 || p.Workers[1].Max != 20 {
			return sizing.Decision{Reason: "saw something else"}, false
		}
		return sizing.Decision{BatchSizes: []int{6, 8, 10}, StepSeconds: 0.25, Reason: "as\nI like"}, true
	},
	"stays":    func(sizing.Problem, []speed.Observation, int) (d sizing.Decision, changed bool) { return d, false },
	"nonsense": func(sizing.Problem, []speed.Observation, int) (sizing.Decision, bool) { return decided(8, 8, 10), true },
	"beyond":   func(sizing.Problem, []speed.Observation, int) (sizing.Decision, bool) { return decided(2, 22, 0), true },
	"few":      func(sizing.Problem, []speed.Observation, int) (sizing.Decision, bool) { return decided(12, 12), true },
	"nan": func(sizing.Problem, []speed.Observation, int) (sizing.Decision, bool) {
		return sizing.Decision{StepSeconds: math.NaN()}, false
	},
	"panics": func(sizing.Problem, []speed.Observation, int) (sizing.Decision, bool) { panic("oh no") },
	"hangs": func(sizing.Problem, []speed.Observation, int) (sizing.Decision, bool) {
		time.Sleep(time.Hour)
		return sizing.Decision{}, false
	},
	"late":      nil,
	"refuses":   nil,
	"unwilling": nil,
}

func decided(sizes ...int) sizing.Decision { return sizing.Decision{BatchSizes: sizes} }

// job is a policy in the plugin.
type job struct {
	problem sizing.Problem
	step    step
}

func (j job) Step(seen []speed.Observation, lag int) (sizing.Decision, bool) {
	return j.step(j.problem, seen, lag)
}

func TestMain(m *testing.M) {
	name, ours := strings.CutPrefix(filepath.Base(os.Args[0]), "evenstep-policy-")
	if !ours {
		goleak.VerifyTestMain(m)
	}
	p := Policy{Version: "1.2.3", Size: func(p sizing.Problem, _ []int) (sizing.Policy, error) {
		if plugins[name] == nil {
			return nil, errors.New("not this job")
		}
		return job{p, plugins[name]}, nil
	}}
	if name == "late" {
		time.Sleep(plugin.DescribeTimeout + time.Second)
	}
	if name == "unwilling" {
		p.Size = nil
	}
	p.Place = placers[name]
	Serve(p)
}

// external is this binary as a plugin of the name.
func external(t *testing.T, name string) *plugin.External {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "evenstep-policy-"+name)); err != nil {
		t.Fatal(err)
	}
	f, err := plugin.Open(dir, hclog.NewNullLogger())
	if err != nil || len(f.OfKind(plugin.Policy)) != 1 {
		t.Fatal(f.Plugins, err)
	}
	t.Cleanup(f.Close)
	return f.Plugins[0]
}

var (
	start24   = []int{8, 8, 8}
	problem24 = sizing.Problem{GlobalBatch: 24, Quantum: 2, Workers: []sizing.Worker{{Max: 20}, {Max: 20}, {Max: 20}}}
	seen24    = []speed.Observation{{Samples: 8, Seconds: 1}, {}, {Samples: 8, Seconds: 0.5, CPU: 2, MemoryBytes: 3}}
)

// policy is the plugin's policy of a job.
func policy(t *testing.T, p *plugin.External, log hclog.Logger) sizing.Policy {
	t.Helper()
	made, err := New(p, log)(problem24, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.(io.Closer).Close() })
	return made
}

// until steps until the reason begins so. Every decision on the way is an allocation, and no step takes long.
func until(t *testing.T, p sizing.Policy, sizes []int, reason string) (d sizing.Decision, changes int) {
	t.Helper()
	for range 2000 {
		began := time.Now()
		next, changed := p.Step(seen24, 4)
		if took := time.Since(began); took > time.Second {
			t.Fatalf("a step waited %v", took)
		}
		if err := problem24.CheckSizes(next.BatchSizes); err != nil || changed == slices.Equal(next.BatchSizes, sizes) {
			t.Fatalf("changed %v to %v, %v: %v", sizes, next.BatchSizes, changed, err)
		}
		if changed {
			changes++
			sizes = slices.Clone(next.BatchSizes)
		}
		if strings.HasPrefix(next.Reason, reason) {
			return next, changes
		}
		d = next
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("the reason is %q, not %q", d.Reason, reason)
	return d, changes
}

func TestAPluginDecides(t *testing.T) {
	p := policy(t, external(t, "moves"), hclog.NewNullLogger())
	first, changed := p.Step(seen24, 4)
	if changed || first.Reason != "no answer from policy moves yet" || !slices.Equal(first.BatchSizes, []int{8, 8, 8}) {
		t.Errorf("before its first answer: %+v, %v", first, changed)
	}
	d, changes := until(t, p, start24, "as I like")
	if changes != 1 || !slices.Equal(d.BatchSizes, []int{6, 8, 10}) || d.StepSeconds != 0.25 {
		t.Errorf("got %+v after %d changes", d, changes)
	}
	if d, changed := p.Step(seen24, 4); changed || !slices.Equal(d.BatchSizes, []int{6, 8, 10}) {
		t.Errorf("the same answer again: %+v, %v", d, changed)
	}
}

// A start may take longer than an answer.
func TestAPluginThatTakesItsTimeToStartSaysWhatItIs(t *testing.T) {
	t.Parallel()
	if version, err := Describe(external(t, "late")); version != "1.2.3" || err != nil {
		t.Errorf("got %q, %v", version, err)
	}
}

func TestManyJobsShareAPlugin(t *testing.T) {
	p := external(t, "moves")
	var jobs sync.WaitGroup
	for range 8 {
		made := policy(t, p, hclog.NewNullLogger())
		jobs.Go(func() {
			for range 1000 {
				if d, _ := made.Step(seen24, 4); d.Reason == "as I like" {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			t.Error("no answer")
		})
	}
	jobs.Wait()
}

func TestAutoTakesOverFromAPluginThatFails(t *testing.T) {
	for name, why := range map[string]string{
		"nonsense":  "batch_sizes: they sum to 26; give sizes that sum to global_batch 24",
		"beyond":    "batch_sizes[1]: 22 is not a multiple of 2 between 0 and 20",
		"few":       "batch_sizes: 2 of them for 3 workers; give one each",
		"nan":       "step_seconds: NaN is not a finite number >= 0",
		"panics":    "its process died",
		"hangs":     "no answer within 2s",
		"refuses":   "not this job",
		"unwilling": "it does not offer that",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said lines
			p := policy(t, external(t, name), hclog.New(&hclog.LoggerOptions{Output: &said}))
			until(t, p, start24, "policy "+name+" failed ("+why+"), so auto decides: ")
			if !strings.Contains(said.String(), why) {
				t.Errorf("not reported: %q", said.String())
			}
		})
	}
}

// lines is a log that may be written to and read at the same time.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAPluginThatIsStoppedIsReplacedAndEnded(t *testing.T) {
	t.Parallel()
	p := external(t, "moves")
	job := policy(t, p, hclog.NewNullLogger())
	d, _ := until(t, job, start24, "as I like")
	pid := pidOf(t, p)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d, _ = until(t, job, d.BatchSizes, "policy moves failed (no answer within 2s), so auto decides: ")
	if !slices.Equal(d.BatchSizes, []int{6, 8, 10}) {
		t.Errorf("auto begins with %v", d.BatchSizes)
	}
	for syscall.Kill(pid, 0) == nil {
		time.Sleep(5 * time.Millisecond) // it is ended, since it does not even say that it lives
	}
}

// pidOf finds the plugin's process by its path.
func pidOf(t *testing.T, p *plugin.External) (pid int) {
	t.Helper()
	links, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, link := range links {
		if text, err := os.ReadFile(link); err == nil && strings.TrimRight(string(text), "\x00") == p.Path {
			pid = atoi(strings.Split(link, "/")[2])
		}
	}
	if pid == 0 {
		t.Fatal("no process")
	}
	return pid
}

func atoi(digits string) (n int) {
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

// Who has the time gets the answer to each step from that step, and how it failed in the end.
func TestAPatientCallerWaits(t *testing.T) {
	for name, why := range map[string]string{
		"moves":    "",
		"stays":    "",
		"nonsense": "batch_sizes: they sum to 26; give sizes that sum to global_batch 24",
		"panics":   "its process died",
		"hangs":    "no answer within 2s",
		"refuses":  "not this job",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := NewPatient(external(t, name), problem24, nil)
			if err != nil {
				t.Fatal(err)
			}
			for step := range 20 {
				d, changed := p.Step(seen24, 4)
				if name == "moves" && (changed != (step == 0) || !slices.Equal(d.BatchSizes, []int{6, 8, 10})) {
					t.Errorf("step %d: %+v, %v", step, d, changed)
				}
				if err := problem24.CheckSizes(d.BatchSizes); err != nil {
					t.Error(err)
				}
			}
			if err := p.Close(); why == "" && err != nil || why != "" && (err == nil || err.Error() != why) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := NewPatient(external(t, "moves"), problem24, []int{24}); err == nil {
		t.Error("a job that cannot be began")
	}
	large := sizing.Problem{GlobalBatch: math.MaxUint32 + 1, Quantum: 1, Workers: []sizing.Worker{{Max: math.MaxUint32 + 1}}}
	if _, err := NewPatient(external(t, "moves"), large, nil); err == nil || !strings.HasPrefix(err.Error(), "global_batch: ") {
		t.Errorf("what does not fit the wire: %v", err)
	}
}

func TestAJobThatCannotBe(t *testing.T) {
	p := external(t, "moves")
	for name, start := range map[string][]int{"other sums": {2, 2, 2}, "too few": {24}} {
		if _, err := New(p, hclog.NewNullLogger())(problem24, start); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// answers is a plugin's end of a stream that is not there: requests come from a list.
type answers struct {
	grpc.ServerStream
	requests []*policyv1.SizeRequest
}

func (a *answers) Send(*policyv1.SizeResponse) error { return nil }

func (a *answers) Recv() (*policyv1.SizeRequest, error) {
	if len(a.requests) == 0 {
		return nil, io.EOF
	}
	next := a.requests[0]
	a.requests = a.requests[1:]
	return next, nil
}

func TestAStreamBeginsWithAnOpen(t *testing.T) {
	s := &server{policy: Policy{Size: sizing.Kinds()[0].New}}
	request := &policyv1.SizeRequest{Message: &policyv1.SizeRequest_Step{}}
	if err := s.Size(&answers{requests: []*policyv1.SizeRequest{request}}); err == nil {
		t.Error("no error")
	}
}
