package profile

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/speed"
)

// Source says where a number came from.
type Source string

const (
	// Measured is a number that was measured on such a device.
	Measured Source = "profile"
	// Estimated is a number that was made from others.
	Estimated Source = "estimate"
)

// mostRows bounds the workloads that an estimate learns from; those seen last count. More would not make it better.
const mostRows = 256

// Rate is how fast a workload runs on a device type.
type Rate struct {
	Type             string
	SamplesPerSecond float64
	Low, High        float64 // nine of ten times it is between these
	Source           Source  // empty where nothing is known; then the numbers are 0
}

// Expectation is what is expected of a device that a worker is to train on.
type Expectation struct {
	Curve           speed.Learned
	Sigma           float64 // of the time at the curve's batch size, relative to it
	Source          Source  // empty where nothing is known
	OwnDevice       bool    // measured on that very device, not on another one of its type
	LargestBatch    float64 // samples in the largest batch seen on such a device; 0 is not known
	MemoryPerSample float64 // bytes of device memory that one more sample takes; 0 is not known
}

// Rates is how fast a workload runs on each of the types, in their order: measured, or estimated from the workload's
// other devices, the devices' other workloads and what is public about devices. A rate that was measured is the one at
// the batch size that it was measured at. Of a workload that was never seen nothing is known.
func (b *Book) Rates(workload string, types []string) []Rate {
	b.mu.Lock()
	defer b.mu.Unlock()
	rates := make([]Rate, len(types))
	for i, t := range types {
		rates[i].Type = t
		if p, known := b.ofType(workload, t); known {
			rates[i].set(math.Log(p.Rate()), p.Sigma(), Measured)
		} else if value, sigma, known := b.estimate(workload, t); known {
			rates[i].set(value, sigma, Estimated)
		}
	}
	return rates
}

// Recent are at most so many of the workloads that were measured on one of the types, the one seen last first.
func (b *Book) Recent(types []string, most int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index()
	columns := map[string]bool{}
	for _, t := range types {
		columns[b.column(t)] = true
	}
	var on []string
	for _, w := range b.workloads {
		if slices.ContainsFunc(b.typesOf(w), func(t string) bool { return columns[b.column(t)] }) {
			on = append(on, w)
		}
	}
	b.lastFirst(on)
	return on[:min(len(on), most)]
}

// lastFirst sorts workloads: the one seen last first, those seen at the same time by name.
func (b *Book) lastFirst(workloads []string) {
	seen := map[string]time.Time{}
	for _, w := range workloads {
		seen[w] = b.lastSeen(w)
	}
	slices.SortFunc(workloads, func(a, z string) int { return cmp.Or(seen[z].Compare(seen[a]), cmp.Compare(a, z)) })
}

// set fills in what is known: the logarithm of the rate and one sigma of it.
func (r *Rate) set(value, sigma float64, source Source) {
	const bar = 1.645 // sigmas to either side hold nine of ten
	// Other machines round otherwise; what is planned with a rate shall not depend on that.
	n := 6
	if source == Estimated {
		n = 4
	}
	r.SamplesPerSecond = digits(math.Exp(value), n)
	r.Low, r.High = digits(math.Exp(value-bar*sigma), n), digits(math.Exp(value+bar*sigma), n)
	r.Source = source
}

// digits rounds to n significant digits.
func digits(x float64, n int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', n-1, 64), 64)
	if err != nil {
		return x
	}
	return rounded
}

// Expect says what to expect of each of the devices: by its own profile, else by that of its type, else by an estimate,
// which is the workload's surest profile, faster or slower by a factor.
func (b *Book) Expect(workload string, devices []cluster.Device) []Expectation {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := map[string]Expectation{} // of types
	out := make([]Expectation, len(devices))
	for i, d := range devices {
		if p, ok := b.profiles[Key{workload, d.Type, d.ID}]; ok && d.ID != "" {
			out[i] = expectation(p, Measured)
			out[i].OwnDevice = true
			continue
		}
		e, ok := known[d.Type]
		if !ok {
			e = b.expectType(workload, d.Type)
			known[d.Type] = e
		}
		out[i] = e
	}
	return out
}

func expectation(p Profile, source Source) Expectation {
	return Expectation{Curve: p.Curve, Sigma: p.Sigma(), Source: source, LargestBatch: p.LargestBatch,
		MemoryPerSample: p.MemoryPerSample}
}

func (b *Book) expectType(workload, deviceType string) Expectation {
	if p, known := b.ofType(workload, deviceType); known {
		return expectation(p, Measured)
	}
	value, sigma, known := b.estimate(workload, deviceType)
	if !known {
		return Expectation{}
	}
	surest := Profile{}
	for i, t := range b.typesOf(workload) {
		if p, _ := b.ofType(workload, t); i == 0 || p.Sigma() < surest.Sigma() {
			surest = p
		}
	}
	e := expectation(surest, Estimated)
	e.Curve.Seconds, e.Sigma = surest.Curve.Samples/math.Exp(value), sigma
	e.LargestBatch = 0 // another type has another memory
	return e
}

