package nomadtest

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// outcome is what scheduling a job did.
type outcome struct {
	updates api.DesiredUpdates
	failed  *api.AllocationMetric
}

func (s *state) scheduleAll() {
	for _, j := range s.jobs {
		s.schedule(j)
	}
}

// schedule makes a job's allocations what the job says.
func (s *state) schedule(j *job) (done outcome) {
	if j.ParameterizedJob != nil && !j.Dispatched || j.Periodic != nil {
		return done
	}
	group := j.TaskGroups[0]
	taken := map[string]bool{} // names
	for _, a := range s.of(j) {
		n := s.node(a.NodeID)
		switch {
		case a.ClientTerminalStatus():
			// One of a batch job that has ended well is not started again by the version that it ran under, but is by others.
			// So it is with one whose tasks were killed, for which there was no place elsewhere.
			if a.ClientStatus == "complete" && *j.Type == "batch" && version(a) == *j.Version {
				taken[a.Name] = true
			}
		case a.DesiredStatus != "run":
		case *j.Stop:
			done.updates.Stop++
			s.end(a, "stop", "complete")
		case n.Status == "down":
			s.end(a, "stop", "lost")
		case n.Drain && !time.Now().Before(s.deadlines[n.ID]):
			done.updates.Migrate++
			s.end(a, "stop", "running") // its client ends it a moment later
		case version(a) == *j.Version:
			done.updates.Ignore++
			taken[a.Name] = true
		case s.destroys(a.Job, j) || !n.Drain && !s.fits(j, group, n, a):
			done.updates.DestructiveUpdate++
			if !slices.ContainsFunc(s.nodes, func(n *api.Node) bool { return s.fits(j, group, n, a) }) {
				taken[a.Name], done.failed = true, s.nowhere() // what would be replaced goes on where nothing can replace it
				break
			}
			s.end(a, "stop", "complete")
		default:
			done.updates.InPlaceUpdate++
			a.Job = &j.Job
			s.touch(a)
			taken[a.Name] = true
		}
	}
	s.place(j, group, taken, &done)
	return done
}

// place makes the allocations that are missing, as far as there are nodes for them.
func (s *state) place(j *job, group *api.TaskGroup, taken map[string]bool, done *outcome) {
	s.evals = slices.DeleteFunc(s.evals, func(e *api.Evaluation) bool {
		return e.JobID == *j.ID && e.Namespace == *j.Namespace
	})
	if *j.Stop {
		return
	}
	if strings.HasPrefix(*j.Type, "sys") {
		s.placeEverywhere(j, group, done)
		return
	}
	for i := range *group.Count {
		name := fmt.Sprintf("%s.%s[%d]", *j.ID, *group.Name, i)
		if taken[name] {
			continue
		}
		done.updates.Place++
		if !s.start(j, group, name) {
			done.updates.Place--
			done.failed = s.nowhere()
		}
	}
	if done.failed != nil {
		s.evals = append(s.evals, &api.Evaluation{ID: s.newID("eval"), JobID: *j.ID, Namespace: *j.Namespace,
			Status: "blocked", CreateTime: time.Now().UnixNano(), FailedTGAllocs: map[string]*api.AllocationMetric{*group.Name: done.failed}})
		s.event(api.TopicEvaluation, *j.ID)
	}
}

// placeEverywhere makes an allocation on each node that it fits on and that had none of the job; that there is no such node
// blocks nothing.
// nowhere is why an allocation is placed on no node.
func (s *state) nowhere() *api.AllocationMetric {
	return &api.AllocationMetric{ConstraintFiltered: map[string]int{"none fits": len(s.nodes)}}
}

func (s *state) placeEverywhere(j *job, group *api.TaskGroup, done *outcome) {
	for _, n := range s.nodes {
		has := slices.ContainsFunc(s.of(j), func(a *api.Allocation) bool { return a.NodeID == n.ID })
		if !has && s.startOn(n, j, group, fmt.Sprintf("%s.%s[0]", *j.ID, *group.Name)) {
			done.updates.Place++
		}
	}
}

