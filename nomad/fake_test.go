package nomad_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/nomad/nomadtest"
)

// What takes a server that is interfered with is tried on the fake alone.

// A user who changes the job at the moment of its placement wins, and the tasks are told nothing.
func TestAJobThatChangesMeanwhileIsLeftOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f)
	c.register(newJob("j", words, 1, 600, hold))
	var once atomic.Bool
	f.Before(func(r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" && once.CompareAndSwap(false, true) {
			c.register(newJob("j", words+" workers=2", 1, 600, hold))
		}
	})
	if log := c.once(); !strings.Contains(log, "update refused: job=j") || !strings.Contains(log, "conflicting job modify index") {
		t.Errorf("log: %s", log)
	}
	if got := c.message("j"); got != nil {
		t.Errorf("its Variable says %v", got)
	}
	c.once()
	c.runsOn("j", "n1,n2")
}

// Items of the user's own in the Variable stay, also where somebody writes them meanwhile.
func TestAUsersItemsStayOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f)
	put := func(secret string) {
		v := &api.Variable{Path: "nomad/jobs/j", Items: api.VariableItems{"secret": secret}}
		if _, _, err := c.api.Variables().Update(v, nil); err != nil {
			t.Error(err)
		}
	}
	put("one")
	c.register(newJob("j", words, 1, 600, hold))
	out, _, _ := c.evenstep("controller", "--once", "--dry-run", "--profiles="+c.folder+"/rates.json")
	if strings.Contains(out, "one") || !strings.Contains(out, `"secret":"(kept)"`) {
		t.Errorf("a dry run prints secrets: %s", out)
	}
	var once atomic.Bool
	f.Before(func(r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Query().Has("cas") && strings.HasSuffix(r.URL.Path, "/j") && once.CompareAndSwap(false, true) {
			put("two")
		}
	})
	if log := c.once(); !strings.Contains(log, "update refused: job=j") {
		t.Errorf("log: %s", log)
	}
	c.once()
	c.runsOn("j", "n1")
	if got := c.message("j"); got["secret"] != "two" || got["evenstep_nodes"] != "1" {
		t.Errorf("its Variable says %v", got)
	}

	// When the job is gone, so is what we wrote, and nothing else.
	if _, _, err := c.api.Jobs().Deregister("j", true, nil); err != nil {
		t.Fatal(err)
	}
	c.register(newJob("k", words, 1, 600, hold))
	c.waitFor("free node", func() bool { c.once(); return c.where("k") == "n1" })
	if got := c.message("j"); len(got) != 1 || got["secret"] != "two" {
		t.Errorf("after the job its Variable says %v", got)
	}
	if _, _, err := c.api.Jobs().Deregister("k", true, nil); err != nil {
		t.Fatal(err)
	}
	c.once()
	if got := c.message("k"); got != nil {
		t.Errorf("after the job its Variable says %v", got)
	}
}

// What Evenstep's API does not know of a job is sent back as it came.
func TestUnknownFieldsStayOnTheFake(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nomadtest.StartFake(t, unlike...))
	var wrapped struct{ Job map[string]any }
	if err := json.Unmarshal([]byte(asJSON(t, newJob("j", words, 1, 600, hold))), &wrapped); err != nil {
		t.Fatal(err)
	}
	wrapped.Job["FromTheFuture"] = "here"
	wrapped.Job["TaskGroups"].([]any)[0].(map[string]any)["AlsoNew"] = 7.5
	if _, err := c.api.Raw().Write("/v1/jobs", wrapped, nil, nil); err != nil {
		t.Fatal(err)
	}
	c.once()
	c.runsOn("j", "n1")
	var after struct {
		FromTheFuture string
		TaskGroups    []struct{ AlsoNew float64 }
	}
	if _, err := c.api.Raw().Query("/v1/job/j", &after, nil); err != nil {
		t.Fatal(err)
	}
	if after.FromTheFuture != "here" || after.TaskGroups[0].AlsoNew != 7.5 {
		t.Errorf("left of it: %+v", after)
	}
}

