package nomadtest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

type key struct{ namespace, id string }

// state is all that the fake knows.
type state struct {
	index      uint64
	namespaces []string
	nodes      []*api.Node
	deadlines  map[string]time.Time // of drains, by node's id
	jobs       map[key]*job
	allocs     []*api.Allocation
	evals      []*api.Evaluation
	variables  map[key]*api.Variable
	pending    []api.Event // of the write at hand
	ids        int
}

// job is a registered job: as it came, and what it says.
type job struct {
	api.Job
	raw    map[string]json.RawMessage
	source json.RawMessage
}

func newState(nodes []Node) *state {
	s := &state{index: 1, namespaces: []string{"default"}, deadlines: map[string]time.Time{}, jobs: map[key]*job{}, variables: map[key]*api.Variable{}}
	for _, n := range nodes {
		pool := n.Pool
		if pool == "" {
			pool = "default"
		}
		s.nodes = append(s.nodes, &api.Node{
			ID: uuid("node " + n.Name), Name: n.Name, Datacenter: "dc1", NodePool: pool, NodeClass: n.Class, Status: "ready",
			SchedulingEligibility: "eligible", HTTPAddr: "127.0.0.1:4646",
			Attributes: map[string]string{"cpu.modelname": "fake", "nomad.version": "1.6.5", "nomad.service_discovery": "true",
				"cpu.numcores": "8"},
			Meta:    map[string]string{"evenstep_type": n.Type},
			Drivers: map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
			NodeResources: &api.NodeResources{Cpu: api.NodeCpuResources{CpuShares: 8000},
				Memory: api.NodeMemoryResources{MemoryMB: 8000}, Devices: n.Devices},
			ReservedResources: &api.NodeReservedResources{}, CreateIndex: 1, ModifyIndex: 1,
		})
	}
	return s
}

