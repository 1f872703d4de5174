package nomadtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
)

// registration is the body of a request that registers a job or plans to.
type registration struct {
	Job            map[string]json.RawMessage
	EnforceIndex   bool
	JobModifyIndex uint64
	Submission     json.RawMessage
}

// newJob makes a job of what came.
func newJob(raw map[string]json.RawMessage, namespace string) (*job, error) {
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	j := &job{raw: raw}
	if err := json.Unmarshal(text, &j.Job); err != nil {
		return nil, err
	}
	if j.ID == nil || len(j.TaskGroups) == 0 {
		return nil, errors.New("missing job ID or task groups")
	}
	if j.Namespace == nil || *j.Namespace == "" {
		j.Namespace = &namespace
	}
	j.Canonicalize()
	if *j.NodePool == "" {
		j.NodePool = new("default")
	}
	j.raw["Namespace"] = asJSON(*j.Namespace)
	return j, nil
}

// asJSON is a value as JSON.
func asJSON(value any) json.RawMessage {
	text, _ := json.Marshal(value)
	return text
}

// set sets what the server sets in a job.
func (j *job) set(index, version, created uint64, submitted int64) {
	j.JobModifyIndex, j.ModifyIndex, j.CreateIndex = &index, &index, &created
	j.Version, j.SubmitTime = &version, &submitted
	for name, value := range map[string]any{"JobModifyIndex": index, "ModifyIndex": index, "CreateIndex": created,
		"Version": version, "SubmitTime": submitted, "Stop": *j.Stop, "Type": *j.Type, "NodePool": *j.NodePool, "Datacenters": j.Datacenters} {
		j.raw[name] = asJSON(value)
	}
}

func (f *Fake) register(r *http.Request) (a answer) {
	var in registration
	if bad := decode(r, &in); bad != nil {
		return *bad
	}
	j, err := newJob(in.Job, namespace(r))
	if err != nil {
		return refuse(500, "%v", err)
	}
	f.write(func(s *state) { a = s.register(j, in) })
	return a
}

func (s *state) register(j *job, in registration) answer {
	k := key{*j.Namespace, *j.ID}
	before := s.jobs[k]
	if in.EnforceIndex {
		switch at := in.JobModifyIndex; {
		case before == nil && at != 0:
			return refuse(500, "Enforcing job modify index %d: job does not exist", at)
		case before != nil && at == 0:
			return refuse(500, "Enforcing job modify index 0: job already exists")
		case before != nil && at != *before.JobModifyIndex:
			return refuse(500, "Enforcing job modify index %d: job exists with conflicting job modify index: %d", at,
				*before.JobModifyIndex)
		}
	}
	if before != nil && before.Dispatched && j.ParameterizedJob != nil {
		return refuse(500, "cannot update non-parameterized job to being parameterized")
	}
	s.put(j, before)
	j.source = in.Submission
	s.event(api.TopicJob, k.id)
	s.schedule(j)
	return answer{value: map[string]any{"JobModifyIndex": *j.JobModifyIndex, "Index": s.index, "EvalID": s.newID("eval")}}
}

// put stores a job as a new version of what was there before, or as what is there where nothing changed.
func (s *state) put(j, before *job) {
	version, created := uint64(0), s.index
	if before != nil {
		version, created = *before.Version+1, *before.CreateIndex
		if !*before.Stop && same(before, j) {
			j.set(*before.JobModifyIndex, *before.Version, created, *before.SubmitTime)
			s.jobs[key{*j.Namespace, *j.ID}] = j
			return
		}
	}
	j.set(s.index, version, created, time.Now().UnixNano())
	s.jobs[key{*j.Namespace, *j.ID}] = j
}

func same(a, b *job) bool {
	return reflect.DeepEqual(a.TaskGroups, b.TaskGroups) && reflect.DeepEqual(a.Constraints, b.Constraints) &&
		reflect.DeepEqual(a.Meta, b.Meta)
}