// Where Nomad would replace what runs, nothing is registered: here the node of the other allocation has changed so that
// the job would not be placed there again.
func TestNoRunningAllocationIsReplacedOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f)
	c.register(newJob("j", words, 2, 600, hold, func(j *api.Job) { j.Constrain(api.NewConstraint("${attr.cpu.numcores}", ">=", "8")) }))
	c.once()
	c.runsOn("j", "n1,n2")
	before := c.info("j")
	f.Change("n1", func(n *api.Node) { n.Attributes["cpu.numcores"] = "4" })
	f.Lose("n2")
	if log := c.once(); !strings.Contains(log, "update refused: job=j update=release") || !strings.Contains(log, "Nomad would replace 1 of its allocations") {
		t.Errorf("log: %s", log)
	}
	if after := c.info("j"); *after.JobModifyIndex != *before.JobModifyIndex || c.where("j") != "n1" {
		t.Error("it was registered again")
	}
	f.Change("n1", func(n *api.Node) { n.Attributes["cpu.numcores"] = "8" })
	if log := c.once(); !strings.Contains(log, "release: job=j") {
		t.Errorf("log: %s", log)
	}
	c.runsOn("j", "n1,n3")
}

// A batch job of which one allocation has ended is not registered again: Nomad would start that one anew.
func TestWhatHasEndedIsNotStartedAgainOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f)
	c.register(newJob("j", words, 3, 600, hold))
	c.once()
	c.runsOn("j", "n1,n2,n3")
	f.Finish(c.allocs("j")[0].ID)
	ended := c.allocs("j")[0]
	f.Change(ended.NodeName, func(n *api.Node) { n.SchedulingEligibility = "ineligible" })
	lose := "n1"
	if ended.NodeName == lose {
		lose = "n2"
	}
	f.Lose(lose)
	if log := c.once(); !strings.Contains(log, "update refused: job=j update=release") || !strings.Contains(log, "some have ended") {
		t.Errorf("log: %s", log)
	}
	if all := c.allocs("j"); len(all) != 2 {
		t.Errorf("%d allocations", len(all))
	}
}

// Where one has ended and another was stopped, nothing can start the one alone: that is said, and nothing done.
func TestWhatCannotBeCompletedIsSaidOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f)
	c.register(newJob("j", words, 3, 600, hold))
	c.once()
	c.runsOn("j", "n1,n2,n3")
	for _, a := range c.allocs("j") {
		if a.NodeName == "n1" {
			f.Finish(a.ID)
		}
	}
	f.Change("n1", func(n *api.Node) { n.SchedulingEligibility = "ineligible" })
	if _, err := c.api.Nodes().UpdateDrain(c.node("n2"), &api.DrainSpec{Deadline: time.Millisecond}, false, nil); err != nil {
		t.Fatal(err)
	}
	const why = "its allocation on node n2 was stopped, which Nomad takes for done; to start another would start those anew " +
		"that have ended: stop the job and run it again"
	c.waitFor("status", func() bool { return c.status("j") == "short n3 "+why })
	before := c.info("j")
	if log := c.once(); !strings.Contains(log, "not steered: job=j why=\""+why) {
		t.Errorf("log: %s", log)
	}
	if out, _, code := c.evenstep("check"); code != 1 || !strings.Contains(out, "job j lacks an allocation: "+why) {
		t.Errorf("check: exit %d: %s", code, out)
	}
	if after := c.info("j"); *after.JobModifyIndex != *before.JobModifyIndex {
		t.Error("it was registered again")
	}
}

// Memory that others hold is waited for, as their devices are, without asking Nomad for a place that it would refuse.
func TestRoomOfOthersIsWaitedForOnTheFake(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nomadtest.StartFake(t, unlike...))
	for _, node := range []string{"n1", "n2", "n3"} {
		c.register(newJob("theirs-"+node, "", 1, 600, onNode(node), memory(6000)))
	}
	c.register(newJob("j", words, 1, 600, hold, memory(4000)))
	if log := c.once(); log != "" || c.status("j") != "waiting for its plan; no controller runs" {
		t.Errorf("status %q, log %s", c.status("j"), log)
	}
	if _, _, err := c.api.Jobs().Deregister("theirs-n2", true, nil); err != nil {
		t.Fatal(err)
	}
	c.once()
	c.runsOn("j", "n2")
}

