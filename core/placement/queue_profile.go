package placement

import (
	"slices"
	"sort"
)

// profile is what is free over time: from times[i] to times[i+1], and for ever from the last, free[i·kinds+k] devices of
// kind k.
type profile struct {
	kinds int
	times []float64
	free  []int
	// from[k] is the first piece with a free device of kind k.
	from []int
}

// reset frees all devices.
func (p *profile) reset(kinds []kind) {
	p.kinds = len(kinds)
	p.times = append(p.times[:0], 0)
	p.free, p.from = p.free[:0], p.from[:0]
	for _, k := range kinds {
		p.free = append(p.free, k.cap)
		p.from = append(p.from, 0)
	}
}

// copy makes p the same as another profile.
func (p *profile) copy(of *profile) {
	p.kinds = of.kinds
	p.times = append(p.times[:0], of.times...)
	p.free = append(p.free[:0], of.free...)
	p.from = append(p.from[:0], of.from...)
}

// earliest is the first start from `after` on at which an allotment fits to its end, and how many pieces were looked at.
func (p *profile) earliest(a *allotment, after float64) (start float64, looked int) {
	first := 0
	for k, c := range a.counts {
		if c > 0 {
			first = max(first, p.from[k])
		}
	}
	for first+1 < len(p.times) && p.times[first+1] <= after {
		first++
	}
	start = max(after, p.times[first])
	for i := first; ; i++ {
		looked++
		switch {
		case !p.fits(i, a.counts):
			if i+1 == len(p.times) { // never: in the end all is free, and an allotment is at most that
				return p.times[i], looked
			}
			start = p.times[i+1]
		case i+1 == len(p.times) || p.times[i+1] >= start+a.seconds(start):
			return start, looked
		}
	}
}

func (p *profile) fits(i int, counts []int) bool {
	free := p.free[i*p.kinds:][:len(counts)]
	for k, c := range counts {
		if c > free[k] {
			return false
		}
	}
	return true
}

// occupy takes an allotment's devices from start to end.
func (p *profile) occupy(start, end float64, counts []int) {
	if !(end > start) {
		return
	}
	i := p.split(start)
	for last := p.split(end); i < last; i++ {
		for k, c := range counts {
			p.free[i*p.kinds+k] -= c
		}
	}
	for k, c := range counts {
		for c > 0 && p.from[k]+1 < len(p.times) && p.free[p.from[k]*p.kinds+k] == 0 {
			p.from[k]++
		}
	}
}

// split makes a piece begin at t and returns its index.
func (p *profile) split(t float64) int {
	i := sort.SearchFloat64s(p.times, t)
	if i < len(p.times) && p.times[i] == t {
		return i
	}
	p.times = slices.Insert(p.times, i, t)
	before := p.free[(i-1)*p.kinds : i*p.kinds]
	p.free = slices.Insert(p.free, i*p.kinds, before...)
	for k := range p.from {
		if p.from[k] >= i {
			p.from[k]++
		}
	}
	return i
}
