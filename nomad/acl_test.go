package nomad_test

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/nomad/nomadtest"
)

// The shipped policy is enough for the controller, run by hand and as the shipped job, and check names what a smaller
// one lacks.
func TestTheLeastRightsOnAgents(t *testing.T) {
	t.Parallel()
	agents := nomadtest.StartAgents(t, nomadtest.AgentsOptions{ACL: true}, unlike[:3]...)
	c := newCluster(t, agents)
	root := bootstrap(t, agents)
	c.api = agents.Client(root)
	agents.WaitForNodes(c.api, 3)
	rules, err := os.ReadFile("../examples/nomad/policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	token := func(name, rules string) string {
		t.Helper()
		if _, err := c.api.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
			t.Fatal(err)
		}
		made, _, err := c.api.ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return made.SecretID
	}
	bare := c.env
	c.env = append(bare[:len(bare):len(bare)], "NOMAD_TOKEN="+token("small", `namespace "default" { policy = "read" } node { policy = "read" }`))
	out, _, code := c.evenstep("check")
	for _, want := range []string{"jobs cannot be registered", "submit-job", "a job's Variable cannot be written", "the lease cannot be written"} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("check with a small policy: exit %d, no %q in\n%s", code, want, out)
		}
	}
	c.env = append(bare[:len(bare):len(bare)], "NOMAD_TOKEN="+token("controller", string(rules)))
	if out, _, _ := c.evenstep("check"); out != "no controller runs: jobs wait until one does, or evenstep nomad release lets them go\n" {
		t.Errorf("check: %s", out)
	}
	log, _, stop := c.controller()
	c.waitFor("lease", func() bool { return c.holder() != "" })
	if out, said, code := c.evenstep("check"); code != 0 {
		t.Errorf("check: exit %d: %s%s", code, out, said)
	}
	good := c.file("good.json", asJSON(t, newJob("good", words, 2, 600)))
	if out, said, code := c.evenstep("run", good); out != "good\n" || code != 0 {
		t.Errorf("run: %q, %q, exit %d", out, said, code)
	}
	c.register(newJob("bad", "workload=", 1, 600, hold))
	c.runsOn("good", "n1,n2")
	c.waitFor("release of bad", func() bool { return len(c.allocs("bad")) == 1 })
	if c.message("good")["evenstep_nodes"] != "2" || c.message("bad")["evenstep_released"] == "" {
		t.Errorf("Variables: %v, %v", c.message("good"), c.message("bad"))
	}
	// A user needs less: neither the lease nor the Variables of jobs.
	user := *c
	user.env = append(bare[:len(bare):len(bare)], "NOMAD_TOKEN="+token("user", `namespace "default" { policy = "write" } node { policy = "read" }`))
	if out, said, code := user.evenstep("run", c.file("users.json", asJSON(t, newJob("users", words, 9, 600)))); out != "users\n" || code != 0 ||
		!strings.Contains(said, "job users is registered; jobs that nobody attends to could not be let go: ") {
		t.Errorf("run by a user: %q, %q, exit %d", out, said, code)
	}
	if out, said, code := user.evenstep("status"); code != 0 {
		t.Errorf("status by a user: %q, %q, exit %d", out, said, code)
	}
	stop()
	if got := c.holder(); got != "" {
		t.Errorf("a controller that was stopped kept the lease: %q", got)
	}
	c.register(newJob("let", words, 1, 600, hold))
	if out, said, code := user.evenstep("release", "let"); out != "let\n" || code != 0 {
		t.Errorf("release by a user: %q, %q, exit %d", out, said, code)
	}
	if got := log.String(); strings.Contains(got, "ERROR") || strings.Contains(got, "WARN") {
		t.Errorf("log: %s", got)
	}

	// Of all namespaces it steers those that the policy names, and says that there may be others.
	if _, err := c.api.Namespaces().Register(&api.Namespace{Name: "ml"}, nil); err != nil {
		t.Fatal(err)
	}
	c.env = append(c.env, "NOMAD_NAMESPACE=*")
	const narrow = "NOMAD_NAMESPACE is *, and the token sees jobs in default only"
	if out, _, code := c.evenstep("check"); code != 1 || !strings.Contains(out, narrow) {
		t.Errorf("check: exit %d: %s", code, out)
	}
	log, _, stop = c.controller()
	c.waitFor("lease", func() bool { return c.holder() != "" })
	stop()
	if got := c.holder(); got != "" || !strings.Contains(log.String(), narrow) {
		t.Errorf("the lease is %q's; the log says %s", got, log)
	}

	// With a block for all it sees them all.
	c.reset()
	all := strings.Replace(string(rules), `namespace "default"`, `namespace "*"`, 1)
	c.env = append(bare[:len(bare):len(bare)], "NOMAD_NAMESPACE=*", "NOMAD_TOKEN="+token("all", all))
	if out, _, _ := c.evenstep("check"); out != "no controller runs: jobs wait until one does, or evenstep nomad release lets them go\n" {
		t.Errorf("check with rights in all namespaces: %s", out)
	}
	c.register(newJob("there", words, 1, 600, hold, inNamespace("ml")))
	log, _, stop = c.controller()
	c.runsOn("ml/there", "n1")
	stop()
	if got := log.String(); strings.Contains(got, "WARN") || strings.Contains(got, "ERROR") {
		t.Errorf("log: %s", got)
	}

	// It runs as a job as well.
	c.reset()
	secret := &api.Variable{Path: "nomad/jobs/evenstep-controller", Items: api.VariableItems{"token": token("again", string(rules))}}
	if _, _, err := c.api.Variables().Create(secret, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../examples/nomad/controller.nomad.hcl")
	if err != nil {
		t.Fatal(err)
	}
	spec := strings.Replace(string(text), "/usr/local/bin/evenstep", c.binary, 1)
	spec = strings.Replace(spec, `"resnet50-amp": { "NVIDIA A100-SXM4-40GB": 900, "Tesla T4": 150 }`, `"w": { "fast": 4, "slow": 1 }`, 1)
	spec = strings.Replace(spec, "http://127.0.0.1:4646", agents.Address(), 1)
	if out, err := agents.Nomad(root, "job", "run", "-detach", c.file("controller.nomad.hcl", spec)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.waitFor("lease of the job", func() bool { return c.holder() != "" })
	c.register(newJob("next", words, 1, 600, hold))
	c.runsOn("next", "n1")
}

// Agents that ask for a client's certificate are reached with one, and not without.
func TestMutualTLSOnAgents(t *testing.T) {
	t.Parallel()
	agents := nomadtest.StartAgents(t, nomadtest.AgentsOptions{TLS: true}, unlike[:2]...)
	ca, cert, key := agents.Certificates("cli")
	c := newCluster(t, agents, "NOMAD_CACERT="+ca)
	c.api = agents.Client("")
	if _, said, code := c.evenstep("status"); code != 4 || !strings.Contains(said, "certificate required") {
		t.Errorf("without a certificate: exit %d: %s", code, said)
	}
	c.env = append(c.env, "NOMAD_CLIENT_CERT="+cert, "NOMAD_CLIENT_KEY="+key)
	log, _, _ := c.controller("--interval=1h", "--hold-limit=24h")
	c.waitFor("lease", func() bool { return c.holder() != "" })
	good := c.file("good.json", asJSON(t, newJob("good", words, 2, 600)))
	if out, said, code := c.evenstep("run", good); out != "good\n" || code != 0 {
		t.Errorf("run: %q, %q, exit %d", out, said, code)
	}
	c.runsOn("good", "n1,n2")
	if got := log.String(); strings.Contains(got, "WARN") || strings.Contains(got, "ERROR") {
		t.Errorf("log: %s", got)
	}
}
