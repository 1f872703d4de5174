package plugin

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// pipesTimeout is from the end of a process to that of its pipes.
const pipesTimeout = 500 * time.Millisecond

// process is a plugin's process, and the group of those that it starts, as go-plugin's Runner. It ends with its whole
// group when it dies and when it is told to, and by itself when we die.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr io.ReadCloser
	exited         chan struct{}

	mu sync.Mutex // so that nobody signals a group that is gone
}

func newProcess(cmd *exec.Cmd) *process {
	// The signal at our death comes with that of the thread that starts the process. Go ends no thread of ours.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return &process{cmd: cmd, exited: make(chan struct{})}
}

// Start starts the process. Its pid stays taken until Wait, so signals reach nobody else before.
func (p *process) Start(context.Context) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	if p.stderr, err = p.cmd.StderrPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		// Go-plugin waits for the end of the pipes first, which children in the group may hold open.
		for unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		p.mu.Lock()
		p.signal(syscall.SIGKILL)
		close(p.exited)
		p.mu.Unlock()
		// A child that has left the group holds them open still. By then what the process wrote has been read.
		time.AfterFunc(pipesTimeout, func() {
			p.stdout.Close()
			p.stderr.Close()
		})
	}()
	return nil
}

// Wait waits for the end of the process.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return p.cmd.Wait()
}

// Kill ends the process on the spot.
func (p *process) Kill(context.Context) error {
	p.end(0)
	return nil
}

// end tells the process to end, kills it if it has not done so in time, and returns when it has ended.
func (p *process) end(patience time.Duration) {
	p.mu.Lock()
	started := p.cmd.Process != nil
	if started && patience > 0 {
		p.signal(syscall.SIGTERM)
	}
	p.mu.Unlock()
	if !started {
		return
	}
	select {
	case <-p.exited:
		return
	case <-time.After(patience):
	}
	p.mu.Lock()
	p.signal(syscall.SIGKILL)
	p.mu.Unlock()
}

// signal signals the group, unless it is gone.
func (p *process) signal(s syscall.Signal) {
	if !p.hasExited() {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// The rest of a Runner.

func (p *process) Stdout() io.ReadCloser           { return p.stdout }
func (p *process) Stderr() io.ReadCloser           { return p.stderr }
func (p *process) Name() string                    { return p.cmd.Path }
func (p *process) Diagnose(context.Context) string { return "" }

// ID is empty before the start.
func (p *process) ID() string {
	if p.cmd.Process == nil {
		return ""
	}
	return fmt.Sprint(p.cmd.Process.Pid)
}

// PluginToHost and HostToPlugin translate no address: both see the same files. A plugin is on this machine.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" {
		return "", "", fmt.Errorf("it listens on %s, not on a unix socket", Line(network))
	}
	return network, address, nil
}

func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

const (
	maxStderrLines = 50  // of a process; what it says beyond is dropped
	maxStderrLine  = 500 // bytes
)

// stderrLog puts what a process writes to its stderr into our log, line by line.
type stderrLog struct {
	log hclog.Logger

	mu    sync.Mutex
	line  []byte
	lines int
}

func (s *stderrLog) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range text {
		switch {
		case c == '\n':
			s.flush()
		case len(s.line) < maxStderrLine:
			s.line = append(s.line, c)
		}
	}
	return len(text), nil
}

func (s *stderrLog) flush() {
	if len(s.line) == 0 {
		return
	}
	switch s.lines++; {
	case s.lines <= maxStderrLines:
		s.log.Info("a plugin says", "line", Line(string(s.line)))
	case s.lines == maxStderrLines+1:
		s.log.Warn("a plugin says more, which is dropped", "lines", maxStderrLines)
	}
	s.line = s.line[:0]
}