// uuid is an id made of a name, the same each time.
func uuid(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func (s *state) newID(what string) string {
	s.ids++
	return uuid(fmt.Sprintf("%s %d", what, s.ids))
}

// clone is a state to try things in.
func (s *state) clone() *state {
	c := *s
	c.jobs = maps.Clone(s.jobs)
	c.allocs = nil
	for _, a := range s.allocs {
		alloc := *a
		c.allocs = append(c.allocs, &alloc)
	}
	c.evals, c.pending = slices.Clone(s.evals), nil
	return &c
}

func (s *state) event(topic api.Topic, id string) {
	s.pending = append(s.pending, api.Event{Topic: topic, Key: id, Payload: map[string]any{}})
}

func (s *state) node(id string) *api.Node {
	i := slices.IndexFunc(s.nodes, func(n *api.Node) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	return s.nodes[i]
}

func (s *state) nodeByName(name string) *api.Node { return s.node(uuid("node " + name)) }

// read answers requests that change nothing.
func (s *state) read(path []string, r *http.Request) answer {
	ns, filter := namespace(r), r.URL.Query().Get("filter")
	in := func(n string) bool { return ns == api.AllNamespacesNamespace || ns == n }
	switch what := path[0]; {
	case what == "jobs":
		return answer{value: s.stubs(in, r.URL.Query())}
	case what == "job":
		return s.readJob(key{ns, path[1]}, path[2:], r)
	case what == "allocations":
		list := []*api.AllocationListStub{}
		for _, a := range s.allocs {
			if !in(a.Namespace) || !matches(filter, a.ClientStatus) {
				continue
			}
			one := a.Stub()
			if r.URL.Query().Get("resources") == "true" {
				one.AllocatedResources = a.AllocatedResources
			}
			list = append(list, one)
		}
		return answer{value: list}
	case what == "evaluations":
		list := []*api.Evaluation{}
		for _, e := range s.evals {
			if in(e.Namespace) && matches(filter, e.Status) {
				list = append(list, e)
			}
		}
		return answer{value: list}
	case what == "nodes":
		list := []*api.NodeListStub{}
		for _, n := range s.nodes {
			list = append(list, &api.NodeListStub{ID: n.ID, Name: n.Name, Status: n.Status, NodePool: n.NodePool, Drain: n.Drain,
				SchedulingEligibility: n.SchedulingEligibility, ModifyIndex: n.ModifyIndex, Version: "1.6.5"})
		}
		return answer{value: list}
	case what == "node" && s.node(path[1]) != nil:
		return answer{value: s.node(path[1])}
	case what == "vars":
		list := []*api.VariableMetadata{}
		for k, v := range s.variables {
			if in(k.namespace) && strings.HasPrefix(k.id, r.URL.Query().Get("prefix")) {
				list = append(list, &api.VariableMetadata{Namespace: k.namespace, Path: k.id, ModifyIndex: v.ModifyIndex})
			}
		}
		return answer{value: list}
	case what == "var":
		if v := s.variables[key{ns, strings.Join(path[1:], "/")}]; v != nil {
			return answer{value: v}
		}
		return refuse(404, "variable not found")
	case what == "namespace" && slices.Contains(s.namespaces, path[1]):
		return answer{value: api.Namespace{Name: path[1]}}
	case what == "namespaces":
		list := []api.Namespace{}
		for _, name := range s.namespaces {
			list = append(list, api.Namespace{Name: name})
		}
		return answer{value: list}
	case what == "agent" && path[1] == "self":
		return answer{value: map[string]any{"config": map[string]any{"PluginDir": ""}}}
	}
	return refuse(404, "the fake does not know %s", strings.Join(path, "/"))
}

func (s *state) readJob(k key, rest []string, r *http.Request) answer {
	j := s.jobs[k]
	switch {
	case j == nil:
		return refuse(404, "job not found")
	case len(rest) == 0:
		return answer{value: j.raw}
	case rest[0] == "submission" && j.source != nil && r.URL.Query().Get("version") == strconv.FormatUint(*j.Version, 10):
		return answer{value: j.source}
	case rest[0] == "allocations":
		list := []*api.AllocationListStub{}
		for _, a := range s.allocs {
			if a.JobID == k.id && a.Namespace == k.namespace {
				list = append(list, a.Stub())
			}
		}
		return answer{value: list}
	}
	return refuse(404, "not found")
}

// stub is a job as a list has it: with the pool, which the API's own lacks.
type stub struct {
	api.JobListStub
	NodePool string
}

func (s *state) stubs(in func(string) bool, query url.Values) []stub {
	list := []stub{}
	for k, j := range s.jobs {
		if !in(k.namespace) || !strings.HasPrefix(k.id, query.Get("prefix")) {
			continue
		}
		one := stub{api.JobListStub{ID: k.id, ParentID: *j.ParentID, Name: *j.Name, Namespace: k.namespace, Type: *j.Type,
			Periodic: j.Periodic != nil, ParameterizedJob: j.ParameterizedJob != nil, Stop: *j.Stop, Status: s.status(j),
			JobModifyIndex: *j.JobModifyIndex, ModifyIndex: *j.ModifyIndex, SubmitTime: *j.SubmitTime}, *j.NodePool}
		if query.Get("meta") == "true" {
			one.Meta = j.Meta
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b stub) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// status is a job's: pending while nothing was placed, dead once all has ended.
func (s *state) status(j *job) string {
	live, blocked := 0, false
	for _, a := range s.of(j) {
		if !a.ClientTerminalStatus() {
			live++
		}
	}
	for _, e := range s.evals {
		blocked = blocked || e.JobID == *j.ID && e.Namespace == *j.Namespace && e.Status == "blocked"
	}
	switch {
	case live > 0 || *j.Type == "system" && !*j.Stop || j.ParameterizedJob != nil && !j.Dispatched:
		return "running"
	case blocked:
		return "pending"
	}
	return "dead"
}

// of are the allocations of a job, of all its versions.
func (s *state) of(j *job) (all []*api.Allocation) {
	for _, a := range s.allocs {
		if a.JobID == *j.ID && a.Namespace == *j.Namespace {
			all = append(all, a)
		}
	}
	return all
}
