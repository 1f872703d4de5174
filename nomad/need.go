package nomad

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/reconcile"
)

// need is what one allocation of a job needs of its node.
type need struct {
	spec    *spec
	group   *group
	device  *device        // nil where a worker trains on the node's CPU
	perNode int            // devices, or 1
	room    reconcile.Room // at least, in MHz and MB
}

// need reads what the job needs; why says what is not steered.
func (s *spec) need() (n need, why string) {
	switch {
	case s.Type != api.JobTypeBatch && s.Type != api.JobTypeService:
		return n, fmt.Sprintf("its type is %s; batch and service are steered", s.Type)
	case s.Multiregion != nil:
		return n, "it runs in several regions"
	case len(s.TaskGroups) != 1:
		return n, fmt.Sprintf("it has %d task groups; one is steered", len(s.TaskGroups))
	}
	n = need{spec: s, group: &s.TaskGroups[0], perNode: 1}
	for _, t := range n.group.Tasks {
		if t.Lifecycle == nil || t.Lifecycle.Sidecar {
			n.room = reconcile.Room{CPUs: n.room.CPUs + t.Resources.CPU, Memory: n.room.Memory + t.Resources.MemoryMB}
		}
		for _, d := range t.Resources.Devices {
			if n.device != nil {
				return n, "it asks for devices twice; one device block is steered"
			}
			n.device, n.perNode = &d, 1
			if d.Count != nil {
				n.perNode = int(min(*d.Count, mostDevices))
			}
		}
	}
	if n.perNode < 1 {
		return n, "it asks for 0 devices"
	}
	return n, ""
}

// mostDevices bounds the devices of one node that a job may ask for.
const mostDevices = 1 << 16

// typeOn is the type of devices that the job gets on a node. why says what keeps it from there: it can get none, or
// Nomad would choose among several types.
func (n *need) typeOn(on *node) (typ, why string) {
	if why := n.excludes(on); why != "" {
		return "", why
	}
	if n.device == nil {
		return on.cpuType(), ""
	}
	why = "device " + n.device.Name
	for _, d := range on.NodeResources.Devices {
		if !named(n.device.Name, d) {
			continue
		}
		if !deviceMeets(d, n.device.Constraints) {
			if typ == "" {
				why = "the constraints on device " + n.device.Name
			}
			continue
		}
		if typ != "" && typ != d.Name {
			return "", "several types of device " + n.device.Name
		}
		typ, why = d.Name, ""
	}
	return typ, why
}

// excludes says what keeps an allocation of the job from a node, devices aside; empty where nothing does.
func (n *need) excludes(on *node) string {
	if on.NodeResources == nil || !on.in(n.spec.Datacenters, n.spec.NodePool) {
		return "its datacenters and node pool"
	}
	for _, t := range n.group.Tasks {
		if d := on.Drivers[t.Driver]; d == nil || !d.Detected || !d.Healthy {
			return "driver " + t.Driver
		}
	}
	for _, c := range n.spec.allConstraints() {
		if !on.meets(c) {
			return fmt.Sprintf("%s %s %s", c.LTarget, c.Operand, c.RTarget)
		}
	}
	for _, v := range n.group.Volumes {
		if v.Type == "host" && on.HostVolumes[v.Source] == nil {
			return "host volume " + v.Source
		}
	}
	switch room := on.room; {
	case room.CPUs < n.room.CPUs:
		return fmt.Sprintf("%d MHz of CPU", n.room.CPUs)
	case room.Memory < n.room.Memory:
		return fmt.Sprintf("%d MB of memory", n.room.Memory)
	}
	return ""
}

// named says whether a job asks for such devices: by type, vendor/type or vendor/type/name.
func named(wanted string, d *api.NodeDeviceResource) bool {
	switch parts := strings.SplitN(wanted, "/", 3); len(parts) {
	case 1:
		return wanted == d.Type
	case 2:
		return slices.Equal(parts, []string{d.Vendor, d.Type})
	default:
		return slices.Equal(parts, []string{d.Vendor, d.Type, d.Name})
	}
}

// distinct says whether the user has each allocation on a node of its own.
func (n *need) distinct() bool {
	return slices.ContainsFunc(n.spec.allConstraints(), func(c api.Constraint) bool {
		return c.Operand == api.ConstraintDistinctHosts
	})
}
