package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// Two users of a node, and the core's.
const userA, userB = 61001, 61002

// trainerMain is a worker for tests: ADDRESS JOB. It opens the job, then reports each step that a line of stdin names, and
// writes a line for each answer, or with the code of the error that ends it. As job "rates" it asks how fast workloads run.
func trainerMain() {
	say := func(err error) {
		fmt.Println(status.Code(err))
		os.Exit(0)
	}
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		say(err)
	}
	if os.Args[2] == "rates" {
		_, err := evenstepv1.NewProfilesClient(conn).Rates(context.Background(), &evenstepv1.RatesRequest{Types: []string{"fast"}})
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
	return startClusterWith(t, func(string) {})
}

// startClusterWith fills the core's file of profiles before it starts.
func startClusterWith(t *testing.T, fill func(profiles string)) *testCluster {
	t.Helper()
	c := &testCluster{programs: asUsers(t), folder: openTempDir(t)}
	fill(filepath.Join(c.folder, "state", "profiles.db"))
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
	a.steps(0)
	a.steps(7)
	b.steps(0)
	b.steps(5)
	a.steps(8)
	b.steps(6)

	// Each sees their own; root, a controller, and who runs the core see all.
	status := func(user uint32, args ...string) (seen []string) {
		cmd := command(user, filepath.Join(c.programs, "evenstep"), append([]string{"status", "--output=json"}, args...)...)
		for _, j := range jobsOf(t, cmd) {
			seen = append(seen, j.Owner)
		}
		return seen
	}
	ofA, ofB := fmt.Sprint("uid ", userA), fmt.Sprint("uid ", userB)
	for name, got := range map[string][2][]string{
		"a":            {status(userA, "--core", c.socket), {ofA}},
		"b":            {status(userB, "--core", c.socket), {ofB}},
		"root":         {status(0, "--core", c.socket), {ofA, ofB}},
		"a controller": {status(0, append(c.tls("controller"), "--core", c.target)...), {ofA, ofB}},
		"who runs it":  {status(0, "--core", c.own), {ofA, ofB}},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s sees %q, want %q", name, got[0], got[1])
		}
	}

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

func mustFail(t *testing.T, cmd *exec.Cmd, want string) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %v: %s, want %s", cmd.Args, err, out, want)
	}
}

// A core of a user's own, as torchrun starts one, on a socket and with profiles in folders that all may enter.
func TestAnotherUserReachesNothingOfAPrivateCore(t *testing.T) {
	programs, folder := asUsers(t), openTempDir(t)
	home := filepath.Join(folder, "a")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, userA, userA); err != nil {
		t.Fatal(err)
	}
	socket, profiles := "unix:"+filepath.Join(home, "run", "core.sock"), filepath.Join(home, "state", "profiles.db")
	evenstep := filepath.Join(programs, "evenstep")
	core := command(userA, evenstep, "serve", "--listen", socket, "--profiles", profiles)
	out, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = core.Process.Kill(); _ = core.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	a := startTrainer(t, userA, programs, socket, "job")
	a.says("opened")
	startTrainer(t, userB, programs, socket, "job").says("Unavailable")
	mustFail(t, command(userB, evenstep, "status", "--core", socket), "permission denied")
	mustFail(t, command(userB, evenstep, "serve", "--listen", socket, "--profiles", filepath.Join(folder, "none")), "permission denied")
	for _, args := range [][]string{{"list"}, {"export"}, {"forget", "w"}} {
		mustFail(t, command(userB, evenstep, append([]string{"profiles", "--profiles", profiles}, args...)...), "permission denied")
	}
	// With the socket's folder open, the socket itself still is not.
	for _, path := range []string{"run", "state"} {
		if err := os.Chmod(filepath.Join(home, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	startTrainer(t, userB, programs, socket, "job").says("Unavailable")
	mustFail(t, command(userB, evenstep, "profiles", "--profiles", profiles, "list"), "permission denied")
	a.steps(0)
}

// A plugin runs as who runs the core: one that another user could have put there, or could replace, does not.
func TestAnotherUsersPluginIsNotRun(t *testing.T) {
	programs, folder := asUsers(t), openTempDir(t)
	for _, dir := range []string{"mine", "theirs", "loose"} {
		if err := os.Mkdir(filepath.Join(folder, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		plugin := filepath.Join(folder, dir, "evenstep-policy-evil")
		trap := "#!/bin/sh\ntouch " + filepath.Join(folder, "sprung") + "\n"
		if err := os.WriteFile(plugin, []byte(trap), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	theirs, loose := filepath.Join(folder, "theirs"), filepath.Join(folder, "loose")
	mine := filepath.Join(folder, "mine", "evenstep-policy-evil")
	for _, err := range []error{os.Chown(theirs, userB, userB), os.Chmod(loose, 0o777), os.Chown(mine, userB, userB)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"mine", "theirs", "loose"} {
		path := filepath.Join(folder, dir)
		out, err := exec.Command(filepath.Join(programs, "evenstep"), "plugins", "--plugin-dir", path).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "refused") {
			t.Errorf("%s: %v: %s", dir, err, out)
		}
		address, _, _ := socketIn(t)
		s := start(t, "--listen", address, "--plugin-dir", path, "--profiles", filepath.Join(t.TempDir(), "p"))
		s.listening()
		open := &evenstepv1.Open{Job: "job", GlobalBatch: 8, Policy: "evil", Workers: []*evenstepv1.Worker{{}, {}}}
		if _, err := balanceJob(t, address, insecure.NewCredentials(), open); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: a job with its policy: %v", dir, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(folder, "sprung")); err == nil {
		t.Error("the plugin was run")
	}
}
