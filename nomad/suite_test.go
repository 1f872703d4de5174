package nomad_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/nomad/nomadtest"
)

// unlike are three nodes of three speeds; the fourth is of another pool.
var unlike = []nomadtest.Node{
	{Name: "n1", Type: "fast"}, {Name: "n2", Type: "slow"}, {Name: "n3", Type: "slower"}, {Name: "n4", Type: "fast", Pool: "gold"},
}

// suite is what holds on the fake and on real agents. Each test finds three nodes without jobs; the last loses one.
var suite = []struct {
	name string
	test func(*testing.T, *cluster)
}{
	{"four waiting jobs end where the plan says", fourJobs},
	{"release lets jobs go", releases},
	{"malformed meta is released unplaced with the reason", malformed},
	{"what is not steered is released with the reason", notSteered},
	{"a job that is held and does not ask is let go", heldWithoutMeta},
	{"a node that is not eligible or in another pool is not used", eligibility},
	{"a plan never evicts and needs a free node", freeNodes},
	{"with nobody there jobs are let go by who runs next", abandoned},
	{"run refuses what would harm", runRefuses},
	{"two controllers", twoControllers},
	{"namespaces and dispatched jobs", namespaces},
	{"events bring rounds", eventsBringRounds},
	{"a drained node's allocation goes elsewhere, the others stay", drained},
	{"what Nomad stopped and takes for done is started elsewhere", stopped},
	{"a lost node's allocation goes elsewhere, the others stay", lost},
}

func TestSuiteOnTheFake(t *testing.T) {
	t.Parallel()
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.test(t, newCluster(t, nomadtest.StartFake(t, unlike...)))
		})
	}
}

func TestSuiteOnAgents(t *testing.T) {
	t.Parallel()
	agents := nomadtest.StartAgents(t, nomadtest.AgentsOptions{}, unlike...)
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			c := newCluster(t, agents)
			c.reset()
			s.test(t, c)
		})
	}
}

// planned are the nodes that a dry run names for each job.
func planned(c *cluster) map[string]string {
	c.t.Helper()
	out, said, code := c.evenstep("controller", "--once", "--dry-run", "--profiles="+c.folder+"/rates.json")
	if code != 0 {
		c.t.Fatalf("dry run: exit %d: %s", code, said)
	}
	nodes := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var u struct {
			Job      string
			Nodes    []string
			Requests []struct{ Method, Path string }
		}
		if err := json.Unmarshal([]byte(line), &u); err != nil {
			c.t.Fatalf("%v in %s", err, out)
		}
		if nodes[u.Job] = strings.Join(u.Nodes, ","); len(u.Requests) != 2 || u.Requests[1].Path != "/v1/jobs" {
			c.t.Errorf("requests of %s: %v", u.Job, u.Requests)
		}
	}
	return nodes
}

func fourJobs(t *testing.T, c *cluster) {
	// One of others, of which nothing may change.
	c.register(newJob("theirs", "", 1, 600, onNode("n3")))
	c.runsOn("theirs", "n3")
	theirs, alloc := c.info("theirs"), c.allocs("theirs")[0].ID

	for i, samples := range []int{4000, 100, 300, 200} {
		words := fmt.Sprintf("workload=w global_batch=100 samples=%d", samples)
		c.register(newJob(fmt.Sprint("job", i), words, 1, 3, hold))
	}
	before := planned(c)
	if len(before) == 0 {
		t.Error("a dry run places none of them")
	}
	log, _, _ := c.controller()
	ran := map[string]string{}
	c.waitFor("end of four jobs", func() bool {
		for i := range 4 {
			name := fmt.Sprint("job", i)
			if where := c.where(name); where != "" {
				ran[name] = where
			}
		}
		j, _, err := c.api.Jobs().List(&api.QueryOptions{Prefix: "job"})
		if err != nil || len(j) != 4 {
			return false
		}
		for _, one := range j {
			if one.Status != "dead" {
				return false
			}
		}
		return true
	})
	for i := range 4 {
		name := fmt.Sprint("job", i)
		if before[name] != "" && ran[name] != before[name] {
			t.Errorf("%s ran on %q, planned was %q", name, ran[name], before[name])
		}
		if !strings.Contains(log.String(), fmt.Sprintf("start: job=%s why=%q", name, "the plan starts it on "+ran[name])) {
			t.Errorf("%s ran on %q; the log says:\n%s", name, ran[name], log)
		}
	}
	after := c.info("theirs")
	if *after.JobModifyIndex != *theirs.JobModifyIndex || c.allocs("theirs")[0].ID != alloc {
		t.Errorf("a job of others was touched: %v", after)
	}
}

