package nomad_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/nomad/nomadtest"
)

// built is a folder of ours with evenstep in it; it goes with the process.
var built string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	defer func() { os.RemoveAll(built) }()
	return m.Run()
}

// build builds evenstep, once.
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
	return filepath.Join(folder, "evenstep"), nil
})

// nomadCluster is the fake or real agents.
type nomadCluster interface {
	Address() string
	Lose(node string)
}

// cluster is a cluster under test, with what tests do to it.
type cluster struct {
	nomadCluster
	t      *testing.T
	api    *api.Client
	env    []string
	folder string
	binary string
}

// newCluster makes a cluster testable. The environment is what evenstep gets beside NOMAD_ADDR.
func newCluster(t *testing.T, n nomadCluster, env ...string) *cluster {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(&api.Config{Address: n.Address()})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{nomadCluster: n, t: t, api: client, folder: t.TempDir(), binary: binary}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "NOMAD_") {
			c.env = append(c.env, e)
		}
	}
	c.env = append(append(c.env, "NOMAD_ADDR="+n.Address()), env...)
	c.file("rates.json", `{"w":{"fast":4,"slow":1,"slower":0.5},"v":{"fast":4,"slow":3}}`)
	return c
}

// file writes a file into the cluster's folder.
func (c *cluster) file(name, text string) string {
	c.t.Helper()
	name = filepath.Join(c.folder, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return name
}

func (c *cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{"nomad"}, args...)...)
	cmd.Env = c.env
	return cmd
}