// start makes an allocation on the last node that it fits on: another order than any of Evenstep's.
func (s *state) start(j *job, group *api.TaskGroup, name string) bool {
	for _, n := range slices.Backward(s.nodes) {
		if s.startOn(n, j, group, name) {
			return true
		}
	}
	return false
}

func (s *state) startOn(n *api.Node, j *job, group *api.TaskGroup, name string) bool {
	if n.Status != "ready" || n.SchedulingEligibility != "eligible" || !s.fits(j, group, n, nil) {
		return false
	}
	a := &api.Allocation{ID: s.newID("alloc"), Name: name, Namespace: *j.Namespace, JobID: *j.ID, Job: &j.Job,
		TaskGroup: *group.Name, NodeID: n.ID, NodeName: n.Name, DesiredStatus: "run", ClientStatus: "running", CreateTime: time.Now().UnixNano(),
		AllocatedResources: s.give(group, n)}
	s.touch(a)
	s.allocs = append(s.allocs, a)
	return true
}

func (s *state) touch(a *api.Allocation) {
	a.ModifyIndex = s.index
	s.event(api.TopicAllocation, a.ID)
}

func (s *state) end(a *api.Allocation, desired, client string) {
	a.DesiredStatus, a.ClientStatus = desired, client
	s.touch(a)
}

// version is that of the job which an allocation runs.
func version(a *api.Allocation) uint64 { return *a.Job.Version }

// destroys says whether a new version changes what Nomad cannot change in place.
func (s *state) destroys(before *api.Job, j *job) bool {
	bare := func(g api.TaskGroup) api.TaskGroup {
		g.Count, g.Constraints = nil, nil
		return g
	}
	return !reflect.DeepEqual(before.Meta, j.Meta) ||
		!reflect.DeepEqual(bare(*before.TaskGroups[0]), bare(*j.TaskGroups[0]))
}

// fits says whether a node may have an allocation, beside those that it has; but for one, which is to be replaced
// there.
func (s *state) fits(j *job, group *api.TaskGroup, n *api.Node, but *api.Allocation) bool {
	if *j.NodePool != "all" && *j.NodePool != n.NodePool {
		return false
	}
	constraints := append(slices.Clone(j.Constraints), group.Constraints...)
	for _, t := range group.Tasks {
		constraints = append(constraints, t.Constraints...)
	}
	for _, c := range constraints {
		if !s.satisfied(c, j, n, but) {
			return false
		}
	}
	var asks []string
	for _, d := range devicesOf(group) {
		asks = append(asks, d.Name)
		if free := s.free(n, d, but); uint64(len(free)) < *d.Count {
			return false
		}
	}
	cpu, memory := s.used(n, but)
	for _, t := range group.Tasks {
		cpu += int64(*t.Resources.CPU)
		memory += int64(*t.Resources.MemoryMB)
	}
	return cpu <= n.NodeResources.Cpu.CpuShares && memory <= n.NodeResources.Memory.MemoryMB && len(asks) <= 1
}

func (s *state) used(n *api.Node, but *api.Allocation) (cpu, memory int64) {
	for _, a := range s.allocs {
		if a.NodeID == n.ID && a != but && !a.ClientTerminalStatus() {
			for _, t := range a.AllocatedResources.Tasks {
				cpu += t.Cpu.CpuShares
				memory += t.Memory.MemoryMB
			}
		}
	}
	return cpu, memory
}

func (s *state) satisfied(c *api.Constraint, j *job, n *api.Node, but *api.Allocation) bool {
	if c.Operand == "distinct_hosts" {
		return !slices.ContainsFunc(s.of(j), func(a *api.Allocation) bool {
			return a != but && a.NodeID == n.ID && !a.ClientTerminalStatus()
		})
	}
	name := strings.TrimSuffix(strings.TrimPrefix(c.LTarget, "${"), "}")
	left := map[string]string{"node.unique.id": n.ID, "node.unique.name": n.Name, "node.class": n.NodeClass}[name]
	if attribute, is := strings.CutPrefix(name, "attr."); is {
		left = n.Attributes[attribute]
	}
	switch c.Operand {
	case "=":
		return left == c.RTarget
	case "!=":
		return left != c.RTarget
	case ">=":
		x, _ := strconv.ParseFloat(left, 64)
		y, _ := strconv.ParseFloat(c.RTarget, 64)
		return x >= y
	case "set_contains_any":
		return slices.Contains(strings.Split(c.RTarget, ","), left)
	}
	return false // the fake does not know the others
}

