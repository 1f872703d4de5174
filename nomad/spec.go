package nomad

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// spec is a job as Nomad has it, or as its user wants it: what counts here of it, and all of it. What is sent back is
// what came, field for field, but for constraints and count: one that is not known here must not get lost, or Nomad
// would replace what runs.
type spec struct {
	ID, Type, NodePool      string
	Datacenters             []string
	Meta                    map[string]string
	Constraints             []api.Constraint
	Multiregion, Periodic   *struct{}
	ParameterizedJob        *struct{}
	Dispatched              bool
	Version, JobModifyIndex uint64
	TaskGroups              []group
	raw                     map[string]json.RawMessage
}

type group struct {
	Name        string
	Count       *int
	Constraints []api.Constraint
	Tasks       []task
	Volumes     map[string]struct{ Type, Source string }
}

type task struct {
	Name, Driver string
	Constraints  []api.Constraint
	Lifecycle    *struct{ Sidecar bool }
	Resources    struct {
		CPU, MemoryMB int
		Devices       []device
	}
}

// device is what a task asks for.
type device struct {
	Name        string
	Count       *uint64
	Constraints []api.Constraint
}

// UnmarshalJSON keeps the text beside what it says. What is missing is what Nomad takes for it.
func (s *spec) UnmarshalJSON(text []byte) error {
	type plain spec
	if err := json.Unmarshal(text, (*plain)(s)); err != nil {
		return err
	}
	if s.ID == "" || len(s.TaskGroups) == 0 {
		return errors.New("not a job: no ID or no TaskGroups")
	}
	for i, g := range s.TaskGroups {
		if g.Name == "" {
			return fmt.Errorf("not a job: TaskGroups[%d] has no Name", i)
		}
	}
	if s.Type == "" {
		s.Type = api.JobTypeService
	}
	if s.NodePool == "" {
		s.NodePool = api.NodePoolDefault
	}
	if len(s.Datacenters) == 0 {
		s.Datacenters = []string{"*"}
	}
	return json.Unmarshal(text, &s.raw)
}

// count is that of the first group.
func (s *spec) count() int {
	if n := s.TaskGroups[0].Count; n != nil {
		return *n
	}
	return 1
}

// mark is Evenstep's constraint; nil where there is none.
func (s *spec) mark() *mark {
	for _, c := range s.allConstraints() {
		if m := parseMark(c); m != nil {
			return m
		}
	}
	return nil
}

// allConstraints are those of the job, of its groups and of their tasks.
func (s *spec) allConstraints() []api.Constraint {
	constraints := slices.Clone(s.Constraints)
	for _, g := range s.TaskGroups {
		constraints = append(constraints, g.Constraints...)
		for _, t := range g.Tasks {
			constraints = append(constraints, t.Constraints...)
		}
	}
	return constraints
}

// with is the job with another mark, or with none, and its first group's count where that is above 0.
func (s *spec) with(m *mark, count int) (map[string]json.RawMessage, error) {
	job := maps.Clone(s.raw)
	before := s.mark()
	kept, _, err := withoutMarks(job["Constraints"], before != nil && before.distinct)
	if err != nil {
		return nil, err
	}
	if m != nil {
		for _, c := range m.constraints() {
			kept = append(kept, marshal(c))
		}
	}
	job["Constraints"] = marshal(kept)
	groups, err := unmarked(job["TaskGroups"])
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if g["Tasks"] == nil {
			continue
		}
		tasks, err := unmarked(g["Tasks"])
		if err != nil {
			return nil, err
		}
		g["Tasks"] = marshal(tasks)
	}
	if count > 0 {
		groups[0]["Count"] = marshal(count)
	}
	job["TaskGroups"] = marshal(groups)
	return job, nil
}

// unmarked are groups or tasks without our constraints.
func unmarked(text json.RawMessage) (all []map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, one := range all {
		kept, had, err := withoutMarks(one["Constraints"], false)
		if err != nil {
			return nil, err
		}
		if had {
			one["Constraints"] = marshal(kept)
		}
	}
	return all, nil
}

// withoutMarks are constraints but for ours; had says that there were some.
func withoutMarks(text json.RawMessage, distinctIsOurs bool) (kept []json.RawMessage, had bool, err error) {
	var all []json.RawMessage
	if err := json.Unmarshal(text, &all); text != nil && err != nil {
		return nil, false, err
	}
	kept = []json.RawMessage{}
	for _, text := range all {
		var c api.Constraint
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, false, err
		}
		if parseMark(c) == nil && !(distinctIsOurs && c.Operand == api.ConstraintDistinctHosts) {
			kept = append(kept, text)
		}
	}
	return kept, len(kept) < len(all), nil
}

// marshal is of values that always are JSON.
func marshal(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
