// Package slurmtest runs a real Slurm cluster for a test: munge, slurmctld and one slurmd a node, all on this host's
// loopback, from Debian's packages unpacked by tools/slurm, in a temporary folder, on free ports. Devices are GRES over
// plain files; node names, types and speeds are the test's invention.
package slurmtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Node is a node of the cluster.
type Node struct {
	Name     string
	Type     string // of its devices
	Devices  int    // 0 for none
	Features string // comma-separated; empty for none
}

// Mixed is two nodes with a device of a fast type and two with one of a slow type.
var Mixed = []Node{
	{Name: "m1", Type: "fast", Devices: 1}, {Name: "m2", Type: "fast", Devices: 1},
	{Name: "m3", Type: "slow", Devices: 1}, {Name: "m4", Type: "slow", Devices: 1},
}

// Options say what is special about a cluster.
type Options struct {
	Nodes     []Node   // nil for Mixed
	Config    string   // more lines of slurm.conf
	JobSubmit string   // text of job_submit.lua; empty for none
	Operators []string // users; where there are any, slurmdbd keeps them, in a MariaDB
}

// Cluster is a running cluster.
type Cluster struct {
	Folder string // all of its files; removed at the end of the test
	t      testing.TB
	root   string // where the packages are unpacked
	nodes  []Node
	// munge, and where there are accounts the database and slurmdbd, in the order in which they start.
	services []*Daemon
	database []string // how it is started
	// Controller and Nodes are the daemons, to be stopped and started by tests.
	Controller *Daemon
	Nodes      map[string]*Daemon
}

// Start starts a cluster, which ends with the test, and waits until all of its nodes are idle. It never skips: where the
// packages are missing, the test fails and says what to run.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Nodes == nil {
		o.Nodes = Mixed
	}
	// Sockets lie in it, whose paths have to be short.
	folder, err := os.MkdirTemp("", "slurmtest")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Folder: folder, t: t, root: packages(t), nodes: o.Nodes, Nodes: map[string]*Daemon{}}
	t.Cleanup(c.end)
	// Jobs of other users read the configuration too.
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	c.configure(o)
	c.service("munged", "--foreground", "--force", "--socket="+c.path("munge.socket"),
		"--key-file="+c.path("munge.key"), "--pid-file="+c.path("munge.pid"), "--seed-file="+c.path("munge.seed"))
	c.WaitFor("munge's socket", func() bool { _, err := os.Stat(c.path("munge.socket")); return err == nil })
	if len(o.Operators) > 0 {
		c.startAccounts(o.Operators)
	}
	c.Controller = c.daemon("slurmctld", "-D")
	c.Controller.Start()
	for _, n := range o.Nodes {
		c.Nodes[n.Name] = c.daemon("slurmd", "-D", "-N", n.Name, "-d", filepath.Join(c.root, "usr/sbin/slurmstepd"))
		c.Nodes[n.Name].Start()
	}
	c.WaitFor("all nodes to be idle", func() bool {
		out, err := c.Try("sinfo", "-h", "-t", "idle", "-o", "%D")
		return err == nil && strings.TrimSpace(out) == fmt.Sprint(len(o.Nodes))
	})
	return c
}

// packages is where tools/slurm unpacked Slurm.
func packages(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
		if folder == "/" {
			t.Fatal("no go.mod above the test")
		}
		folder = filepath.Dir(folder)
	}
	folder = filepath.Join(folder, "build", "slurm")
	if _, err := os.Stat(filepath.Join(folder, ".ready")); err != nil {
		t.Fatalf("Slurm is not in %s; run: make build/slurm/.ready", folder)
	}
	return folder
}

// path is a file of the cluster's.
func (c *Cluster) path(name string) string { return filepath.Join(c.Folder, name) }

func (c *Cluster) write(name, text string, mode os.FileMode) {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), mode); err != nil {
		c.t.Fatal(err)
	}
}

