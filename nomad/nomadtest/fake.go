// Package nomadtest is Nomad for tests: Fake answers Nomad's HTTP API from memory, for machines without a nomad binary,
// and Agents runs a real server and real clients on loopback. What holds on both is tried on both.
package nomadtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Node is a client of a cluster.
type Node struct {
	Name    string
	Type    string // of CPU: its meta evenstep_type
	Pool    string // its node pool; empty for default
	Class   string
	Devices []*api.NodeDeviceResource // of the fake alone
}

// Fake is a Nomad server in memory, with clients whose tasks all are `sleep SECONDS`. It schedules as Nomad does in
// what Evenstep rests on: constraints, devices, count, versions; updates in place and destructive ones; plans; blocked
// evaluations; drains and lost nodes; compare-and-set. It knows no restarts, deployments or priorities.
type Fake struct {
	t      *testing.T
	server *httptest.Server
	token  string // that each request has to have; empty for any

	mu      sync.Mutex
	state   *state
	changed chan struct{} // closed and made anew with each write
	events  events
	stop    chan struct{}
	done    sync.WaitGroup
	before  func(r *http.Request)
}

// StartFake starts a fake with nodes; it ends with the test.
func StartFake(t *testing.T, nodes ...Node) *Fake {
	t.Helper()
	return start(t, "", (*httptest.Server).Start, nodes)
}

// StartFakeWithTLS starts a fake that speaks TLS and answers to a token only. Certificate is its own.
func StartFakeWithTLS(t *testing.T, token string, nodes ...Node) *Fake {
	t.Helper()
	return start(t, token, (*httptest.Server).StartTLS, nodes)
}

func start(t *testing.T, token string, listen func(*httptest.Server), nodes []Node) *Fake {
	f := &Fake{t: t, token: token, state: newState(nodes), changed: make(chan struct{}), stop: make(chan struct{})}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	listen(f.server)
	f.done.Go(f.live)
	t.Cleanup(func() {
		close(f.stop)
		f.CutStreams()
		f.server.CloseClientConnections()
		f.server.Close()
		f.done.Wait()
	})
	return f
}

// Address is the fake's NOMAD_ADDR.
func (f *Fake) Address() string { return f.server.URL }

// Certificate is what the fake with TLS is known by, in DER.
func (f *Fake) Certificate() []byte { return f.server.Certificate().Raw }

// Before has a function called with each request before it is answered.
func (f *Fake) Before(call func(r *http.Request)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = call
}

// Lose makes a node go down with all that runs on it.
func (f *Fake) Lose(name string) {
	f.Change(name, func(n *api.Node) { n.Status = "down" })
}

// Change changes a node, as its client would by a new fingerprint.
func (f *Fake) Change(name string, change func(n *api.Node)) {
	f.write(func(s *state) {
		n := s.nodeByName(name)
		change(n)
		n.ModifyIndex = s.index
		s.event(api.TopicNode, n.ID)
		s.scheduleAll()
	})
}

// Finish makes an allocation's task end well.
func (f *Fake) Finish(id string) {
	f.write(func(s *state) {
		for _, a := range s.allocs {
			if a.ID == id {
				s.end(a, "run", "complete")
			}
		}
		s.scheduleAll()
	})
}

// live lets time pass: tasks end, drains come to their deadline.
func (f *Fake) live() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case now := <-tick.C:
			f.mu.Lock()
			due := f.state.due(now)
			f.mu.Unlock()
			if due {
				f.write(func(s *state) { s.advance(now) })
			}
		}
	}
}

// write makes one write of all that the function does.
func (f *Fake) write(do func(s *state)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.index++
	do(f.state)
	f.events.publish(f.state.index, f.state.pending)
	f.state.pending = nil
	close(f.changed)
	f.changed = make(chan struct{})
}

// answer is what a handler answers: a value as JSON, or a status and a text.
type answer struct {
	status int
	value  any
}

func refuse(status int, format string, args ...any) answer {
	return answer{status, fmt.Sprintf(format, args...)}
}

func (f *Fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before != nil {
		before(r)
	}
	if f.token != "" && r.Header.Get("X-Nomad-Token") != f.token {
		http.Error(w, "Permission denied", http.StatusForbidden)
		return
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/v1/")
	if path == "event/stream" {
		f.stream(w, r)
		return
	}
	f.block(r)
	a := f.route(strings.Split(path, "/"), r)
	f.mu.Lock()
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(f.state.index, 10))
	f.mu.Unlock()
	if text, is := a.value.(string); is {
		http.Error(w, text, a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := json.NewEncoder(w).Encode(a.value); err != nil {
		f.t.Logf("fake nomad: %v", err)
	}
}

// block waits while a blocking query's index is not passed.
func (f *Fake) block(r *http.Request) {
	index, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil {
		wait = 5 * time.Minute
	}
	for deadline := time.After(wait); index > 0; {
		f.mu.Lock()
		now, changed := f.state.index, f.changed
		f.mu.Unlock()
		if now > index {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			return
		case <-r.Context().Done():
			return
		case <-f.stop:
			return
		}
	}
}

// route finds who answers.
func (f *Fake) route(path []string, r *http.Request) answer {
	for i := range path {
		path[i], _ = url.PathUnescape(path[i])
	}
	rest := path[1:]
	switch write := r.Method != http.MethodGet; {
	case path[0] == "jobs" && len(rest) == 1 && rest[0] == "parse":
		return parse(r)
	case path[0] == "jobs" && write:
		return f.register(r)
	case path[0] == "job" && len(rest) == 2 && rest[1] == "plan":
		return f.plan(r)
	case path[0] == "job" && len(rest) == 2 && rest[1] == "dispatch":
		return f.dispatch(r, rest[0])
	case path[0] == "job" && r.Method == http.MethodDelete:
		return f.deregister(r, rest[0])
	case path[0] == "node" && len(rest) == 2:
		return f.changeNode(r, rest[0], rest[1])
	case path[0] == "var" && write:
		return f.writeVariable(r, strings.Join(rest, "/"))
	case path[0] == "namespace" && write:
		return f.addNamespace(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.read(path, r)
}

// namespace is the one that a request is about; * for all.
func namespace(r *http.Request) string {
	if n := r.URL.Query().Get("namespace"); n != "" {
		return n
	}
	return api.DefaultNamespace
}

func decode(r *http.Request, into any) *answer {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		a := refuse(400, "%v", err)
		return &a
	}
	return nil
}

// matches says whether a filter of the form `FIELD == "a" or FIELD == "b"` matches a value; none matches all.
func matches(filter, value string) bool {
	return filter == "" || slices.ContainsFunc(strings.Split(filter, " or "), func(one string) bool {
		_, wanted, _ := strings.Cut(one, " == ")
		return strings.Trim(wanted, `"`) == value
	})
}
