package nomad

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/request"
)

// metaKey is what a job asks for Evenstep with.
const metaKey = "evenstep"

// patience is how long a job's allocations may miss each other before the missing ones are left to Nomad.
const patience = 30 * time.Second

// job is one that asks for Evenstep, and is not done.
type job struct {
	stub
	name string // towards users
	spec *spec
	mark *mark // nil where it is neither held nor placed
	// live are its allocations that run or are about to; of a job that was placed only those since. ran says that there
	// were others, which ended.
	live    []*api.AllocationListStub
	ran     bool
	blocked time.Time // since when Nomad finds no node for an allocation of it; zero while it does
	// stopped is one that Nomad stopped and takes for done, so that it starts no other; nil in general. ended says that
	// there are some that are done.
	stopped *api.AllocationListStub
	ended   bool
	short   bool // it lacks an allocation that Nomad starts no more where the job is to be
	// givenUp says why it is let go whatever a plan says; empty in general.
	givenUp string
}

func (j *job) started() bool { return len(j.live) > 0 || j.ran }

// submitted is when the user submitted it.
func (j *job) submitted() time.Time {
	if j.mark != nil && !j.mark.held() {
		return j.mark.submitted
	}
	return time.Unix(0, j.SubmitTime)
}

// count is the user's.
func (j *job) count() int {
	if j.mark != nil && !j.mark.held() {
		return j.mark.count
	}
	return j.spec.count()
}

// job is a job in the words of reconcile.
func (v *view) job(j *job) reconcile.Job {
	r := reconcile.Job{ID: j.name, Waited: v.since(j.submitted())}
	switch {
	case j.mark == nil:
		r.Unsteerable = "it is not held, so Nomad places it"
	case j.mark.held():
		r.Held, r.Lease = !j.started() && !j.spec.Dispatched, v.holdLimit
	case j.started():
		r.State, r.For = reconcile.Running, v.since(j.begins(v.now))
	default:
		r.State, r.For = reconcile.Named, v.since(time.Unix(0, j.SubmitTime))
	}
	if len(j.live) > 0 && (j.mark == nil || j.mark.held()) {
		r.State, r.For = reconcile.Running, v.since(j.begins(v.now))
		r.Unsteerable = "it runs where Nomad placed it"
		if j.mark != nil {
			r.Unsteerable = "what runs was registered before, and this waits for its end; stop the job and run it again"
		}
	}
	if r.Unsteerable == "" {
		r.Unsteerable = v.steerable(j, &r)
	}
	if r.State == reconcile.Running && r.Unsteerable == "" {
		why := v.broken(j)
		j.short = why != ""
		switch {
		case !j.short:
		case j.stuck():
			r.Unsteerable = fmt.Sprintf("its allocation on node %s was stopped, which Nomad takes for done; to start another "+
				"would start those anew that have ended: stop the job and run it again", j.stopped.NodeName)
		default:
			// Named is what lets it be released: its constraint is all that keeps Nomad from completing it.
			r.State, r.Unsteerable = reconcile.Named, why
		}
	}
	return r
}

// stuck says that the job lacks an allocation that nothing can start, others apart: what Nomad takes for done it starts
// anew with the job's next version only, and with it those that are done.
func (j *job) stuck() bool { return j.stopped != nil && j.ended }

// setStopped finds, among all allocations of a placed job, one that Nomad stopped and takes for done. That is how a
// batch job's allocation ends up on a node that is drained: its tasks were killed, so none of them failed; and as soon
// as it is gone Nomad counts it among those that ended well, where it has found no place for another until then.
func (j *job) setStopped(all []*api.AllocationListStub) {
	if j.spec.Type != api.JobTypeBatch || !j.blocked.IsZero() {
		return
	}
	kept := map[string]bool{} // names of those that run, are done, or are Nomad's to start again
	for _, a := range all {
		if a.DesiredStatus == api.AllocDesiredStatusRun {
			kept[a.Name] = true
			j.ended = j.ended || a.ClientStatus == api.AllocClientStatusComplete
		}
	}
	for _, a := range all {
		killed := a.DesiredStatus == api.AllocDesiredStatusStop && a.ClientStatus == api.AllocClientStatusComplete
		if killed && !kept[a.Name] && len(kept) < j.spec.count() {
			j.stopped = a
		}
	}
}