// plan answers what a registration would do, in a state of its own.
func (f *Fake) plan(r *http.Request) answer {
	var in registration
	if bad := decode(r, &in); bad != nil {
		return *bad
	}
	j, err := newJob(in.Job, namespace(r))
	if err != nil {
		return refuse(500, "%v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state.clone()
	before := s.jobs[key{*j.Namespace, *j.ID}]
	s.index++
	s.put(j, before)
	done := s.schedule(j)
	group := *j.TaskGroups[0].Name
	updates := map[string]*api.DesiredUpdates{group: &done.updates}
	out := api.JobPlanResponse{Annotations: &api.PlanAnnotations{DesiredTGUpdates: updates}}
	if before != nil {
		out.JobModifyIndex = *before.JobModifyIndex
	}
	if done.failed != nil {
		out.FailedTGAllocs = map[string]*api.AllocationMetric{group: done.failed}
	}
	return answer{value: out}
}

func (f *Fake) deregister(r *http.Request, id string) (a answer) {
	k := key{namespace(r), id}
	f.write(func(s *state) {
		j := s.jobs[k]
		if j == nil {
			a = refuse(404, "job not found")
			return
		}
		stopped := true
		j.Stop = &stopped
		j.set(s.index, *j.Version+1, *j.CreateIndex, *j.SubmitTime)
		s.schedule(j)
		if purge, _ := strconv.ParseBool(r.URL.Query().Get("purge")); purge {
			delete(s.jobs, k)
		}
		s.event(api.TopicJob, id)
		a = answer{value: map[string]any{"EvalID": s.newID("eval")}}
	})
	return a
}

// dispatch starts an instance of a parameterized job.
func (f *Fake) dispatch(r *http.Request, id string) (a answer) {
	f.write(func(s *state) {
		parent := s.jobs[key{namespace(r), id}]
		if parent == nil || parent.ParameterizedJob == nil {
			a = refuse(500, "Specified job %q is not a parameterized job", id)
			return
		}
		raw := map[string]json.RawMessage{}
		for name, value := range parent.raw {
			raw[name] = value
		}
		child := fmt.Sprintf("%s/dispatch-%d-%s", id, time.Now().Unix(), s.newID("dispatch")[:8])
		raw["ID"], raw["Name"], raw["ParentID"], raw["Dispatched"] = asJSON(child), asJSON(child), asJSON(id), asJSON(true)
		j, err := newJob(raw, namespace(r))
		if err != nil {
			a = refuse(500, "%v", err)
			return
		}
		s.put(j, nil)
		s.event(api.TopicJob, child)
		s.schedule(j)
		a = answer{value: map[string]any{"DispatchedJobID": child, "Index": s.index}}
	})
	return a
}

func (f *Fake) changeNode(r *http.Request, id, what string) (a answer) {
	var in struct {
		DrainSpec    *api.DrainSpec
		MarkEligible bool
		Eligibility  string
	}
	if bad := decode(r, &in); bad != nil {
		return *bad
	}
	f.write(func(s *state) {
		n := s.node(id)
		if n == nil {
			a = refuse(404, "node not found")
			return
		}
		switch {
		case what == "eligibility":
			n.SchedulingEligibility = in.Eligibility
		case in.DrainSpec != nil:
			n.Drain, n.SchedulingEligibility = true, "ineligible"
			s.deadlines[id] = time.Now().Add(in.DrainSpec.Deadline)
		default:
			n.Drain = false
			delete(s.deadlines, id)
			if in.MarkEligible {
				n.SchedulingEligibility = "eligible"
			}
		}
		n.ModifyIndex = s.index
		s.event(api.TopicNode, id)
		s.scheduleAll()
		a = answer{value: map[string]any{"NodeModifyIndex": s.index}}
	})
	return a
}

func (f *Fake) writeVariable(r *http.Request, path string) (a answer) {
	k := key{namespace(r), path}
	var in api.Variable
	if r.Method != http.MethodDelete {
		if bad := decode(r, &in); bad != nil {
			return *bad
		}
	}
	f.write(func(s *state) {
		now := s.variables[k]
		if text := r.URL.Query().Get("cas"); text != "" {
			at, _ := strconv.ParseUint(text, 10, 64)
			if now == nil && at != 0 || now != nil && at != now.ModifyIndex {
				a = answer{http.StatusConflict, now}
				return
			}
		}
		if r.Method == http.MethodDelete {
			delete(s.variables, k)
			a = answer{value: struct{}{}}
			return
		}
		v := &api.Variable{Namespace: k.namespace, Path: path, Items: in.Items, CreateIndex: s.index, ModifyIndex: s.index,
			CreateTime: time.Now().UnixNano(), ModifyTime: time.Now().UnixNano()}
		if now != nil {
			v.CreateIndex, v.CreateTime = now.CreateIndex, now.CreateTime
		}
		s.variables[k] = v
		a = answer{value: v}
	})
	return a
}

func (f *Fake) addNamespace(r *http.Request) answer {
	var in api.Namespace
	if bad := decode(r, &in); bad != nil {
		return *bad
	}
	f.write(func(s *state) { s.namespaces = append(s.namespaces, in.Name) })
	return answer{value: struct{}{}}
}
