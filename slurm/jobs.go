package slurm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/request"
)

// view is one look at a cluster.
type view struct {
	now          time.Time
	nodes        []node
	partitions   map[string]group
	reservations map[string]group
	queue        []entry
	details      map[string]detail // of our jobs that wait
	countsMemory bool              // Slurm gives out memory as it gives out cores
}

// asked is a job of ours with what its comment says.
type asked struct {
	entry
	request *request.Request
	note    Note
	err     error // in the comment
}

// ours are the jobs whose comment asks for Evenstep.
func (v *view) ours() []asked {
	var jobs []asked
	for _, e := range v.queue {
		if r, note, err := ParseComment(e.comment); r != nil || err != nil {
			jobs = append(jobs, asked{e, r, note, err})
		}
	}
	return jobs
}

func (e *entry) waits() bool { return e.state == "PENDING" }

// holdsDevices says whether a job is on its nodes.
func (e *entry) holdsDevices() bool {
	return slices.Contains([]string{"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING"}, e.state)
}

// snapshot is the view in the words of reconcile.
func (v *view) snapshot() *reconcile.Snapshot {
	s := &reconcile.Snapshot{Room: map[string]reconcile.Room{}}
	held := map[string]map[string]int{} // devices of our jobs, by node and type
	crowded := v.crowded()
	for _, a := range v.ours() {
		j := reconcile.Job{ID: a.id}
		switch {
		case a.waits():
			if j = v.waiting(a); j.Unsteerable == "" {
				j.Crowded = crowded[a.partition]
			}
		case a.holdsDevices():
			if j = v.running(a); j.Unsteerable != "" {
				continue // its devices count as others'
			}
			for _, on := range j.On {
				if held[on.Node] == nil {
					held[on.Node] = map[string]int{}
				}
				held[on.Node][on.Type] += on.Count
			}
		default:
			continue
		}
		s.Jobs = append(s.Jobs, j)
	}
	for _, n := range v.nodes {
		s.Room[n.name] = n.left
		for _, typ := range sorted(n.devices) {
			p := reconcile.Pool{Node: n.name, Type: typ, Total: n.devices[typ]}
			ours := min(held[n.name][typ], p.Total)
			p.Others = max(0, min(p.Total, n.used[typ])-ours)
			if !n.usable {
				p.Others = p.Total - ours
			}
			s.Pools = append(s.Pools, p)
		}
	}
	return s
}

