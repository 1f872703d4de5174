package slurmtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Daemon is one of Slurm's daemons, which a test may stop and start again.
type Daemon struct {
	t       testing.TB
	command func() *exec.Cmd
	log     string
	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{}
}

func (c *Cluster) daemon(name string, args ...string) *Daemon {
	log := name
	if name == "slurmd" {
		log += "-" + args[2]
	}
	return &Daemon{t: c.t, log: c.path(log + ".log"), command: func() *exec.Cmd {
		return c.Command(context.Background(), name, args...)
	}}
}

// Start starts it; its output is added to its log.
func (d *Daemon) Start() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd := d.command()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.cmd, d.ended = cmd, make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(cmd, d.ended)
}

// Stop tells it to end, which makes slurmctld save its state, and kills it when that takes longer than five seconds.
func (d *Daemon) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(5 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
	d.cmd = nil
}

func (d *Daemon) running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd != nil
}

// tail is the end of its log.
func (d *Daemon) tail() string {
	text, _ := os.ReadFile(d.log)
	lines := strings.Split(string(text), "\n")
	return filepath.Base(d.log) + ":\n" + strings.Join(lines[max(0, len(lines)-20):], "\n")
}
