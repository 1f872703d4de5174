package placement

import (
	"math"
	"slices"
	"sort"
)

// profile is what is free over time, in pieces during which nothing changes. They are kept in blocks that know the most
// and the least that is free in them, so that of thousands of pieces few are looked at.
type profile struct {
	kinds  int
	blocks []block
}

// block is some pieces one after the other: from times[i] to the next time, and for ever from the very last,
// free[i·kinds+k] devices of kind k.
type block struct {
	times       []float64
	free        []int
	most, least []int // by kind, where known
	known       bool
}

// mostPieces is how many a block holds.
const mostPieces = 64

// reset frees all devices.
func (p *profile) reset(kinds []kind) {
	p.kinds = len(kinds)
	if len(p.blocks) == 0 {
		p.blocks = make([]block, 1)
	}
	p.blocks = p.blocks[:1]
	b := &p.blocks[0]
	b.times, b.free, b.known = append(b.times[:0], 0), b.free[:0], false
	for _, k := range kinds {
		b.free = append(b.free, k.cap)
	}
}

// copy makes p the same as another profile.
func (p *profile) copy(of *profile) {
	p.kinds = of.kinds
	p.blocks = slices.Grow(p.blocks[:0], len(of.blocks))[:len(of.blocks)]
	for i := range of.blocks {
		b := &p.blocks[i]
		b.times, b.free, b.known = append(b.times[:0], of.blocks[i].times...), append(b.free[:0], of.blocks[i].free...), false
	}
}

// earliest is the first start from `after` on at which an allotment fits to its end, and how many pieces were looked
// at.
func (p *profile) earliest(a *allotment, after float64) (start float64, looked int) {
	n, i := p.find(after)
	end, started := 0.0, false
	for ; n < len(p.blocks); n, i = n+1, 0 {
		b := &p.blocks[n]
		if len(p.blocks) > 1 && i == 0 {
			looked++
			p.know(b)
			if !started && !fits(a.counts, b.most) {
				continue
			}
			if started && fits(a.counts, b.least) {
				if p.next(n, len(b.times)-1) >= end {
					return start, looked
				}
				continue
			}
		}
		for ; i < len(b.times); i++ {
			looked++
			if !fits(a.counts, b.free[i*p.kinds:]) {
				started = false
				continue
			}
			if !started {
				start = max(after, b.times[i])
				end, started = start+a.seconds(start), true
			}
			if p.next(n, i) >= end {
				return start, looked
			}
		}
	}
	return start, looked // never: in the end all is free, and an allotment is at most that
}

// fits says whether so many are free.
func fits(counts, free []int) bool {
	for k, c := range counts {
		if c > free[k] {
			return false
		}
	}
	return true
}

// next is when a piece ends.
func (p *profile) next(n, i int) float64 {
	if b := &p.blocks[n]; i+1 < len(b.times) {
		return b.times[i+1]
	}
	if n+1 < len(p.blocks) {
		return p.blocks[n+1].times[0]
	}
	return math.Inf(1)
}

// find is the piece at t.
func (p *profile) find(t float64) (n, i int) {
	n = sort.Search(len(p.blocks)-1, func(n int) bool { return p.blocks[n+1].times[0] > t })
	b := &p.blocks[n]
	return n, sort.Search(len(b.times)-1, func(i int) bool { return b.times[i+1] > t })
}

// know computes the most and the least of a block.
func (p *profile) know(b *block) {
	if b.known {
		return
	}
	b.known = true
	b.most, b.least = append(b.most[:0], b.free[:p.kinds]...), append(b.least[:0], b.free[:p.kinds]...)
	for i, c := range b.free {
		k := i % p.kinds
		b.most[k], b.least[k] = max(b.most[k], c), min(b.least[k], c)
	}
}

// occupy takes an allotment's devices from start to end.
func (p *profile) occupy(start, end float64, counts []int) {
	if !(end > start) {
		return
	}
	p.split(end)
	p.split(start)
	for n, i := p.find(start); n < len(p.blocks); n, i = n+1, 0 {
		b := &p.blocks[n]
		if b.times[0] >= end {
			return
		}
		b.known = b.known && i == 0 && p.next(n, len(b.times)-1) <= end
		for k := range counts {
			if b.known {
				b.most[k] -= counts[k]
				b.least[k] -= counts[k]
			}
		}
		for ; i < len(b.times) && b.times[i] < end; i++ {
			for k, c := range counts {
				b.free[i*p.kinds+k] -= c
			}
		}
	}
}

// split makes a piece begin at t.
func (p *profile) split(t float64) {
	n, i := p.find(t)
	b := &p.blocks[n]
	if b.times[i] == t {
		return
	}
	b.times = slices.Insert(b.times, i+1, t)
	b.free = slices.Insert(b.free, (i+1)*p.kinds, b.free[i*p.kinds:(i+1)*p.kinds]...)
	if len(b.times) <= mostPieces {
		return
	}
	half := len(b.times) / 2
	second := block{times: slices.Clone(b.times[half:]), free: slices.Clone(b.free[half*p.kinds:])}
	b.times, b.free, b.known = b.times[:half], b.free[:half*p.kinds], false
	p.blocks = slices.Insert(p.blocks, n+1, second)
}

// open is when a device of a kind is free first.
func (p *profile) open(kind int) float64 {
	for n := range p.blocks {
		b := &p.blocks[n]
		if p.know(b); b.most[kind] == 0 {
			continue
		}
		for i, t := range b.times {
			if b.free[i*p.kinds+kind] > 0 {
				return t
			}
		}
	}
	return math.Inf(1) // never: in the end all is free
}

// pieces calls visit with what is free in so many pieces from t on.
func (p *profile) pieces(t float64, count int, visit func(free []int)) {
	for n, i := p.find(t); n < len(p.blocks); n, i = n+1, 0 {
		for ; i < len(p.blocks[n].times); i++ {
			if count--; count < 0 {
				return
			}
			visit(p.blocks[n].free[i*p.kinds : (i+1)*p.kinds])
		}
	}
}
