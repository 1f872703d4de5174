package nomad

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// spec is a job as Nomad has it. What is sent back is what came, field for field, but for constraints and count: one that
// this version of Nomad's API does not know must not get lost, or Nomad would replace what runs.
type spec struct {
	api.Job
	raw map[string]json.RawMessage
}

// UnmarshalJSON keeps the text beside what it says.
func (s *spec) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &s.Job); err != nil {
		return err
	}
	if err := complete(&s.Job); err != nil {
		return err
	}
	s.Canonicalize() // from here on no pointer to what counts is nil
	return json.Unmarshal(text, &s.raw)
}

// complete says what is missing of a job that Nomad itself would never give.
func complete(j *api.Job) error {
	if j.ID == nil || *j.ID == "" || len(j.TaskGroups) == 0 {
		return errors.New("not a job: no ID or no TaskGroups")
	}
	for i, g := range j.TaskGroups {
		if g == nil || g.Name == nil || slices.Contains(g.Tasks, nil) || slices.Contains(g.Constraints, nil) {
			return fmt.Errorf("not a job: TaskGroups[%d] is not complete", i)
		}
	}
	if slices.Contains(j.Constraints, nil) {
		return errors.New("not a job: Constraints has a null")
	}
	return nil
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

// allConstraints are those of the job and of its groups.
func (s *spec) allConstraints() []*api.Constraint {
	constraints := slices.Clone(s.Constraints)
	for _, g := range s.TaskGroups {
		constraints = append(constraints, g.Constraints...)
	}
	return constraints
}

// with is the job with another mark, or with none, and its only group's count where that is above 0.
func (s *spec) with(m *mark, count int) (map[string]json.RawMessage, error) {
	job := maps.Clone(s.raw)
	before := s.mark()
	kept, err := withoutMarks(job["Constraints"], before != nil && before.distinct)
	if err != nil {
		return nil, err
	}
	if m != nil {
		for _, c := range m.constraints() {
			kept = append(kept, marshal(c))
		}
	}
	job["Constraints"] = marshal(kept)
	var groups []map[string]json.RawMessage
	if err := json.Unmarshal(job["TaskGroups"], &groups); err != nil {
		return nil, err
	}
	for i, g := range groups {
		if kept, err = withoutMarks(g["Constraints"], false); err != nil {
			return nil, err
		}
		if len(kept) < len(s.TaskGroups[i].Constraints) {
			g["Constraints"] = marshal(kept)
		}
	}
	if count > 0 {
		groups[0]["Count"] = marshal(count)
	}
	job["TaskGroups"] = marshal(groups)
	return job, nil
}

// withoutMarks are constraints but for ours.
func withoutMarks(text json.RawMessage, distinctIsOurs bool) ([]json.RawMessage, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(text, &all); text != nil && err != nil {
		return nil, err
	}
	kept := []json.RawMessage{}
	for _, text := range all {
		var c api.Constraint
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, err
		}
		if parseMark(&c) == nil && !(distinctIsOurs && c.Operand == api.ConstraintDistinctHosts) {
			kept = append(kept, text)
		}
	}
	return kept, nil
}

// marshal is of values that always are JSON.
func marshal(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
