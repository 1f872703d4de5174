package slurm_test

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// service is an evenstep that serves.
type service struct {
	cmd *exec.Cmd
	log *strings.Builder
}

// serve starts evenstep serve or agent, waits until it listens, and kills it at the end of the test.
func serve(t *testing.T, args ...string) *service {
	t.Helper()
	s := &service{exec.Command(evenstep(t), args...), new(strings.Builder)}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.kill(); t.Failed() {
			t.Logf("%s: %s", args[0], s.log)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		s.kill()
		t.Fatalf("%s: %v: %q, %s", args, err, line, s.log)
	}
	return s
}

func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *service) signal(sign syscall.Signal) { _ = s.cmd.Process.Signal(sign) }