func sorted(devices map[string]int) []string {
	var types []string
	for t := range devices {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// crowded are the partitions in which jobs that are none of ours wait for nodes.
func (v *view) crowded() map[string]bool {
	ours := map[string]bool{}
	for _, a := range v.ours() {
		ours[a.id] = true
	}
	crowded := map[string]bool{}
	for _, e := range v.queue {
		if e.waits() && !ours[e.id] && (e.reason == "Resources" || e.reason == "Priority") {
			for _, p := range strings.Split(e.partition, ",") {
				crowded[p] = true
			}
		}
	}
	return crowded
}

// requeued is how far ahead the begin time of a job is that was named its nodes, when Slurm has put it back into the queue;
// that of others is past, but for clocks that differ.
const requeued = 30 * time.Second

// waiting is a job that waits, with the reason where it cannot be steered.
func (v *view) waiting(a asked) reconcile.Job {
	d := v.details[a.id]
	if d.eligible.IsZero() { // not known for certain
		d.eligible = a.begins
	}
	left := d.eligible.Sub(v.now)
	j := reconcile.Job{
		ID: a.id, MinNodes: d.minNodes, MaxNodes: d.maxNodes, Waited: v.now.Sub(a.submitted),
		Held: a.note.Held && left > 0, Lease: max(0, left),
	}
	j.Unsteerable = v.steerable(a, d, &j)
	if j.Unsteerable != "" {
		return j
	}
	j.Request = *a.request
	if a.note.MaxNodes > 0 {
		j.State, j.For = reconcile.Named, v.now.Sub(d.eligible)
		// The owner may have written the note: it never gives more nodes than the job has now.
		j.MinNodes = min(d.minNodes, a.note.MinNodes)
		names, _ := hosts(a.required)
		j.On = v.shares(names, j.Type, j.PerNode)
	}
	if why := j.NarrowByWorkers(); why != "" {
		j.Unsteerable = why
	}
	return j
}

// steerable fills in what the job may have, or says why it is left to Slurm.
func (v *view) steerable(a asked, d detail, j *reconcile.Job) string {
	partition, known := v.partitions[a.partition]
	switch {
	case a.err != nil:
		return "comment: " + a.err.Error()
	case a.note.Released:
		return "it was released"
	case d.odd != "":
		return d.odd
	case d.minNodes == 0:
		return "scontrol does not show it"
	case strings.Contains(a.id, "+"):
		return "it is a heterogeneous job"
	case a.dependency != "":
		return "it depends on other jobs"
	case a.licences != "":
		return "it asks for licences"
	case strings.HasPrefix(a.reason, "JobHeld"):
		return "it is held: " + a.reason
	case j.Lease > 0 && !a.note.Held && a.note.MaxNodes == 0:
		return "its begin time is the user's own"
	case j.Lease > requeued && a.note.MaxNodes > 0:
		return "it was started before, and Slurm has it wait to start again"
	case strings.Contains(a.partition, ","):
		return "it names several partitions"
	case !known || !partition.up:
		return fmt.Sprintf("partition %s is not up", a.partition)
	case strings.ContainsAny(a.features, "|[]()*!"):
		return fmt.Sprintf("its features are %.80q; plain ones and A&B are steered", a.features)
	}
	var err error
	if j.Type, j.PerNode, err = perNode(a.perNode); err != nil {
		return err.Error()
	}
	required, excluded := a.required, a.excluded
	if a.note.MaxNodes > 0 {
		required = a.note.Required
	}
	if j.Required, err = hosts(required); err != nil {
		return err.Error()
	}
	without, err := hosts(excluded)
	if err != nil {
		return err.Error()
	}
	j.Nodes = v.allowed(a, partition, without, j.Type)
	return v.makeRoom(d, j)
}

// makeRoom fills in what the job needs of each node beside devices, and leaves it the nodes that have so much in all.
func (v *view) makeRoom(d detail, j *reconcile.Job) string {
	threads := 1
	for _, n := range v.nodes {
		threads = max(threads, n.threads)
	}
	j.Needs = d.needs.room(j.PerNode, threads)
	if !v.countsMemory {
		j.Needs.Memory = 0
	} else if j.Needs.Memory == 0 {
		return "it asks for all the memory of its nodes; give --mem=, --mem-per-cpu= or --mem-per-gpu="
	}
	before := len(j.Nodes)
	j.Nodes = slices.DeleteFunc(j.Nodes, func(name string) bool {
		i := slices.IndexFunc(v.nodes, func(n node) bool { return n.name == name })
		return !v.nodes[i].room.Holds(j.Needs)
	})
	if len(j.Nodes) < j.MinNodes && len(j.Nodes) < before {
		return fmt.Sprintf("%d of its nodes have the %d CPUs and %d MB that it asks for on each of %d", len(j.Nodes), j.Needs.CPUs,
			j.Needs.Memory, j.MinNodes)
	}
	return ""
}

// allowed are the nodes that the job may have.
func (v *view) allowed(a asked, partition group, without []string, typ string) []string {
	nodes := []string{}
	for _, n := range v.nodes {
		fits := slices.Contains(partition.nodes, n.name) && !slices.Contains(without, n.name) &&
			(typ != "" || len(n.devices) == 1) // else Slurm chooses which type it gets
		if a.features != "" {
			for _, f := range strings.FieldsFunc(a.features, func(r rune) bool { return r == '&' || r == ',' }) {
				fits = fits && slices.Contains(n.features, f)
			}
		}
		for name, r := range v.reservations {
			if reserved := slices.Contains(r.nodes, n.name); reserved && r.up && name != a.reservation ||
				name == a.reservation && !reserved {
				fits = false
			}
		}
		if fits {
			nodes = append(nodes, n.name)
		}
	}
	return nodes
}

// running is a job on its nodes.
func (v *view) running(a asked) reconcile.Job {
	j := reconcile.Job{ID: a.id, State: reconcile.Running, Waited: v.now.Sub(a.submitted), For: v.now.Sub(a.begins)}
	names, err := hosts(a.nodes)
	if err == nil {
		err = a.err
	}
	if err == nil {
		j.Type, j.PerNode, err = perNode(a.perNode)
	}
	if err != nil {
		j.Unsteerable = err.Error()
		return j
	}
	j.Request = *a.request
	j.MinNodes, j.MaxNodes = len(names), len(names)
	if j.On = v.shares(names, j.Type, j.PerNode); len(j.On) != len(names) {
		j.Unsteerable = "its devices are not known"
	}
	return j
}

// shares are the job's devices on the nodes; of its type, or else of the one that the node has most of.
func (v *view) shares(names []string, typ string, count int) []placement.Share {
	var shares []placement.Share
	for _, n := range v.nodes {
		if !slices.Contains(names, n.name) {
			continue
		}
		here := typ
		if here == "" {
			for _, t := range sorted(n.devices) {
				if here == "" || n.devices[t] > n.devices[here] {
					here = t
				}
			}
		}
		if n.devices[here] >= count {
			shares = append(shares, placement.Share{Node: n.name, Type: here, Count: count})
		}
	}
	return shares
}
