package plugin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// This test binary is a plugin as well, by the name that it is started by.
var plugins = map[string]func(){
	"evenstep-policy-good": func() { Serve(Policy, func(s *grpc.Server) { s.RegisterService(&echo, struct{}{}) }) },
	"evenstep-policy-exits": func() {
		fmt.Fprintln(os.Stderr, "cannot go on")
		os.Exit(3)
	},
	"evenstep-policy-silent": func() { sleeper(); select {} },
	"evenstep-policy-babbles": func() {
		fmt.Println("hello | world")
		select {}
	},
	"evenstep-policy-newer": func() {
		fmt.Println("1|99|unix|/nowhere|grpc")
		select {}
	},
	"evenstep-policy-tcp": func() {
		fmt.Println("1|1|tcp|localhost:1|grpc")
		select {}
	},
	"evenstep-policy-escapes": func() { // a child that no longer is in the group, but has the pipes
		attributes := &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true}}
		child, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, attributes)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, child.Pid)
		os.Exit(4)
	},
	"evenstep-policy-open": inTheClear,
	"evenstep-policy-deaf": func() { // to all but SIGKILL
		sleeper()
		Serve(Policy, func(s *grpc.Server) { s.RegisterService(&echo, struct{}{}); signal.Ignore(syscall.SIGTERM) })
	},
}

func TestMain(m *testing.M) {
	if main, ours := plugins[filepath.Base(os.Args[0])]; ours {
		main()
		return
	}
	os.Exit(m.Run())
}

// echo is a service whose one method says what the process has: its pid, its environment.
var echo = grpc.ServiceDesc{ServiceName: "echo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
	MethodName: "Environment",
	Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := decode(new(grpc_health_v1.HealthCheckRequest)); err != nil {
			return nil, err
		}
		fmt.Fprintln(os.Stderr, "asked")
		text := fmt.Sprint(os.Getpid(), "\n", strings.Join(os.Environ(), "\n"))
		return &grpc_health_v1.HealthCheckRequest{Service: text}, nil
	},
}}}

// inTheClear is a plugin that knows no TLS.
func inTheClear() {
	path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer()
	h := health.NewServer()
	h.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(s, h)
	fmt.Printf("1|%d|unix|%s|grpc\n", Version, path)
	_ = s.Serve(l)
}

// sleeper starts a child that holds the pipes open.
func sleeper() {
	attributes := &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}}
	if _, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, attributes); err != nil {
		panic(err)
	}
}

// folder makes a plugin folder with this binary under the names, in a folder that others cannot write to.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found is the only plugin of a folder.
func found(t *testing.T, dir string, log hclog.Logger) *External {
	t.Helper()
	f, err := Open(dir, log)
	if err != nil || len(f.Plugins) != 1 {
		t.Fatalf("got %v, %v", f.Plugins, err)
	}
	t.Cleanup(f.Close)
	f.Plugins[0].rest = 0
	return f.Plugins[0]
}

// ask returns the plugin's pid and environment.
func ask(t *testing.T, e *External) (pid int, environment []string) {
	t.Helper()
	conn, err := e.Conn()
	if err != nil {
		t.Fatal(err)
	}
	var out grpc_health_v1.HealthCheckRequest
	if err := conn.Invoke(t.Context(), "/echo/Environment", new(grpc_health_v1.HealthCheckRequest), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.GetService(), "\n")
	if _, err := fmt.Sscan(lines[0], &pid); err != nil {
		t.Fatal(err)
	}
	return pid, lines[1:]
}

func lives(pid int) bool { return syscall.Kill(pid, 0) == nil }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("not within 5 s: %s", what)
}

