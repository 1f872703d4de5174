package nomad_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/nomad/nomadtest"
)

// files are specifications and configurations in HCL by a pattern.
func files(t *testing.T, pattern string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	texts := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

func TestExamplesAreHCL(t *testing.T) {
	t.Parallel()
	for name, text := range files(t, "../examples/nomad/*.hcl") {
		_, diagnostics := hclsyntax.ParseConfig([]byte(text), name, hcl.InitialPos)
		if diagnostics.HasErrors() {
			t.Error(diagnostics)
		}
	}
}

// The shipped snippet is what the example has, to the letter but for the indentation.
func TestTheExampleHasTheSnippet(t *testing.T) {
	t.Parallel()
	snippet := files(t, "../examples/nomad/evenstep.sh.tpl")["../examples/nomad/evenstep.sh.tpl"]
	spec := files(t, "../examples/nomad/torchrun.nomad.hcl")["../examples/nomad/torchrun.nomad.hcl"]
	_, after, _ := strings.Cut(spec, "data = <<-EOT\n")
	inSpec, _, _ := strings.Cut(after, "        EOT\n")
	inSpec = strings.ReplaceAll("\n"+inSpec, "\n          ", "\n")[1:]
	if diff := cmp.Diff(snippet, inSpec); diff != "" {
		t.Error(diff)
	}
}

// The fake answers for each example what Nomad does. EVENSTEP_RECORD=1 records that.
func TestRecordingsAreWhatAgentsParse(t *testing.T) {
	t.Parallel()
	examples := files(t, "../examples/nomad/*.nomad.hcl")
	for name, text := range examples {
		recorded, err := os.ReadFile(filepath.Join("nomadtest/testdata", filepath.Base(name)))
		if (err != nil || string(recorded) != text) && os.Getenv("EVENSTEP_RECORD") == "" {
			t.Errorf("%s: nomadtest/testdata has another text; run the test with EVENSTEP_RECORD=1 and a nomad", name)
		}
	}
	agents := nomadtest.StartAgents(t, nomadtest.AgentsOptions{}, nomadtest.Node{Name: "n1"})
	for name, text := range examples {
		var job json.RawMessage
		if _, err := agents.Client("").Raw().Write("/v1/jobs/parse", api.JobsParseRequest{JobHCL: text}, &job, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		base := filepath.Join("nomadtest/testdata", filepath.Base(name))
		answer := strings.TrimSuffix(base, ".hcl") + ".json"
		if os.Getenv("EVENSTEP_RECORD") != "" {
			for file, text := range map[string][]byte{base: []byte(text), answer: append(job, '\n')} {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		recorded, err := os.ReadFile(answer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(asAny(t, recorded), asAny(t, job)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if out, err := agents.Nomad("", "job", "validate", name); err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// Nomad's own parser takes the client's configuration, and the policy. The former is a part: without a folder for data it is
// none.
func TestConfigurationIsWhatAgentsTake(t *testing.T) {
	t.Parallel()
	agents := nomadtest.StartAgents(t, nomadtest.AgentsOptions{ACL: true})
	rest := filepath.Join(t.TempDir(), "rest.hcl")
	if err := os.WriteFile(rest, fmt.Appendf(nil, "data_dir = %q", t.TempDir()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := agents.Nomad("", "config", "validate", "../examples/nomad/client.hcl", rest); err != nil {
		t.Errorf("client.hcl: %v: %s", err, out)
	}
	root := bootstrap(t, agents)
	if out, err := agents.Nomad(root, "acl", "policy", "apply", "evenstep-controller", "../examples/nomad/policy.hcl"); err != nil {
		t.Errorf("policy.hcl: %v: %s", err, out)
	}
}

// bootstrap is the first token of a cluster with ACLs, which may do anything.
func bootstrap(t *testing.T, agents *nomadtest.Agents) string {
	t.Helper()
	for range 600 {
		if root, _, err := agents.Client("").ACLTokens().Bootstrap(nil); err == nil {
			return root.SecretID
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("no leader after a minute")
	return ""
}

func asAny(t *testing.T, text []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}
