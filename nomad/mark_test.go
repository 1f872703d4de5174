package nomad

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

func TestMarks(t *testing.T) {
	for _, m := range []mark{
		{},
		{plan: "k7wq2m4a", version: 3, count: 2, submitted: time.Unix(1795994514, 0), nodes: []string{"a", "b"}},
		{plan: "x", count: 100000, submitted: time.Unix(0, 0), distinct: true, nodes: []string{"a"}},
	} {
		c := m.constraints()
		if got := parseMark(*c[0]); !reflect.DeepEqual(got, &m) {
			t.Errorf("%v became %v by way of %v", m, got, c[0])
		}
		if (len(c) == 2) != m.distinct {
			t.Errorf("%v is %d constraints", m, len(c))
		}
	}
	for text, want := range map[string]*mark{
		"a,b":                            nil,
		"":                               nil,
		"x-evenstep-hold":                nil,
		"evenstep-hold":                  {},
		" evenstep-hold , a":             {},
		"evenstep-plan-x":                {}, // not well formed: a hold
		"evenstep-plan-X-v1-n1-t1,a":     {},
		"evenstep-plan-x-v1-n1-t1-d-e,a": {},
		"evenstep-plan-x-v9999999999999999-n1-t1": {},
		"a,evenstep-plan-x-v1-n2-t3,b":            {plan: "x", version: 1, count: 2, submitted: time.Unix(3, 0), nodes: []string{"a", "b"}},
	} {
		if got := parseMark(*api.NewConstraint(nodeID, anyOf, text)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v", text, got)
		}
	}
	if m := parseMark(*api.NewConstraint(nodeID, "=", holdWord)); m == nil || !m.held() {
		t.Errorf("a hold without an operator is %v", m)
	}
	for _, c := range []*api.Constraint{{}, api.NewConstraint(nodeID, "!=", holdWord), api.NewConstraint("${node.class}", anyOf, holdWord)} {
		if parseMark(*c) != nil {
			t.Errorf("%v is a mark", c)
		}
	}
}

// A job that is placed and let go again is what it was.
func TestASpecThatIsLetGoIsWhatItWas(t *testing.T) {
	for _, file := range []string{"nomadtest/testdata/torchrun.nomad.json", "nomadtest/testdata/controller.nomad.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before := read(t, text)
		placed, err := before.with(&mark{plan: "p", count: 2, submitted: time.Unix(5, 0), distinct: true, nodes: []string{"a"}}, 7)
		if err != nil {
			t.Fatal(err)
		}
		middle := read(t, marshal(placed))
		if m := middle.mark(); m == nil || m.plan != "p" || middle.count() != 7 || len(middle.Constraints) != len(before.Constraints)+2 {
			t.Errorf("%s: placed it is %v with a count of %d", file, m, middle.count())
		}
		after, err := middle.with(nil, before.count())
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, marshal(after))
		got.raw, before.raw = nil, nil
		if len(got.Constraints) == 0 {
			got.Constraints = before.Constraints
		}
		if !reflect.DeepEqual(got, before) {
			t.Errorf("%s: it became %s", file, marshal(after))
		}
	}
}

func read(t testing.TB, text []byte) *spec {
	t.Helper()
	s := &spec{}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Whatever a user writes as a job in JSON, it is refused or can be held, and what is held has the mark of one.
func FuzzSpec(f *testing.F) {
	for _, text := range []string{
		`{"ID":"a","TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Resources":{"Devices":[{"Name":"gpu","Count":2}]}}]}]}`,
		`{"ID":"a","TaskGroups":[{"Name":"g","Constraints":[{"LTarget":"${node.unique.id}","Operand":"set_contains_any","RTarget":"evenstep-plan-x-v1-n2-t3,b"}]}],"Meta":{"evenstep":"workload=w"}}`,
		`{"ID":"a","TaskGroups":[{"Name":"g","Services":[null],"Volumes":{"a":null}}],"Constraints":null}`, `{}`, `null`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := &spec{}
		if json.Unmarshal([]byte(text), s) != nil || s.raw == nil {
			return
		}
		_ = check(s)
		if n, why := s.need(); why == "" {
			n.typeOn(newNode(&api.Node{NodeResources: &api.NodeResources{}}))
		}
		held, err := s.with(&mark{}, 1)
		if err != nil {
			return
		}
		again := &spec{}
		if err := json.Unmarshal(marshal(held), again); err != nil {
			t.Fatal(err)
		}
		if m := again.mark(); m == nil || !m.held() || again.count() != 1 {
			t.Fatal(fmt.Sprint(m), string(marshal(held)))
		}
	})
}
