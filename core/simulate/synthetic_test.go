package simulate

import (
	"reflect"
	"testing"
)

func TestSyntheticIsReproducible(t *testing.T) {
	for _, name := range Synthetics() {
		generate := func(seed uint64) *Trace {
			trace, err := Synthetic(name, 6, 900, seed)
			if err != nil {
				t.Fatal(err)
			}
			return trace
		}
		first := generate(1)
		if !reflect.DeepEqual(first, generate(1)) {
			t.Errorf("%s: not the same with the same seed", name)
		}
		if reflect.DeepEqual(first, generate(2)) {
			t.Errorf("%s: the same with another seed", name)
		}
		for k, times := range first.Seconds {
			for w, s := range times {
				if s < freeSeconds/2 || s > 10*freeSeconds {
					t.Fatalf("%s: worker %d takes %v s in step %d", name, w, s, k)
				}
			}
		}
	}
}

func TestSyntheticRefuses(t *testing.T) {
	for _, c := range []struct {
		name           string
		workers, steps int
		want           string
	}{
		{"calm", 1, 1, `unknown kind "calm"; give one of ["static" "contention" "drift" "throttle" "burst" "join"]`},
		{"join", 0, 1, "0 workers, 1 steps; give at least 1"},
		{"join", 1, -1, "1 workers, -1 steps; give at least 1"},
		{"join", 1 << 40, 1 << 40, "1099511627776 workers in 1099511627776 steps; give at most 16777216 together"},
	} {
		if _, err := Synthetic(c.name, c.workers, c.steps, 1); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