// since is how long ago something was by Nomad's clock, which may be ahead of ours.
func (v *view) since(t time.Time) time.Duration { return max(0, v.now.Sub(t)) }

// begins is when the first of its allocations was made.
func (j *job) begins(now time.Time) time.Time {
	first := now
	for _, a := range j.live {
		if t := time.Unix(0, a.CreateTime); t.Before(first) {
			first = t
		}
	}
	return first
}

// steerable fills in what the job may have, or says why it is left to Nomad.
func (v *view) steerable(j *job, r *reconcile.Job) string {
	if !j.asks() {
		return "it is held, and does not ask for Evenstep: it has no meta evenstep"
	}
	words, err := request.Parse(j.Meta[metaKey])
	if err != nil {
		return "meta evenstep: " + err.Error()
	}
	if _, err := variablePath(j.ID); err != nil {
		return err.Error()
	}
	if j.spec.Dispatched {
		return "it was dispatched, and Nomad lets nobody change such a job; give the one that it comes from no hold"
	}
	n, why := j.spec.need()
	if why != "" {
		return why
	}
	if j.givenUp != "" {
		return j.givenUp
	}
	r.Request, r.PerNode = *words, n.perNode
	r.MinNodes, r.MaxNodes = j.count(), j.count()
	if words.MaxWorkers > 0 {
		r.MinNodes, r.MaxNodes = 1, math.MaxInt32
	}
	if r.MaxNodes < 1 {
		return "its count is 0"
	}
	if why := r.NarrowByWorkers(); why != "" {
		return why
	}
	if why := v.allow(r, &n); why != "" && r.State == reconcile.Waiting {
		return why
	}
	r.Crowded = r.State == reconcile.Waiting && v.crowded[j.NodePool]
	if r.State != reconcile.Waiting {
		r.On = v.on(j, &n)
	}
	return ""
}

// allow fills in nodes and types of devices that the job may have, and says why there is none. A node that has a type
// which the job gets elsewhere but not there is left out.
func (v *view) allow(r *reconcile.Job, n *need) (why string) {
	types, excluded := map[string]string{}, map[string]int{} // by node; by why
	r.Nodes, r.Types, r.Needs = []string{}, []string{}, n.room
	for _, on := range v.nodes {
		typ, why := n.typeOn(on)
		if why != "" {
			excluded[why]++
			continue
		}
		types[on.name] = typ
		if !slices.Contains(r.Types, typ) {
			r.Types = append(r.Types, typ)
		}
	}
	for _, on := range v.nodes {
		typ, ok := types[on.name]
		another := func(p pool) bool { return p.typ != typ && slices.Contains(r.Types, p.typ) }
		switch {
		case !ok:
		case slices.ContainsFunc(on.pools, another):
			excluded["devices of several types"]++
		default:
			r.Nodes = append(r.Nodes, on.name)
		}
	}
	if len(r.Nodes) > 0 {
		return ""
	}
	words := []string{}
	for _, why := range slices.Sorted(maps.Keys(excluded)) {
		words = append(words, fmt.Sprintf("%d by %s", excluded[why], why))
	}
	return "no node can have it; excluded are " + cmp.Or(strings.Join(words, ", "), "none: there are no nodes")
}

// on are the job's devices: on the nodes that it was given.
func (v *view) on(j *job, n *need) []placement.Share {
	var shares []placement.Share
	for _, on := range v.nodes {
		if !slices.Contains(j.mark.nodes, on.ID) {
			continue
		}
		if typ, why := n.typeOn(on); why == "" {
			shares = append(shares, placement.Share{Node: on.name, Type: typ, Count: n.perNode})
		}
	}
	return shares
}

// broken says why a job that was placed lacks allocations that Nomad cannot place where they were planned.
func (v *view) broken(j *job) string {
	if j.blocked.IsZero() && j.stopped == nil {
		return ""
	}
	for _, id := range j.mark.nodes {
		if n := v.byID[id]; n == nil || !n.usable {
			return fmt.Sprintf("node %s is gone", v.called(id))
		}
	}
	if j.stopped != nil {
		return fmt.Sprintf("its allocation on node %s was stopped", j.stopped.NodeName)
	}
	if v.since(j.blocked) > patience {
		return "one of its nodes has no place for it"
	}
	return ""
}

// called is a node's name, or its id where it is not known any more.
func (v *view) called(id string) string {
	if n := v.byID[id]; n != nil {
		return n.name
	}
	return id
}
