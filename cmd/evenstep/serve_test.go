package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/plugin"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// server is a running evenstep serve.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *bytes.Buffer
	ended  func() error // waits for the end
}

// start runs evenstep serve with the arguments and does not wait until it listens.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	return startCommand(t, append([]string{"serve"}, args...)...)
}

func startCommand(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, cmd: exec.Command("evenstep", args...), stderr: new(bytes.Buffer)}
	// Under the race detector a process would rest for a second before it exits. No core shall find, nor leave, profiles of
	// whoever runs the tests.
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "XDG_STATE_HOME="+t.TempDir())
	s.cmd.Stderr = s.stderr
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdout = bufio.NewReader(stdout)
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.ended = sync.OnceValue(s.cmd.Wait)
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.ended() })
	return s
}

// listening waits for the line of an address and returns the address.
func (s *server) listening() string {
	s.t.Helper()
	line, err := s.stdout.ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !ok {
		_ = s.ended()
		s.t.Fatalf("got %q on stdout, %q on stderr", line, s.stderr)
	}
	return address
}

// exits waits for the end and checks the code and that stderr is one line with the words, or empty without any.
func (s *server) exits(code int, words ...string) {
	s.t.Helper()
	late := time.AfterFunc(15*time.Second, func() { _ = s.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	_ = s.ended()
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Fatalf("got %v, want exit code %d; stderr: %s", s.cmd.ProcessState, code, s.stderr)
	}
	lines := strings.Count(s.stderr.String(), "\n")
	if len(words) == 0 && lines > 0 || len(words) > 0 && lines != 1 {
		s.t.Fatalf("%d lines on stderr:\n%s", lines, s.stderr)
	}
	for _, w := range words {
		if !strings.Contains(s.stderr.String(), w) {
			s.t.Fatalf("got %q, want %q in it", s.stderr, w)
		}
	}
}

func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// socketIn is the address of a socket in a folder that is not there yet, and both paths.
func socketIn(t *testing.T) (address, path, folder string) {
	t.Helper()
	// t.TempDir would be too long for a socket under some names of tests.
	dir, err := os.MkdirTemp("", "evenstep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	folder = filepath.Join(dir, "new")
	path = filepath.Join(folder, "core.sock")
	return "unix:" + path, path, folder
}

// balance opens a job at the target and returns its stream once the core has acknowledged it.
func balance(t *testing.T, target string, creds credentials.TransportCredentials) (
	evenstepv1.Balancer_BalanceClient, error,
) {
	t.Helper()
	return balanceJob(t, target, creds, &evenstepv1.Open{Job: "job", GlobalBatch: 8, Workers: []*evenstepv1.Worker{{}, {}}})
}

func balanceJob(t *testing.T, target string, creds credentials.TransportCredentials, open *evenstepv1.Open) (
	evenstepv1.Balancer_BalanceClient, error,
) {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	s, err := evenstepv1.NewBalancerClient(conn).Balance(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: open}}); err != nil {
		return nil, err
	}
	_, err = s.Recv()
	return s, err
}

func mustBalance(t *testing.T, target string) evenstepv1.Balancer_BalanceClient {
	t.Helper()
	s, err := balance(t, target, insecure.NewCredentials())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustBeGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Fatalf("%s is still there (%v)", path, err)
	}
}

func TestServeOnAUnixSocketUntilSIGTERM(t *testing.T) {
	address, path, folder := socketIn(t)
	s := start(t, "--listen", address)
	if got := s.listening(); got != address {
		t.Fatalf("listening %s, want %s", got, address)
	}
	for path, want := range map[string]os.FileMode{folder: os.ModeDir | 0o700, path: os.ModeSocket | 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Fatalf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	stream := mustBalance(t, address)
	s.signal(syscall.SIGTERM)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v", err)
	}
	if rest, err := s.stdout.ReadString('\n'); rest != "" {
		t.Fatalf("got %q, %v", rest, err)
	}
	s.exits(0)
	mustBeGone(t, path)
}

// startWithASilentClient starts a server that drains for a while when it is told to end: it waits for a client that
// connected and says nothing.
func startWithASilentClient(t *testing.T) (s *server, path string) {
	t.Helper()
	address, path, _ := socketIn(t)
	s = start(t, "--listen", address)
	s.listening()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	mustBalance(t, address) // the connection before was accepted
	return s, path
}

func TestServeEndsThoughAClientSaysNothing(t *testing.T) {
	s, _ := startWithASilentClient(t)
	began := time.Now()
	s.signal(syscall.SIGINT)
	s.exits(0)
	if took := time.Since(began); took > drainTime+3*time.Second {
		t.Fatalf("took %v", took)
	}
}

