package profile

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// What an estimate learns from: the workloads that were seen last on two device types or more. More would not make it
// better, and it would take longer.
const (
	mostRows    = 256
	mostEntries = 4096
	mostColumns = 64
)

// mostRatio is by how much the devices of one workload may differ for others to learn from it. No two devices do; one user's
// absurd numbers would make everybody's estimates so.
const mostRatio = 1e4

// fitRest is how many times as long as a fit took the next one is not made, though there are newer profiles: whoever waits
// for the book waits for a fit at most once in a while. Profiles of their own count for workloads at once.
const fitRest = 10

// fit is a completion of the book's table, with what its rows and columns are.
type fit struct {
	*completion // nil before it was needed
	columns     map[string]int
	kinds       map[string]int // by kind of workload; those with one row only are in it too
	alone       map[string]bool
	open        []bool // by column: nothing is public about it

	outdated bool // there are newer profiles
	ended    time.Time
	took     time.Duration
}

// linked says whether what other workloads showed tells how the column goes with one of the workload's own.
func (f *fit) linked(own []entry, column int) bool {
	return len(f.byColumn[column]) > 0 &&
		slices.ContainsFunc(own, func(e entry) bool { return len(f.byColumn[e.column]) > 0 })
}

// public says whether one of the workload's own columns is among the public models.
func (f *fit) public(own []entry) bool {
	return slices.ContainsFunc(own, func(e entry) bool { return !f.open[e.column] })
}

// estimate is the logarithm of a workload's rate on a column that it was never measured on, and one sigma of it. It takes
// other workloads that were measured on this one and on others, some of which this workload was measured on too, or types
// that both are among the public models.
func (b *Book) estimate(workload, column string) (value, sigma float64, known bool) {
	s := b.shelves[workload]
	if s == nil {
		return 0, 0, false
	}
	f := b.freshFit()
	at, seen := f.columns[column]
	m, public := publicModels[column]
	if !seen && !public {
		return 0, 0, false
	}
	own := s.entries(0, f.columns)
	if !(seen && f.linked(own, at)) && !(public && f.public(own)) {
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

// freshFit is the newest fit, or a new one.
func (b *Book) freshFit() *fit {
	began := b.now()
	if b.fit.completion == nil || b.fit.outdated && began.Sub(b.fit.ended) >= fitRest*b.fit.took {
		b.fit = b.newFit()
		b.fit.ended = b.now()
		b.fit.took = b.fit.ended.Sub(began)
	}
	return &b.fit
}

// newFit completes the table of the workloads that were seen on two types or more; the others say nothing of devices.
func (b *Book) newFit() fit {
	f := fit{columns: map[string]int{}, kinds: map[string]int{}, alone: map[string]bool{}}
	rows, priors := b.rows(), f.addColumns(b)
	var entries []entry
	var kinds []int
	for i, s := range rows {
		k, ok := f.kinds[kindOf(s.workload)]
		if !ok {
			k = len(f.kinds)
			f.kinds[kindOf(s.workload)] = k
		}
		f.alone[kindOf(s.workload)] = !ok
		kinds = append(kinds, k)
		entries = append(entries, s.entries(i, f.columns)...)
	}
	f.completion = newCompletion(entries, kinds, priors)
	return f
}

// rows are the workloads of the table, sorted.
func (b *Book) rows() (rows []shelved) {
	var all []shelved
	for w, s := range b.shelves {
		if len(s.types) > 1 {
			all = append(all, shelved{w, s})
		}
	}
	lastFirst(all)
	entries := 0
	for _, s := range all {
		n := len(s.columns())
		if n < 2 || s.ratio() > mostRatio {
			continue
		}
		if entries += n; entries > mostEntries || len(rows) == mostRows {
			break
		}
		rows = append(rows, s)
	}
	slices.SortFunc(rows, func(a, b shelved) int { return cmp.Compare(a.workload, b.workload) })
	return rows
}

// columns are those that a workload was measured on.
func (s *shelf) columns() map[string]bool {
	columns := map[string]bool{}
	for _, t := range s.types {
		columns[t.column] = true
	}
	return columns
}

// ratio is by how much the workload's rates on its device types differ.
func (s *shelf) ratio() float64 {
	least, most := math.Inf(1), 0.0
	for _, t := range s.types {
		p := t.pool()
		least, most = min(least, p.Rate()), max(most, p.Rate())
	}
	return most / least
}

// addColumns makes a column of each model, and of each type that is none, and returns what is known of them beforehand.
// Where there are too many, the public models stay, and those that most workloads were measured on.
func (f *fit) addColumns(b *Book) (priors []prior) {
	count := map[string]int{}
	for _, s := range b.shelves {
		for _, t := range s.types {
			count[t.column]++
		}
	}
	names := slices.Sorted(maps.Keys(count))
	if len(names) > mostColumns {
		for name := range count {
			if _, public := publicModels[name]; public {
				count[name] = math.MaxInt
			}
		}
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(count[b], count[a]) })
		names = names[:mostColumns]
		slices.Sort(names)
	}
	for i, name := range names {
		f.columns[name] = i
		m, public := publicModels[name]
		f.open = append(f.open, !public)
		if public {
			priors = append(priors, prior{m.relativeSpeed(), ratioSigma})
		} else {
			priors = append(priors, prior{0, unseenSigma})
		}
	}
	return priors
}

// entries are what was measured of a workload, one for each of the columns.
func (s *shelf) entries(row int, columns map[string]int) (entries []entry) {
	taken := map[int]bool{}
	for _, name := range s.names() {
		t := s.types[name]
		at, ok := columns[t.column]
		if !ok || taken[at] { // taken is another name of a model that is in it
			continue
		}
		taken[at] = true
		p := t.pool()
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
