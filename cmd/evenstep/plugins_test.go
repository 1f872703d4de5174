package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// examplePlugin builds the example of a policy plugin into a folder.
func examplePlugin(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	path := filepath.Join(folder, "evenstep-policy-smoothed")
	build := exec.Command("go", "build", "-o", path, "../../examples/policy-plugin")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

func TestPluginsListsWhatIsThere(t *testing.T) {
	folder := examplePlugin(t)
	for name, mode := range map[string]os.FileMode{"evenstep-policy-auto": 0o755, "evenstep-policy-exact": 0o755,
		"evenstep-policy-median": 0o755, "evenstep-devices-x": 0o777, "evenstep-devices-y": 0o755} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 7\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("evenstep", "plugins", "--plugin-dir", folder, "--output", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list pluginList
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]pluginEntry)
	for _, e := range list.Plugins {
		got[string(e.Kind)+" "+e.Name+" "+strings.TrimPrefix(e.Origin, folder)] = e
	}
	for key, want := range map[string][3]string{
		"policy auto built-in":                      {version, "ok", ""},
		"policy lbbsp-gpu-tuning built-in":          {version, "ok", ""},
		"devices cpu built-in":                      {version, "ok", ""},
		"policy smoothed /evenstep-policy-smoothed": {"1.0.0", "ok", ""},
		"policy exact built-in":                     {version, "ok", ""},
		"policy auto /evenstep-policy-auto":         {"", "refused", "its name is that of a built-in policy"},
		"policy exact /evenstep-policy-exact":       {"", "refused", "its name is that of a built-in policy"},
		"policy median /evenstep-policy-median":     {"", "refused", "its name is that of a built-in policy"},
		"devices x /evenstep-devices-x":             {"", "refused", "others may write to"},
		"devices y /evenstep-devices-y":             {"", "failed", "it did not start: "},
	} {
		e, there := got[key]
		if !there || e.Version != want[0] || e.Health != want[1] || !strings.HasPrefix(e.Reason, want[2]) ||
			want[2] == "" && e.Reason != "" {
			t.Errorf("%s: got %+v", key, e)
		}
	}

	text, err := exec.Command("evenstep", "plugins", "--plugin-dir", folder).Output()
	if err != nil || !strings.Contains(string(text), "\npolicy   smoothed            1.0.0    ok") ||
		!strings.Contains(string(text), "evenstep-devices-x: others may write to ") {
		t.Errorf("%v\n%s", err, text)
	}
}

// docsPlugin builds the placement policy of docs/plugins.md into a folder.
func docsPlugin(t *testing.T, folder string) {
	t.Helper()
	docs, err := os.ReadFile("../../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	var source string
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(docs), -1) {
		if strings.Contains(block[1], "Place: ") {
			source = block[1]
		}
	}
	main := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(main, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "evenstep-policy-firstfit"), main)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// An author tries policies out without a core: on one problem, and on recorded steps.
