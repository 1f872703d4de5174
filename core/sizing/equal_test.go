package sizing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/speed"
)

func TestEqual(t *testing.T) {
	free := Worker{Max: 1 << 53}
	for name, c := range map[string]struct {
		batch, quantum int
		workers        []Worker
		want           []int
	}{
		"the remainder goes to the first workers": {11, 1, []Worker{free, free, free}, []int{4, 4, 3}},
		"whole quanta":                           {40, 8, []Worker{free, free, free}, []int{16, 16, 8}},
		"what one cannot take is dealt again":    {12, 1, []Worker{{Max: 1}, free, free}, []int{1, 6, 5}},
		"what one must take comes from the rest": {12, 1, []Worker{{Min: 9, Max: 9}, free, free}, []int{9, 2, 1}},
		"both at once":                           {20, 1, []Worker{{Max: 2}, {Min: 12, Max: 20}, free}, []int{2, 12, 6}},
		"no more quanta than workers":            {2, 1, []Worker{free, free, free}, []int{1, 1, 0}},
		"the minimums are the whole batch":       {6, 2, []Worker{{Min: 1, Max: 9}, {Min: 4, Max: 9}}, []int{2, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := make([]int, len(c.workers))
			if err := Equal(Problem{c.batch, c.quantum, c.workers}, sizes); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, sizes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Equal sizes are the min-max of workers that are all alike, with the remainder to the first.
func TestEqualIsTheWaterLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		for i := range p.Workers {
			p.Workers[i].Curve, p.Workers[i].CommunicateSeconds = speed.Affine{PerSample: 1}, 0
		}
		sizes := make([]int, len(p.Workers))
		if err := Equal(p, sizes); err != nil {
			t.Skip(err)
		}
		checkSizes(t, p, sizes)
		if got, want := p.StepSeconds(sizes), p.StepSeconds(greedy(p)); got != want {
			t.Fatalf("%v stands %v high, want %v", sizes, got, want)
		}
	})
}