func TestAPluginGetsNothingOfTheEnvironmentButTheLibrary(t *testing.T) {
	t.Setenv("EVENSTEP_SECRET", "1")
	t.Setenv("EVENSTEP_NVML_LIBRARY", "/a/b")
	_, environment := ask(t, found(t, folder(t, "evenstep-policy-good"), hclog.NewNullLogger()))
	var names []string
	for _, line := range environment {
		// The certificate has lines of its own.
		if name, _, isVariable := strings.Cut(line, "="); isVariable && name == strings.ToUpper(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	want := []string{"EVENSTEP_NVML_LIBRARY", "EVENSTEP_PLUGIN", "PLUGIN_CLIENT_CERT", "PLUGIN_MAX_PORT", "PLUGIN_MIN_PORT",
		"PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_UNIX_SOCKET_DIR"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestAPluginIsSharedStartedAgainAndEnded(t *testing.T) {
	sockets, err := os.MkdirTemp("", "s") // short, or it would not be used
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(sockets) })
	t.Setenv("TMPDIR", sockets)
	e := found(t, folder(t, "evenstep-policy-good"), hclog.NewNullLogger())
	first, _ := ask(t, e)
	if again, _ := ask(t, e); again != first {
		t.Errorf("asked again, process %d, not %d, answers", again, first)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin's death is known", e.running.process.hasExited)
	second, _ := ask(t, e)
	e.Kill(io.ErrUnexpectedEOF)
	third, _ := ask(t, e)
	if second == first || third == second {
		t.Errorf("processes %d, %d, %d", first, second, third)
	}
	if lives(second) {
		t.Error("a killed plugin lives")
	}
	e.Close()
	if lives(third) {
		t.Error("a closed plugin lives")
	}
	if _, err := e.Conn(); err == nil {
		t.Error("a closed plugin was started")
	}
	if left, _ := filepath.Glob(filepath.Join(sockets, "plugin*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Each start is twice as long after the last one, but for a process that lived for long.
func TestAPluginThatKeepsDyingIsStartedLessOften(t *testing.T) {
	e := found(t, folder(t, "evenstep-policy-exits"), hclog.NewNullLogger())
	e.rest = leastRest
	var rests []time.Duration
	for range 7 {
		if _, err := e.Conn(); err == nil {
			t.Fatal("it started")
		}
		rests = append(rests, e.rest/time.Second)
		e.started = e.started.Add(-e.rest) // so much later
	}
	if !slices.Equal(rests, []time.Duration{10, 20, 40, 80, 160, 300, 300}) {
		t.Errorf("got %d", rests)
	}
	well := found(t, folder(t, "evenstep-policy-good"), hclog.NewNullLogger())
	ask(t, well)
	well.rest = mostRest
	well.started = well.started.Add(-2 * mostRest)
	if ask(t, well); well.rest != leastRest {
		t.Errorf("got %v for one that lives", well.rest)
	}
}

func TestAPluginThatDiedRestsBeforeItIsStartedAgain(t *testing.T) {
	e := found(t, folder(t, "evenstep-policy-good"), hclog.NewNullLogger())
	e.rest = time.Hour
	pid, _ := ask(t, e)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin's death is known", e.running.process.hasExited)
	if _, err := e.Conn(); err == nil || err.Error() != "its process died" {
		t.Errorf("got %v", err)
	}
}

// A plugin that is deaf to SIGTERM, and whose child would hold its pipes open, ends all the same.
func TestNoPluginOutlivesItsClosing(t *testing.T) {
	t.Parallel()
	e := found(t, folder(t, "evenstep-policy-deaf"), hclog.NewNullLogger())
	pid, _ := ask(t, e)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil || len(children) == 0 {
		t.Skipf("this kernel does not list children: %v", err)
	}
	var child int
	fmt.Sscan(string(children), &child)
	if !lives(child) {
		t.Fatal("no child")
	}
	e.Close()
	if lives(pid) {
		t.Error("the plugin lives")
	}
	eventually(t, "the child is gone", func() bool { return !lives(child) || isZombie(child) })
}

// A child that has left the process's group holds its pipes open; nobody waits for it.
func TestAChildThatEscapesKeepsNothing(t *testing.T) {
	sockets, err := os.MkdirTemp("", "s") // short, or it would not be used
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(sockets) })
	t.Setenv("TMPDIR", sockets)
	var said lines
	e := found(t, folder(t, "evenstep-policy-escapes"), hclog.New(&hclog.LoggerOptions{Output: &said}))
	if _, err := e.Conn(); err == nil || err.Error() != "it did not start: it wrote no handshake to stdout (exit status 4)" {
		t.Errorf("got %v", err)
	}
	_, pid, _ := strings.Cut(strings.TrimSpace(said.String()), "line=")
	child, err := strconv.Atoi(pid)
	if err != nil || !lives(child) {
		t.Fatalf("no child: %s", said.String())
	}
	must(t, syscall.Kill(child, syscall.SIGKILL))
	if left, _ := filepath.Glob(filepath.Join(sockets, "plugin*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestWhatIsNoProgram(t *testing.T) {
	sockets, err := os.MkdirTemp("", "s")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(sockets) })
	t.Setenv("TMPDIR", sockets)
	for content, want := range map[string]string{
		"words":                 ": exec format error",
		"#!/no/interpreter\n\n": ": no such file or directory; is the interpreter in its first line there?",
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "evenstep-policy-x"), []byte(content), 0o755))
		_, err := found(t, dir, hclog.NewNullLogger()).Conn()
		if err == nil || !strings.HasPrefix(err.Error(), "it did not start: ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(sockets, "plugin*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

func TestAPluginThatDoesNotStart(t *testing.T) {
	for name, want := range map[string]string{
		"evenstep-policy-exits":   "it wrote no handshake to stdout (exit status 3)",
		"evenstep-policy-silent":  "timeout while waiting for plugin to start",
		"evenstep-policy-babbles": `it wrote "hello | world" to stdout, which is no handshake (signal: killed)`,
		"evenstep-policy-newer":   "incompatible API version with plugin. Plugin version: 99",
		"evenstep-policy-tcp":     "it listens on tcp, not on a unix socket",
		"evenstep-policy-open":    "it did not start: ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said lines
			e := found(t, folder(t, name), hclog.New(&hclog.LoggerOptions{Output: &said}))
			if _, err := e.Conn(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, want)
			}
			if name == "evenstep-policy-exits" && !strings.Contains(said.String(), "cannot go on") {
				t.Errorf("its words are lost: %q", said.String())
			}
			if e.running != nil {
				t.Error("its process lives")
			}
		})
	}
}

// lines is a log that may be written to and read at the same time.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
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

func TestWhichPluginsAreRefused(t *testing.T) {
	const script = "#!/bin/sh\nexit 1\n"
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(script)))
	for name, c := range map[string]struct {
		file  string
		mode  os.FileMode
		sums  string
		owner int                          // of the file
		also  func(dir, path string) error // before the folder is opened
		want  string                       // why; empty where it is not refused
	}{
		"a good one":          {want: ""},
		"one with a checksum": {sums: "\n" + sum + "  evenstep-policy-x\n", want: "SHA256SUMS:1: not a line of sha256sum"},
		"the right checksum":  {sums: sum + "  evenstep-policy-x\n", want: ""},
		"as a binary":         {sums: sum + " *evenstep-policy-x\n", want: ""},
		"no checksum":         {sums: sum + "  another\n", want: "it has no line in"},
		"half a checksum":     {sums: "abcd  evenstep-policy-x\n", want: "SHA256SUMS:1: not a line of sha256sum"},
		"the group may write": {mode: 0o775, want: "chmod go-w"},
		"others may write":    {mode: 0o757, want: "chmod go-w"},
		"not executable":      {mode: 0o644, want: "is not executable; chmod +x"},
		"an unknown kind":     {file: "evenstep-poliy-x", want: `its kind "poliy" is none of policy, devices`},
		"a bad name":          {file: "evenstep-policy-X", want: `its name "X" is not 1 to 63 of a-z, 0-9 and -`},
		"no name":             {file: "evenstep-policy-", want: `its name "" is not`},
		"another's":           {owner: 12345, want: "belongs to user 12345"},
		"in a folder that others may write to": {
			also: func(dir, _ string) error { return os.Chmod(dir, 0o777) }, want: "others may write to"},
		"checksums that are a pipe": {
			also: func(dir, _ string) error { return syscall.Mkfifo(filepath.Join(dir, "SHA256SUMS"), 0o600) },
			want: "SHA256SUMS is not a file"},
		"checksums that others may write": {sums: sum + "  evenstep-policy-x\n",
			also: func(dir, _ string) error { return os.Chmod(filepath.Join(dir, "SHA256SUMS"), 0o666) },
			want: "SHA256SUMS; chmod go-w"},
		"checksums without lines": {sums: strings.Repeat("x", 1<<17), want: "SHA256SUMS: bufio.Scanner: token too long"},
		"in a sticky one":         {also: func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, want: ""},
		"a folder": {
			also: func(_, path string) error { return replace(path, func() error { return os.Mkdir(path, 0o755) }) },
			want: "is not a file"},
		"a link to nowhere": {
			also: func(_, path string) error { return replace(path, func() error { return os.Symlink("/x/y", path) }) },
			want: "no such file"},
		"a link to what others may write": {
			also: func(dir, path string) error {
				target := filepath.Join(dir, "target")
				return replace(path, func() error {
					return firstOf(os.WriteFile(target, nil, 0o755), os.Chmod(target, 0o777), os.Symlink(target, path))
				})
			},
			want: "chmod go-w"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "evenstep-policy-x")
			if c.file != "" {
				path = filepath.Join(dir, c.file)
			}
			if c.mode == 0 {
				c.mode = 0o755
			}
			must(t, os.WriteFile(path, []byte(script), 0o600))
			must(t, os.Chmod(path, c.mode))
			must(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600)) // which is no plugin
			if c.owner != 0 {
				must(t, os.Chown(path, c.owner, -1))
			}
			if c.sums != "" {
				must(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(c.sums), 0o600))
			}
			if c.also != nil {
				must(t, c.also(dir, path))
			}
			e := found(t, dir, hclog.NewNullLogger())
			if c.want == "" {
				if e.Refused != nil {
					t.Fatal(e.Refused)
				}
				return
			}
			if e.Refused == nil || !strings.Contains(e.Refused.Error(), c.want) {
				t.Errorf("got %v, want %q", e.Refused, c.want)
			}
			if _, err := e.Conn(); err != e.Refused {
				t.Errorf("it was started: %v", err)
			}
		})
	}
}

