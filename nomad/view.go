package nomad

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/reconcile"
)

// key names a job.
type key struct{ namespace, id string }

// stub is a job as the list of jobs tells it.
type stub struct {
	api.JobListStub
	NodePool string
}

func (s *stub) key() key { return key{s.Namespace, s.ID} }

// view is one look at a cluster.
type view struct {
	now       time.Time
	holdLimit time.Duration
	nodes     []*node // by name
	byID      map[string]*node
	jobs      []*job                    // who asked for Evenstep, and is not done
	allocs    []*api.AllocationListStub // of all jobs, that hold what they were given
	crowded   map[string]bool           // node pools in which jobs that are none of ours wait for nodes
}

// setNodes takes the nodes. One whose name is not its own goes by its id.
func (v *view) setNodes(all []*api.Node) {
	v.byID = map[string]*node{}
	count := map[string]int{}
	for _, n := range all {
		v.byID[n.ID] = newNode(n)
		v.nodes = append(v.nodes, v.byID[n.ID])
		count[n.Name]++
	}
	for _, n := range v.nodes {
		if count[n.Name] > 1 {
			n.name = n.ID
		}
	}
	slices.SortFunc(v.nodes, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
}

// setAllocs takes the allocations, and what they leave of the nodes' room.
func (v *view) setAllocs(all []*api.AllocationListStub) {
	v.allocs = all
	for _, a := range all {
		n := v.byID[a.NodeID]
		if n == nil || a.AllocatedResources == nil {
			continue
		}
		for _, t := range a.AllocatedResources.Tasks {
			n.left.CPUs -= int(t.Cpu.CpuShares)
			n.left.Memory -= int(t.Memory.MemoryMB)
		}
	}
}

// snapshot is the view in the words of reconcile.
func (v *view) snapshot() *reconcile.Snapshot {
	s := &reconcile.Snapshot{Room: map[string]reconcile.Room{}}
	steered := map[key]bool{} // those whose devices are part of the plan
	onCPU := map[key]bool{}
	for _, j := range v.jobs {
		r := v.job(j)
		steered[j.key()] = r.State == reconcile.Running && r.Unsteerable == ""
		if n, why := j.spec.need(); why == "" && n.device == nil {
			onCPU[j.key()] = true
		}
		s.Jobs = append(s.Jobs, r)
	}
	held := v.devices(onCPU)
	for _, n := range v.nodes {
		s.Room[n.name] = n.left
		for i, p := range n.pools {
			if i == 0 && len(onCPU) == 0 {
				continue
			}
			ours, others := 0, 0
			for k, count := range held[use{n.ID, p.typ}] {
				if steered[k] {
					ours += count
				} else {
					others += count
				}
			}
			if !n.usable {
				others = p.total
			}
			s.Pools = append(s.Pools, reconcile.Pool{Node: n.name, Type: p.typ, Total: p.total,
				Others: max(0, min(others, p.total-ours))})
		}
	}
	return s
}

// use is devices of a type on a node.
type use struct{ node, typ string }

// devices are how many each job holds. A job of ours on a CPU holds the node's.
func (v *view) devices(onCPU map[key]bool) map[use]map[key]int {
	held := map[use]map[key]int{}
	add := func(u use, k key, count int) {
		if held[u] == nil {
			held[u] = map[key]int{}
		}
		held[u][k] += count
	}
	for _, a := range v.allocs {
		k := key{a.Namespace, a.JobID}
		if n := v.byID[a.NodeID]; n != nil && onCPU[k] {
			add(use{n.ID, n.cpuType()}, k, 1)
		}
		if a.AllocatedResources == nil {
			continue
		}
		for _, t := range a.AllocatedResources.Tasks {
			for _, d := range t.Devices {
				add(use{a.NodeID, d.Name}, k, len(d.DeviceIDs))
			}
		}
	}
	return held
}
