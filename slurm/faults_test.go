package slurm_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenstep/evenstep/slurm/slurmtest"
)

// brokenEvenstep stands for the binary in the hooks, broken in a way that the job's id picks.
const brokenEvenstep = `#!/bin/sh
case $((SLURM_JOB_ID %% 8)) in
0) exec sleep 60 ;;                                    # hangs
1) kill -STOP $$ ;;                                    # hangs, deaf to most signals
2) head -c 300000 /dev/urandom; exit 3 ;;              # garbage
3) exec /nonexistent ;;                                # is not there
4) kill -SEGV $$ ;;                                    # dies
5) ulimit -f 0; exec %[1]s "$@" ;;                     # finds no space
6) exec %[1]s "$@" >/dev/full 2>/dev/full ;;           # is heard by nobody
7) exec %[1]s "$@" --folder /proc/nowhere --what ;;    # is called wrongly
esac
`

// A script ends, with success and without a word, long before a binary that hangs does.
func TestScriptsDoNotWaitForABinaryThatHangs(t *testing.T) {
	t.Parallel()
	_, folder := scripts(t)
	if err := os.Remove(filepath.Join(folder, "evenstep")); err != nil {
		t.Fatal(err)
	}
	pids := filepath.Join(folder, "pids")
	t.Cleanup(func() {
		left, _ := os.ReadFile(pids)
		for _, field := range strings.Fields(string(left)) {
			if pid, err := strconv.Atoi(field); err == nil {
				syscall.Kill(pid, syscall.SIGKILL) // the task prolog kills what it waits for, and no more
			}
		}
	})
	for name, hangs := range map[string]string{"sleeps": "exec sleep 600", "is stopped": "kill -STOP $$"} {
		binary := "#!/bin/sh\necho $$ >>" + pids + "\n" + hangs + "\n"
		if err := os.WriteFile(filepath.Join(folder, "evenstep"), []byte(binary), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, script := range []string{"prolog", "epilog", "task-prolog"} {
			// A second is promised; the machine may be slow.
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			run := exec.CommandContext(ctx, filepath.Join(folder, script))
			run.WaitDelay = time.Second
			out, err := run.Output()
			cancel()
			if err != nil || len(out) > 0 {
				t.Errorf("%s, the binary %s: %v, stdout %q", script, name, err, out)
			}
		}
	}
}

// comments are what users may think of.
func comments() []string {
	const asks = "evenstep workload=w global_batch=100 samples=4"
	return []string{
		asks,
		asks + " workload=`reboot`",
		"evenstep workload=$(reboot) global_batch=1 samples=1",
		"evenstep \"'\\ \n\r\t\x01\x7f",
		asks + "\n" + strings.Repeat("|1", 20) + "\nNumNodes=9-9 JobId=1",
		"evenstep " + strings.Repeat("x", 1015),
		"evenstep workload=" + strings.Repeat("w", 1006),
		asks + " | nodes=1-99999 sizes=1x99999",
		asks + " | require=[[[ nodes=0-0",
		asks + " | " + strings.Repeat("held ", 190),
	}
}

// Whatever is broken, hangs, is killed or restarted: no node is drained, and each job ends well, once.
func TestFaults(t *testing.T) {
	t.Parallel()
	config, folder := scripts(t)
	c := slurmtest.Start(t, slurmtest.Options{Config: config, JobSubmit: jobSubmit(t, 20), Nodes: twoEach})
	if err := os.Remove(filepath.Join(folder, "evenstep")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "evenstep"), []byte(fmt.Sprintf(brokenEvenstep, evenstep(t))), 0o755); err != nil {
		t.Fatal(err)
	}
	faults := 0
	end := controller(t, c)
	var jobs []string
	for i := range 4 {
		for _, comment := range comments() {
			jobs = append(jobs, c.Submit("echo ran >>"+c.Folder+"/ran-$SLURM_JOB_ID; srun true", "--gres=gpu:1", "--comment="+comment))
			faults += 3 // the prolog, the task prolog, the epilog
		}
		log := end()
		faults++ // the controller is killed
		for _, job := range jobs {
			if strings.Count(log, "not steered: job="+job+" ") > 2 {
				t.Errorf("job %s: said again and again", job)
			}
		}
		switch i {
		case 0:
			c.Controller.Stop()
			c.Controller.Start()
			faults++
		case 1:
			for _, n := range c.Nodes {
				n.Stop()
				n.Start()
				faults++
			}
		}
		c.WaitFor("slurmctld", func() bool { _, err := c.Try("scontrol", "ping"); return err == nil })
		end = controller(t, c)
	}
	jobs = append(jobs, submitLarge(t, c))

	endWell(t, c, jobs)
	if faults < 100 {
		t.Errorf("only %d faults", faults)
	}
	t.Logf("%d faults, %d jobs", faults, len(jobs))
}

