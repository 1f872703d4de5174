package nomad_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenstep/evenstep/nomad/nomadtest"
)

// The example trains: three allocations meet, and begin with the sizes of the plan, each on the node that it was
// planned for. One that was not placed by Evenstep meets as well.
func TestTheExampleTrainsOnAgents(t *testing.T) {
	t.Parallel()
	agents := nomadtest.StartAgents(t, nomadtest.AgentsOptions{}, unlike[:3]...)
	c := newCluster(t, agents)
	spec := example(t, c)
	c.controller()
	if out, said, code := c.evenstep("run", c.file("train.nomad.hcl", spec)); out != "train\n" || code != 0 {
		t.Fatalf("run: %q, %q, exit %d", out, said, code)
	}
	trains(c, agents, "n1 rank 0 first 73", "n2 rank 1 first 18", "n3 rank 2 first 9")
	if got := *c.info("train").TaskGroups[0].Count; got != 3 {
		t.Errorf("count %d", got)
	}

	// Nomad's own command, and no hold: two allocations, equal sizes.
	c.reset()
	if out, err := agents.Nomad("", "job", "run", "-detach", c.file("plain.nomad.hcl", spec)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	trains(c, agents, "first 50", "first 50")
}

// example is the job specification for torchrun, for this host and a small training.
func example(t *testing.T, c *cluster) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(root, ".venv/bin/python")
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		t.Fatal("no torch in .venv; run: make .venv/.ready")
	}
	text, err := os.ReadFile("../examples/nomad/torchrun.nomad.hcl")
	if err != nil {
		t.Fatal(err)
	}
	spec := string(text)
	for _, change := range [][2]string{
		{"workload=resnet50-amp global_batch=1024 samples=90e6 workers=2-4", "workload=w global_batch=100 samples=1e6 workers=2-4"},
		{"exec torchrun", fmt.Sprintf("export NODE=${node.unique.name} PYTHONPATH=%s/torchrun EVENSTEP_BINARY=%s\n          exec %s -m torch.distributed.run",
			root, c.binary, python)},
		{"/srv/train.py", root + "/nomad/testdata/train.py"},
		{"device \"evenstep/gpu\" {\n          count = 1\n        }\n", ""},
		{"cpu    = 2000\n        memory = 8192", "cpu    = 100\n        memory = 512"},
	} {
		if !strings.Contains(spec, change[0]) {
			t.Fatalf("no %q in the example", change[0])
		}
		spec = strings.Replace(spec, change[0], change[1], 1)
	}
	return spec
}

// trains waits for the end of the job, and for what its tasks have to have printed, a line each.
func trains(c *cluster, agents *nomadtest.Agents, lines ...string) {
	c.t.Helper()
	said := ""
	ended := func() bool {
		j, _, err := c.api.Jobs().Info("train", nil)
		return err == nil && *j.Status == "dead"
	}
	// Torch alone takes a while to start thrice.
	for range 5 {
		if c.within(600, ended) {
			break
		}
	}
	for _, a := range c.allocs("train") {
		for _, args := range [][]string{{"alloc", "logs", a.ID, "train"}, {"alloc", "logs", "-stderr", a.ID, "train"}} {
			text, _ := agents.Nomad("", args...)
			said += text
		}
	}
	rest := said
	for _, line := range lines {
		if !strings.Contains(rest, line) {
			c.t.Fatalf("no %q in\n%s", line, said)
		}
		rest = strings.Replace(rest, line, "", 1)
	}
}
