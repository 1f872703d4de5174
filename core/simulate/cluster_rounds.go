package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Rules are how time passes in a simulated cluster. They are those of Gavel's simulator, whose numbers must come out: a
// job makes int(rate · round) whole steps in a round, or what remains of it; whose last step ends within the round is
// finished then, and its devices idle until the round ends, when the last job's last step of the round does. Who
// arrives waits for the next round.
type Rules struct {
	RoundSeconds   float64 // above 0
	RestartSeconds float64 // that a job loses when it goes on after a pause or on other devices; at least 0
	LengthError    float64 // known lengths are wrong by a factor e^(this · normal), the same throughout a job's life
	Types          Mixing
	NoPreempt      bool // who runs under policy auto runs to its end where it is
	Seed           uint64
	// Clock times the decisions; nil for not at all.
	Clock func() time.Duration
}

// Rounds is a trace on a cluster, ready to run under any policy.
type Rounds struct {
	Cluster Cluster
	Jobs    []ClusterJob // by arrival; those that can run
	Dropped []DroppedJob
	rules   Rules
	speeds  *Throughputs
	classes []*workClass // by job
	belief  []float64    // by job: believed over true length
}

// DroppedJob is a job that is in no result, and why.
type DroppedJob struct {
	ID     string
	Line   int
	Reason string
}

// NewRounds puts a trace on a cluster. Jobs that it can never run are dropped.
func NewRounds(c Cluster, t *Throughputs, jobs []ClusterJob, rules Rules) (*Rounds, error) {
	switch {
	case !(rules.RoundSeconds > 0 && rules.RoundSeconds <= mostArrival):
		return nil, fmt.Errorf("round: %v s is not in (0, %g]", rules.RoundSeconds, mostArrival)
	case !(rules.RestartSeconds >= 0 && rules.RestartSeconds <= mostArrival):
		return nil, fmt.Errorf("restart: %v s is not in [0, %g]", rules.RestartSeconds, mostArrival)
	case !(rules.LengthError >= 0 && rules.LengthError <= 10):
		return nil, fmt.Errorf("length error: %v is not in [0, 10]", rules.LengthError)
	}
	r := &Rounds{Cluster: c, rules: rules, speeds: t}
	type kind struct {
		workload string
		devices  int
	}
	classes := map[kind]*workClass{}
	random := rand.New(rand.NewPCG(rules.Seed, 0))
	for _, j := range jobs {
		k := kind{j.Workload, j.Devices}
		if classes[k] == nil {
			classes[k] = newWorkClass(c, t, &rules, j.Workload, j.Devices)
		}
		class := classes[k]
		belief := math.Exp(rules.LengthError * random.NormFloat64())
		switch {
		case len(class.ways) == 0:
			r.Dropped = append(r.Dropped, DroppedJob{j.ID, j.Line, r.whyNot(t, j)})
			continue
		case float64(j.Steps)/class.fastest > mostRounds*rules.RoundSeconds:
			r.Dropped = append(r.Dropped, DroppedJob{j.ID, j.Line,
				fmt.Sprintf("it takes more than %d rounds, even alone", mostRounds)})
			continue
		}
		r.Jobs = append(r.Jobs, j)
		r.classes = append(r.classes, class)
		r.belief = append(r.belief, belief)
	}
	return r, nil
}

// whyNot says why the cluster can never run a job.
func (r *Rounds) whyNot(t *Throughputs, j ClusterJob) string {
	most, measured := 0, false
	for k, typ := range r.Cluster.Types {
		most = max(most, r.Cluster.Counts[k])
		measured = measured || t.rate(j.Workload, j.Devices, typ) > 0
	}
	switch {
	case !t.knows(j.Workload):
		return "its workload is not in the throughputs"
	case most < j.Devices:
		return "it needs more devices than there are of any type"
	case !measured:
		return "the throughputs have no speed above 0 for so many devices of any type that is here"
	}
	return "no type that it has a speed on has the devices, or a step takes longer than a round"
}

