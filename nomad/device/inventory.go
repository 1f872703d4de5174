package device

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/devices"
)

const (
	// grace is how long a device may be missing from what the agent sees and count as there: the agent's own plugins
	// restart, and drivers do.
	grace = 30 * time.Second
	// memory is how long a device that is missing is shown as such. MIG devices come and go for good.
	memory = time.Hour
)

// inventory is the devices of the node that a job may have, seen now or not long ago. Its zero value is empty.
type inventory struct {
	seen map[string]*sighting // by UUID
}

// sighting is a device as it was seen last.
type sighting struct {
	devices.Device
	missing time.Time // since when reports do not have it; zero while they do
	why     string    // it may not be used; empty while it may
}

// learn takes a report of the agent's. What has no UUID or no type cannot be given to a job.
func (v *inventory) learn(r devices.Report, now time.Time) {
	old := v.seen
	v.seen = make(map[string]*sighting, len(old))
	whole := make(map[string]bool) // by UUID of GPUs: whether it is, or is divided
	for _, d := range r.Devices {
		if (d.Kind != devices.GPU && d.Kind != devices.MIG) || d.UUID == "" || d.Type == "" {
			continue
		}
		whole[cmp.Or(d.Parent, d.UUID)] = d.Kind == devices.GPU
		if was := old[d.UUID]; was != nil {
			keep(&d, &was.Device)
		}
		v.seen[d.UUID] = &sighting{Device: d}
	}
	for uuid, s := range old {
		isWhole, there := whole[cmp.Or(s.Parent, uuid)]
		divided := there && isWhole != (s.Kind == devices.GPU) // or no longer: it is other devices now
		if v.seen[uuid] == nil && !divided && s.miss(r.Notes, now) {
			v.seen[uuid] = s
		}
	}
}

// keep keeps what a device is like through a report that does not know it: drivers fail at times.
func keep(d, was *devices.Device) {
	d.MemoryBytes = cmp.Or(d.MemoryBytes, was.MemoryBytes)
	d.SMClockMaxMHz = cmp.Or(d.SMClockMaxMHz, was.SMClockMaxMHz)
	d.MemoryClockMaxMHz = cmp.Or(d.MemoryClockMaxMHz, was.MemoryClockMaxMHz)
	d.Cores = cmp.Or(d.Cores, was.Cores)
	d.ComputeCapability = cmp.Or(d.ComputeCapability, was.ComputeCapability)
	d.PCI = cmp.Or(d.PCI, was.PCI)
}

// miss takes a report that does not have the device, and says whether it is remembered. Why it may not be used is what
// the notes said as the grace ended: Nomad takes another reason for a change of the node.
func (s *sighting) miss(notes []string, now time.Time) (remembered bool) {
	if s.missing.IsZero() {
		s.missing = now
	}
	if s.why == "" && now.Sub(s.missing) >= grace {
		s.why = plugin.Line(strings.Join(append([]string{"the agent does not see it"}, notes...), "; "))
	}
	return now.Sub(s.missing) < memory
}

// excuse begins the grace of what is missing anew: while there are no reports, nothing is known of it.
func (v *inventory) excuse() {
	for _, s := range v.seen {
		if s.why == "" {
			s.missing = time.Time{}
		}
	}
}

// all are the devices by kind, type and UUID.
func (v *inventory) all() []*sighting {
	return slices.SortedFunc(maps.Values(v.seen), func(a, b *sighting) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Type, b.Type), cmp.Compare(a.UUID, b.UUID))
	})
}

// types are those of the devices, each once.
func (v *inventory) types() (types []string) {
	for _, s := range v.all() {
		if !slices.Contains(types, s.Type) {
			types = append(types, s.Type)
		}
	}
	return types
}