func TestPoliciesOfPluginsAreTriedOut(t *testing.T) {
	folder := examplePlugin(t)
	docsPlugin(t, folder)
	try := func(stdin string, args ...string) (out, said string, code int) {
		cmd := exec.Command("evenstep", append(args, "--plugin-dir", folder)...)
		var stdout, stderr strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		_ = cmd.Run()
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	const problem = `{"devices":[{"node":"n1","type":"a","count":1},{"node":"n2","type":"b","count":2}],"jobs":[
		{"id":"x","remaining_samples":80,"global_batch":8,"samples_per_second":{"a":1,"b":2},"workers":{"min":2}}]}`
	out, said, code := try(problem, "place", "--policy", "firstfit")
	if code != 0 || said != "" || !strings.Contains(out, `"policy":"firstfit"`) || !strings.Contains(out, `"workers":{"a":1,"b":1}`) {
		t.Errorf("place: %d, %s%s", code, out, said)
	}
	// One that places no jobs is replaced, and both say so.
	out, said, code = try(problem, "place", "--policy", "smoothed")
	if code != 0 || !strings.Contains(out, `"policy":"auto"`) || !strings.Contains(said, "it does not offer that") {
		t.Errorf("place by what sizes: %d, %s%s", code, out, said)
	}
	out, said, code = try("", "simulate", "steps", "--synthetic", "drift", "--steps", "200", "--policy", "last,smoothed",
		"--output", "json")
	var result stepsResult
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 || said != "" || len(result.Policies) != 2 {
		t.Fatalf("simulate: %d, %v: %s%s", code, err, out, said)
	}
	if p := result.Policies[1]; p.Policy != "smoothed" || !(p.Seconds < 0.9*result.EqualSeconds) {
		t.Errorf("got %+v", p)
	}
	out, said, code = try("", "simulate", "steps", "--synthetic", "drift", "--policy", "firstfit")
	if code != 4 || out != "" || said != "evenstep simulate steps: policy firstfit failed: it does not offer that\n" {
		t.Errorf("simulate what places: %d, %s%s", code, out, said)
	}
}

// trainTwo reports steps of two workers, of which the second takes three times as long, until an answer's reason begins
// so. The answers hold for the steps to come.
func trainTwo(t *testing.T, stream evenstepv1.Balancer_BalanceClient, first uint64, reason string) (last uint64) {
	t.Helper()
	sizes := []uint32{4, 4}
	for step := first; step < first+2000; step++ {
		report := &evenstepv1.StepReport{Step: step, NextFreeStep: step + 1}
		for rank, n := range sizes {
			seconds := 0.1 * float64(n) * []float64{1, 3}[rank]
			report.Workers = append(report.Workers, &evenstepv1.WorkerReport{Rank: uint32(rank), ComputeSeconds: seconds,
				Samples: float64(n)})
		}
		request := &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Report{Report: report}}
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		a := response.GetAllocation()
		sizes = a.GetBatchSizes()
		if len(sizes) != 2 || sizes[0]+sizes[1] != 8 {
			t.Fatalf("got %v", a)
		}
		if strings.HasPrefix(a.GetReason(), reason) {
			if sizes[0] != 6 {
				t.Fatalf("sizes %v: %s", sizes, a.GetReason())
			}
			return step
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no answer with reason %q", reason)
	return 0
}

// A job asks for the example by its name, is balanced by it, and trains on when it is killed.
func TestAJobIsBalancedByAPlugin(t *testing.T) {
	folder := examplePlugin(t)
	address, _, _ := socketIn(t)
	s := start(t, "--listen", address, "--plugin-dir", folder)
	s.listening()
	stream, err := balanceBy(t, address, "smoothed")
	if err != nil {
		t.Fatal(err)
	}
	step := trainTwo(t, stream, 0, "by the smoothed speeds a step takes 0.6 s, not 1.2 s")
	if err := syscall.Kill(processOf(t, filepath.Join(folder, "evenstep-policy-smoothed")), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	trainTwo(t, stream, step+1, "policy smoothed failed (its process died), so auto decides: ")

	if _, err := balanceBy(t, address, "smothed"); err == nil || !strings.Contains(err.Error(), `"smothed" is none of`) {
		t.Errorf("an unknown policy: %v", err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// It is asked for plans too, which it does not make.
	if _, err := evenstepv1.NewPlacerClient(conn).Place(t.Context(), &evenstepv1.PlaceRequest{
		Policy:  "smoothed",
		Devices: []*evenstepv1.DevicePool{{Node: "n", Type: "a", Count: 1}},
		Jobs: []*evenstepv1.PlacementJob{{Id: "x", RemainingSamples: 1, GlobalBatch: 1,
			SamplesPerSecond: map[string]float64{"a": 1}}},
	}); err != nil {
		t.Error(err)
	}
	s.signal(syscall.SIGTERM)
	_ = s.ended()
	for _, report := range []string{"a policy plugin failed, so auto decides", "a policy plugin failed, so auto plans"} {
		if !strings.Contains(s.stderr.String(), report) {
			t.Errorf("not reported: %s", s.stderr)
		}
	}
}

func balanceBy(t *testing.T, address, policy string) (evenstepv1.Balancer_BalanceClient, error) {
	t.Helper()
	return balanceJob(t, address, insecure.NewCredentials(),
		&evenstepv1.Open{Job: "job", GlobalBatch: 8, Workers: []*evenstepv1.Worker{{}, {}}, Policy: policy})
}

// processOf is what was started by the path alone.
func processOf(t *testing.T, path string) (pid int) {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.TrimRight(string(line), "\x00") == path {
			if pid, err = strconv.Atoi(strings.Split(file, "/")[2]); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("it does not run:", path)
	return 0
}

func TestNoPluginOutlivesTheCore(t *testing.T) {
	folder := examplePlugin(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		address, _, _ := socketIn(t)
		s := start(t, "--listen", address, "--plugin-dir", folder)
		s.listening()
		stream, err := balanceBy(t, address, "smoothed")
		if err != nil {
			t.Fatal(err)
		}
		trainTwo(t, stream, 0, "by the smoothed speeds")
		pid := processOf(t, filepath.Join(folder, "evenstep-policy-smoothed"))
		s.signal(sig)
		_ = s.ended()
		for range 200 {
			if syscall.Kill(pid, 0) != nil || isZombie(pid) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if syscall.Kill(pid, 0) == nil && !isZombie(pid) {
			t.Errorf("the plugin outlives the core's end by %v", sig)
		}
	}
}

// isZombie says whether the process has ended, and nobody has asked how.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
