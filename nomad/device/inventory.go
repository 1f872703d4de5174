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
	seen  map[string]*sighting // by UUID
	notes []string             // of the newest report
}

// sighting is a device as it was seen last.
type sighting struct {
	devices.Device
	missing time.Time // since when reports do not have it; zero while they do
}

// learn takes a report of the agent's. What has no UUID or no type cannot be given to a job.
func (v *inventory) learn(r devices.Report, now time.Time) {
	old := v.seen
	v.seen, v.notes = make(map[string]*sighting, len(old)), r.Notes
	for _, d := range r.Devices {
		if (d.Kind == devices.GPU || d.Kind == devices.MIG) && d.UUID != "" && d.Type != "" {
			v.seen[d.UUID] = &sighting{Device: d}
		}
	}
	for uuid, s := range old {
		if v.seen[uuid] != nil {
			continue
		}
		if s.missing.IsZero() {
			s.missing = now
		}
		if now.Sub(s.missing) < memory {
			v.seen[uuid] = s
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

// health says whether a device may be used, and if not, why.
func (v *inventory) health(s *sighting, now time.Time) (healthy bool, why string) {
	if s.missing.IsZero() || now.Sub(s.missing) < grace {
		return true, ""
	}
	return false, plugin.Line(strings.Join(append([]string{"the agent does not see it"}, v.notes...), "; "))
}