func releases(t *testing.T, c *cluster) {
	for _, id := range []string{"a", "b"} {
		c.register(newJob(id, words, 2, 600, hold))
	}
	c.waitFor("both jobs waiting", func() bool { return c.status("a") == "waiting for its plan; no controller runs" && c.status("b") != "" })
	if out, _, code := c.evenstep("release", "a"); out != "a\n" || code != 0 {
		t.Errorf("release a: %q, exit %d", out, code)
	}
	c.waitFor("start of a", func() bool { return len(c.allocs("a")) == 2 })
	if got := c.status("a"); got != "running "+c.where("a")+" it was released by hand" {
		t.Errorf("status %q", got)
	}
	if _, said, code := c.evenstep("release", "a"); code != 3 || !strings.Contains(said, `job "a": does not wait for Evenstep`) {
		t.Errorf("released twice: exit %d: %s", code, said)
	}
	if out, _, code := c.evenstep("release", "--all"); out != "b\n" || code != 0 {
		t.Errorf("release --all: %q, exit %d", out, code)
	}
	c.waitFor("start of b", func() bool { return len(c.allocs("b")) == 2 })
	if c.info("a").Constraints != nil && len(c.info("a").Constraints) > 0 {
		t.Errorf("constraints left: %v", c.info("a").Constraints)
	}
	for _, args := range [][]string{{"release"}, {"release", "a", "--all"}, {"release", "a", "b"}} {
		if _, _, code := c.evenstep(args...); code != 2 {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}

func malformed(t *testing.T, c *cluster) {
	c.register(newJob("bad", "workload=w batch=7", 1, 600, hold))
	log := c.once()
	const why = "meta evenstep: batch: unknown key; give workload, global_batch, samples, workers or policy"
	if !strings.Contains(log, why) {
		t.Errorf("log: %s", log)
	}
	c.waitFor("start of bad", func() bool { return len(c.allocs("bad")) == 1 })
	if got := c.status("bad"); got != "running "+c.where("bad")+" "+why {
		t.Errorf("status %q", got)
	}
	if got := c.message("bad"); got["evenstep_released"] != why {
		t.Errorf("its Variable says %q", got)
	}
}

func notSteered(t *testing.T, c *cluster) {
	twice := func(j *api.Job) {
		g := *j.TaskGroups[0]
		g.Name = new("other")
		j.AddTaskGroup(&g)
	}
	everywhere := func(typ string) func(*api.Job) {
		return func(j *api.Job) { j.Type, j.TaskGroups[0].ReschedulePolicy = &typ, nil }
	}
	for id, want := range map[string]struct {
		job *api.Job
		why string
	}{
		"system":   {newJob("system", words, 1, 600, hold, everywhere("system")), "its type is system; batch and service are steered"},
		"sysbatch": {newJob("sysbatch", words, 1, 600, hold, everywhere("sysbatch")), "its type is sysbatch; batch and service"},
		"groups":   {newJob("groups", words, 1, 600, hold, twice), "it has 2 task groups; one is steered"},
		"unseen":   {newJob("unseen", "workload=x global_batch=1 samples=1", 1, 600, hold), "workload x has no profile on the devices that it may have"},
		"many":     {newJob("many", words, 9, 600, hold), "at most 3 nodes can ever give it 1 devices each, and it needs 9"},
		"nowhere":  {newJob("nowhere", words, 1, 600, hold, onNode("n9")), "no node can have it; excluded are 3 by ${node.unique.name} = n9, 1 by its datacenters and node pool"},
		"huge":     {newJob("huge", words, 1, 600, hold, memory(64_000_000)), "no node can have it; excluded are 3 by 64000000 MB of memory, 1 by its datacenters and node pool"},
		"dots.1":   {newJob("dots.1", words, 1, 600, hold), "its id cannot be a Variable's path"},
		"devicely": {newJob("devicely", words, 1, 600, hold, asksFor("nvidia/gpu", 1)), "no node can have it; excluded are 3 by device nvidia/gpu, 1 by its datacenters and node pool"},
		"free":     {newJob("free", words, 1, 600), "it runs where Nomad placed it"},
		"loose":    {newJob("loose", words, 1, 600, onNode("n9")), "it is not held, so Nomad places it"},
		"tasks":    {newJob("tasks", "workload=x global_batch=1 samples=1", 1, 600, holdInTask), "workload x has no profile on the devices"},
	} {
		c.register(want.job)
		log := c.once()
		if !strings.Contains(log, want.why) {
			t.Errorf("%s: log: %s", id, log)
		}
		c.waitFor("release of "+id, func() bool { return len(c.info(id).Constraints) <= 1 })
		c.waitFor("status of "+id, func() bool { return strings.Contains(c.status(id), want.why) || id == "dots.1" })
		if typ := *want.job.Type; strings.HasPrefix(typ, "sys") {
			c.runsOn(id, "n1,n2,n3")
			if got := c.message(id)["evenstep_released"]; !strings.Contains(got, want.why) {
				t.Errorf("%s: its Variable says %q", id, got)
			}
		}
		if _, _, err := c.api.Jobs().Deregister(id, true, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// holdInTask holds a job in its task, and without an operator: a user who copies but a part of a hold.
func holdInTask(j *api.Job) {
	j.TaskGroups[0].Tasks[0].Constrain(api.NewConstraint("${node.unique.id}", "=", "evenstep-hold"))
}

// Our own hold is all that says that such a job waits for us; others that wait are none of ours.
func heldWithoutMeta(t *testing.T, c *cluster) {
	c.register(newJob("theirs", "", 1, 600, onNode("n9")))
	c.register(newJob("mute", "", 1, 600, hold))
	const why = "it is held, and does not ask for Evenstep: it has no meta evenstep"
	c.waitFor("status", func() bool { return c.status("mute") == "not steered "+why })
	theirs := c.info("theirs")
	if log := c.once(); !strings.Contains(log, why) || strings.Contains(log, "theirs") {
		t.Errorf("log: %s", log)
	}
	c.waitFor("start", func() bool { return len(c.allocs("mute")) == 1 })
	if got := c.message("mute")["evenstep_released"]; got != why || len(c.info("mute").Constraints) > 0 {
		t.Errorf("its Variable says %q, constraints %v", got, c.info("mute").Constraints)
	}
	c.once()
	if got := c.info("theirs"); *got.JobModifyIndex != *theirs.JobModifyIndex || c.status("theirs") != "" || c.status("mute") != "" {
		t.Errorf("a job of others was touched, or is listed: %v, %q, %q", got, c.status("theirs"), c.status("mute"))
	}
}

// memory has the task ask for so many MB.
func memory(mb int) func(*api.Job) {
	return func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &mb }
}

// asksFor has the task ask for devices.
func asksFor(name string, count uint64, constraints ...*api.Constraint) func(*api.Job) {
	return func(j *api.Job) {
		j.TaskGroups[0].Tasks[0].Resources.Devices = []*api.RequestedDevice{{Name: name, Count: &count, Constraints: constraints}}
	}
}

func eligibility(t *testing.T, c *cluster) {
	if _, err := c.api.Nodes().ToggleEligibility(c.node("n1"), false, nil); err != nil {
		t.Fatal(err)
	}
	c.register(newJob("one", words, 1, 600, hold))
	c.register(newJob("gold", words, 1, 600, hold, func(j *api.Job) { j.NodePool = new("gold") }))
	c.register(newJob("classy", words, 1, 600, hold, func(j *api.Job) {
		j.TaskGroups[0].Constrain(api.NewConstraint("${attr.cpu.numcores}", ">=", "1"))
		j.TaskGroups[0].Tasks[0].Constrain(api.NewConstraint("${node.unique.name}", "!=", "n2"))
	}))
	c.once()
	c.runsOn("one", "n2")
	c.runsOn("gold", "n4")
	c.runsOn("classy", "n3")
}

func freeNodes(t *testing.T, c *cluster) {
	c.register(newJob("all", words+" workers=3", 1, 600, hold))
	c.once()
	c.runsOn("all", "n1,n2,n3")
	if got := *c.info("all").TaskGroups[0].Count; got != 3 {
		t.Errorf("count %d", got)
	}
	c.register(newJob("next", words, 1, 600, hold))
	log := c.once()
	if strings.Contains(log, "next") || c.status("next") != "waiting for its plan; no controller runs" {
		t.Errorf("status %q, log %s", c.status("next"), log)
	}
	if _, _, err := c.api.Jobs().Deregister("all", false, nil); err != nil {
		t.Fatal(err)
	}
	c.waitFor("end of all", func() bool { return c.status("all") == "" })
	c.waitFor("free node", func() bool { c.once(); return c.where("next") == "n1" })

	// The message is there before the tasks are, and names what the plan gave.
	said := c.message("next")
	if said["evenstep_nodes"] != "1" || said["evenstep_batch_sizes"] != "100" || said["evenstep_workload"] != "w" ||
		said["evenstep_global_batch"] != "100" || said["evenstep_node_rank_"+c.node("n1")] != "0" ||
		said["evenstep_run_id"] != "next-"+said["evenstep_plan"] {
		t.Errorf("the Variable says %v", said)
	}
	// What is placed is not placed again.
	before := c.info("next")
	c.once()
	if after := c.info("next"); *after.JobModifyIndex != *before.JobModifyIndex {
		t.Error("a running job was registered again")
	}
}

func abandoned(t *testing.T, c *cluster) {
	c.register(newJob("old", words, 3, 600, hold))
	c.register(newJob("late", words, 1, 600, hold))
	if log := c.once("--hold-limit=24h"); !strings.Contains(log, "start: job=old") {
		t.Fatalf("log: %s", log)
	}
	time.Sleep(1200 * time.Millisecond)
	// Nobody ran for longer than the limit; who registers another job finds that.
	c.file("new.json", asJSON(t, newJob("new", words, 1, 600)))
	out, said, code := c.evenstep("run", "--hold-limit=1s", c.folder+"/new.json")
	if out != "new\n" || code != 0 || !strings.Contains(said, "let go of job late") || !strings.Contains(said, "no controller runs: job new waits") {
		t.Errorf("run: %q, %q, exit %d", out, said, code)
	}
	c.waitFor("release of late", func() bool { return len(c.allocs("late")) == 1 })
	if got := c.message("late")["evenstep_released"]; !strings.Contains(got, "no controller ran for") {
		t.Errorf("late was let go because %q", got)
	}
	if got := c.status("new"); got != "waiting for its plan; no controller runs" {
		t.Errorf("new: %q", got)
	}
	time.Sleep(4100 * time.Millisecond)
	// So does a controller that comes back.
	if log := c.once("--interval=1s", "--hold-limit=4s"); !strings.Contains(log, "release: job=new") {
		t.Errorf("log: %s", log)
	}
	// With the core down there are no speeds: jobs are let go at once.
	c.register(newJob("coreless", words, 1, 600, hold))
	_, log, code := c.evenstep("controller", "--once", "--core=unix:"+c.folder+"/nobody.sock")
	if code != 0 || !strings.Contains(log, "release: job=coreless") || !strings.Contains(log, "no profiles") {
		t.Errorf("without a core: exit %d: %s", code, log)
	}
}

func asJSON(t *testing.T, j *api.Job) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"Job": j})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func runRefuses(t *testing.T, c *cluster) {
	good := c.file("good.json", asJSON(t, newJob("good", words, 1, 600)))
	if out, _, code := c.evenstep("run", good); out != "good\n" || code != 0 {
		t.Fatalf("run: %q, exit %d", out, code)
	}
	if out, _, code := c.evenstep("run", good); out != "good\n" || code != 0 {
		t.Errorf("run of what waits: %q, exit %d", out, code)
	}
	c.once()
	c.runsOn("good", "n1")
	alloc := c.allocs("good")[0].ID
	_, said, code := c.evenstep("run", good)
	if code != 3 || !strings.Contains(said, "it has allocations, and would wait for their end; stop it first: nomad job stop good") {
		t.Errorf("run of what runs: exit %d: %s", code, said)
	}
	// Nomad's own command does not: what runs goes on.
	c.register(newJob("good", words, 1, 500, hold))
	const waits = "running n1 what runs was registered before, and this waits for its end; stop the job and run it again"
	c.waitFor("status", func() bool { return c.status("good") == waits })
	c.once()
	if all := c.allocs("good"); len(all) != 1 || all[0].ID != alloc || all[0].ClientStatus != "running" {
		t.Errorf("it was replaced: %v", all)
	}
	for name, want := range map[string]struct{ text, says string }{
		"no meta":   {asJSON(t, newJob("x", "", 1, 1)), "does not ask for Evenstep"},
		"bad meta":  {asJSON(t, newJob("x", "workload=w", 1, 1)), "meta evenstep: global_batch: missing"},
		"bad id":    {asJSON(t, newJob("x y", words, 1, 1)), "its id cannot be a Variable's path"},
		"no job":    {`{"Job":{}}`, "no ID or no TaskGroups"},
		"null":      {`{"Job":{"ID":"x","TaskGroups":[null]}}`, "TaskGroups[0] has no Name"},
		"no JSON":   {`{"Job"`, "unexpected end of JSON input"},
		"no HCL":    {`job "x" {`, "Failed to parse job"},
		"nothing":   {" ", "400"},
		"system":    {asJSON(t, newJob("x", words, 1, 1, func(j *api.Job) { j.Type = new("system") })), "its type is system"},
		"periodic":  {asJSON(t, newJob("x", words, 1, 1, func(j *api.Job) { j.Periodic = &api.PeriodicConfig{Spec: new("@daily")} })), "it only starts other jobs"},
		"no device": {asJSON(t, newJob("x", words, 1, 1, asksFor("gpu", 0))), "it asks for 0 devices"},
	} {
		_, said, code := c.evenstep("run", c.file("bad", want.text))
		if code != 2 || !strings.Contains(said, want.says) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: exit %d: %s", name, code, said)
		}
	}
	// The example, in HCL that Nomad parses.
	if out, said, code := c.evenstep("run", "../examples/nomad/torchrun.nomad.hcl"); out != "train\n" || code != 0 {
		t.Errorf("run of HCL: %q, %q, exit %d", out, said, code)
	}
	if got := c.info("train").Constraints; len(got) != 1 || got[0].RTarget != "evenstep-hold" {
		t.Errorf("the constraints of what was registered are %v", got)
	}
	if _, _, code := c.evenstep("run", c.folder+"/absent"); code != 2 {
		t.Errorf("no file: exit %d", code)
	}
}

func twoControllers(t *testing.T, c *cluster) {
	_, kill, _ := c.controller()
	c.waitFor("lease", func() bool { return c.holder() != "" })
	first := c.holder()
	if _, said, code := c.evenstep("controller", "--once", "--profiles="+c.folder+"/rates.json"); code != 4 || !strings.Contains(said, "another controller steers: "+first) {
		t.Errorf("a second one: exit %d: %s", code, said)
	}
	second, _, stop := c.controller()
	c.waitFor("word of the second", func() bool { return strings.Contains(second.String(), "another controller steers: "+first) })
	c.register(newJob("a", words, 1, 600, hold))
	c.runsOn("a", "n1")
	if strings.Contains(second.String(), "start: job=a") {
		t.Errorf("the second one steered: %s", second)
	}
	kill()
	c.register(newJob("b", words, 1, 600, hold))
	c.runsOn("b", "n2") // once the lease of the first has run out
	if got := c.holder(); got == first || !strings.Contains(second.String(), "start: job=b") {
		t.Errorf("the lease is %q's; the second says: %s", got, second)
	}
	stop()
	if got := c.holder(); got != "" {
		t.Errorf("a controller that was stopped kept the lease: %q", got)
	}
	c.once()
}

// holder is who has the lease; empty where nobody has.
func (c *cluster) holder() string {
	c.t.Helper()
	v, _, err := c.api.Variables().Peek("evenstep/controller", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if v == nil {
		return ""
	}
	return v.Items["holder"]
}

func namespaces(t *testing.T, c *cluster) {
	if _, err := c.api.Namespaces().Register(&api.Namespace{Name: "ml"}, nil); err != nil {
		t.Fatal(err)
	}
	c.register(newJob("same", words, 1, 600, hold))
	c.register(newJob("same", words, 1, 600, hold, inNamespace("ml")))
	c.once()
	c.runsOn("same", "n1")
	if got := c.where("ml/same"); got != "" {
		t.Errorf("another namespace's job was put on %s", got)
	}
	all := *c
	all.env = append(slices.Clip(c.env), "NOMAD_NAMESPACE=*")
	if _, said, code := all.evenstep("release", "same"); code != 3 || !strings.Contains(said, "with NOMAD_NAMESPACE=* a job is named NAMESPACE/JOB") {
		t.Errorf("release of a bare name: exit %d: %s", code, said)
	}
	absent := *c
	absent.env = append(slices.Clip(c.env), "NOMAD_NAMESPACE=absent")
	if out, said, code := absent.evenstep("status"); code != 4 || out != "" || !strings.Contains(said, `nomad has no namespace "absent"; see NOMAD_NAMESPACE`) {
		t.Errorf("status in a namespace that is not there: exit %d: %s%s", code, out, said)
	}
	if got := all.status("ml/same"); got != "waiting for its plan; no controller runs" {
		t.Errorf("status %q", got)
	}
	all.once()
	c.runsOn("ml/same", "n2")
	if got := c.message("ml/same")["evenstep_nodes"]; got != "1" {
		t.Errorf("the Variable says %q", got)
	}
	if _, _, err := c.api.Jobs().Deregister("same", true, nil); err != nil {
		t.Fatal(err)
	}

	// Nomad lets nobody change a dispatched job: it is said, and left alone.
	c.register(newJob("param", words, 1, 600, hold, func(j *api.Job) { j.ParameterizedJob = &api.ParameterizedJobConfig{} }))
	d, _, err := c.api.Jobs().Dispatch("param", nil, nil, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if log := c.once(); strings.Contains(log, "ERROR") || !strings.Contains(log, "it was dispatched, and Nomad lets nobody change") {
		t.Errorf("log: %s", log)
	}
	if got := c.status(d.DispatchedJobID); !strings.HasPrefix(got, "not steered it was dispatched") || c.status("param") != "" {
		t.Errorf("status %q, %q", got, c.status("param"))
	}
}

func eventsBringRounds(t *testing.T, c *cluster) {
	_, _, _ = c.controller("--interval=1h", "--hold-limit=24h")
	c.waitFor("lease", func() bool { return c.holder() != "" })
	c.register(newJob("a", words, 1, 600, hold))
	c.runsOn("a", "n1")
	// Only events tell of a node that comes back.
	c.register(newJob("b", words+" workers=2", 1, 600, hold))
	c.runsOn("b", "n2,n3")
	c.register(newJob("c", words, 1, 600, hold))
	if _, _, err := c.api.Jobs().Deregister("a", false, nil); err != nil {
		t.Fatal(err)
	}
	c.runsOn("c", "n1")
}

// steered has a job run on n1 and n2 with a controller there.
func steered(c *cluster) (log *lines, first map[string]string) {
	c.t.Helper()
	log, _, _ = c.controller()
	c.register(newJob("j", words, 2, 600, hold))
	c.runsOn("j", "n1,n2")
	first = map[string]string{}
	for _, a := range c.allocs("j") {
		first[a.NodeName] = a.ID
	}
	return log, first
}

// moved checks that one allocation went from n2 to n3 and the other is what it was.
func moved(c *cluster, log *lines, first map[string]string) {
	c.t.Helper()
	c.runsOn("j", "n1,n3")
	for _, a := range c.allocs("j") {
		if a.NodeName == "n1" && (a.ID != first["n1"] || a.ClientStatus != "running") {
			c.t.Errorf("the allocation on n1 was replaced: %s is %s", a.ID, a.ClientStatus)
		}
	}
	if got := c.status("j"); got != "running n1,n3 node n2 is gone" {
		c.t.Errorf("status %q", got)
	}
	if !strings.Contains(log.String(), "release: job=j") || *c.info("j").TaskGroups[0].Count != 2 {
		c.t.Errorf("count %d, log %s", *c.info("j").TaskGroups[0].Count, log)
	}
}

func drained(t *testing.T, c *cluster) {
	log, first := steered(c)
	spec := &api.DrainSpec{Deadline: time.Second}
	if _, err := c.api.Nodes().UpdateDrain(c.node("n2"), spec, false, nil); err != nil {
		t.Fatal(err)
	}
	moved(c, log, first)
}

// With no controller there at the moment of a drain, Nomad takes what it stopped for done, and a job of one allocation
// for dead.
func stopped(t *testing.T, c *cluster) {
	c.register(newJob("lone", words, 1, 600, hold, onNode("n3")))
	c.once()
	c.runsOn("lone", "n3")
	c.register(newJob("j", words, 2, 600, hold))
	c.once()
	c.runsOn("j", "n1,n2")
	stays := c.allocs("j")[0]
	if stays.NodeName != "n1" {
		stays = c.allocs("j")[1]
	}
	for _, name := range []string{"n2", "n3"} {
		if _, err := c.api.Nodes().UpdateDrain(c.node(name), &api.DrainSpec{Deadline: time.Second}, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	blocked := func() int {
		evals, _, err := c.api.Evaluations().List(nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(evals, func(e *api.Evaluation) bool { return e.Status != "blocked" }))
	}
	c.waitFor("what was stopped taken for done", func() bool { return c.where("j") == "n1" && c.where("lone") == "" && blocked() == 0 })
	if got := c.status("j"); got != "short n1 node n2 is gone: the controller, or evenstep nomad release j, has Nomad place another" {
		t.Errorf("status %q", got)
	}
	if got := c.status("lone"); got != "short n3 node n3 is gone: the controller, or evenstep nomad release lone, has Nomad place another" {
		t.Errorf("status %q", got)
	}
	for _, name := range []string{"n2", "n3"} {
		if _, err := c.api.Nodes().UpdateDrain(c.node(name), nil, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.status("j"); got != "short n1 its allocation on node n2 was stopped: the controller, or evenstep nomad release j, has Nomad place "+
		"another" {
		t.Errorf("status %q", got)
	}
	if out, said, code := c.evenstep("release", "lone"); out != "lone\n" || code != 0 {
		t.Errorf("release: %q, %q, exit %d", out, said, code)
	}
	c.runsOn("lone", "n3")
	if log := c.once(); !strings.Contains(log, "release: job=j") {
		t.Errorf("log: %s", log)
	}
	c.waitFor("another of j", func() bool { return len(c.allocs("j")) == 2 })
	if again := c.allocs("j"); !slices.ContainsFunc(again, func(a *api.AllocationListStub) bool { return a.ID == stays.ID }) {
		t.Errorf("the allocation on n1 was replaced: %v", again)
	}
	if log := c.once(); strings.Contains(log, "release: ") {
		t.Errorf("it was released twice: %s", log)
	}
}

func lost(t *testing.T, c *cluster) {
	log, first := steered(c)
	c.Lose("n2")
	moved(c, log, first)
}
