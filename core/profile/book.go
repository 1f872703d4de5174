package profile

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/speed"
)

const (
	// mostProfiles bounds the profiles of a book and of a file, mostTypes the device types of one workload, and mostDevices
	// the devices of one workload on one type. The ones seen last stay.
	mostProfiles = 1 << 16
	mostTypes    = 64
	mostDevices  = 64
)

// Sighting is what a job showed of a device since it last said.
type Sighting struct {
	Curve              speed.Learned
	CommunicateSeconds float64 // 0 is not known
	MemoryPerSample    float64 // bytes; 0 is not known
	LargestBatch       float64 // samples
	Steps              int     // measured, at least 1
}

// Book is profiles in memory. Its methods may be called at the same time.
type Book struct {
	now     func() time.Time
	columns columns

	mu      sync.Mutex
	shelves map[string]*shelf // by workload
	count   int               // profiles on all of them
	pending map[Key]Profile   // what was recorded and is in no file yet; on the shelves too
	fit     fit
}

// NewBook returns an empty book that dates what it records by the clock.
func NewBook(now func() time.Time) *Book {
	return &Book{now: now, shelves: map[string]*shelf{}, pending: map[Key]Profile{}}
}

// Record takes what a job showed of its workload on a device. What has no valid name, or is not within reason, is left
// out.
func (b *Book) Record(workload string, on cluster.Device, seen Sighting) {
	k := Key{workload, on.Type, on.ID}
	p := Profile{Curve: seen.Curve, Spread: firstSpread, CommunicateSeconds: seen.CommunicateSeconds,
		MemoryPerSample: seen.MemoryPerSample, LargestBatch: seen.LargestBatch, Steps: seen.Steps,
		LastSeen: b.now().UTC().Truncate(time.Second)}
	p.Curve.Sigma = min(p.Curve.Sigma, mostSigma)
	if k.Check() != nil || p.Check() != nil {
		return
	}
	column := b.columns.of(k.Type)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shelve(k, column, p)
	if b.count > mostProfiles+mostProfiles/8 {
		b.shelveAll(b.bounded())
	}
	add(b.pending, k, p)
	if len(b.pending) > mostProfiles+mostProfiles/8 {
		trim(b.pending)
	}
}

// shelve merges a later profile into those there are.
func (b *Book) shelve(k Key, column string, later Profile) {
	s := b.shelves[k.Workload]
	if s == nil {
		s = &shelf{map[string]*kin{}}
		b.shelves[k.Workload] = s
	}
	b.count += s.add(k, column, later)
	b.fit.outdated = true
}

// shelveAll takes profiles in the place of all there are.
func (b *Book) shelveAll(profiles map[Key]Profile) {
	b.shelves, b.count = map[string]*shelf{}, 0
	for k, p := range profiles {
		b.shelve(k, b.columns.of(k.Type), p)
	}
}

// bounded are all profiles but for those that are too many.
func (b *Book) bounded() map[Key]Profile {
	all := make(map[Key]Profile, b.count)
	for w, s := range b.shelves {
		for t, kin := range s.types {
			for d, p := range kin.devices {
				all[Key{w, t, d}] = p
			}
		}
	}
	trim(all)
	return all
}

// add merges a later profile into those there are.
func add(profiles map[Key]Profile, k Key, later Profile) {
	if before, ok := profiles[k]; ok {
		later = before.merge(later)
	}
	profiles[k] = later
}

// trim removes what is too much, the longest unseen first, and returns its keys.
func trim(profiles map[Key]Profile) (removed []Key) {
	keys := slices.SortedFunc(maps.Keys(profiles), func(a, b Key) int {
		return cmp.Or(profiles[b].LastSeen.Compare(profiles[a].LastSeen), a.compare(b))
	})
	devices, types := map[Key]int{}, map[string]int{}
	kept := 0
	for _, k := range keys {
		of := Key{k.Workload, k.Type, ""}
		if kept == mostProfiles || devices[of] == mostDevices || devices[of] == 0 && types[k.Workload] == mostTypes {
			removed = append(removed, k)
			delete(profiles, k)
			continue
		}
		if devices[of] == 0 {
			types[k.Workload]++
		}
		devices[of]++
		kept++
	}
	return removed
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Workload, other.Workload), cmp.Compare(k.Type, other.Type),
		cmp.Compare(k.Device, other.Device))
}

// Profiles are all of them, sorted by key.
func (b *Book) Profiles() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Entry
	for w, s := range b.shelves {
		for t, kin := range s.types {
			for d, p := range kin.devices {
				all = append(all, Entry{Key{w, t, d}, p})
			}
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Key.compare(b.Key) })
	return all
}

// Entry is a profile with its key.
type Entry struct {
	Key
	Profile
}

// Read takes what the file holds in the place of all profiles but for those that are in no file yet, which are added.
func (b *Book) Read(f *File) error {
	all, err := f.Profiles()
	if err == nil {
		b.load(all)
	}
	return err
}

// load takes profiles in the place of all but what is pending, which is added.
func (b *Book) load(profiles map[Key]Profile) {
	for k := range profiles {
		b.columns.of(k.Type) // takes a while, when it is new
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shelveAll(profiles)
	for k, p := range b.pending {
		b.shelve(k, b.columns.of(k.Type), p)
	}
}

// take takes out what is pending.
func (b *Book) take() map[Key]Profile {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.pending
	b.pending = map[Key]Profile{}
	return taken
}

// giveBack makes what was taken pending again.
func (b *Book) giveBack(taken map[Key]Profile) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, later := range b.pending {
		add(taken, k, later)
	}
	b.pending = taken
}

// columns knows the columns of device types, since finding one takes a while. Its zero value is ready; its method may be
// called at the same time.
type columns struct {
	mu    sync.Mutex
	known map[string]string // by type, at most mostProfiles
}

// of is column of a type.
func (c *columns) of(deviceType string) string {
	c.mu.Lock()
	known, ok := c.known[deviceType]
	c.mu.Unlock()
	if ok {
		return known
	}
	found := column(deviceType)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) == mostProfiles {
		c.known = map[string]string{}
	}
	c.known[deviceType] = found
	return found
}
