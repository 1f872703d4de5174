package slurmtest

import (
	"strings"
	"testing"
)

// What Slurm does is Slurm's; this is what the adapter's tests take for granted of the cluster.
func TestAClusterRunsJobsOnDevicesAndSurvivesRestarts(t *testing.T) {
	c := Start(t, Options{})
	job := c.Submit("srun -l printenv SLURMD_NODENAME", "--nodes=2", "--gres=gpu:slow:1")
	c.WaitFor("the job's end", func() bool { return c.Field(job, "JobState") == "COMPLETED" })
	if got := c.Log(job); !strings.Contains(got, "0: m3\n") || !strings.Contains(got, "1: m4\n") {
		t.Errorf("the job on two slow devices wrote %q", got)
	}

	job = c.Submit("sleep 2; echo survived", "--gres=gpu:fast:1")
	c.WaitFor("the job's start", func() bool { return c.Field(job, "JobState") == "RUNNING" })
	c.Controller.Stop()
	c.Nodes["m1"].Stop()
	c.Controller.Start()
	c.Nodes["m1"].Start()
	c.WaitFor("the job's end", func() bool {
		out, err := c.Try("scontrol", "show", "job", "-o", job)
		return err == nil && strings.Contains(out, "JobState=COMPLETED")
	})
	if got := c.Log(job); got != "survived\n" {
		t.Errorf("the job over restarts wrote %q", got)
	}
}
