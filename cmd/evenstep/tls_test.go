package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenstep/evenstep/core/identity"
)

func TestTheTimeOfACertificateIsWatched(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	until := from.Add(365 * 24 * time.Hour)
	for name, c := range map[string]struct {
		now  time.Time
		want string
	}{
		"before":         {from.Add(-time.Second), "is not valid before 2026-01-01 00:00:00; is this clock right?"},
		"at first":       {from.Add(time.Second), ""},
		"in good time":   {until.Add(-expiresSoon - time.Second), ""},
		"near its end":   {until.Add(-expiresSoon + time.Second), "expires on 2027-01-01; renew it"},
		"after its end":  {until.Add(time.Second), "expired on 2027-01-01; renew it"},
		"years after it": {until.Add(20000 * time.Hour), "expired on 2027-01-01; renew it"},
	} {
		if got := troubleOf(from, until, c.now); strings.TrimPrefix(got, "the certificate ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A core and an agent whose certificates have expired start, and their logs name the files.
func TestAnExpiredCertificateIsNamedInTheLog(t *testing.T) {
	folder := t.TempDir()
	if _, err := identity.Init(folder, []string{"127.0.0.1"}, time.Now().Add(-366*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	c := &testCluster{keys: folder}
	core := start(t, append(c.tls("server"), "--listen", "tcp:127.0.0.1:0", "--profiles", filepath.Join(folder, "p"))...)
	target := core.listening()
	address, _, _ := socketIn(t)
	agent := startCommand(t, append([]string{"agent"}, append(c.tls("node"), "--core", target, "--listen", address)...)...)
	agent.listening()
	for name, s := range map[string]*server{"server.pem": core, "node.pem": agent} {
		s.signal(syscall.SIGTERM)
		s.exits(0, "the certificate expired on ", name)
	}
}
