package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// jobsOf runs evenstep status and returns what it says.
func jobsOf(t *testing.T, cmd *exec.Cmd) (jobs []jobReport) {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var r statusReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r.Jobs
}

func TestStatusShowsTheJobsOfACore(t *testing.T) {
	t.Setenv("EVENSTEP_PROFILES", filepath.Join(t.TempDir(), "profiles.db"))
	address, _, _ := socketIn(t)
	start(t, "--listen", address).listening()
	t.Setenv("EVENSTEP_ADDR", address)
	if got := jobsOf(t, exec.Command("evenstep", "status", "--output", "json")); got == nil || len(got) != 0 {
		t.Errorf("without a job: %v", got)
	}
	stream := dialStream(t, address)
	a := openTrained(t, stream)
	train(t, stream, a.GetBatchSizes(), 30)
	got := jobsOf(t, exec.Command("evenstep", "status", "--output", "json"))
	if len(got) != 1 || got[0].ID != "job" || got[0].Owner != "" || got[0].Workload != "w" || got[0].Steps != 30 ||
		got[0].Resizes == 0 || len(got[0].Workers) != 2 || !got[0].Workers[0].Here || got[0].Workers[1].Device != "fast" ||
		got[0].Workers[0].BatchSize != 16 || got[0].Workers[1].BatchSize != 48 || got[0].WaitShare != nil {
		t.Errorf("got %+v", got)
	}
	out, err := exec.Command("evenstep", "status").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{address + ": 1 jobs\n", "\njob  w  auto  global batch 64  30 steps  ", "\n  sizes: ",
		"\n  1     48     0.048 s  -     -     cpu   fast"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestStatusWatchesACoreThatComesBack(t *testing.T) {
	address, _, _ := socketIn(t)
	core := start(t, "--listen", address)
	core.listening()
	w := startCommand(t, "status", "--core", address, "--watch=20ms", "--output", "json")
	next := func() string {
		line, err := w.stdout.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if got := next(); !strings.Contains(got, `"jobs":[]`) {
		t.Fatalf("got %s", got)
	}
	core.signal(syscall.SIGKILL)
	_ = core.ended()
	start(t, "--listen", address).listening()
	stream := mustBalance(t, address)
	for !strings.Contains(next(), `"id":"job"`) {
	}
	_ = stream.CloseSend()
	for strings.Contains(next(), `"id":"job"`) {
	}
	w.signal(syscall.SIGTERM)
	go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(w.stdout)) }()
	if err := w.ended(); err != nil {
		t.Errorf("ends with %v", err)
	}
}

func TestStatusRefuses(t *testing.T) {
	_, path, _ := socketIn(t)
	t.Setenv("EVENSTEP_ADDR", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nobody there":                 {[]string{"--core", "unix:" + path}, 4, "unix:" + path + ": "},
		"another network":              {[]string{"--core", "udp:x"}, 2, "--core: \"udp:x\" is neither unix:PATH nor tcp:HOST:PORT"},
		"no certificates":              {[]string{"--core", "tcp:core:7000"}, 2, "one is missing; give all three"},
		"certificates for a socket":    {[]string{"--core", "unix:/s", "--tls-ca", "x"}, 2, "is no TCP address; leave them out"},
		"another form":                 {[]string{"--output", "xml"}, 2, "--output: unknown form"},
		"no time":                      {[]string{"--watch=0s"}, 2, "--watch: 0s is not a time > 0"},
		"an argument that it does not": {[]string{"job"}, 2, "job"},
	} {
		t.Run(name, func(t *testing.T) {
			startCommand(t, append([]string{"status"}, c.args...)...).exits(c.code, "evenstep status: ", c.want)
		})
	}
	agent, _, _ := socketIn(t)
	startCommand(t, "agent", "--listen", agent).listening()
	startCommand(t, "status", "--core", agent).exits(4, "it does not know this call; it is an agent without a core")
}

// freePort is one that nobody listens at for now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", r.Status, err, body)
	}
	return string(body)
}

func TestMetricsAreTheDocumentedOnes(t *testing.T) {
	t.Setenv("EVENSTEP_PROFILES", filepath.Join(t.TempDir(), "profiles.db"))
	folder := examplePlugin(t)
	if err := os.WriteFile(filepath.Join(folder, "evenstep-policy-bad"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(folder, "evenstep-policy-bad"), 0o777); err != nil {
		t.Fatal(err)
	}
	address, _, _ := socketIn(t)
	port := freePort(t)
	s := start(t, "--listen", address, "--metrics", ":"+port, "--plugin-dir", folder)
	s.listening()
	stream := dialStream(t, address)
	a := openTrained(t, stream)
	train(t, stream, a.GetBatchSizes(), 30)
	bad := &evenstepv1.Open{Job: "two words", GlobalBatch: 8, Workers: []*evenstepv1.Worker{{}}}
	if _, err := balanceJob(t, address, insecure.NewCredentials(), bad); err == nil {
		t.Fatal("a bad job was opened")
	}
	body := scrape(t, "http://127.0.0.1:"+port+"/metrics")
	for _, want := range []string{
		"evenstep_jobs 1\n", `evenstep_refused_total{code="InvalidArgument"} 1`, "evenstep_workers 2\n", "evenstep_decision_seconds_count 30\n",
		`evenstep_plugin_healthy{kind="policy",name="smoothed"} 1`, `evenstep_plugin_healthy{kind="policy",name="bad"} 0`,
		"\nprocess_resident_memory_bytes ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	if strings.Contains(body, "evenstep_resizes_total 0\n") {
		t.Error("no resize is counted")
	}
	docs, err := os.ReadFile("../../docs/core.md")
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (evenstep_\w+) `).FindAllStringSubmatch(body, -1) {
		there = append(there, m[1])
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(evenstep_\\w+)").FindAllStringSubmatch(string(docs), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(documented)
	if !slices.Equal(there, documented) {
		t.Errorf("served %q\ndocumented %q", there, documented)
	}

	t.Setenv("EVENSTEP_PROFILES", filepath.Join(t.TempDir(), "profiles.db"))
	start(t, "--listen", address+"2", "--metrics", "127.0.0.1:"+port).exits(4, "evenstep serve: --metrics: ",
		"is in use by process ", fmt.Sprint(s.cmd.Process.Pid))
	start(t, "--listen", address+"2", "--metrics", "9464").exits(2, "--metrics: \"9464\" is not HOST:PORT; give one like :9464")
	if l, err := net.Listen("tcp", "127.0.0.2:"+port); err != nil {
		t.Errorf("metrics are at more than 127.0.0.1: %v", err)
	} else {
		l.Close()
	}
}