// ClusterResult is a trace as one policy would have run it.
type ClusterResult struct {
	Rounds      *Rounds
	Jobs        []JobResult // in the order of Rounds.Jobs
	Preemptions int         // how often a job that was not done lost devices
	Decisions   []time.Duration
	Spans       []Span // by time
}

// JobResult is when and where a job ran. Seconds are those of the trace.
type JobResult struct {
	StartSeconds, FinishSeconds float64
	DeviceSeconds               []float64 // by type
}

// Span is a time during which a job held the same devices.
type Span struct {
	Job         int   // index into Rounds.Jobs
	Devices     []int // numbered through in the order of the types
	FromSeconds float64
	ToSeconds   float64
}

// runningJob is a job on its way through a simulation.
type runningJob struct {
	*workClass
	index   int // into Rounds.Jobs
	devices int
	weight  float64
	belief  float64
	left    int     // steps
	served  float64 // seconds that what it did would have taken in its fastest way
	used    float64 // seconds times devices
	way     int     // of the last round; -1 where it did not run
	next    int     // of the next round, which the policy decides
	started bool
	restart float64 // seconds that are left of its restart
	// deviceSeconds are those of its result, by type.
	deviceSeconds []float64
	held          []int // devices
	span          int   // index into the spans, where it holds devices
}

// secondsLeft is what a policy that knows lengths believes that is left, in the job's fastest way.
func (j *runningJob) secondsLeft() float64 { return float64(j.left) / j.fastest * j.belief }

// situation is what a policy decides on.
type situation struct {
	now      float64
	counts   []int         // devices by type
	jobs     []*runningJob // arrived and not finished, by arrival
	changed  bool          // some came or went since the last decision
	deadlock bool          // nothing ran in the last round, and no one else will arrive
}

// clusterPolicy sets next of each job. What it chooses must fit.
type clusterPolicy interface {
	decide(s *situation) error
}

// mostRounds bounds how long a job is, so that a run comes to an end.
const mostRounds = 10_000_000

// ErrNoProgress ends a run that would not end: the jobs do nothing but restart.
var ErrNoProgress = errors.New("no job made a step")

// patience is how many rounds may pass without a step of any job.
const patience = 10_000

// Run runs the trace under a policy, one of ClusterPolicies, and calls tick with the number of jobs that are done. The
// error is that of Takes, or ErrNoProgress.
func (r *Rounds) Run(policy string, tick func(done int)) (*ClusterResult, error) {
	if err := r.Takes(policy); err != nil {
		return nil, err
	}
	named, _ := clusterPolicyNamed(policy)
	p := named.new(r)
	run := newClusterRun(r)
	for run.done < len(r.Jobs) {
		run.admit()
		if err := run.decide(p); err != nil {
			return nil, err
		}
		if run.anyoneRuns() {
			run.round()
			tick(run.done)
			if run.rounds-run.progress > patience {
				return nil, fmt.Errorf("policy %s: %w in %d rounds; give shorter restarts or longer rounds", policy,
					ErrNoProgress, patience)
			}
		} else if err := run.wait(); err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy, err)
		}
	}
	return run.result, nil
}

// clusterRun is a simulation at some time.
type clusterRun struct {
	*Rounds
	situation
	arrived, done int
	rounds        int // that have passed
	progress      int // the last one in which a job made a step
	devices       *deviceMap
	result        *ClusterResult
}

func newClusterRun(r *Rounds) *clusterRun {
	run := &clusterRun{Rounds: r, devices: newDeviceMap(r.Cluster)}
	run.result = &ClusterResult{Rounds: r, Jobs: make([]JobResult, len(r.Jobs))}
	for i := range run.result.Jobs {
		run.result.Jobs[i].DeviceSeconds = make([]float64, len(r.Cluster.Types))
	}
	run.counts = r.Cluster.Counts
	if len(r.Jobs) > 0 {
		run.now = r.Jobs[0].ArrivalSeconds
	}
	return run
}

