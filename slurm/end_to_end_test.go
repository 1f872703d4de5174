package slurm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenstep/evenstep/slurm/slurmtest"
)

// binary is evenstep, built for these tests.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "evenstep")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "evenstep")
	build := exec.Command("go", "build", "-o", binary, "../cmd/evenstep")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	// Daemons and jobs of any user have to reach it.
	if err := os.Chmod(folder, 0o755); err != nil {
		panic(err)
	}
	return m.Run()
}

// words asks for Evenstep, for a workload of which speeds are known.
func words(samples float64) string {
	return fmt.Sprintf("--comment=evenstep workload=w global_batch=100 samples=%g", samples)
}

// jobSubmit is job_submit.lua with another hold limit.
func jobSubmit(t *testing.T, seconds int) string {
	t.Helper()
	text, err := os.ReadFile("scripts/job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "hold_limit = 300", fmt.Sprintf("hold_limit = %d", seconds), 1)
	if changed == string(text) {
		t.Fatal("no hold_limit in job_submit.lua")
	}
	return changed
}

// scripts installs the scripts, with a folder of their own, and returns the lines of slurm.conf that name them.
func scripts(t *testing.T) (config, folder string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "hooks")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prolog", "epilog", "task-prolog"} {
		text, err := os.ReadFile("scripts/" + name)
		if err != nil {
			t.Fatal(err)
		}
		call := "/usr/local/bin/evenstep slurm " + name
		changed := strings.Replace(string(text), call, filepath.Join(folder, "evenstep")+" slurm "+name+" --folder "+folder+"/jobs", 1)
		if changed == string(text) {
			t.Fatalf("no %s in %s", call, name)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(changed), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary, filepath.Join(folder, "evenstep")); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("Prolog=%[1]s/prolog\nEpilog=%[1]s/epilog\nTaskProlog=%[1]s/task-prolog\n", folder), folder
}

// profiles writes how fast the workload runs on the cluster's types.
func profiles(t *testing.T, c *slurmtest.Cluster) string {
	t.Helper()
	file := filepath.Join(c.Folder, "profiles.json")
	if err := os.WriteFile(file, []byte(`{"w":{"fast":4,"slow":1}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// controller starts a controller; its end, which may come at any time, ends it.
func controller(t *testing.T, c *slurmtest.Cluster, args ...string) (end func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	args = append([]string{"slurm", "controller", "--interval=300ms", "--profiles=" + profiles(t, c)}, args...)
	cmd := c.Command(ctx, binary, args...)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	end = func() string {
		cancel() // kills it
		<-done
		return log.String()
	}
	t.Cleanup(func() {
		if text := end(); t.Failed() {
			t.Log("controller:\n" + text)
		}
	})
	return end
}

// jct is a job's completion time in seconds, from its submission, by Slurm's own clock.
func jct(t *testing.T, c *slurmtest.Cluster, job string) float64 {
	t.Helper()
	const layout = "2006-01-02T15:04:05"
	submitted, err := time.Parse(layout, c.Field(job, "SubmitTime"))
	if err != nil {
		t.Fatal(err)
	}
	ended, err := time.Parse(layout, c.Field(job, "EndTime"))
	if err != nil {
		t.Fatal(err)
	}
	return ended.Sub(submitted).Seconds()
}

func ended(c *slurmtest.Cluster, jobs ...string) func() bool {
	return func() bool {
		for _, job := range jobs {
			if c.Field(job, "JobState") != "COMPLETED" {
				return false
			}
		}
		return true
	}
}

// twoEach is two nodes with two devices of a fast type and two with two of a slow type.
var twoEach = []slurmtest.Node{
	{Name: "m1", Type: "fast", Devices: 2}, {Name: "m2", Type: "fast", Devices: 2},
	{Name: "m3", Type: "slow", Devices: 2}, {Name: "m4", Type: "slow", Devices: 2},
}

// Six jobs whose length is work / speed of the type of their node: planned together they complete sooner on average than
// under Slurm's own placement.
func TestSixJobsCompleteSoonerTogether(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Options{Nodes: twoEach, JobSubmit: jobSubmit(t, 120)})
	works := []float64{5, 5, 5, 5, 20, 20}
	submit := func(args ...string) (jobs []string) {
		for _, work := range works {
			script := fmt.Sprintf("case $SLURMD_NODENAME in m1|m2) sleep %g;; *) sleep %g;; esac", work/4, work)
			jobs = append(jobs, c.Submit(script, append(args, "--gres=gpu:1", "--cpus-per-task=2")...))
		}
		return jobs
	}
	mean := func(jobs []string) (mean float64) {
		c.WaitFor("the jobs' end", ended(c, jobs...))
		for _, job := range jobs {
			t.Logf("job %s on %s: %g s", job, c.Field(job, "NodeList"), jct(t, c, job))
			mean += jct(t, c, job) / float64(len(jobs))
		}
		return mean
	}

	own := mean(submit())

	var jobs []string
	for _, work := range works {
		jobs = append(jobs, submitted(c, work, words(work), "--gres=gpu:1", "--cpus-per-task=2"))
	}
	c.Run(binary, "slurm", "status")
	planned := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(c.Run(binary, "slurm", "controller", "--once", "--dry-run",
		"--profiles="+profiles(t, c))), "\n") {
		var u struct {
			Job    string
			Update string
			Nodes  []string
		}
		if err := json.Unmarshal([]byte(line), &u); err != nil {
			t.Fatal(err)
		}
		planned[u.Job] = strings.Join(u.Nodes, ",")
	}
	controller(t, c)
	together := mean(jobs)
	for _, job := range jobs {
		if got := c.Field(job, "NodeList"); got == "" || got != planned[job] {
			t.Errorf("job %s ran on %q, planned was %q", job, got, planned[job])
		}
	}
	if together >= own {
		t.Errorf("mean JCT %g s together, %g s under Slurm's own placement", together, own)
	}
	t.Logf("mean JCT %.2f s together, %.2f s under Slurm's own placement", together, own)
}

// submitted submits a job whose length is work / speed of its node.
func submitted(c *slurmtest.Cluster, work float64, args ...string) string {
	return c.Submit(fmt.Sprintf("case $SLURMD_NODENAME in m1|m2) sleep %g;; *) sleep %g;; esac", work/4, work), args...)
}
