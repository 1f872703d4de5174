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

// trainer submits torchrun's jobs to a cluster.
type trainer struct {
	c            *slurmtest.Cluster
	root, binary string
	python       string
}

func newTrainer(t *testing.T, c *slurmtest.Cluster) *trainer {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(root, ".venv/bin/python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("no torch in .venv; run: make .venv/.ready")
	}
	return &trainer{c, root, evenstep(t), python}
}

// train runs testdata/train.py by one torchrun on each of two nodes, which are given in the order of the plan, and returns
// the sizes of the first step and of the last on them. What is before stands before torchrun, on each node.
func (tr *trainer) train(t *testing.T, nodes [2]string, before string) (first, last [2]int) {
	t.Helper()
	job := tr.c.Submit(fmt.Sprintf(`export EVENSTEP_BINARY=%s PYTHONPATH=%s/torchrun PYTHONUNBUFFERED=1
srun --ntasks-per-node=1 --cpu-bind=none sh -c '%s
exec %s -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=localhost:%d \
    --rdzv-backend=evenstep $address %s/slurm/testdata/train.py'`, tr.binary, tr.root, before, tr.python, freePort(t), tr.root),
		words(100), "--nodelist="+nodes[0]+","+nodes[1], "--nodes=2", "--gres=gpu:1", "--ntasks-per-node=1")
	// Torch alone takes a while to start twice.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for !ended(tr.c, job)() {
		if state := tr.c.Field(job, "JobState"); ctx.Err() != nil || state == "FAILED" {
			t.Fatalf("%s\n%s", state, tr.c.Log(job))
		}
		time.Sleep(200 * time.Millisecond)
	}
	for i, node := range nodes {
		_, after, _ := strings.Cut(tr.c.Log(job), fmt.Sprintf("%s rank %d first ", node, i))
		if _, err := fmt.Sscanf(after, "%d last %d", &first[i], &last[i]); err != nil {
			t.Fatalf("%v in\n%s", err, tr.c.Log(job))
		}
	}
	if last[0]+last[1] != 100 {
		t.Errorf("the last sizes are %v", last)
	}
	t.Logf("sizes on %s went from %v to %v", nodes, first, last)
	return first, last
}

// A job that was steered starts with the sizes of the plan, each on the node that it was planned for, and trains on with
// sizes that follow its nodes' speeds.
func TestASteeredJobTrainsAtItsNodesSpeeds(t *testing.T) {
	t.Parallel()
	config, folder := scripts(t)
	c := slurmtest.Start(t, slurmtest.Options{Config: config, JobSubmit: jobSubmit(t, 120)})
	controller(t, c)
	tr := newTrainer(t, c)

	// The profiles say that both nodes are alike; one takes three times as long.
	first, last := tr.train(t, [2]string{"m1", "m2"}, "")
	if first != [2]int{50, 50} {
		t.Errorf("first sizes %v, not those of the plan", first)
	}
	if last[0] <= last[1] {
		t.Errorf("last sizes %v do not follow the speeds", last)
	}

	// The profiles say that one is four times as fast; both are alike. torch ranks nodes by address, and by that the plan's
	// second comes first. The node has an agent that leads to no core.
	serve(t, "agent", "--listen=unix:"+folder+"/agent.sock")
	first, last = tr.train(t, [2]string{"m1", "m3"},
		`case $SLURMD_NODENAME in m1) address=--local-addr=localhost;; *) address=--local-addr=127.0.0.1;; esac`)
	if first != [2]int{80, 20} {
		t.Errorf("first sizes %v, not those of the plan", first)
	}
	if last[0] >= first[0] {
		t.Errorf("last sizes %v do not follow the speeds", last)
	}
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