func TestWhoIsAnother(t *testing.T) {
	for _, c := range []struct {
		mode        os.FileMode
		group, user int
		want        bool
	}{
		{0o755, 5, 1000, false},
		{0o757, 1000, 1000, true},
		{0o775, 5, 1000, true},
		{0o775, 1000, 1000, false}, // the user's own group
		{0o775, 0, 0, true},
		{os.ModeDir | os.ModeSticky | 0o777, 0, 1000, false},
		{os.ModeSticky | 0o777, 0, 1000, true}, // of a file it means nothing
	} {
		if got := othersWrite(c.mode, c.group, c.user); got != c.want {
			t.Errorf("%v of group %d, user %d: %v", c.mode, c.group, c.user, got)
		}
	}
}

func replace(path string, by func() error) error { return firstOf(os.Remove(path), by()) }

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPluginThatChangedAfterItsChecksum(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "evenstep-policy-x")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	sum := sha256.Sum256([]byte("#!/bin/sh\n"))
	must(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), fmt.Appendf(nil, "%x  evenstep-policy-x\n", sum), 0o600))
	e := found(t, dir, hclog.NewNullLogger())
	must(t, os.WriteFile(path, []byte("#!/bin/sh\nevil\n"), 0o755))
	if _, err := e.Conn(); err == nil || err.Error() != "its checksum is not that in SHA256SUMS" {
		t.Errorf("got %v", err)
	}
}