// configure writes what the daemons read.
func (c *Cluster) configure(o Options) {
	c.t.Helper()
	me, err := user.Current()
	if err != nil {
		c.t.Fatal(err)
	}
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	c.write("munge.key", string(key), 0o400)
	for _, folder := range []string{"state", "devices"} {
		if err := os.Mkdir(c.path(folder), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	ports := freePorts(c.t, len(o.Nodes)+1)
	accounts := "AccountingStorageType=accounting_storage/none"
	if len(o.Operators) > 0 {
		accounts = c.configureAccounts(me.Username)
	}
	plugins, err := filepath.Glob(filepath.Join(c.root, "usr/lib/*/slurm-wlm"))
	if err != nil || len(plugins) != 1 {
		c.t.Fatalf("no plugins in %s", c.root)
	}
	var conf, gres strings.Builder
	fmt.Fprintf(&conf, `ClusterName=slurmtest
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=%d
AuthType=auth/munge
AuthInfo=socket=%s
SlurmUser=%s
SlurmdUser=%s
StateSaveLocation=%s
SlurmdSpoolDir=%s
SlurmctldPidFile=%s
SlurmdPidFile=%s
PluginDir=%s
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
%s
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
`, ports[0], c.path("munge.socket"), me.Username, me.Username, c.path("state"), c.path("spool-%n"),
		c.path("slurmctld.pid"), c.path("slurmd-%n.pid"), plugins[0], accounts)
	if o.JobSubmit != "" {
		conf.WriteString("JobSubmitPlugins=lua\n")
		c.write("job_submit.lua", o.JobSubmit, 0o644)
	}
	conf.WriteString(o.Config)
	for i, n := range o.Nodes {
		fmt.Fprintf(&conf, "\nNodeName=%s NodeHostname=localhost NodeAddr=127.0.0.1 Port=%d CPUs=8 RealMemory=4000", n.Name,
			ports[i+1])
		if n.Features != "" {
			fmt.Fprintf(&conf, " Feature=%s", n.Features)
		}
		if n.Devices > 0 {
			fmt.Fprintf(&conf, " Gres=gpu:%s:%d", n.Type, n.Devices)
			for d := range n.Devices {
				file := filepath.Join("devices", fmt.Sprintf("%s-%d", n.Name, d))
				c.write(file, "", 0o666)
				fmt.Fprintf(&gres, "NodeName=%s Name=gpu Type=%s File=%s\n", n.Name, n.Type, c.path(file))
			}
		}
	}
	conf.WriteString("\nPartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
	c.write("slurm.conf", conf.String(), 0o644)
	c.write("gres.conf", gres.String(), 0o644)
	for _, n := range o.Nodes {
		if err := os.Mkdir(c.path("spool-"+n.Name), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
}

// freePorts are TCP ports of the loopback that nobody listens on.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

// Env is the environment in which Slurm's commands find this cluster.
func (c *Cluster) Env() []string {
	libraries, _ := filepath.Glob(filepath.Join(c.root, "usr/lib/*-linux-gnu*"))
	var search []string
	for _, l := range libraries {
		search = append(search, l, filepath.Join(l, "slurm-wlm"))
	}
	return append(os.Environ(),
		"SLURM_CONF="+c.path("slurm.conf"),
		"LD_LIBRARY_PATH="+strings.Join(search, ":"),
		"PATH="+filepath.Join(c.root, "usr/bin")+":"+filepath.Join(c.root, "usr/sbin")+":"+os.Getenv("PATH"))
}

// Command prepares a command that finds this cluster; a bare name is looked for among Slurm's commands first.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	for _, folder := range []string{"usr/bin", "usr/sbin"} {
		path := filepath.Join(c.root, folder, name)
		if _, err := os.Stat(path); err == nil && !strings.Contains(name, "/") {
			name = path
			break
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.Env()
	cmd.Dir = c.Folder
	return cmd
}

// Try runs a command and returns its stdout; its stderr is in the error.
func (c *Cluster) Try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := c.Command(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %q: %w: %s", name, args, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// Run is Try for what must succeed.
func (c *Cluster) Run(name string, args ...string) string {
	c.t.Helper()
	out, err := c.Try(name, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// Submit submits a batch script with sbatch's arguments and returns the job's id.
func (c *Cluster) Submit(script string, args ...string) string {
	c.t.Helper()
	file, err := os.CreateTemp(c.Folder, "batch")
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("#!/bin/sh\n" + script + "\n"); err != nil {
		c.t.Fatal(err)
	}
	args = append([]string{"--parsable", "--output=" + c.path("job-%j.log")}, append(args, file.Name())...)
	return strings.TrimSpace(c.Run("sbatch", args...))
}

// Log is what a job wrote.
func (c *Cluster) Log(job string) string {
	text, _ := os.ReadFile(c.path("job-" + job + ".log"))
	return string(text)
}

// Field is a field of scontrol show job; empty where the job has none.
func (c *Cluster) Field(job, name string) string {
	c.t.Helper()
	for _, word := range strings.Fields(c.Run("scontrol", "show", "job", "-o", job)) {
		if value, is := strings.CutPrefix(word, name+"="); is {
			return value
		}
	}
	return ""
}

// WaitFor fails the test when the condition does not come true within a minute.
func (c *Cluster) WaitFor(what string, condition func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited a minute for %s\n%s", what, c.state())
		}
	}
}

// state tells where the cluster is, for a failed test.
func (c *Cluster) state() string {
	nodes, _ := c.Try("sinfo", "-N", "-l")
	jobs, _ := c.Try("squeue", "-a", "-r")
	logs := ""
	for _, d := range c.services {
		logs += d.tail()
	}
	if c.Controller != nil {
		logs += c.Controller.tail()
	}
	return nodes + jobs + logs
}

// end stops the cluster and all that it ran.
func (c *Cluster) end() {
	if c.t.Failed() {
		c.t.Log(c.state())
	}
	if c.Controller != nil && c.Controller.running() {
		if me, err := user.Current(); err == nil {
			_, _ = c.Try("scancel", "-s", "KILL", "-u", me.Username)
		}
	}
	for _, d := range c.Nodes {
		d.Stop()
	}
	if c.Controller != nil {
		c.Controller.Stop()
	}
	for _, d := range slices.Backward(c.services) {
		d.Stop()
	}
	c.killStrays()
	os.RemoveAll(c.Folder)
}

// killStrays ends what jobs left running: whatever was started with this cluster's configuration, which no other has.
func (c *Cluster) killStrays() {
	mark := []byte("SLURM_CONF=" + c.path("slurm.conf"))
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environments {
		var pid int
		if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, mark) {
			continue
		}
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
