package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/request"
)

// table is profiles by workload and type.
type table map[string]map[string]float64

func (t table) Rates(workload string, types []string) (map[string]Rate, error) {
	rates := map[string]Rate{}
	for _, typ := range types {
		if rate := t[workload][typ]; rate > 0 {
			rates[typ] = Rate{rate, "profile"}
		}
	}
	return rates, nil
}

var (
	mixed  = []Pool{{"m1", "fast", 1, 0}, {"m2", "fast", 1, 0}, {"m3", "slow", 1, 0}, {"m4", "slow", 1, 0}}
	speeds = table{"w": {"fast": 100, "slow": 50}, "fastonly": {"fast": 100}}
)

func planner() Planner {
	return Planner{Place: placement.Place, Profiles: speeds, HoldLimit: 5 * time.Minute}
}

// held is a job that waits for us, for as many nodes as the edits say, or one.
func held(id string, edits ...func(*Job)) Job {
	j := Job{
		ID: id, Request: request.Request{Workload: "w", GlobalBatch: 60, Samples: 6000}, MinNodes: 1, MaxNodes: 1, PerNode: 1,
		Held: true, Lease: 4 * time.Minute, Waited: time.Minute,
	}
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

func nodes(low, high int) func(*Job) { return func(j *Job) { j.MinNodes, j.MaxNodes = low, high } }

// told is the updates as lines.
func told(updates []Update) string {
	var lines []string
	for _, u := range updates {
		line := fmt.Sprintf("%s %s: %s", u.Job, u.Kind, u.Why)
		if u.Kind == Start {
			line += fmt.Sprintf(" %v", u.BatchSizes)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestUpdates(t *testing.T) {
	m1 := []placement.Share{{Node: "m1", Type: "fast", Count: 1}}
	for name, c := range map[string]struct {
		pools []Pool
		jobs  []Job
		want  string
	}{
		"nobody waits": {nil, nil, ""},
		"the longer job gets the fast devices": {nil, []Job{
			held("a", nodes(2, 2), func(j *Job) { j.Request.Samples = 1000 }),
			held("b", nodes(2, 2)),
		}, "a start: the plan starts it on m3,m4 [30 30]\nb start: the plan starts it on m1,m2 [30 30]"},
		"sizes follow the speeds, ranks the nodes": {nil, []Job{held("a", nodes(4, 4))},
			"a start: the plan starts it on m1,m2,m3,m4 [20 20 10 10]"},
		"a job that asks for a type": {nil, []Job{held("a", nodes(1, 4), func(j *Job) { j.Type = "slow" })},
			"a start: the plan starts it on m3,m4 [30 30]"},
		"a job that asks for one of several types": {nil, []Job{held("a", nodes(1, 4), func(j *Job) { j.Types = []string{"slow", "k80"} })},
			"a start: the plan starts it on m3,m4 [30 30]"},
		"a job that may have some nodes only": {nil, []Job{held("a", nodes(1, 4), func(j *Job) { j.Nodes = []string{"m2", "m3"} })},
			"a start: the plan starts it on m2,m3 [40 20]"},
		"a node that the user requires": {nil, []Job{held("a", nodes(2, 2), func(j *Job) { j.Required = []string{"m4"} })},
			"a start: the plan starts it on m1,m4 [40 20]"},
		"a job of others holds a node": {
			[]Pool{{"m1", "fast", 1, 1}, {"m3", "slow", 1, 0}}, []Job{held("a")},
			"a start: the plan starts it on m3 [60]"},
		"no node is free: it waits": {[]Pool{{"m1", "fast", 1, 1}}, []Job{held("a")}, ""},
		"and its lease is renewed": {[]Pool{{"m1", "fast", 1, 1}}, []Job{held("a", func(j *Job) { j.Lease = 2 * time.Minute })},
			"a hold: the plan lets it wait"},
		"who is not held has no lease": {[]Pool{{"m1", "fast", 1, 1}}, []Job{held("a", func(j *Job) { j.Held, j.Lease = false, 0 })}, ""},
		"and is steered when nodes are free": {nil, []Job{held("a", func(j *Job) { j.Held, j.Lease = false, 0 })},
			"a start: the plan starts it on m1 [60]"},
		"each node once, however many devices it has": {
			[]Pool{{"m1", "fast", 4, 0}, {"m2", "fast", 4, 0}, {"m3", "slow", 4, 0}}, []Job{held("a", nodes(3, 3))},
			"a start: the plan starts it on m1,m2,m3 [24 24 12]"},
		"as many nodes as workers are planned, also where those of the fastest type are fewer": {
			[]Pool{{"m1", "fast", 2, 0}, {"m2", "fast", 2, 0}, {"m3", "slow", 2, 0}, {"m4", "slow", 2, 0}}, []Job{held("a", nodes(1, 4))},
			"a start: the plan starts it on m1,m2,m3,m4 [20 20 10 10]"},
		"but not those of another": {
			[]Pool{{"m1", "fast", 2, 0}, {"m2", "fast", 2, 0}, {"m3", "slow", 1, 0}},
			[]Job{held("a", nodes(1, 4)), held("b", func(j *Job) { j.Type = "slow" })},
			"a start: the plan starts it on m1,m2 [30 30]\nb start: the plan starts it on m3 [60]"},
		"several devices on each node": {
			[]Pool{{"m1", "fast", 2, 0}, {"m2", "fast", 1, 0}, {"m3", "slow", 2, 0}}, []Job{held("a", nodes(1, 2), func(j *Job) { j.PerNode = 2 })},
			"a start: the plan starts it on m1,m3 [20 20 10 10]"},
		"not steerable": {nil, []Job{held("a", func(j *Job) { j.Unsteerable = "it asks for licences" })},
			"a release: it asks for licences"},
		"not steerable and not held": {nil, []Job{held("a", func(j *Job) { j.Unsteerable, j.Held = "it asks for licences", false })}, ""},
		"no profile": {nil, []Job{held("a", func(j *Job) { j.Request.Workload = "unseen" })},
			"a release: workload unseen has no profile on the devices that it may have"},
		"more nodes than there are": {nil, []Job{held("a", nodes(5, 6))},
			"a release: at most 4 nodes can ever give it 1 devices each, and it needs 5"},
		"more nodes than have its devices": {nil, []Job{held("a", nodes(3, 3), func(j *Job) { j.Request.Workload = "fastonly" })},
			"a release: at most 2 nodes can ever give it 1 devices each, and it needs 3"},
		"a required node that is not there": {nil, []Job{held("a", func(j *Job) { j.Required = []string{"m9"} })},
			"a release: at most 0 nodes can ever give it 1 devices each, and it needs 1"},
		"among jobs of others for less than the hold limit": {[]Pool{{"m1", "fast", 1, 1}}, []Job{held("a", func(j *Job) { j.Crowded = true })}, ""},
		"among jobs of others for longer": {[]Pool{{"m1", "fast", 1, 1}}, []Job{held("a", func(j *Job) { j.Crowded, j.Waited = true, 5*time.Minute })},
			"a release: jobs of others wait for the same nodes, so it queues among them"},
		"a day": {[]Pool{{"m1", "fast", 1, 1}}, []Job{held("a", func(j *Job) { j.Waited = 24 * time.Hour })},
			"a release: it has waited a day for its plan"},
		"named just now: its nodes are kept for it": {nil, []Job{
			held("a", nodes(1, 1), func(j *Job) { j.State, j.Held, j.On = Named, false, m1 }), held("b", nodes(1, 4))},
			"b start: the plan starts it on m2,m3,m4 [30 15 15]"},
		"named, and its node was taken: planned again": {
			[]Pool{{"m1", "fast", 1, 1}, {"m3", "slow", 1, 0}},
			[]Job{held("a", func(j *Job) { j.State, j.Held, j.On, j.For = Named, false, m1, patience })},
			"a start: the plan starts it on m3 [60]"},
		"named, and the plan is the same: left": {nil,
			[]Job{held("a", func(j *Job) { j.State, j.Held, j.On, j.For = Named, false, m1, patience })}, ""},
		"named for the hold limit": {nil,
			[]Job{held("a", func(j *Job) { j.State, j.Held, j.On, j.For = Named, false, m1, 5*time.Minute })},
			"a release: its nodes did not come free in time"},
		"a running job keeps its devices": {nil, []Job{
			held("a", func(j *Job) { j.State, j.Held, j.On, j.For = Running, false, m1, time.Second }), held("b", nodes(1, 4))},
			"b start: the plan starts it on m2,m3,m4 [30 15 15]"},
		"a running job that is not steered keeps them too": {nil, []Job{
			held("a", func(j *Job) { j.Unsteerable, j.State, j.Held, j.On = "no words", Running, false, m1 }), held("b", nodes(1, 4))},
			"b start: the plan starts it on m2,m3,m4 [30 15 15]"},
		"a running job of which nothing is known keeps them too": {nil, []Job{
			held("a", func(j *Job) { j.Request.Workload, j.State, j.Held, j.On = "unseen", Running, false, m1 }), held("b", nodes(1, 4))},
			"b start: the plan starts it on m2,m3,m4 [30 15 15]"},
	} {
		if c.pools == nil {
			c.pools = mixed
		}
		p := planner()
		if diff := cmp.Diff(c.want, told(p.Updates(&Snapshot{Pools: c.pools, Jobs: c.jobs}))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func needs(cpus, memory int) func(*Job) { return func(j *Job) { j.Needs = Room{cpus, memory} } }

// What others leave of cores and memory counts like devices.
func TestRoomBesideDevices(t *testing.T) {
	m1, m2 := []placement.Share{{Node: "m1", Type: "fast", Count: 1}}, []placement.Share{{Node: "m2", Type: "fast", Count: 1}}
	two := []Pool{{"m1", "fast", 2, 0}, {"m2", "slow", 2, 0}}
	for name, c := range map[string]struct {
		pools []Pool
		room  map[string]Room
		jobs  []Job
		want  string
	}{
		"a node without cores left":  {mixed, map[string]Room{"m1": {3, 99}}, []Job{held("a", needs(4, 0))}, "a start: the plan starts it on m2 [60]"},
		"a node without memory left": {mixed, map[string]Room{"m1": {9, 99}}, []Job{held("a", needs(4, 100))}, "a start: the plan starts it on m2 [60]"},
		"just enough":                {mixed, map[string]Room{"m1": {4, 100}}, []Job{held("a", needs(4, 100))}, "a start: the plan starts it on m1 [60]"},
		"of a job on several nodes, each": {mixed, map[string]Room{"m1": {3, 0}, "m2": {4, 0}, "m3": {4, 0}, "m4": {0, 0}},
			[]Job{held("a", nodes(1, 4), needs(4, 0))}, "a start: the plan starts it on m2,m3 [40 20]"},
		"no node has room: it waits": {two, map[string]Room{"m1": {3, 0}, "m2": {3, 0}}, []Job{held("a", needs(4, 0))}, ""},
		"two jobs that only one of has room on a node": {two, map[string]Room{"m1": {6, 0}, "m2": {6, 0}},
			[]Job{held("a", needs(4, 0)), held("b", needs(4, 0))},
			"a start: the plan starts it on m1 [60]\nb start: the plan starts it on m2 [60]"},
		"one that was named has its room kept": {two, map[string]Room{"m1": {6, 0}}, []Job{
			held("a", needs(4, 0), func(j *Job) { j.State, j.Held, j.On = Named, false, m1 }), held("b", needs(4, 0))},
			"b start: the plan starts it on m2 [60]"},
		// The plan waits for the fast node, which a job of ours gives back; not for one that others fill.
		"ours will make room": {[]Pool{{"m2", "fast", 2, 0}}, map[string]Room{"m2": {3, 0}}, []Job{
			held("a", func(j *Job) { j.State, j.Held, j.On = Running, false, m2 }), held("b", needs(4, 0))}, ""},
	} {
		p := planner()
		if diff := cmp.Diff(c.want, told(p.Updates(&Snapshot{Pools: c.pools, Jobs: c.jobs, Room: c.room}))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A job that waits for room that others hold is no part of the plan, which so gives no devices to it.
func TestThePlanCountsOnNoRoomThatOthersHold(t *testing.T) {
	p, asked := planner(), ""
	p.Place = func(problem *placement.Problem, policy string, s placement.Search) (*placement.Plan, error) {
		for _, j := range problem.Jobs {
			asked += fmt.Sprintf("%s%v ", j.ID, j.Nodes)
		}
		return placement.Place(problem, policy, s)
	}
	m2 := []placement.Share{{Node: "m2", Type: "fast", Count: 1}}
	p.Updates(&Snapshot{Pools: []Pool{{"m1", "fast", 1, 0}, {"m2", "fast", 2, 0}, {"m3", "slow", 1, 0}},
		Room: map[string]Room{"m1": {3, 0}, "m2": {3, 0}, "m3": {3, 0}}, Jobs: []Job{
			held("runs", func(j *Job) { j.State, j.Held, j.On = Running, false, m2 }),
			held("large", needs(4, 0)), held("two", nodes(2, 2), needs(4, 0)), held("small", needs(3, 0))}})
	if want := "runs[] large[m2] small[] "; asked != want {
		t.Errorf("the plan is of %q, want %q", asked, want)
	}
}

func TestWithoutAPlanTheSchedulerPlaces(t *testing.T) {
	p := planner()
	p.Place = func(*placement.Problem, string, placement.Search) (*placement.Plan, error) {
		return nil, errors.New("broken")
	}
	got := told(p.Updates(&Snapshot{Pools: mixed, Jobs: []Job{held("a"), held("b")}}))
	if want := "a release: no plan: broken\nb release: no plan: broken"; got != want {
		t.Errorf("got %s", got)
	}
}

// Whatever the snapshot, what starts fits: different nodes that it may have, all that it must have, free devices, sizes
// that sum to the global batch.
func TestWhatStartsFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Snapshot{}
		var names []string
		for n := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			name := fmt.Sprintf("n%d", n)
			names = append(names, name)
			for _, typ := range []string{"fast", "slow"} {
				if total := rapid.IntRange(0, 4).Draw(t, "total"); total > 0 {
					s.Pools = append(s.Pools, Pool{name, typ, total, rapid.IntRange(0, total).Draw(t, "others")})
				}
			}
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			s.Jobs = append(s.Jobs, drawJob(t, fmt.Sprint(i), names, s.Pools))
		}
		s.Room = map[string]Room{}
		for _, name := range names {
			if rapid.Bool().Draw(t, "bounded") {
				s.Room[name] = Room{rapid.IntRange(0, 8).Draw(t, "cpus"), rapid.IntRange(0, 8).Draw(t, "memory")}
			}
		}
		p := planner()
		updates := p.Updates(s)
		free := map[pool]int{}
		for _, d := range s.Pools {
			free[pool{d.Node, d.Type}] = d.Total - d.Others
		}
		for _, j := range s.Jobs {
			if j.State == Running {
				take(free, j.On)
			}
		}
		seen := map[string]bool{}
		for _, u := range updates {
			if seen[u.Job] {
				t.Fatalf("two updates of job %s", u.Job)
			}
			seen[u.Job] = true
			j := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == u.Job })]
			if u.Kind == Start {
				checkStart(t, j, u)
				take(free, u.Shares)
				for _, share := range u.Shares {
					left, bounded := s.Room[share.Node]
					if bounded && !left.Holds(j.Needs) {
						t.Fatalf("%s has no room for job %s: %v", share.Node, j.ID, told(updates))
					}
					s.Room[share.Node] = Room{left.CPUs - j.Needs.CPUs, left.Memory - j.Needs.Memory}
					if !bounded {
						delete(s.Room, share.Node)
					}
				}
			} else if !j.Held {
				t.Fatalf("%s of a job that is not held", u.Kind)
			}
		}
		for p, n := range free {
			if n < 0 {
				t.Fatalf("%v has %d devices too few: %v", p, -n, told(updates))
			}
		}
	})
}

func drawJob(t *rapid.T, id string, names []string, pools []Pool) Job {
	low := rapid.IntRange(1, 3).Draw(t, "min")
	j := held(id, nodes(low, rapid.IntRange(low, 5).Draw(t, "max")))
	j.PerNode = rapid.IntRange(1, 3).Draw(t, "per node")
	j.Needs = Room{rapid.IntRange(0, 4).Draw(t, "cpus"), rapid.IntRange(0, 4).Draw(t, "memory")}
	j.Type = rapid.SampledFrom([]string{"", "", "fast", "slow"}).Draw(t, "type")
	j.Request.Samples = rapid.Float64Range(1, 1e6).Draw(t, "samples")
	j.Lease = time.Duration(rapid.IntRange(0, 300).Draw(t, "lease")) * time.Second
	j.Held = rapid.Bool().Draw(t, "held")
	if rapid.Bool().Draw(t, "some nodes") {
		j.Nodes = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, len(names), rapid.ID).Draw(t, "allowed")
	}
	if rapid.IntRange(0, 3).Draw(t, "require") == 0 {
		j.Required = []string{rapid.SampledFrom(names).Draw(t, "required")}
	}
	k := rapid.IntRange(0, len(pools)).Draw(t, "runs on")
	// At most one runs, so that no two hold the same.
	if id == "0" && k < len(pools) && pools[k].Total > pools[k].Others {
		j.State, j.Held, j.On = Running, false, []placement.Share{{Node: pools[k].Node, Type: pools[k].Type, Count: 1}}
	}
	return j
}

func take(free map[pool]int, shares []placement.Share) {
	for _, s := range shares {
		free[pool{s.Node, s.Type}] -= s.Count
	}
}

func checkStart(t *rapid.T, j Job, u Update) {
	sum, count := 0, 0
	for _, n := range u.BatchSizes {
		if n < 1 {
			t.Fatalf("a batch size of %d", n)
		}
		sum += n
	}
	on := map[string]bool{}
	for _, s := range u.Shares {
		switch {
		case on[s.Node]:
			t.Fatalf("%s twice", s.Node)
		case s.Count != j.PerNode:
			t.Fatalf("%d devices on %s, not %d", s.Count, s.Node, j.PerNode)
		case j.Nodes != nil && !slices.Contains(j.Nodes, s.Node):
			t.Fatalf("%s is not allowed", s.Node)
		case j.Type != "" && s.Type != j.Type:
			t.Fatalf("a device of type %s", s.Type)
		}
		on[s.Node] = true
		count += s.Count
	}
	for _, node := range j.Required {
		if !on[node] {
			t.Fatalf("without %s", node)
		}
	}
	if len(on) < j.MinNodes || len(on) > j.MaxNodes {
		t.Fatalf("%d nodes, not %d ... %d", len(on), j.MinNodes, j.MaxNodes)
	}
	if sum != j.Request.GlobalBatch || len(u.BatchSizes) != count {
		t.Fatalf("batch sizes %v of %d on %d devices", u.BatchSizes, j.Request.GlobalBatch, count)
	}
}