// admit lets those in who have arrived.
func (run *clusterRun) admit() {
	for ; run.arrived < len(run.Jobs) && run.Jobs[run.arrived].ArrivalSeconds <= run.now; run.arrived++ {
		i := run.arrived
		j := &run.Jobs[i]
		run.jobs = append(run.jobs, &runningJob{
			workClass: run.classes[i], index: i, devices: j.Devices, weight: j.Weight, belief: run.belief[i],
			left: j.Steps, way: -1, span: -1, deviceSeconds: run.result.Jobs[i].DeviceSeconds,
		})
		run.changed = true
	}
}

// decide asks the policy and gives devices to who runs; who holds the right ones keeps them.
func (run *clusterRun) decide(p clusterPolicy) error {
	for _, j := range run.jobs {
		j.next = -1
	}
	var begin time.Duration
	if run.rules.Clock != nil {
		begin = run.rules.Clock()
	}
	if err := p.decide(&run.situation); err != nil {
		return err
	}
	if run.rules.Clock != nil {
		run.result.Decisions = append(run.result.Decisions, run.rules.Clock()-begin)
	}
	run.changed = false
	for _, j := range run.jobs {
		if j.way >= 0 && j.next != j.way {
			run.result.Preemptions++
			run.release(j)
		}
	}
	for _, j := range run.jobs {
		if j.next >= 0 && j.way < 0 {
			if err := run.start(j); err != nil {
				return err
			}
		}
		j.way = j.next
	}
	return nil
}

// release takes the job's devices back at the end of the last round.
func (run *clusterRun) release(j *runningJob) {
	run.devices.free(j.held)
	j.held, j.span, j.way = nil, -1, -1
}

func (run *clusterRun) start(j *runningJob) error {
	held, err := run.devices.take(j.ways[j.next].Counts)
	if err != nil {
		return err
	}
	j.held = held
	if j.started {
		j.restart = run.rules.RestartSeconds
	} else {
		run.result.Jobs[j.index].StartSeconds = run.now
	}
	j.started = true
	j.span = len(run.result.Spans)
	run.result.Spans = append(run.result.Spans, Span{j.index, held, run.now, run.now})
	return nil
}

func (run *clusterRun) anyoneRuns() bool {
	for _, j := range run.jobs {
		if j.way >= 0 {
			return true
		}
	}
	return false
}

// round lets a round pass.
func (run *clusterRun) round() {
	run.deadlock = false
	run.rounds++
	end := run.now
	for _, j := range run.jobs {
		if j.way >= 0 {
			end = max(end, run.work(j))
		}
	}
	stay := run.jobs[:0]
	for _, j := range run.jobs {
		if j.left > 0 {
			stay = append(stay, j)
			continue
		}
		run.release(j)
		run.done++
		run.changed = true
	}
	run.jobs, run.now = stay, end
}

// work lets a job run for a round and says when its last step of the round ends.
func (run *clusterRun) work(j *runningJob) float64 {
	rate, wait := j.rates[j.way], min(j.restart, run.rules.RoundSeconds)
	j.restart -= wait
	steps := min(int(rate*(run.rules.RoundSeconds-wait)), j.left)
	took := float64(steps) / rate
	j.left -= steps
	j.served += float64(steps) / j.fastest
	j.used += took * float64(j.devices)
	r := &run.result.Jobs[j.index]
	for k, n := range j.ways[j.way].Counts {
		r.DeviceSeconds[k] += float64(n) * (wait + took)
	}
	if steps > 0 {
		run.progress = run.rounds
	}
	end := run.now + wait + took
	run.result.Spans[j.span].ToSeconds = end
	if j.left == 0 {
		r.FinishSeconds = end
	}
	return end
}

// wait lets time pass until the next job arrives.
func (run *clusterRun) wait() error {
	switch {
	case run.arrived < len(run.Jobs):
		run.now = run.Jobs[run.arrived].ArrivalSeconds
	case run.deadlock:
		return errors.New("it starts none of the jobs that are left")
	default:
		run.deadlock = true
	}
	return nil
}