func TestServeEndsAtOnceOnASecondSignal(t *testing.T) {
	s, path := startWithASilentClient(t)
	s.signal(syscall.SIGTERM)
	for range 200 {
		if _, err := os.Lstat(path); err != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.signal(syscall.SIGINT)
	s.exits(128 + int(syscall.SIGINT))
}

func TestServeReplacesTheSocketOfAKilledServer(t *testing.T) {
	address, _, _ := socketIn(t)
	s := start(t, "--listen", address)
	s.listening()
	s.signal(syscall.SIGKILL)
	_ = s.ended()
	start(t, "--listen", address).listening()
	mustBalance(t, address)
}

func TestServeSaysWhoHoldsItsAddress(t *testing.T) {
	socket, _, _ := socketIn(t)
	first := start(t, "--listen", socket, "--listen", "tcp:127.0.0.1:0", "--insecure")
	first.listening()
	tcp := first.listening()
	for _, address := range []string{socket, tcp} {
		start(t, "--listen", address, "--insecure").exits(4, "evenstep serve: --listen: ", "is in use by process ",
			fmt.Sprint(first.cmd.Process.Pid))
	}
	mustBalance(t, socket)
}

func TestOneOfManyServersGetsAStaleSocket(t *testing.T) {
	address, path, folder := socketIn(t)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	var servers []*server
	for range 8 {
		servers = append(servers, start(t, "--listen", address))
	}
	winners := 0
	for _, s := range servers {
		if line, _ := s.stdout.ReadString('\n'); line != "" {
			winners++
		} else {
			s.exits(4, "is in use by process")
		}
	}
	if winners != 1 {
		t.Fatalf("%d servers listen at one address", winners)
	}
	mustBalance(t, address)
}

func TestServeDoesNotWaitForWhoKeepsItsFolderLocked(t *testing.T) {
	address, _, folder := socketIn(t)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	start(t, "--listen", address).exits(4, "another process keeps "+folder+" locked")
}

func TestServeLeavesTheSocketOfAnother(t *testing.T) {
	address, path, _ := socketIn(t)
	first := start(t, "--listen", address)
	first.listening()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second := start(t, "--listen", address)
	second.listening()
	first.signal(syscall.SIGTERM)
	first.exits(0)
	mustBalance(t, address)
}

func TestServeRefuses(t *testing.T) {
	_, path, folder := socketIn(t)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no address":          {nil, "--listen: missing"},
		"a file in the place": {[]string{"--listen", "unix:" + path}, "is not a socket; give a path that is free"},
		"a file as folder":    {[]string{"--listen", "unix:" + path + "/x"}, "not a directory"},
		"a long path":         {[]string{"--listen", "unix:/" + strings.Repeat("a", 107)}, "108 bytes is too long"},
		"no path":             {[]string{"--listen", "unix:"}, "give unix:PATH"},
		"an abstract socket":  {[]string{"--listen", "unix:@a"}, "give unix:PATH"},
		"no port":             {[]string{"--listen", "tcp:localhost", "--insecure"}, "give tcp:HOST:PORT"},
		"another network":     {[]string{"--listen", "udp:localhost:1"}, "neither unix:PATH nor tcp:HOST:PORT"},
		"no TLS":              {[]string{"--listen", "tcp:127.0.0.1:0"}, "needs --tls-cert"},
		"half of TLS":         {[]string{"--listen", "tcp:127.0.0.1:0", "--tls-cert", "a"}, "give all three"},
		"TLS and not":         {[]string{"--listen", "tcp:127.0.0.1:0", "--tls-ca", "a", "--insecure"}, "contradicts"},
		"no such certificate": {
			[]string{"--listen", "tcp:127.0.0.1:0", "--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"},
			"--tls-cert, --tls-key: open b",
		},
		"an argument":  {[]string{"now"}, "now"},
		"another flag": {[]string{"--now"}, "--now"},
	} {
		t.Run(name, func(t *testing.T) { start(t, c.args...).exits(2, "evenstep serve: ", c.want) })
	}
	if content, _ := os.ReadFile(path); string(content) != "precious" {
		t.Fatalf("the file holds %q", content)
	}
}

func TestServeByDefaultInTheRuntimeFolder(t *testing.T) {
	_, _, folder := socketIn(t)
	t.Setenv("XDG_RUNTIME_DIR", folder)
	if got, want := start(t).listening(), "unix:"+folder+"/evenstep/core.sock"; got != want {
		t.Fatalf("listening %s, want %s", got, want)
	}
}

func TestAPrivateServerEndsWithItsParent(t *testing.T) {
	address, _, folder := socketIn(t)
	s := start(t, "--private", "--listen", address)
	s.listening()
	mustBalance(t, address)
	s.stdin.Close()
	s.exits(0)
	mustBeGone(t, folder)
}

func TestAPrivateServerEndsThoughItsParentDiedBefore(t *testing.T) {
	address, _, folder := socketIn(t)
	for range 20 {
		s := start(t, "--private", "--listen", address)
		s.stdin.Close()
		s.exits(0)
		mustBeGone(t, folder)
	}
}

