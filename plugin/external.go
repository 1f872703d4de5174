package plugin

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	startTimeout = 5 * time.Second // from the start of a process to its handshake
	connTimeout  = time.Second     // from there to a connection
	endTimeout   = time.Second     // from SIGTERM to SIGKILL
	// leastRest is between two starts of a plugin, so that one that keeps dying costs little. It doubles with each start,
	// up to mostRest, until a process is seen to live for longer than that.
	leastRest, mostRest = 10 * time.Second, 5 * time.Minute
	// maxMessageBytes bounds an answer; as large as that of the core's clients.
	maxMessageBytes = 4 << 20
)

// nvmlLibrary is the one variable of evenstep's environment that a plugin gets.
const nvmlLibrary = "EVENSTEP_NVML_LIBRARY"

// External is an executable that answers in a process of its own. The process is started when first asked, shared by
// all who ask, and started again when it is asked after it has died. Its methods may be called at the same time.
type External struct {
	Kind    Kind
	Name    string
	Path    string
	Refused error // why it is never started; nil if it may be

	sum  []byte        // what the file must hash to; nil where anything goes
	rest time.Duration // between the last start and the next
	log  hclog.Logger

	process atomic.Pointer[process] // the last that was started

	mu      sync.Mutex // held while it starts
	running *running
	started time.Time // when last tried
	err     error     // why the last start failed
	closed  bool
}

// running is a process and the connection to it.
type running struct {
	process *process
	folder  string // of its socket
	client  *goplugin.Client
	conn    *grpc.ClientConn
	gone    chan struct{} // closed once it has ended and nothing of it is left; nil before it is told to end
}

// Conn is the connection to the plugin, which starts if it does not run. It takes at most as long as a start may.
func (e *External) Conn() (*grpc.ClientConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.Refused != nil:
		return nil, e.Refused
	case e.closed:
		return nil, errors.New("it was closed")
	case e.lives():
		if time.Since(e.started) > mostRest {
			e.rest = min(e.rest, leastRest)
		}
		return e.running.conn, nil
	case !e.started.IsZero() && time.Since(e.started) < e.rest:
		if e.err == nil {
			e.err = errors.New("its process died")
		}
		return nil, e.err
	}
	// A driver that hangs can keep a process from ending; another one would only hang as well.
	if !e.drop(0) {
		return nil, errors.New("its last process does not end")
	}
	if !e.started.IsZero() {
		e.rest = min(2*e.rest, mostRest)
	}
	e.started = time.Now()
	if e.err = e.start(); e.err != nil {
		return nil, e.err
	}
	return e.running.conn, nil
}

// Health says whether the plugin can be asked, as far as is known without asking: it was not refused, and it has not died
// or failed to start. While it starts, nothing is known. It never waits.
func (e *External) Health() (healthy, known bool) {
	if e.Refused != nil {
		return false, true
	}
	if !e.mu.TryLock() {
		return false, false
	}
	defer e.mu.Unlock()
	if e.running != nil && e.running.gone == nil {
		return e.lives(), true
	}
	return e.err == nil, true
}

// lives says whether there is a process that was not told to end.
func (e *External) lives() bool {
	return e.running != nil && e.running.gone == nil && !e.running.process.hasExited()
}

// Kill ends the process, on the spot, for a reason. Who asks next starts another one, after a rest.
func (e *External) Kill(reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(0)
	e.err = reason
}