func TestAPluginThatOthersMayWriteByNow(t *testing.T) {
	dir := folder(t, "evenstep-policy-good")
	e := found(t, dir, hclog.NewNullLogger())
	must(t, os.Chmod(dir, 0o777))
	if _, err := e.Conn(); err == nil || err.Error() != "others may write to "+dir+"; chmod go-w" {
		t.Errorf("got %v", err)
	}
}

// What a plugin is called is not looked for in PATH, where somebody else's may be.
func TestAFolderOnARelativePath(t *testing.T) {
	dir := folder(t, "evenstep-policy-good")
	t.Chdir(dir)
	t.Setenv("PATH", folder(t, "evenstep-policy-good", "evenstep-policy-exits"))
	e := found(t, ".", hclog.NewNullLogger())
	if ask(t, e); e.Path != filepath.Join(dir, "evenstep-policy-good") {
		t.Errorf("got %s", e.Path)
	}
}

func TestAPluginsWordsComeOutInTheLog(t *testing.T) {
	var said lines
	e := found(t, folder(t, "evenstep-policy-good"), hclog.New(&hclog.LoggerOptions{Output: &said}))
	ask(t, e)
	eventually(t, "its words are in the log", func() bool {
		return strings.Contains(said.String(), "a plugin says: plugin="+e.Path+" line=asked")
	})
}

