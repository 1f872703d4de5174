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
	// mostProfiles bounds the profiles of a book and of a file, and mostDevices those of one workload on one type. The
	// ones seen last stay.
	mostProfiles = 1 << 16
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
	now func() time.Time

	mu       sync.Mutex
	profiles map[Key]Profile
	pending  map[Key]Profile // what was recorded and is in no file yet; in profiles too

	workloads []string          // sorted; nil when not up to date
	indexed   map[string][]Key  // by workload, sorted
	columns   map[string]string // by device type; as many as were asked for since it was brought up to date
	fit       *fit              // nil when not up to date
}

// NewBook returns an empty book that dates what it records by the clock.
func NewBook(now func() time.Time) *Book {
	return &Book{now: now, profiles: map[Key]Profile{}, pending: map[Key]Profile{}, columns: map[string]string{}}
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
	b.mu.Lock()
	defer b.mu.Unlock()
	add(b.profiles, k, p)
	add(b.pending, k, p)
	if len(b.profiles) > mostProfiles+mostProfiles/8 {
		trim(b.profiles)
	}
	if len(b.pending) > mostProfiles+mostProfiles/8 {
		trim(b.pending)
	}
	b.outdate()
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
	devices := map[Key]int{}
	kept := 0
	for _, k := range keys {
		of := Key{k.Workload, k.Type, ""}
		if kept == mostProfiles || devices[of] == mostDevices {
			removed = append(removed, k)
			delete(profiles, k)
			continue
		}
		kept++
		devices[of]++
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
	b.index()
	var all []Entry
	for _, w := range b.workloads {
		for _, k := range b.indexed[w] {
			all = append(all, Entry{k, b.profiles[k]})
		}
	}
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.profiles = profiles
	for k, p := range b.pending {
		add(b.profiles, k, p)
	}
	b.outdate()
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

func (b *Book) outdate() {
	b.workloads, b.indexed, b.columns, b.fit = nil, nil, map[string]string{}, nil
}

// column is column of a type, which takes a while.
func (b *Book) column(deviceType string) string {
	c, ok := b.columns[deviceType]
	if !ok {
		c = column(deviceType)
		b.columns[deviceType] = c
	}
	return c
}

// index sorts the keys, unless they are.
func (b *Book) index() {
	if b.indexed != nil {
		return
	}
	b.indexed = map[string][]Key{}
	for k := range b.profiles {
		b.indexed[k.Workload] = append(b.indexed[k.Workload], k)
	}
	for _, keys := range b.indexed {
		slices.SortFunc(keys, Key.compare)
	}
	b.workloads = slices.Sorted(maps.Keys(b.indexed))
}

// lastSeen is when a workload was seen last, on any device.
func (b *Book) lastSeen(workload string) (last time.Time) {
	for _, k := range b.keysOf(workload) {
		last = latest(last, b.profiles[k].LastSeen)
	}
	return last
}
