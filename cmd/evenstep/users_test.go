package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// Two users of a node, and the core's.
const userA, userB = 61001, 61002

// trainerMain is a worker for tests: ADDRESS JOB. It opens the job, then reports each step that a line of stdin names, and
// writes a line for each answer, or with the code of the error that ends it.
func trainerMain() {
	say := func(err error) {
		fmt.Println(status.Code(err))
		os.Exit(0)
	}
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		say(err)
	}
	s, err := evenstepv1.NewBalancerClient(conn).Balance(context.Background())
	if err != nil {
		say(err)
	}
	open := &evenstepv1.Open{Job: os.Args[2], GlobalBatch: 8, Workers: []*evenstepv1.Worker{{}, {}}}
	_ = s.Send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: open}})
	if _, err := s.Recv(); err != nil {
		say(err)
	}
	fmt.Println("opened")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var step uint64
		fmt.Sscan(lines.Text(), &step)
		_ = s.Send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Report{Report: &evenstepv1.StepReport{
			Step: step, NextFreeStep: step + 1, Workers: []*evenstepv1.WorkerReport{{Rank: 0}, {Rank: 1}}}}})
		r, err := s.Recv()
		if err != nil {
			say(err)
		}
		fmt.Println("answer", r.GetAllocation().GetAnswersStep())
	}
}

// asUsers makes a copy of evenstep, and of the trainer, that all users may run, or skips the test where it cannot become
// them.
func asUsers(t *testing.T) (folder string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become two users")
	}
	folder = openTempDir(t)
	us, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(us)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "evenstep"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(folder, "evenstep"), filepath.Join(folder, "trainer")); err != nil {
		t.Fatal(err)
	}
	return folder
}

// openTempDir is a folder that all users may enter, but only root writes to.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "evenstep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command is a command of the user's, with nothing of root's environment.
func command(user uint32, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0", "HOME=/nonexistent", "PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

// trains is a worker of a user's.
type trains struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

func startTrainer(t *testing.T, user uint32, folder, address, job string) *trains {
	t.Helper()
	cmd := command(user, filepath.Join(folder, "trainer"), address, job)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &trains{t, in, bufio.NewReader(out)}
}

// says wants a line.
func (w *trains) says(want string) {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	if got := strings.TrimSpace(line); got != want {
		w.t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func (w *trains) steps(step int) {
	w.t.Helper()
	fmt.Fprintln(w.in, step)
	w.says(fmt.Sprint("answer ", step))
}

// cluster is a shared core and a node's agent, both root's.
type testCluster struct {
	core, agent      *server
	keys             string
	target, socket   string // of the core on TCP; of the agent
	own, ownPath     string // the core's own socket
	programs, folder string
}

func startCluster(t *testing.T) *testCluster {
	t.Helper()
	c := &testCluster{programs: asUsers(t), folder: openTempDir(t)}
	c.keys = filepath.Join(c.folder, "keys")
	if out, err := exec.Command("evenstep", "tls", "init", c.keys, "--name", "127.0.0.1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.ownPath = filepath.Join(c.folder, "core", "core.sock")
	c.core = start(t, append(c.tls("server"), "--listen", "tcp:127.0.0.1:0", "--listen", "unix:"+c.ownPath,
		"--profiles", filepath.Join(c.folder, "state", "profiles.db"))...)
	c.target, c.own = c.core.listening(), c.core.listening()
	c.agent = startCommand(t, append([]string{"agent"}, append(c.tls("node"), "--core", c.target,
		"--listen", "unix:"+filepath.Join(c.folder, "run", "agent.sock"))...)...)
	c.socket = c.agent.listening()
	return c
}

func (c *testCluster) tls(name string) []string {
	path := filepath.Join(c.keys, name)
	return []string{"--tls-cert=" + path + ".pem", "--tls-key=" + path + ".key", "--tls-ca=" + filepath.Join(c.keys, "ca.pem")}
}

func TestUsersOfANodeTrainThroughItsAgent(t *testing.T) {
	c := startCluster(t)
	for path, want := range map[string]os.FileMode{
		"run": os.ModeDir | 0o711, "run/agent.sock": os.ModeSocket | 0o666, "core": os.ModeDir | 0o700,
		"keys": os.ModeDir | 0o700, "keys/node.key": 0o600, "state": os.ModeDir | 0o700, "state/profiles.db": 0o600,
	} {
		if info, err := os.Lstat(filepath.Join(c.folder, path)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	a := startTrainer(t, userA, c.programs, c.socket, "job")
	a.says("opened")
	b := startTrainer(t, userB, c.programs, c.socket, "job")
	b.says("opened")
	// In one job, b's stream had ended a's, and a step below an answered one got no answer.
	a.steps(7)
	b.steps(5)
	a.steps(8)
	b.steps(6)

	// Neither reaches what is root's.
	startTrainer(t, userB, c.programs, c.own, "job").says("Unavailable")
	startTrainer(t, userB, c.programs, "dns:"+strings.TrimPrefix(c.target, "tcp:"), "job").says("Unavailable")

	// A core that is away ends streams; once it is back, jobs are too.
	c.core.signal(syscall.SIGTERM)
	c.core.exits(0)
	fmt.Fprintln(a.in, 9)
	a.says("Unavailable")
	again := start(t, append(c.tls("server"), "--listen", c.target, "--profiles", filepath.Join(c.folder, "state", "profiles.db"))...)
	again.listening()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		w := startTrainer(t, userA, c.programs, c.socket, "job")
		line, _ := w.out.ReadString('\n')
		if line == "opened\n" {
			w.steps(9)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q", line)
		}
	}
	c.agent.signal(syscall.SIGTERM)
	c.agent.exits(0)
}

func TestAgentRefusesWhatIsNoWayToACore(t *testing.T) {
	folder := openTempDir(t)
	keys := filepath.Join(folder, "keys")
	if out, err := exec.Command("evenstep", "tls", "init", keys).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := &testCluster{keys: keys}
	loose := filepath.Join(folder, "loose")
	closed := filepath.Join(folder, "closed")
	for path, mode := range map[string]os.FileMode{loose: 0o777, closed: 0o700} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	at := "--listen=unix:" + filepath.Join(folder, "run", "agent.sock")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no certificates":          {[]string{at, "--core", "tcp:core:7000"}, "--tls-cert, --tls-key, --tls-ca: one is missing"},
		"certificates for no core": {append(c.tls("node"), at), "--core: missing"},
		"a core without a port":    {append(c.tls("node"), at, "--core", "tcp:core"), "--core: \"tcp:core\" has no port"},
		"a core's own socket":      {append(c.tls("node"), at, "--core", "unix:/run/core.sock"), "is not a shared core's; give tcp:HOST:PORT"},
		"a private agent":          {append(c.tls("node"), at, "--core", "tcp:core:7000", "--private"), "--private: contradicts --core"},
		"a folder that all may write": {append(c.tls("node"), "--core", "tcp:core:7000", "--listen", "unix:"+loose+"/s"),
			"others may write to " + loose},
		"a folder that is closed": {append(c.tls("node"), "--core", "tcp:core:7000", "--listen", "unix:"+closed+"/s"),
			"users cannot enter " + closed},
	} {
		t.Run(name, func(t *testing.T) {
			startCommand(t, append([]string{"agent"}, c.args...)...).exits(2, "evenstep agent: ", c.want)
		})
	}
}