func TestAFolderThatIsNotThere(t *testing.T) {
	if f, err := Open("", hclog.NewNullLogger()); err != nil || len(f.Plugins) > 0 {
		t.Errorf("without a name: %v, %v", f.Plugins, err)
	}
	f, err := Open(filepath.Join(t.TempDir(), "none"), hclog.NewNullLogger())
	if err != nil || len(f.Plugins) > 0 {
		t.Errorf("got %v, %v", f.Plugins, err)
	}
}

func TestWhyACallFailed(t *testing.T) {
	e := &External{}
	for want, err := range map[string]error{
		"it ended the stream":        io.EOF,
		"no answer in time":          status.Error(codes.DeadlineExceeded, "stream terminated"),
		"it does not offer that":     status.Error(codes.Unimplemented, "unknown method"),
		"its process was ended":      status.Error(codes.Unavailable, "connection error"),
		"no  [31m":                   status.Error(codes.InvalidArgument, "no\n\x1b[31m"),
		strings.Repeat("x", maxLine): status.Error(codes.Internal, strings.Repeat("x", 10000)),
	} {
		if got := e.Fault(err); got == nil || got.Error() != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if err := e.Fault(nil); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestWhatAPluginSaysIsBounded(t *testing.T) {
	var said lines
	s := &stderrLog{log: hclog.New(&hclog.LoggerOptions{Output: &said})}
	fmt.Fprintf(s, "%s\n\n", strings.Repeat("x", 10*maxStderrLine))
	for range 3 * maxStderrLines {
		io.WriteString(s, "y")
		io.WriteString(s, "\n")
	}
	if n := strings.Count(said.String(), "a plugin says: "); n != maxStderrLines {
		t.Errorf("%d lines", n)
	}
	if n := strings.Count(said.String(), "a plugin says more, which is dropped"); n != 1 {
		t.Errorf("that lines are dropped is said %d times", n)
	}
	if got := VersionOf(strings.Repeat("é\n", 500)); got != strings.Repeat("é ", maxVersion/2) {
		t.Errorf("version %q", got)
	}
	if n := strings.Count(said.String(), "x"); n != maxStderrLine {
		t.Errorf("%d bytes of a line", n)
	}
}
