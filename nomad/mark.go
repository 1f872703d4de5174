package nomad

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// mark is what Evenstep's constraint on a job says. It is one on the node's id, which has to be in a set: that set
// holds a word of ours, which is no node's id, and once the job was placed the ids of its nodes.
//
//	${node.unique.id} set_contains_any "evenstep-hold"
//	${node.unique.id} set_contains_any "evenstep-plan-k7wq2m4a-v3-n2-t1795994514,2f3be125-…,f0c4b90e-…"
//
// Users write the first themselves, maybe with = and in a group or task, and may write the second: it never gives a job
// more than its user could.
type mark struct {
	plan      string    // its id; empty while the job is held
	version   uint64    // the first of the job's versions that was placed by it
	count     int       // the group's before, which the user asked for
	submitted time.Time // by the user, to the second
	distinct  bool      // distinct_hosts is ours as well
	nodes     []string  // ids
}

const (
	nodeID   = "${node.unique.id}"
	anyOf    = api.ConstraintSetContainsAny
	holdWord = "evenstep-hold"
)

// planWord has the plan's id, the version, the count, the second of the submission, and d where distinct_hosts is ours.
var planWord = regexp.MustCompile(`^evenstep-plan-([a-z0-9]{1,20})-v([0-9]{1,15})-n([0-9]{1,6})-t([0-9]{1,12})(-d)?$`)

// held says that the job waits for us.
func (m *mark) held() bool { return m.plan == "" }

// constraints are the mark as Nomad takes it.
func (m *mark) constraints() []*api.Constraint {
	if m.held() {
		return []*api.Constraint{api.NewConstraint(nodeID, anyOf, holdWord)}
	}
	word := fmt.Sprintf("evenstep-plan-%s-v%d-n%d-t%d", m.plan, m.version, m.count, m.submitted.Unix())
	if m.distinct {
		word += "-d"
	}
	ids := strings.Join(append([]string{word}, m.nodes...), ",")
	constraints := []*api.Constraint{api.NewConstraint(nodeID, anyOf, ids)}
	if m.distinct {
		constraints = append(constraints, api.NewConstraint("", api.ConstraintDistinctHosts, "true"))
	}
	return constraints
}

// parseMark reads a constraint; nil where it is none of ours. Of a mark that is not well formed, what remains is a
// hold.
func parseMark(c api.Constraint) *mark {
	if c.LTarget != nodeID || !strings.Contains(c.RTarget, "evenstep-") {
		return nil
	}
	if c.Operand != anyOf {
		// Whoever left the operator out wrote a hold as well: no node has that id.
		if c.Operand == "=" && c.RTarget == holdWord {
			return &mark{}
		}
		return nil
	}
	words := strings.Split(c.RTarget, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "evenstep-") })
	if i < 0 {
		return nil
	}
	parts := planWord.FindStringSubmatch(words[i])
	if parts == nil {
		return &mark{}
	}
	m := &mark{plan: parts[1], distinct: parts[5] != "", nodes: slices.Delete(words, i, i+1)}
	m.version, _ = strconv.ParseUint(parts[2], 10, 64)
	m.count, _ = strconv.Atoi(parts[3])
	seconds, _ := strconv.ParseInt(parts[4], 10, 64)
	m.submitted = time.Unix(seconds, 0)
	return m
}