// A job that Nomad places nowhere although a plan says so is let go when that goes on for the hold limit.
func TestARefusedPlaceIsGivenUpOnTheFake(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nomadtest.StartFake(t, unlike...))
	// Of an operator that Evenstep does not know it leaves the judgement to Nomad.
	c.register(newJob("j", words, 1, 600, hold, func(j *api.Job) { j.Constrain(api.NewConstraint("${attr.cpu.numcores}", "riddle", "8")) }))
	log, _, _ := c.controller("--hold-limit=2s")
	c.waitFor("release", func() bool { return strings.Contains(log.String(), "release: job=j") })
	if got := log.String(); strings.Count(got, "update refused") != 1 || !strings.Contains(got, "Nomad finds no place for it there: none fits excludes 4 nodes") ||
		!strings.Contains(got, "Nomad has refused its nodes for 2s") {
		t.Errorf("log: %s", got)
	}
}

// A stream that ends loses what happens until the next one begins; that is seen all the same.
func TestAGapInTheEventsIsFilledOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f)
	log, _, _ := c.controller("--interval=1h", "--hold-limit=24h")
	c.waitFor("lease", func() bool { return c.holder() != "" })
	c.register(newJob("a", words, 1, 600, hold))
	c.runsOn("a", "n1")
	var cut atomic.Bool
	cut.Store(true)
	f.Before(func(r *http.Request) {
		for cut.Load() && r.URL.Path == "/v1/event/stream" {
			time.Sleep(10 * time.Millisecond)
		}
	})
	f.CutStreams()
	c.waitFor("word of the gap", func() bool { return strings.Contains(log.String(), "no event stream") })
	c.register(newJob("b", words, 1, 600, hold))
	cut.Store(false)
	c.runsOn("b", "n2")
}

// What a controller has done itself it knows before the event that says so, which may be late.
func TestALateEventMakesNoSecondUpdateOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f)
	log, _, _ := c.controller("--interval=100ms")
	c.register(newJob("a", words, 1, 600, hold))
	c.runsOn("a", "n1")
	f.Before(func(r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/var/nomad/jobs/") {
			f.LoseEvents()
		}
	})
	c.register(newJob("b", words, 1, 600, hold))
	c.runsOn("b", "n2")
	time.Sleep(time.Second) // some rounds
	if got := log.String(); strings.Contains(got, "ERROR") || strings.Count(got, "start: job=b") != 1 {
		t.Errorf("log: %s", got)
	}
}

// A lease that somebody deletes is written again, and nobody takes those that wait for abandoned.
func TestADeletedLeaseIsNoAbsenceOnTheFake(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nomadtest.StartFake(t, unlike...))
	log, _, _ := c.controller("--hold-limit=2s")
	c.register(newJob("all", words+" workers=3", 1, 600, hold))
	c.runsOn("all", "n1,n2,n3")
	c.register(newJob("next", words, 1, 600, hold))
	if _, err := c.api.Variables().Delete("evenstep/controller", nil); err != nil {
		t.Fatal(err)
	}
	c.waitFor("lease", func() bool {
		v, _, err := c.api.Variables().Peek("evenstep/controller", nil)
		return err == nil && v != nil
	})
	time.Sleep(time.Second) // a round
	if got := c.status("next"); got != "waiting for its plan" {
		t.Errorf("status %q, log %s", got, log)
	}
}