// devicesOf are the devices that a group asks for.
func devicesOf(group *api.TaskGroup) (all []*api.RequestedDevice) {
	for _, t := range group.Tasks {
		all = append(all, t.Resources.Devices...)
	}
	return all
}

// free are the devices of a node that an allocation could have: of one group, named by type or vendor/type[/name].
func (s *state) free(n *api.Node, wanted *api.RequestedDevice, but *api.Allocation) (ids []string) {
	for _, d := range n.NodeResources.Devices {
		full := d.Vendor + "/" + d.Type + "/" + d.Name
		if wanted.Name != d.Type && wanted.Name != d.Vendor+"/"+d.Type && wanted.Name != full {
			continue
		}
		for _, one := range d.Instances {
			held := slices.ContainsFunc(s.allocs, func(a *api.Allocation) bool {
				return a != but && a.NodeID == n.ID && !a.ClientTerminalStatus() && holds(a, d, one.ID)
			})
			if one.Healthy && !held {
				ids = append(ids, one.ID)
			}
		}
		if len(ids) > 0 {
			return ids
		}
	}
	return nil
}

func holds(a *api.Allocation, d *api.NodeDeviceResource, id string) bool {
	for _, t := range a.AllocatedResources.Tasks {
		for _, held := range t.Devices {
			if held.Vendor == d.Vendor && held.Type == d.Type && held.Name == d.Name && slices.Contains(held.DeviceIDs, id) {
				return true
			}
		}
	}
	return false
}

// give is what an allocation gets of a node.
func (s *state) give(group *api.TaskGroup, n *api.Node) *api.AllocatedResources {
	all := &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{}}
	for _, t := range group.Tasks {
		r := &api.AllocatedTaskResources{Cpu: api.AllocatedCpuResources{CpuShares: int64(*t.Resources.CPU)},
			Memory: api.AllocatedMemoryResources{MemoryMB: int64(*t.Resources.MemoryMB)}}
		for _, wanted := range t.Resources.Devices {
			ids := s.free(n, wanted, nil)[:*wanted.Count]
			for _, d := range n.NodeResources.Devices {
				if slices.ContainsFunc(d.Instances, func(one *api.NodeDevice) bool { return one.ID == ids[0] }) {
					given := &api.AllocatedDeviceResource{Vendor: d.Vendor, Type: d.Type, Name: d.Name, DeviceIDs: ids}
					r.Devices = append(r.Devices, given)
				}
			}
		}
		all.Tasks[t.Name] = r
	}
	return all
}

// due says whether a task has ended or a drain is over by now.
func (s *state) due(now time.Time) bool {
	for _, a := range s.allocs {
		if !a.ClientTerminalStatus() && (a.DesiredStatus != "run" || ends(a, now)) {
			return true
		}
		n := s.node(a.NodeID)
		if !a.ClientTerminalStatus() && n.Drain && now.After(s.deadlines[n.ID]) {
			return true
		}
	}
	return false
}

// ends says whether an allocation's `sleep SECONDS` is over.
func ends(a *api.Allocation, now time.Time) bool {
	args, _ := a.Job.TaskGroups[0].Tasks[0].Config["args"].([]any)
	if len(args) == 0 {
		return false
	}
	seconds, err := strconv.ParseFloat(fmt.Sprint(args[0]), 64)
	return err == nil && now.Sub(time.Unix(0, a.CreateTime)).Seconds() > seconds
}

// advance ends what is over, and lets others take its place.
func (s *state) advance(now time.Time) {
	for _, a := range s.allocs {
		if !a.ClientTerminalStatus() && (a.DesiredStatus != "run" || ends(a, now)) {
			s.end(a, a.DesiredStatus, "complete")
		}
	}
	s.scheduleAll()
}
