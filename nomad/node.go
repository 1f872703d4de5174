package nomad

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/reconcile"
)

// node is a client of Nomad's with what is used on it.
type node struct {
	*api.Node
	name       string         // its own where no other node has it, else its id
	usable     bool           // it may be given allocations
	pools      []pool         // the first is the CPU
	room, left reconcile.Room // for all jobs, and what they leave of it; in MHz and MB
}

// pool is devices of one type.
type pool struct {
	typ   string
	total int // healthy ones
}

const (
	// ofWorkers is the type of what a worker without a device trains on, where the node's meta does not say it: the CPU's
	// model. A node is one such device.
	typeMeta     = "evenstep_type"
	cpuAttribute = "cpu.modelname"
)

func newNode(n *api.Node) *node {
	v := &node{Node: n, name: n.Name}
	v.usable = n.Status == "ready" && n.SchedulingEligibility == "eligible" && !n.Drain
	v.pools = []pool{{typ: v.cpuType(), total: 1}}
	if r := n.NodeResources; r != nil {
		v.room = reconcile.Room{CPUs: int(r.Cpu.CpuShares), Memory: int(r.Memory.MemoryMB)}
		for _, d := range r.Devices {
			v.addDevices(d)
		}
	}
	if r := n.ReservedResources; r != nil {
		v.room = reconcile.Room{CPUs: v.room.CPUs - int(r.Cpu.CpuShares), Memory: v.room.Memory - int(r.Memory.MemoryMB)}
	}
	v.left = v.room
	return v
}

func (n *node) cpuType() string {
	for _, typ := range []string{n.Meta[typeMeta], n.Attributes[cpuAttribute]} {
		if typ != "" {
			return typ
		}
	}
	return "cpu"
}

// addDevices adds a group's healthy devices. Two plugins that show devices of one name show the same ones.
func (n *node) addDevices(d *api.NodeDeviceResource) {
	healthy := 0
	for _, one := range d.Instances {
		if one.Healthy {
			healthy++
		}
	}
	p := n.pool(d.Name)
	if p == nil {
		n.pools = append(n.pools, pool{typ: d.Name})
		p = &n.pools[len(n.pools)-1]
	}
	p.total = max(p.total, healthy)
}

// pool is the node's devices of a type; nil where it has none.
func (n *node) pool(typ string) *pool {
	i := slices.IndexFunc(n.pools, func(p pool) bool { return p.typ == typ })
	if i < 0 {
		return nil
	}
	return &n.pools[i]
}

// in says whether the node is in the job's datacenters and pool. Servers before 1.6 have no pools.
func (n *node) in(datacenters []string, pool string) bool {
	return slices.ContainsFunc(datacenters, func(d string) bool { return globs(d, n.Datacenter) }) &&
		(pool == "all" || pool == n.NodePool || pool == "default" && n.NodePool == "")
}

// globs matches a pattern in which * stands for any text.
func globs(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	last := len(parts) - 1
	text, begins := strings.CutPrefix(text, parts[0])
	text, ends := strings.CutSuffix(text, parts[last])
	if !begins || !ends {
		return false
	}
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return true
}