func TestAPrivateServerLivesOnUntilItsParentEnds(t *testing.T) {
	address, _, folder := socketIn(t)
	s := start(t, "--private", "--listen", address)
	s.listening()
	s.signal(syscall.SIGINT)
	s.signal(syscall.SIGHUP)
	s.signal(syscall.SIGPIPE)
	mustBalance(t, address)
	s.signal(syscall.SIGTERM)
	s.exits(0)
	mustBeGone(t, folder)
}

func TestAPrivateServerOutlivesItsOutput(t *testing.T) {
	address, path, folder := socketIn(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	cmd := exec.Command("evenstep", "serve", "--private", "--listen", address)
	cmd.Stdout, cmd.Stderr = write, write
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := os.Lstat(path); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	mustBalance(t, address)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, folder)
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string // the path of its certificate
}

func newAuthority(t *testing.T, dir string) *authority {
	a := new(authority)
	cert, _ := a.sign(t, dir, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"},
		IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pem = cert
	return a
}

// sign writes a certificate and its key, and makes a its authority if it has none.
func (a *authority) sign(t *testing.T, dir string, template *x509.Certificate) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if a.cert == nil {
		a.cert, a.key = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, template.Subject.CommonName)
	for suffix, block := range map[string]*pem.Block{
		".cert": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		if err := os.WriteFile(name+suffix, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return name + ".cert", name + ".key"
}

// client is what a client with a certificate of the name shows, who trusts servers of the trusted authority.
func (a *authority) client(t *testing.T, dir, name string, trusted *authority) *tls.Config {
	cert, key := a.sign(t, dir, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(trusted.pem)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}
}

// serve starts a server on TCP that trusts the authority, as its clients do, and returns where.
func (a *authority) serve(t *testing.T, dir string) (target string) {
	t.Helper()
	cert, key := a.sign(t, dir, &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	s := start(t, "--listen", "tcp:127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-ca", a.pem)
	return strings.TrimPrefix(s.listening(), "tcp:")
}

// Two users whose jobs have the same id have two jobs; the same user, with another connection, has one.
func TestUsersDoNotMeet(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t, dir)
	target := a.serve(t, dir)
	as := func(name string) evenstepv1.Balancer_BalanceClient {
		s, err := balance(t, target, credentials.NewTLS(a.client(t, dir, name, a)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	alice, bob := as("alice"), as("bob")
	// In one job bob's stream had taken the place of alice's, and a step below an answered one would get no answer.
	for _, c := range []struct {
		who  evenstepv1.Balancer_BalanceClient
		step uint64
	}{{alice, 7}, {bob, 5}, {alice, 8}, {bob, 6}} {
		report := &evenstepv1.StepReport{
			Step: c.step, NextFreeStep: c.step + 1, Workers: []*evenstepv1.WorkerReport{{Rank: 0}, {Rank: 1}},
		}
		request := &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Report{Report: report}}
		if err := c.who.Send(request); err != nil {
			t.Fatal(err)
		}
		if r, err := c.who.Recv(); err != nil || r.GetAllocation().GetAnswersStep() != c.step {
			t.Fatalf("got %v, %v, want the answer to step %d", r, err, c.step)
		}
	}
	as("alice")
	if _, err := alice.Recv(); status.Code(err) != codes.Aborted {
		t.Fatalf("got %v", err)
	}
}

func TestServeOnTCPAsksForMutualTLS(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	a, b := newAuthority(t, ours), newAuthority(t, theirs)
	target := a.serve(t, ours)
	alice := a.client(t, ours, "alice", a)
	if _, err := balance(t, target, credentials.NewTLS(alice)); err != nil {
		t.Fatal(err)
	}

	_, err := balance(t, target, credentials.NewTLS(a.client(t, ours, "", a)))
	if status.Code(err) != codes.Unauthenticated {
		t.Fatalf("without a subject: got %v", err)
	}

	old := alice.Clone()
	old.MaxVersion = tls.VersionTLS12
	nobody := alice.Clone()
	nobody.Certificates = nil
	for name, creds := range map[string]credentials.TransportCredentials{
		"without TLS":               insecure.NewCredentials(),
		"without a certificate":     credentials.NewTLS(nobody),
		"signed by another":         credentials.NewTLS(b.client(t, theirs, "mallory", a)),
		"with TLS 1.2":              credentials.NewTLS(old),
		"who trusts another signer": credentials.NewTLS(a.client(t, ours, "carol", b)),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := balance(t, target, creds); status.Code(err) != codes.Unavailable {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// The proto and the rendezvous name the same.
func TestJobPolicies(t *testing.T) {
	want := []string{"auto", "equal", "lbbsp-cpu", "lbbsp-gpu-analytic", "lbbsp-gpu-tuning"}
	policies := jobPolicies(&plugin.Folder{}, hclog.NewNullLogger())
	if got := slices.Sorted(maps.Keys(policies)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
