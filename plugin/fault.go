package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// DescribeTimeout is from the question what a plugin is to its answer.
const DescribeTimeout = 2 * time.Second

const (
	pingTimeout = time.Second
	maxLine     = 500 // bytes of what a plugin says that are passed on
	maxVersion  = 64  // characters
)

// Fault says in one line why a call of the plugin failed; nil for nil.
func (e *External) Fault(err error) error {
	s, isStatus := status.FromError(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("it ended the stream")
	case !isStatus:
		return err
	case s.Code() == codes.DeadlineExceeded:
		return errors.New("no answer in time")
	case s.Code() == codes.Unimplemented:
		return errors.New("it does not offer that")
	case s.Code() == codes.Unavailable:
		return e.whyGone(s.Message())
	}
	return errors.New(Line(s.Message()))
}

// whyGone says how the process ended that a connection was lost to.
func (e *External) whyGone(lost string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return errors.New("its process was ended")
	}
	select {
	case <-e.running.process.exited: // the connection is lost a little earlier
		return fmt.Errorf("its process died")
	case <-time.After(pingTimeout):
		return errors.New(Line(lost))
	}
}

// KillIfHung kills the process if it does not even say that it lives, so that who asks next gets another one.
func (e *External) KillIfHung(reason error) {
	conn, err := e.Conn()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	request := &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, request); status.Code(err) == codes.DeadlineExceeded {
		e.Kill(reason)
	}
}

// VersionOf is what a plugin says of its own version, as far as it may.
func VersionOf(text string) string {
	said := []rune(Line(text))
	return string(said[:min(len(said), maxVersion)])
}

// Line makes one printable line, not too long, of what a plugin says.
func Line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, ""))
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "")
	}
	return text
}