// ofType pools the profiles of a workload on a device type. Where there are none under that name, those of the same model
// under other names count.
func (b *Book) ofType(workload, deviceType string) (Profile, bool) {
	same, alike := []Profile(nil), []Profile(nil)
	for _, k := range b.keysOf(workload) {
		switch {
		case k.Type == deviceType:
			same = append(same, b.profiles[k])
		case b.column(k.Type) == b.column(deviceType):
			alike = append(alike, b.profiles[k])
		}
	}
	if len(same) == 0 {
		same = alike
	}
	if len(same) == 0 {
		return Profile{}, false
	}
	return pool(same), true
}

// keysOf are the keys of a workload, sorted.
func (b *Book) keysOf(workload string) []Key {
	b.index()
	return b.indexed[workload]
}

// typesOf are the device types that a workload was measured on, sorted.
func (b *Book) typesOf(workload string) (types []string) {
	for _, k := range b.keysOf(workload) {
		if len(types) == 0 || types[len(types)-1] != k.Type {
			types = append(types, k.Type)
		}
	}
	return types
}

// fit is a completion of the book's table, with what its rows and columns are.
type fit struct {
	*completion
	columns map[string]int // by what column says of a type
	kinds   map[string]int // by kind of workload; those with one row only are in it too
	alone   map[string]bool
	open    []bool // by column: nothing is public about it
}

// linked says whether what other workloads showed tells how the column goes with one of the workload's own.
func (f *fit) linked(own []entry, column int, seen bool) bool {
	return seen && len(f.byColumn[column]) > 0 &&
		slices.ContainsFunc(own, func(e entry) bool { return len(f.byColumn[e.column]) > 0 })
}

// public says whether one of the workload's own columns is among the public models.
func (f *fit) public(own []entry) bool {
	return slices.ContainsFunc(own, func(e entry) bool { return !f.open[e.column] })
}

// estimate is the logarithm of a workload's rate on a type that it was never measured on, and one sigma of it. It takes
// other workloads that were measured on this type and on others, some of which this workload was measured on too, or types
// that both are among the public models.
func (b *Book) estimate(workload, deviceType string) (value, sigma float64, known bool) {
	if len(b.keysOf(workload)) == 0 {
		return 0, 0, false
	}
	if b.fit == nil {
		b.fit = b.newFit()
	}
	f := b.fit
	at, seen := f.columns[b.column(deviceType)]
	m, public := modelOf(deviceType)
	own := b.entries(workload, 0, f.columns)
	if !f.linked(own, at, seen) && !(public && f.public(own)) {
		return 0, 0, false
	}
	unseen := prior{0, unseenSigma}
	if public {
		unseen = prior{m.relativeSpeed(), ratioSigma}
	}
	if !seen {
		at = -1
	}
	kind, ok := f.kinds[kindOf(workload)]
	if !ok || f.alone[kindOf(workload)] {
		kind = -1
	}
	value, sigma = f.predict(own, kind, at, unseen)
	return value, sigma, true
}

// newFit completes the table of the workloads that were seen on two types or more; the others say nothing of devices.
func (b *Book) newFit() *fit {
	f := &fit{columns: map[string]int{}, kinds: map[string]int{}, alone: map[string]bool{}}
	priors := f.addColumns(b)
	var rows []string
	for _, w := range b.workloads {
		if len(b.entries(w, 0, f.columns)) > 1 {
			rows = append(rows, w)
		}
	}
	b.lastFirst(rows)
	rows = rows[:min(len(rows), mostRows)]
	slices.Sort(rows)
	var entries []entry
	var kinds []int
	for i, w := range rows {
		k, ok := f.kinds[kindOf(w)]
		if !ok {
			k = len(f.kinds)
			f.kinds[kindOf(w)] = k
		}
		f.alone[kindOf(w)] = !ok
		kinds = append(kinds, k)
		entries = append(entries, b.entries(w, i, f.columns)...)
	}
	f.completion = newCompletion(entries, kinds, priors)
	return f
}

// addColumns makes a column of each model, and of each type that is none, and returns what is known of them beforehand.
func (f *fit) addColumns(b *Book) (priors []prior) {
	b.index()
	names := map[string]bool{}
	for k := range b.profiles {
		names[b.column(k.Type)] = true
	}
	for i, name := range slices.Sorted(maps.Keys(names)) {
		f.columns[name] = i
		m, public := modelOf(name)
		f.open = append(f.open, !public)
		if public {
			priors = append(priors, prior{m.relativeSpeed(), ratioSigma})
		} else {
			priors = append(priors, prior{0, unseenSigma})
		}
	}
	return priors
}

// entries are what was measured of a workload, one for each column.
func (b *Book) entries(workload string, row int, columns map[string]int) (entries []entry) {
	for _, t := range b.typesOf(workload) {
		at := columns[b.column(t)]
		if slices.ContainsFunc(entries, func(e entry) bool { return e.column == at }) {
			continue // another name of a model that is in it
		}
		p, _ := b.ofType(workload, t)
		entries = append(entries, entry{row, at, math.Log(p.Rate()), p.Sigma() * p.Sigma()})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.column, b.column) })
	return entries
}

// kindOf is what workloads that are much alike have in common: the first word of the key. By default that is the script.
func kindOf(workload string) string {
	if i := strings.IndexAny(workload, ":/@"); i >= 0 {
		return workload[:i]
	}
	return workload
}
