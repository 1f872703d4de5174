package slurm_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evenstep/evenstep/slurm/slurmtest"
)

// service is an evenstep that serves.
type service struct {
	cmd *exec.Cmd
	log *strings.Builder
}

// site is the core of a cluster, and the agent that leads to it where the hooks look for it.
type site struct {
	t                                *testing.T
	keys, address, profiles, hooksIn string
	core, agent                      *service
}

func startSite(t *testing.T, hooks string) *site {
	t.Helper()
	s := &site{t: t, keys: filepath.Join(t.TempDir(), "keys"), profiles: filepath.Join(t.TempDir(), "profiles.db"), hooksIn: hooks,
		address: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	if out, err := exec.Command(evenstep(t), "tls", "init", s.keys, "--name=127.0.0.1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.startCore()
	s.startAgent()
	return s
}

func (s *site) tls(name string) []string {
	path := filepath.Join(s.keys, name)
	return []string{"--tls-cert=" + path + ".pem", "--tls-key=" + path + ".key", "--tls-ca=" + filepath.Join(s.keys, "ca.pem")}
}

func (s *site) startCore() {
	s.t.Helper()
	s.core = serve(s.t, append(s.tls("server"), "serve", "--listen=tcp:"+s.address, "--profiles="+s.profiles)...)
}

func (s *site) startAgent() {
	s.t.Helper()
	s.agent = serve(s.t, append(s.tls("node"), "agent", "--core=tcp:"+s.address, "--listen=unix:"+s.hooksIn+"/agent.sock")...)
}

// shown is a job as evenstep status shows it.
type shown struct {
	ID, Owner, Workload, Waiting string
	GlobalBatch                  int `json:"global_batch"`
	Workers                      []struct{ Node, Device string }
}

func status(t *testing.T, hooks string) []shown {
	t.Helper()
	out, err := exec.Command(evenstep(t), "status", "--core=unix:"+hooks+"/agent.sock", "--output=json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var report struct{ Jobs []shown }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	return report.Jobs
}

// A core of the cluster's knows a job before its workers come, as its user's, learns from it, and keeps that when it is
// done. The job is steered by it as by one of its own.
func TestACoreOfTheClusterKnowsItsJobs(t *testing.T) {
	t.Parallel()
	config, hooks := scripts(t)
	c := slurmtest.Start(t, slurmtest.Options{Config: config, JobSubmit: jobSubmit(t, 120)})
	cluster := startSite(t, hooks)
	controller(t, c)

	job := c.Submit("srun true; while test ! -e "+hooks+"/done; do sleep 0.1; done", words(100), "--nodes=2", "--gres=gpu:fast:1",
		"--uid=1", "--output=/dev/null")
	var seen []shown
	c.WaitFor("the job to be registered on both nodes", func() bool {
		seen = status(t, hooks)
		return len(seen) == 1 && seen[0].ID == "slurm-"+job && seen[0].Owner == "uid 1" && c.Field(job, "JobState") == "RUNNING"
	})
	if j := seen[0]; j.Workload != "w" || j.GlobalBatch != 100 || j.Waiting != "registered; no worker is here" {
		t.Errorf("it shows %+v", j)
	}
	if err := os.WriteFile(hooks+"/done", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.WaitFor("the job to be unregistered", func() bool { return len(status(t, hooks)) == 0 })

	ids, done := map[string]bool{}, make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
				for _, j := range status(t, hooks) {
					ids[j.ID] = true
				}
			}
		}
	})
	_, last := newTrainer(t, c).train(t, [2]string{"m1", "m2"}, "")
	close(done)
	looking.Wait()
	if last[0] <= last[1] {
		t.Errorf("last sizes %v do not follow the speeds", last)
	}
	trained := regexp.MustCompile(`^slurm-2/1-[0-9a-f]+/0$`)
	for id := range ids {
		if id != "slurm-2" && !trained.MatchString(id) {
			t.Errorf("job %s is nobody's", id)
		}
	}
	if len(ids) != 2 {
		t.Errorf("the core has seen %v", ids)
	}
	c.WaitFor("the job to be unregistered", func() bool { return len(status(t, hooks)) == 0 })
	c.WaitFor("its profile on disk", func() bool { return strings.Contains(copied(t, cluster.profiles), `"workload":"w"`) })
}

// copied is what is in a file of profiles now, which a core holds.
func copied(t *testing.T, profiles string) string {
	t.Helper()
	text, err := os.ReadFile(profiles)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(evenstep(t), "profiles", "list", "--output=json", "--profiles="+copied).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// serve starts evenstep serve or agent, waits until it listens, and kills it at the end of the test.
func serve(t *testing.T, args ...string) *service {
	t.Helper()
	s := &service{exec.Command(evenstep(t), args...), new(strings.Builder)}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.kill(); t.Failed() {
			t.Logf("%s: %s", args[0], s.log)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		s.kill()
		t.Fatalf("%s: %v: %q, %s", args, err, line, s.log)
	}
	return s
}

func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *service) signal(sign syscall.Signal) { _ = s.cmd.Process.Signal(sign) }
