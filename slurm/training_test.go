package slurm_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenstep/evenstep/slurm/slurmtest"
)

// A job that was steered starts with the sizes of the plan, and trains on with sizes that follow its nodes' speeds. The
// profiles say that both nodes are alike; one takes three times as long.
func TestASteeredJobTrainsAtItsNodesSpeeds(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(root, ".venv/bin/python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("no torch in .venv; run: make .venv/.ready")
	}
	config, _ := scripts(t)
	c := slurmtest.Start(t, slurmtest.Options{Config: config, JobSubmit: jobSubmit(t, 120)})
	controller(t, c)
	job := c.Submit(fmt.Sprintf(`export EVENSTEP_BINARY=%s PYTHONPATH=%s/torchrun PYTHONUNBUFFERED=1
srun --ntasks-per-node=1 --cpu-bind=none %s -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-id=$SLURM_JOB_ID \
    --rdzv-endpoint=localhost:%d --rdzv-backend=evenstep %s/slurm/testdata/train.py`,
		evenstep(t), root, python, freePort(t), root), words(100), "--nodes=2", "--gres=gpu:fast:1", "--ntasks-per-node=1")
	// Torch alone takes a while to start twice.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for !ended(c, job)() {
		if state := c.Field(job, "JobState"); ctx.Err() != nil || state == "FAILED" {
			t.Fatalf("%s\n%s", state, c.Log(job))
		}
		time.Sleep(200 * time.Millisecond)
	}
	var first, last [2]int
	for i, node := range []string{"m1", "m2"} {
		_, after, _ := strings.Cut(c.Log(job), node+" first ")
		if _, err := fmt.Sscanf(after, "%d last %d", &first[i], &last[i]); err != nil {
			t.Fatalf("%v in\n%s", err, c.Log(job))
		}
	}
	if first != [2]int{50, 50} {
		t.Errorf("first sizes %v, not those of the plan", first)
	}
	if last[0]+last[1] != 100 || last[0] <= last[1] {
		t.Errorf("last sizes %v do not follow the speeds", last)
	}
	t.Logf("sizes went from %v to %v", first, last)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
