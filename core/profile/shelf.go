package profile

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// shelf is the profiles of one workload.
type shelf struct {
	types map[string]*kin // by device type, at most mostTypes
}

// kin is the profiles of one workload on the devices of one type.
type kin struct {
	column   string             // what column says of the type
	devices  map[string]Profile // at most mostDevices
	lastSeen time.Time
	pooled   *Profile // of all devices; nil when not up to date
}

// add merges a later profile into those there are, and makes room for it where there are too many: those that were not
// seen for longest go. It says by how many profiles there are more.
func (s *shelf) add(k Key, column string, later Profile) (more int) {
	t := s.types[k.Type]
	if t == nil {
		if len(s.types) == mostTypes {
			longest := oldest(s.types, func(t *kin) time.Time { return t.lastSeen })
			more -= len(s.types[longest].devices)
			delete(s.types, longest)
		}
		t = &kin{column: column, devices: map[string]Profile{}}
		s.types[k.Type] = t
	}
	if before, ok := t.devices[k.Device]; ok {
		later = before.merge(later)
	} else {
		if len(t.devices) == mostDevices {
			delete(t.devices, oldest(t.devices, func(p Profile) time.Time { return p.LastSeen }))
			more--
		}
		more++
	}
	t.devices[k.Device] = later
	t.lastSeen, t.pooled = latest(t.lastSeen, later.LastSeen), nil
	return more
}

// oldest is the key of what was not seen for longest.
func oldest[V any](all map[string]V, lastSeen func(V) time.Time) string {
	return slices.MinFunc(slices.Sorted(maps.Keys(all)), func(a, b string) int {
		return lastSeen(all[a]).Compare(lastSeen(all[b]))
	})
}

// names are the types, sorted.
func (s *shelf) names() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.types))
}

// lastSeen is when the workload was seen last, on any device.
func (s *shelf) lastSeen() (last time.Time) {
	for _, t := range s.types {
		last = latest(last, t.lastSeen)
	}
	return last
}

// ofType pools the profiles on a device type. Where there are none under that name, those of the same model under other
// names count.
func (s *shelf) ofType(deviceType, column string) (Profile, bool) {
	if s == nil {
		return Profile{}, false
	}
	if t := s.types[deviceType]; t != nil {
		return t.pool(), true
	}
	var names []string
	for name, t := range s.types {
		if t.column == column {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return Profile{}, false
	}
	slices.Sort(names)
	var alike []Profile
	for _, name := range names {
		alike = append(alike, s.types[name].sorted()...)
	}
	return pool(alike), true
}

func (t *kin) pool() Profile {
	if t.pooled == nil {
		p := pool(t.sorted())
		t.pooled = &p
	}
	return *t.pooled
}

// sorted are the profiles by device, since sums depend on the order.
func (t *kin) sorted() (profiles []Profile) {
	for _, device := range slices.Sorted(maps.Keys(t.devices)) {
		profiles = append(profiles, t.devices[device])
	}
	return profiles
}

// shelved is a workload with its shelf.
type shelved struct {
	workload string
	*shelf
}

// lastFirst sorts workloads: the one seen last first, those seen at the same time by name.
func lastFirst(all []shelved) {
	seen := make(map[string]time.Time, len(all))
	for _, s := range all {
		seen[s.workload] = s.lastSeen()
	}
	slices.SortFunc(all, func(a, b shelved) int {
		return cmp.Or(seen[b.workload].Compare(seen[a.workload]), cmp.Compare(a.workload, b.workload))
	})
}
