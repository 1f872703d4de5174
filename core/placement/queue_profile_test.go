package placement

import (
	"testing"

	"pgregory.net/rapid"
)

// The profile starts each of hundreds of allotments when a plain search of all ends of those before does.
func TestProfileStartsAtTheFirstFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := []kind{{cap: rapid.IntRange(1, 60).Draw(t, "a")}, {cap: rapid.IntRange(3, 200).Draw(t, "b")}}
		in := &instance{kinds: kinds}
		draw := func(most int, name string) int { return rapid.IntRange(0, most).Draw(t, name) }
		var p, same profile
		p.reset(kinds)
		o := &queueOracle{in: in}
		for n := range 110 {
			a := allotment{counts: []int{draw(1, "a taken"), draw(3, "b taken")}}
			a.now = rapid.SampledFrom([]float64{1, 8, 64}).Draw(t, "length") * float64(1+draw(100, "more"))
			a.later = a.now + float64(draw(1, "restart"))
			after := float64(draw(1, "late") * draw(60, "after"))
			want, first := 0.0, true
			for i := -1; i < n; i++ {
				start := after
				if i >= 0 {
					start = max(after, o.ends[i])
				}
				if (first || start < want) && o.fits(a.counts, start, start+a.seconds(start)) {
					want, first = start, false
				}
			}
			same.copy(&p)
			if start, _ := p.earliest(&a, after); start != want {
				t.Fatalf("allotment %d of %v starts at %v, want %v", n, a.counts, start, want)
			}
			if start, _ := same.earliest(&a, after); start != want {
				t.Fatalf("in a copy, allotment %d of %v starts at %v, want %v", n, a.counts, start, want)
			}
			o.slots, o.ends = append(o.slots, slot{want, a.counts}), append(o.ends, want+a.seconds(want))
			o.placed = append(o.placed, n)
			p.occupy(want, want+a.seconds(want), a.counts)
		}
	})
}
