package slurm_test

import (
	"context"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenstep/evenstep/slurm/slurmtest"
)

// systemUser is one that every Debian has.
func systemUser(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
}

// The controller needs to be an operator of Slurm's, and no more; what runs as anybody else steers nobody, and costs no job
// more than its hold.
func TestAnOperatorSteersTheJobsOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become several users")
	}
	config, _ := scripts(t)
	c := slurmtest.Start(t, slurmtest.Options{Config: config, JobSubmit: jobSubmit(t, 15), Operators: []string{"daemon"}})
	operator, other := systemUser(t, "daemon"), systemUser(t, "games")

	check := func(who *syscall.Credential) string {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := c.Command(ctx, evenstep(t), "slurm", "check")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		out, _ := cmd.Output()
		return string(out)
	}
	if got := check(operator); got != "" {
		t.Errorf("the operator's check: %s", got)
	}
	if got := check(other); got != "user games is no operator of Slurm's: it cannot steer the jobs of others; run: "+
		"sacctmgr modify user games set AdminLevel=Operator\n" {
		t.Errorf("another's check: %s", got)
	}

	submit := func() string {
		return c.Submit("srun true", words(1), "--gres=gpu:1", "--nodes=2", "--uid=2", "--output=/dev/null")
	}
	end := controllerOf(t, c, other)
	job := submit()
	c.WaitFor("the job of a user to start by itself", ended(c, job))
	if log := end(); strings.Count(log, "update refused: job="+job+" ") != 1 || strings.Contains(c.Field(job, "Comment"), "sizes=") {
		t.Errorf("a controller that may not:\n%s", log)
	}
	end = controllerOf(t, c, operator)
	job = submit()
	c.WaitFor("the job of a user to be steered", ended(c, job))
	if got := c.Field(job, "NodeList"); got != "m[1-2]" || strings.Count(end(), "start: job="+job+" ") != 1 {
		t.Errorf("it ran on %s:\n%s", got, end())
	}
}