// evenstep runs `evenstep nomad ...` and returns what it says on stdout and stderr, and its exit code.
func (c *cluster) evenstep(args ...string) (out, said string, code int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := c.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// once makes one round of a controller and returns its log.
func (c *cluster) once(args ...string) string {
	c.t.Helper()
	_, log, code := c.evenstep(append([]string{"controller", "--once", "--profiles=" + c.folder + "/rates.json"}, args...)...)
	if code != 0 {
		c.t.Fatalf("controller --once: exit %d: %s", code, log)
	}
	return log
}

// lines is a log that grows.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// controller starts a controller; kill ends it without warning, stop as an administrator would.
func (c *cluster) controller(args ...string) (log *lines, kill, stop func()) {
	c.t.Helper()
	args = append([]string{"controller", "--interval=500ms", "--profiles=" + c.folder + "/rates.json"}, args...)
	cmd := c.command(context.Background(), args...)
	log = &lines{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	end := func(s os.Signal) func() {
		return func() {
			_ = cmd.Process.Signal(s)
			<-done
		}
	}
	c.t.Cleanup(func() {
		if end(os.Kill)(); c.t.Failed() {
			c.t.Log("controller:\n" + log.String())
		}
	})
	return log, end(os.Kill), end(os.Interrupt)
}

// waitFor waits until something is so.
func (c *cluster) waitFor(what string, is func() bool) {
	c.t.Helper()
	if !c.within(600, is) {
		c.t.Fatalf("no %s after a minute", what)
	}
}

// within says whether something becomes so while it is asked that many times, ten times a second.
func (c *cluster) within(times int, is func() bool) bool {
	for range times {
		if is() {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// words ask for Evenstep, for a workload of which speeds are known.
const words = "workload=w global_batch=100 samples=1000"

// job is a batch job whose tasks all sleep; the edits come last. Empty words are no meta.
func newJob(id, words string, count, seconds int, edits ...func(*api.Job)) *api.Job {
	task := api.NewTask("sleep", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{fmt.Sprint(seconds)}).
		Require(&api.Resources{CPU: new(50), MemoryMB: new(32)})
	task.LogConfig = &api.LogConfig{MaxFiles: new(1), MaxFileSizeMB: new(1)}
	group := api.NewTaskGroup("worker", count).AddTask(task)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(10)}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	j := api.NewBatchJob(id, id, "global", 50).AddTaskGroup(group)
	j.Datacenters = []string{"*"}
	if words != "" {
		j.Meta = map[string]string{"evenstep": words}
	}
	for _, edit := range edits {
		edit(j)
	}
	return j
}

// onNode has a job run on one node, as its user would say.
func onNode(name string) func(*api.Job) {
	return func(j *api.Job) { j.Constrain(api.NewConstraint("${node.unique.name}", "=", name)) }
}

// inNamespace is for jobs of another namespace.
func inNamespace(name string) func(*api.Job) { return func(j *api.Job) { j.Namespace = &name } }

// hold makes a job wait for Evenstep, as its user would in the specification.
func hold(j *api.Job) {
	j.Constrain(api.NewConstraint("${node.unique.id}", "set_contains_any", "evenstep-hold"))
}

// register registers a job as `nomad job run` does.
func (c *cluster) register(j *api.Job) {
	c.t.Helper()
	q := &api.WriteOptions{}
	if j.Namespace != nil {
		q.Namespace = *j.Namespace
	}
	if _, _, err := c.api.Jobs().Register(j, q); err != nil {
		c.t.Fatal(err)
	}
}

// in is for questions about a job, which is named NAMESPACE/ID where not in the default one.
func in(name string) (id string, q *api.QueryOptions) {
	if namespace, id, found := strings.Cut(name, "/"); found && namespace == "ml" {
		return id, &api.QueryOptions{Namespace: namespace}
	}
	return name, nil
}

// info is a job as Nomad has it now.
func (c *cluster) info(name string) *api.Job {
	c.t.Helper()
	id, q := in(name)
	j, _, err := c.api.Jobs().Info(id, q)
	if err != nil {
		c.t.Fatal(err)
	}
	return j
}

// allocs are a job's allocations that Nomad wants to run or have run to their end.
func (c *cluster) allocs(name string) (all []*api.AllocationListStub) {
	c.t.Helper()
	id, q := in(name)
	list, _, err := c.api.Jobs().Allocations(id, false, q)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range list {
		if a.DesiredStatus == "run" && a.ClientStatus != "lost" && a.ClientStatus != "failed" {
			all = append(all, a)
		}
	}
	return all
}

// where are the names of the nodes of a job's allocations, in order, with commas.
func (c *cluster) where(name string) string {
	var names []string
	for _, a := range c.allocs(name) {
		names = append(names, a.NodeName)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// runsOn waits until a job's allocations run on nodes.
func (c *cluster) runsOn(name, nodes string) {
	c.t.Helper()
	c.waitFor(fmt.Sprintf("job %s on %s", name, nodes), func() bool {
		return c.where(name) == nodes && !slices.ContainsFunc(c.allocs(name), func(a *api.AllocationListStub) bool {
			return a.ClientStatus == "pending"
		})
	})
}

// message is what a job's Variable says.
func (c *cluster) message(name string) map[string]string {
	c.t.Helper()
	id, q := in(name)
	v, _, err := c.api.Variables().Peek("nomad/jobs/"+id, q)
	if err != nil {
		c.t.Fatal(err)
	}
	if v == nil {
		return nil
	}
	return v.Items
}

// node is a node's id.
func (c *cluster) node(name string) string {
	c.t.Helper()
	nodes, _, err := c.api.Nodes().List(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Name == name {
			return n.ID
		}
	}
	c.t.Fatalf("no node %s", name)
	return ""
}

// status is the line of a job in evenstep nomad status.
func (c *cluster) status(name string) string {
	c.t.Helper()
	out, said, code := c.evenstep("status")
	if code != 0 {
		c.t.Fatalf("status: exit %d: %s", code, said)
	}
	for _, line := range strings.Split(out, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == name {
			return strings.Join(fields[1:], " ")
		}
	}
	return ""
}

// reset makes a cluster that others used what it was.
func (c *cluster) reset() {
	c.t.Helper()
	jobs, _, err := c.api.Jobs().List(&api.QueryOptions{Namespace: "*"})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, j := range jobs {
		if _, _, err := c.api.Jobs().Deregister(j.ID, true, &api.WriteOptions{Namespace: j.Namespace}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.waitFor("end of all allocations", func() bool {
		all, _, err := c.api.Allocations().List(&api.QueryOptions{Namespace: "*"})
		return err == nil && !slices.ContainsFunc(all, func(a *api.AllocationListStub) bool {
			return a.ClientStatus == "running" || a.ClientStatus == "pending"
		})
	})
	variables, _, err := c.api.Variables().List(&api.QueryOptions{Namespace: "*"})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, v := range variables {
		if _, err := c.api.Variables().Delete(v.Path, &api.WriteOptions{Namespace: v.Namespace}); err != nil {
			c.t.Fatal(err)
		}
	}
	nodes, _, err := c.api.Nodes().List(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Drain || n.SchedulingEligibility != "eligible" {
			if _, err := c.api.Nodes().UpdateDrain(n.ID, nil, true, nil); err != nil {
				c.t.Fatal(err)
			}
			if _, err := c.api.Nodes().ToggleEligibility(n.ID, true, nil); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

var _ nomadCluster = (*nomadtest.Fake)(nil)
var _ nomadCluster = (*nomadtest.Agents)(nil)
