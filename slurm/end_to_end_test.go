package slurm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evenstep/evenstep/slurm/slurmtest"
)

// built is a folder of ours with evenstep in it; it goes with the process.
var built string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	defer func() { os.RemoveAll(built) }()
	return m.Run()
}

// build builds evenstep, once, where daemons and jobs of any user can reach it.
var build = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "evenstep")
	if err != nil {
		return "", err
	}
	built = folder
	cmd := exec.Command("go", "build", "-o", filepath.Join(folder, "evenstep"), "../cmd/evenstep")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return filepath.Join(folder, "evenstep"), os.Chmod(folder, 0o755)
})

func evenstep(t *testing.T) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
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
	if err := os.Symlink(evenstep(t), filepath.Join(folder, "evenstep")); err != nil {
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
	return controllerOf(t, c, nil, args...)
}

// controllerOf is one of a user's; nil for us.
func controllerOf(t *testing.T, c *slurmtest.Cluster, who *syscall.Credential, args ...string) (end func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	args = append([]string{"slurm", "controller", "--interval=300ms", "--profiles=" + profiles(t, c)}, args...)
	cmd := c.Command(ctx, evenstep(t), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
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
	t.Parallel()
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
	c.Run(evenstep(t), "slurm", "status")
	planned := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(c.Run(evenstep(t), "slurm", "controller", "--once", "--dry-run",
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

const showEnv = "echo batch $EVENSTEP_BATCH_SIZES/$EVENSTEP_BATCH_SIZE\n" +
	"srun -l sh -c 'echo $SLURMD_NODENAME $EVENSTEP_NODE_RANK $EVENSTEP_JOB $EVENSTEP_WORKLOAD $EVENSTEP_GLOBAL_BATCH $EVENSTEP_BATCH_SIZES $EVENSTEP_BATCH_SIZE'"

func TestWhatUsersCanAskFor(t *testing.T) {
	t.Parallel()
	config, folder := scripts(t)
	c := slurmtest.Start(t, slurmtest.Options{Config: config, Nodes: []slurmtest.Node{
		{Name: "m1", Type: "fast", Devices: 1, Features: "ib,big"}, {Name: "m2", Type: "fast", Devices: 1, Features: "ib"},
		{Name: "m3", Type: "slow", Devices: 1, Features: "ib,big"}, {Name: "m4", Type: "slow", Devices: 1},
	}})
	if out, err := c.Try(evenstep(t), "slurm", "check"); err != nil || out != "" {
		t.Errorf("check: %v, %s", err, out)
	}
	controller(t, c)
	file := func(text string) string {
		f := filepath.Join(c.Folder, "job.sh")
		if err := os.WriteFile(f, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return f
	}
	submit := func(script string, args ...string) string {
		args = append([]string{"slurm", "submit", file(script), "--output=" + c.Folder + "/job-%j.log", "--gres=gpu:1"}, args...)
		return strings.TrimSpace(c.Run(evenstep(t), args...))
	}
	end := func(job string) { c.WaitFor("the end of job "+job, ended(c, job)) }

	for name, want := range map[string]struct {
		args  []string
		nodes string
	}{
		"a range of nodes":             {[]string{"--nodes=2-4"}, "m[1-4]"},
		"a node of the user's own":     {[]string{"--nodes=2", "--nodelist=m4"}, "m[1,4]"},
		"without a node":               {[]string{"--nodes=2", "--exclude=m1"}, "m[2-3]"},
		"a type":                       {[]string{"--nodes=1-2", "--gres=gpu:slow:1"}, "m[3-4]"},
		"a feature":                    {[]string{"--nodes=3", "--constraint=ib"}, "m[1-3]"},
		"features together":            {[]string{"--nodes=2", "--constraint=ib&big"}, "m[1,3]"},
		"fewer workers than of nodes":  {[]string{"--nodes=1-4", "--comment=evenstep workload=w global_batch=100 samples=9 workers=2"}, "m[1-2]"},
		"a time limit and a partition": {[]string{"--nodes=2", "--time=5", "--partition=main"}, "m[1-2]"},
	} {
		job := submit("true", append([]string{words(100)}, want.args...)...)
		end(job)
		if got := c.Field(job, "NodeList"); got != want.nodes {
			t.Errorf("%s: on %s, not %s", name, got, want.nodes)
		}
	}

	job := submit("#SBATCH --comment=\"evenstep workload=w global_batch=100 samples=1e3\"\n"+showEnv, "--nodes=4")
	end(job)
	tail := " slurm-" + job + " w 100 40,40,10,10 "
	log := c.Log(job)
	for _, line := range []string{"batch 40,40,10,10/\n", "0: m1 0" + tail + "40\n", "1: m2 1" + tail + "40\n",
		"2: m3 2" + tail + "10\n", "3: m4 3" + tail + "10\n"} {
		if !strings.Contains(log, line) {
			t.Errorf("no %q in\n%s", line, log)
		}
	}
	if kept, _ := filepath.Glob(folder + "/jobs/*"); len(kept) != 0 {
		t.Errorf("the epilog left %v", kept)
	}

	array := submit("true", words(10), "--array=1-3")
	for _, task := range []string{"_1", "_2", "_3"} {
		end(array + task)
		if got := c.Field(array+task, "Comment"); got != "evenstep" {
			t.Errorf("task %s: comment %s", task, got)
		}
	}

	for name, args := range map[string][]string{
		"an unknown key":      {"--comment=evenstep workload=w batch=1", "--gres=gpu:1"},
		"no device":           {words(1)},
		"devices by job":      {words(1), "--gpus=1"},
		"an OR of features":   {words(1), "--gres=gpu:1", "--constraint=ib|big"},
		"nodes of its own":    {words(1), "--gres=gpu:1", "--exclusive"},
		"side by side":        {words(1), "--gres=gpu:1", "--contiguous"},
		"switches":            {words(1), "--gres=gpu:1", "--switches=1"},
		"an unknown workload": {"--comment=evenstep workload=x global_batch=1 samples=1 | held", "--gres=gpu:1"},
	} {
		if name != "an unknown workload" {
			args[0] += " | held"
		}
		job := c.Submit("true", append(args, "--begin=now+300")...)
		end(job)
		if strings.Contains(c.Run("scontrol", "show", "job", "-o", job), "sizes=") {
			t.Errorf("%s was steered", name)
		}
	}

	own := c.Submit("true", words(1), "--gres=gpu:1", "--begin=now+300")
	plain := c.Submit("true", "--begin=now+300")
	if got := c.Run(evenstep(t), "slurm", "status"); !strings.Contains(got, "its begin time is the user's own") {
		t.Errorf("status: %s", got)
	}
	depends := c.Submit("true", words(1)+" | held", "--gres=gpu:1", "--begin=now+300", "--dependency=afterany:"+plain)
	c.WaitFor("the dependent job to be let go", func() bool { return c.Field(depends, "Reason") == "Dependency" })
	for _, job := range []string{own, plain} {
		if got := c.Field(job, "Reason"); got != "BeginTime" {
			t.Errorf("job %s: %s", job, got)
		}
	}
	for _, refused := range [][]string{
		{"#SBATCH --begin=now+1", words(1)}, {"true", words(1), "-bnow+1"}, {"true", words(1), "--beg", "now+1"},
		{"true"}, {"true", "--comment=evenstep"},
	} {
		out, err := c.Try(evenstep(t), append([]string{"slurm", "submit", file(refused[0])}, refused[1:]...)...)
		if err == nil || !strings.Contains(err.Error(), "exit status 2") {
			t.Errorf("%q: %s %v", refused, out, err)
		}
	}
}

// What others took of a node's cores and memory, and what is planned in the same round, leaves no room there.
func TestNoJobIsPutWhereThereIsNoRoom(t *testing.T) {
	t.Parallel()
	c := slurmtest.Start(t, slurmtest.Options{Nodes: twoEach, JobSubmit: jobSubmit(t, 120), Config: "SelectTypeParameters=CR_Core_Memory\n"})
	others := []string{
		c.Submit("sleep 100", "--nodelist=m1", "--cpus-per-task=6", "--mem=10"),
		c.Submit("sleep 100", "--nodelist=m2", "--mem=3500"),
	}
	c.WaitFor("the jobs of others", func() bool {
		return c.Field(others[0], "JobState") == "RUNNING" && c.Field(others[1], "JobState") == "RUNNING"
	})
	end := controller(t, c)
	started := func(args string) (job, node string) {
		job = c.Submit("sleep 100", append([]string{words(1e4), "--gres=gpu:1"}, strings.Fields(args)...)...)
		c.WaitFor("the start of job "+job, func() bool { return c.Field(job, "JobState") == "RUNNING" })
		return job, c.Field(job, "NodeList")
	}
	var last string
	for _, j := range []struct{ args, node string }{
		{"--cpus-per-task=2 --mem=1000", "m1"},        // m2 is as fast, and has too little memory
		{"--cpus-per-task=3 --mem=100", "m2"},         // m1 has no cores left
		{"--cpus-per-task=3 --mem=1000", "m3"},        // m2 has too little memory
		{"--cpus-per-gpu=5 --mem-per-gpu=900", "m4"},  // m2 has 4 cores left, m4 more devices than m3
		{"--ntasks-per-node=3 --mem-per-cpu=2", "m2"}, // which it has still
		{"--cpus-per-task=5 --mem=10", "m3"},          // m4 has 3 cores left
	} {
		job, node := started(j.args)
		if node != j.node {
			t.Errorf("%s: on %s, not on %s", j.args, node, j.node)
		}
		last = job
	}
	waits := c.Submit("true", words(1), "--gres=gpu:1", "--cpus-per-task=4", "--mem=10")
	all := c.Submit("true", words(1), "--gres=gpu:1", "--mem=0")
	c.WaitFor("the job that asks for all memory to be let go", func() bool {
		return strings.Contains(c.Run("scontrol", "show", "job", "-o", all), "Reason=Resources")
	})
	if got := c.Field(waits, "Reason"); got != "BeginTime" && got != "None" {
		t.Errorf("the job that fits nowhere: %s", got)
	}
	c.Run("scancel", all, last)
	c.WaitFor("the end of the job that waited", ended(c, waits))
	log := end()
	for _, line := range []string{
		"release: job=" + all + ` why="it asks for all the memory of its nodes; give --mem=, --mem-per-cpu= or --mem-per-gpu="`,
		"start: job=" + waits + ` why="the plan starts it on m3"`,
	} {
		if !strings.Contains(log, line) {
			t.Errorf("no %q in the log", line)
		}
	}

	// In one round: each of two fits on either node, the two on one do not.
	c.Run("scancel", "--state=RUNNING", "-u", "root")
	c.WaitFor("the nodes to be idle", func() bool { return strings.TrimSpace(c.Run("sinfo", "-h", "-t", "idle", "-o", "%D")) == "4" })
	var two []string
	for range 2 {
		two = append(two, c.Submit("true", words(1), "--gres=gpu:1", "--cpus-per-task=5", "--mem=10", "--nodelist=m1"))
	}
	end = controller(t, c)
	c.WaitFor("the jobs' end", ended(c, two...))
	if log := end(); strings.Count(log, "start: job=") != 2 {
		t.Errorf("two jobs were started more than twice:\n%s", log)
	}
}

// With nobody there, jobs start by themselves; and an administrator may let them go before.
func TestWithoutAControllerJobsStart(t *testing.T) {
	t.Parallel()
	c := slurmtest.Start(t, slurmtest.Options{JobSubmit: jobSubmit(t, 5)})
	job := c.Submit("true", words(1), "--gres=gpu:1")
	out, err := c.Try(evenstep(t), "slurm", "check")
	if err == nil || strings.Count(out, "\n") != 3 || !strings.Contains(out, "TaskProlog= is not set in slurm.conf: tasks are not told") {
		t.Errorf("check: %v, %s", err, out)
	}
	if got := c.Field(job, "Reason"); got != "BeginTime" && got != "None" {
		t.Errorf("it waits for %s", got)
	}
	c.WaitFor("the start by itself", ended(c, job))

	file := filepath.Join(c.Folder, "job.sh")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	job = strings.TrimSpace(c.Run(evenstep(t), "slurm", "submit", "--hold-limit=10m", file, words(1)))
	if got := strings.TrimSpace(c.Run(evenstep(t), "slurm", "release", job)); got != job {
		t.Errorf("released %q", got)
	}
	c.WaitFor("the released job's end", ended(c, job))
	if _, err := c.Try(evenstep(t), "slurm", "release", job); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("released twice: %v", err)
	}
}