// Close ends the process for good and waits until it is gone.
func (e *External) Close() {
	if p := e.process.Load(); p != nil {
		p.end(endTimeout) // also one that is about to start
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.drop(endTimeout)
}

// drop ends the process, if there is one, and removes what it leaves. It says whether the process is gone.
func (e *External) drop(patience time.Duration) bool {
	if e.running == nil {
		return true
	}
	r := e.running
	if r.gone == nil {
		r.gone = make(chan struct{})
		r.process.end(patience)
		go func() {
			r.client.Kill() // which waits until the process is gone
			_ = os.RemoveAll(r.folder)
			close(r.gone)
		}()
	}
	select {
	case <-r.gone:
		e.running = nil
		return true
	case <-time.After(endTimeout):
		return false
	}
}

// start starts a process and connects to it.
func (e *External) start() error {
	// Again: the file may be another one by now.
	if err := e.check(); err != nil {
		return err
	}
	if err := e.checkSum(); err != nil {
		return err
	}
	config, certificate, err := newCertificate()
	if err != nil {
		return err
	}
	r := &running{process: newProcess(e.command(certificate))}
	e.process.Store(r.process)
	stderr := &stderrLog{log: e.log.With("plugin", e.Path)}
	r.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{Version: {string(e.Kind): &contract{}}},
		RunnerFunc: func(_ hclog.Logger, template *exec.Cmd, folder string) (runner.Runner, error) {
			r.folder = folder
			r.process.cmd.Env = append(r.process.cmd.Env, template.Env...)
			return r.process, nil
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		TLSConfig:        config,
		SkipHostEnv:      true,
		StartTimeout:     startTimeout,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: socketFolder()},
		Stderr:           stderr,
		SyncStderr:       stderr,                // where go-plugin's Serve takes what a plugin in Go writes
		Logger:           hclog.NewNullLogger(), // what it would say, we do
		GRPCDialOptions:  []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes))},
	})
	e.running = r
	late := time.AfterFunc(startTimeout+connTimeout, func() { r.process.end(0) })
	conn, err := dispense(r.client, e.Kind)
	if inTime := late.Stop(); err == nil && inTime {
		r.conn = conn
		return nil
	}
	ended := e.drop(0)
	switch {
	case err == nil:
		return fmt.Errorf("it did not start within %v", startTimeout+connTimeout)
	case ended && r.process.cmd.ProcessState != nil: // there was a process
		return fmt.Errorf("it did not start: %s (%v)", whyNot(err), r.process.cmd.ProcessState)
	}
	return fmt.Errorf("it did not start: %s", whyNot(err))
}

func dispense(client *goplugin.Client, kind Kind) (*grpc.ClientConn, error) {
	protocol, err := client.Client()
	if err != nil {
		return nil, err
	}
	if err := protocol.Ping(); err != nil {
		return nil, err
	}
	conn, err := protocol.Dispense(string(kind))
	if err != nil {
		return nil, err
	}
	return conn.(*grpc.ClientConn), nil
}

// command is how the plugin is started: in a group of its own, so that a terminal's Ctrl-C does not reach it, and with
// nothing of our environment but what it is known to need.
func (e *External) command(certificate []byte) *exec.Cmd {
	cmd := exec.Command(e.Path)
	cmd.Env = []string{clientCertVariable + "=" + string(certificate)}
	if path, set := os.LookupEnv(nvmlLibrary); set {
		cmd.Env = append(cmd.Env, nvmlLibrary+"="+path)
	}
	return cmd
}

func (e *External) checkSum() error {
	if e.sum == nil {
		return nil
	}
	content, err := os.ReadFile(e.Path)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(content); !bytes.Equal(sum[:], e.sum) {
		return fmt.Errorf("its checksum is not that in %s", sumsFile)
	}
	return nil
}

// socketFolder is where folders for sockets are made; empty for the usual one. A socket's path has to be short.
func socketFolder() string {
	if len(os.TempDir()) > 60 {
		return "/tmp"
	}
	return ""
}

// whyNot is what go-plugin's message begins with; what follows is guesses.
func whyNot(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if s, isStatus := status.FromError(err); isStatus {
		line = s.Message()
	}
	said, unrecognized := strings.CutPrefix(line, "Unrecognized remote plugin message: ")
	switch {
	case errors.Is(err, fs.ErrNotExist): // though the file is there
		return Line(line) + "; is the interpreter in its first line there?"
	case unrecognized && said == "":
		return "it wrote no handshake to stdout"
	case unrecognized:
		return fmt.Sprintf("it wrote %.100q to stdout, which is no handshake", said)
	}
	return Line(line)
}
