package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exampleScheduler builds the example of a scheduler plugin into a folder, with a fast and a slow device in its queue.
func exampleScheduler(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "evenstep-scheduler-folder"), "../../examples/scheduler-plugin")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Join(folder, "queue"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"queue/nodes.json": `[{"node":"m1","type":"fast","total":1},{"node":"m2","type":"slow","total":1}]`,
		"profiles.json":    `{"w":{"fast":4,"slow":1}}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// queued is a job in the example's queue.
type queued struct {
	Words    string    `json:"words"`
	MinNodes int       `json:"min_nodes"`
	MaxNodes int       `json:"max_nodes"`
	Starts   time.Time `json:"starts"`
	Why      string    `json:"why,omitzero"`
	On       []struct {
		Node string
	} `json:"on,omitzero"`
	BatchSizes []int `json:"batch_sizes,omitzero"`
}

func queue(t *testing.T, folder, id string, j queued) {
	t.Helper()
	text, err := json.Marshal(j)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "queue", id+".json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func inQueue(t *testing.T, folder, id string) (j queued) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "queue", id+".json"))
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func waitForJob(t *testing.T, folder, id string, so func(queued) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(inQueue(t, folder, id)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("job %s is %+v", id, inQueue(t, folder, id))
		}
	}
}

// A controller plans the jobs of a scheduler that it knows by a plugin alone, in a process of its own.
func TestAControllerSteersASchedulerByAPlugin(t *testing.T) {
	folder := exampleScheduler(t)
	words := func(samples int) string { return fmt.Sprintf("workload=w global_batch=100 samples=%d", samples) }
	soon := time.Now().Add(time.Hour)
	queue(t, folder, "both", queued{Words: words(4000), MinNodes: 2, MaxNodes: 2, Starts: soon})
	queue(t, folder, "odd", queued{Words: "batch=1", MinNodes: 1, MaxNodes: 1, Starts: soon})
	queue(t, folder, "gone", queued{Words: words(1), MinNodes: 1, MaxNodes: 1, Starts: time.Now()})
	args := []string{"controller", "--scheduler=folder", "--plugin-dir=" + folder, "--profiles=" + folder + "/profiles.json",
		"--interval=100ms", "--hold-limit=2s"}

	out, err := exec.Command("evenstep", append(args, "--once", "--dry-run")...).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, want := range []string{
		`{"job":"both","update":"start","nodes":["m1","m2"],"batch_sizes":[80,20],"jct_seconds":800,"why":"the plan starts it on m1,m2"}`,
		`{"job":"odd","update":"release","why":"batch: unknown key; give workload, global_batch, samples, workers or policy"}`,
	} {
		if len(lines) != 2 || lines[i] != want {
			t.Fatalf("dry run: %s\nwant %s", out, want)
		}
	}
	if j := inQueue(t, folder, "both"); j.Why != "" {
		t.Errorf("a dry run changed %+v", j)
	}

	controller := exec.Command("evenstep", args...)
	var log strings.Builder
	controller.Stderr = &log
	if err := controller.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = controller.Process.Kill(); _ = controller.Wait() })
	waitForJob(t, folder, "both", func(j queued) bool {
		return len(j.On) == 2 && j.On[0].Node == "m1" && fmt.Sprint(j.BatchSizes) == "[80 20]"
	})
	waitForJob(t, folder, "odd", func(j queued) bool { return strings.HasPrefix(j.Why, "batch: unknown key") })
	// No device is left: the lease of who waits is renewed, again and again.
	queue(t, folder, "waits", queued{Words: words(1), MinNodes: 1, MaxNodes: 1, Starts: time.Now().Add(2 * time.Second)})
	first := inQueue(t, folder, "waits").Starts
	waitForJob(t, folder, "waits", func(j queued) bool { return j.Starts.After(first.Add(3 * time.Second)) })
	queue(t, folder, "both", queued{Words: words(1), MinNodes: 1, MaxNodes: 1, Starts: time.Now()})
	waitForJob(t, folder, "waits", func(j queued) bool { return len(j.On) == 1 && j.On[0].Node == "m1" })
	_ = controller.Process.Signal(syscall.SIGTERM)
	if err := controller.Wait(); err != nil {
		t.Errorf("on SIGTERM: %v", err)
	}
	for _, line := range []string{`start: job=both why="the plan starts it on m1,m2"`, `not steered: job=gone why="it has started by itself"`,
		`hold: job=waits why="the plan lets it wait"`} {
		if strings.Count(log.String(), line) != 1 {
			t.Errorf("not once in the log: %s\n%s", line, &log)
		}
	}

	for want, wrong := range map[string][]string{
		"--scheduler: missing; give the name of a plugin, or use evenstep slurm controller": {"controller"},
		"--scheduler: there is no evenstep-scheduler-other in " + folder:                    {"controller", "--scheduler=other", args[2], args[3]},
	} {
		out, err := exec.Command("evenstep", wrong...).CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s", wrong, err, out)
		}
	}
}