// endWell waits for the jobs' end, and looks whether each ran once, and no node was lost.
func endWell(t *testing.T, c *slurmtest.Cluster, jobs []string) {
	t.Helper()
	c.WaitFor("the jobs' end", ended(c, jobs...))
	for _, job := range jobs {
		if text, _ := os.ReadFile(filepath.Join(c.Folder, "ran-"+job)); string(text) != "ran\n" {
			t.Errorf("job %s wrote %q", job, text)
		}
		if got := c.Field(job, "ExitCode") + " " + c.Field(job, "Restarts"); got != "0:0 0" {
			t.Errorf("job %s: %s", job, got)
		}
	}
	if drained := c.Run("sinfo", "-h", "-t", "drain,down,fail", "-o", "%n %E"); strings.TrimSpace(drained) != "" {
		t.Errorf("nodes lost: %s", drained)
	}
}

// Whatever becomes of the core of the cluster and of the node's agent: each job starts with the sizes of its plan, is told
// of a core where there is a way to one, ends well, once, and no node is drained.
func TestFaultsOfTheCore(t *testing.T) {
	t.Parallel()
	config, hooks := scripts(t)
	c := slurmtest.Start(t, slurmtest.Options{Config: config, JobSubmit: jobSubmit(t, 60), Nodes: twoEach})
	controller(t, c)
	s := startSite(t, hooks)
	faults := 0
	var garbage func()
	for _, f := range []struct {
		name       string
		begin, end func()
		hasCore    bool
	}{
		{"the core is killed", func() { s.core.kill() }, s.startCore, true},
		{"the core hangs", func() { s.core.signal(syscall.SIGSTOP) }, func() { s.core.signal(syscall.SIGCONT) }, true},
		{"the core answers garbage", func() { s.core.kill(); garbage = answerGarbage(t, s.address) },
			func() { garbage(); s.startCore() }, true},
		{"the agent hangs", func() { s.agent.signal(syscall.SIGSTOP) }, func() { s.agent.signal(syscall.SIGCONT) }, false},
		{"the agent is killed", func() { s.agent.kill() }, s.startAgent, false},
		{"nothing", func() {}, func() {}, true},
	} {
		f.begin()
		var jobs []string
		for range 4 {
			jobs = append(jobs, c.Submit("srun sh -c 'echo ${EVENSTEP_ADDR:-none} $EVENSTEP_BATCH_SIZES'; echo ran >>"+c.Folder+
				"/ran-$SLURM_JOB_ID", words(4), "--gres=gpu:1", "--nodes=2"))
			if f.name != "nothing" {
				faults += 6 // on each of two nodes the prolog, the task prolog, the epilog
			}
		}
		endWell(t, c, jobs)
		want := "none"
		if f.hasCore {
			want = "unix:" + hooks + "/agent.sock"
		}
		for _, job := range jobs {
			if log := c.Log(job); strings.Count(log, want+" ") != 2 || strings.Count(log, " 80,20\n")+strings.Count(log, " 50,50\n") != 2 {
				t.Errorf("%s: the tasks of job %s were told %q", f.name, job, log)
			}
		}
		f.end()
	}
	t.Logf("%d faults", faults)
}

// answerGarbage answers so at the address until stop.
func answerGarbage(t *testing.T, address string) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	garbage := make([]byte, 1<<16)
	for i := range garbage {
		garbage[i] = byte(i * i >> 3)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(garbage)
			c.Close()
		}
	}()
	return func() { l.Close() }
}

// submitLarge submits a job with an environment of a megabyte.
func submitLarge(t *testing.T, c *slurmtest.Cluster) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := c.Command(ctx, "sbatch", "--parsable", "--gres=gpu:1", words(4), "--output=/dev/null",
		"--wrap=echo ran >>"+c.Folder+"/ran-$SLURM_JOB_ID; srun true")
	for i := range 10 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LARGE_%d=%s", i, strings.Repeat("x", 100_000)))
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}