// The environment says how Nomad is reached: TLS with a certificate of its own, a token, and neither is enough alone.
func TestTLSAndTokenOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFakeWithTLS(t, "secret", unlike...)
	c := newCluster(t, f)
	ca := c.file("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate()})))
	bare := c.env
	for _, want := range []struct {
		env  []string
		code int
		says string
	}{
		{nil, 4, "certificate"},
		{[]string{"NOMAD_CACERT=" + ca}, 4, "403 Permission denied"},
		{[]string{"NOMAD_CACERT=" + ca, "NOMAD_TOKEN=wrong"}, 4, "403 Permission denied"},
		{[]string{"NOMAD_CACERT=" + ca + ".absent", "NOMAD_TOKEN=secret"}, 4, "nomad: "},
		{[]string{"NOMAD_CACERT=" + ca, "NOMAD_TOKEN=secret"}, 0, ""},
		{[]string{"NOMAD_SKIP_VERIFY=true", "NOMAD_TOKEN=secret"}, 0, ""},
	} {
		c.env = append(bare[:len(bare):len(bare)], want.env...)
		out, said, code := c.evenstep("status")
		if code != want.code || !strings.Contains(said, want.says) || strings.Count(said, "\n") > 1 || code == 0 && out != "JOB  STATE  NODES  WHY\n" {
			t.Errorf("%v: exit %d: %s%s", want.env, code, out, said)
		}
	}
	_, said, code := c.evenstep("check")
	if code != 1 || !strings.Contains(said, "findings: 1") {
		t.Errorf("check: exit %d: %s", code, said)
	}
	c.env = append(c.env, "NOMAD_TOKEN=wrong")
	if out, _, code := c.evenstep("check"); code != 1 || !strings.Contains(out, "403 Permission denied; see NOMAD_ADDR, NOMAD_REGION and NOMAD_TOKEN") {
		t.Errorf("check with a wrong token: exit %d: %s", code, out)
	}
}

// A user may do without the right to read the lease and the job's Variable: what is registered is a success.
func TestAUserWithFewRightsOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFakeWithTLS(t, "secret", unlike...)
	c := newCluster(t, f, "NOMAD_SKIP_VERIFY=true", "NOMAD_TOKEN=secret")
	f.Before(func(r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/var/") {
			r.Header.Set("X-Nomad-Token", "of one who may not")
		}
	})
	out, said, code := c.evenstep("run", c.file("good.json", asJSON(t, newJob("good", words, 1, 600))))
	if want := "evenstep nomad run: job good is registered; jobs that nobody attends to could not be let go: " +
		"nomad: /v1/var/evenstep/controller: 403 Permission denied\n"; out != "good\n" || said != want || code != 0 {
		t.Errorf("run: %q, %q, exit %d", out, said, code)
	}
	if got := c.status("good"); got != "waiting for its plan" {
		t.Errorf("status %q", got)
	}
	if out, said, code := c.evenstep("release", "good"); out != "good\n" || said != "" || code != 0 {
		t.Errorf("release: %q, %q, exit %d", out, said, code)
	}
	if _, said, code := c.evenstep("controller", "--once", "--profiles="+c.folder+"/rates.json"); code != 4 || strings.Count(said, "\n") != 1 {
		t.Errorf("a controller with those rights: exit %d: %s", code, said)
	}
}

// Nomad's requests reach the region and namespace of the environment.
func TestRegionAndNamespaceOnTheFake(t *testing.T) {
	t.Parallel()
	f := nomadtest.StartFake(t, unlike...)
	c := newCluster(t, f, "NOMAD_REGION=west", "NOMAD_NAMESPACE=ml")
	if _, err := c.api.Namespaces().Register(&api.Namespace{Name: "ml"}, nil); err != nil {
		t.Fatal(err)
	}
	c.register(newJob("j", words, 1, 600, hold, inNamespace("ml")))
	f.Before(func(r *http.Request) {
		if r.Header.Get("User-Agent") != "" && r.URL.Query().Get("region") != "west" && strings.Contains(r.URL.RawQuery, "resources") {
			t.Errorf("%s?%s", r.URL.Path, r.URL.RawQuery)
		}
	})
	c.once()
	c.runsOn("ml/j", "n1")
}
