package device

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// known are rates as WORKLOAD=RATE, on a type of device "t".
func known(texts ...string) (rates []*evenstepv1.Rate) {
	for _, text := range texts {
		r := &evenstepv1.Rate{Type: "t"}
		workload, rate, _ := strings.Cut(text, "=")
		r.Workload = workload
		if _, err := fmt.Sscan(rate, &r.SamplesPerSecond); err != nil {
			panic(err)
		}
		rates = append(rates, r)
	}
	return rates
}

// toldOn are the speeds on a type of device, as ATTRIBUTE=RATE, without what all attributes begin with.
func (s *speeds) toldOn(device string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(s.told)) {
		if rate, there := s.told[name][device]; there {
			texts = append(texts, fmt.Sprintf("%s=%v", strings.TrimPrefix(name, "samples_per_second_"), rate))
		}
	}
	return strings.Join(texts, " ")
}

func TestSpeedsAreRoundedAndSeldomChange(t *testing.T) {
	var s speeds
	now := time.Unix(1e9, 0)
	for i, c := range []struct {
		after time.Duration
		rates []*evenstepv1.Rate
		want  string
	}{
		{0, nil, ""},
		{time.Second, known("a=1234", "b=0.0456"), "a=1200 b=0.046"},   // what comes first is told at once
		{time.Minute, known("a=5000", "b=9", "c=1"), "a=1200 b=0.046"}, // but nothing soon after
		{9 * time.Minute, known("a=1320", "b=0.0415"), "a=1200 b=0.046"},
		{time.Second, known("a=1321", "b=0.0415"), "a=1300 b=0.046"}, // more than a tenth of what was told
		{time.Minute, known("a=1321", "b=9"), "a=1300 b=0.046"},
		{9 * time.Minute, known("a=1321", "b=9"), "a=1300 b=9"},
		{time.Hour, known("b=9"), "b=9"},
		{time.Hour, known("b=9", "c=99.9"), "b=9 c=100"},
		{time.Hour, nil, ""},
		{time.Hour, known("b=NaN", "c=+Inf", "d=-1", "e=0", "f=1", "g=1.79e308"), "f=1"}, // g is infinite in two digits
	} {
		now = now.Add(c.after)
		if s.learn(c.rates, now); s.toldOn("t") != c.want {
			t.Fatalf("%d: got %q, want %q", i, s.toldOn("t"), c.want)
		}
	}
}

func TestSpeedsAreThoseOfATypeOfDevice(t *testing.T) {
	var s speeds
	rates := known("a=100", "a=20", "b=3")
	rates[1].Type = "u"
	s.learn(rates, time.Unix(1e9, 0))
	if s.toldOn("t") != "a=100 b=3" || s.toldOn("u") != "a=20" || s.toldOn("v") != "" {
		t.Errorf("got %v", s.told)
	}
}

func TestAttributesHaveNamesThatAJobCanName(t *testing.T) {
	var s speeds
	// Two that become one: the one that was seen last is told.
	rates := known("train.py:25557032:float32=7", "train.py/25557032@float32=9", "resnet50-amp=1", "ä+_Z9=2")
	s.learn(rates, time.Unix(1e9, 0))
	if got, want := s.toldOn("t"), "___Z9=2 resnet50-amp=1 train_py_25557032_float32=7"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := attribute("resnet50-amp"); got != "samples_per_second_resnet50-amp" {
		t.Errorf("got %q", got)
	}
}

// Two workloads with one name for Nomad that train at the same time do not take turns.
func TestAWorkloadThatIsToldStays(t *testing.T) {
	var s speeds
	now := time.Unix(1e9, 0)
	for i, c := range []struct{ rates, want string }{
		{"a.b=3 a/b=400", "a_b=3"},
		{"a/b=400 a.b=3", "a_b=3"},
		{"a/b=400 a.b=4", "a_b=4"},
		{"a/b=400", "a_b=400"},
		{"a.b=3 a/b=400", "a_b=400"},
	} {
		now = now.Add(time.Hour)
		if s.learn(known(strings.Fields(c.rates)...), now); s.toldOn("t") != c.want {
			t.Errorf("%d: got %q, want %q", i, s.toldOn("t"), c.want)
		}
	}
}

// Of many workloads those seen last are told, but one that is told stays for a while.
func TestOfManyWorkloadsFewAreTold(t *testing.T) {
	var s speeds
	now := time.Unix(1e9, 0)
	var all []string
	learn := func() []string {
		now = now.Add(time.Hour)
		s.learn(known(all...), now)
		return slices.Sorted(maps.Keys(s.told))
	}
	for i := range mostWorkloads + 1 {
		all = append([]string{fmt.Sprintf("w%03d=1", i)}, all...)
	}
	first := learn()
	if len(first) != mostWorkloads || slices.Contains(first, attribute("w000")) {
		t.Fatalf("got %v", first)
	}
	for i := mostWorkloads + 1; i < leaveAfter+1; i++ {
		all = append([]string{fmt.Sprintf("w%03d=1", i)}, all...)
	}
	if got := learn(); !slices.Equal(got, first) {
		t.Errorf("got %v, want %v", got, first)
	}
	all = append([]string{"newest=1"}, all...)
	got := learn()
	want := slices.DeleteFunc(append(slices.Clone(first), attribute("newest")), func(name string) bool {
		return name == attribute("w001")
	})
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Whatever the core says, Nomad is told few finite numbers above 0 of two digits, and of changes none soon after
// another.
func FuzzSpeeds(f *testing.F) {
	f.Add("a", 1.0, "b", 2.0, int64(600))
	f.Add("a", math.MaxFloat64, "b", 1.79e308, int64(600))
	f.Add("a.b", math.Inf(1), "a:b", math.SmallestNonzeroFloat64, int64(1))
	f.Fuzz(func(t *testing.T, a string, x float64, b string, y float64, seconds int64) {
		var s speeds
		now := time.Unix(1e9, 0)
		for i := range 3 {
			before, changed := s.told, s.changed
			s.learn([]*evenstepv1.Rate{{Workload: a, Type: "t", SamplesPerSecond: x * float64(i+1)},
				{Workload: b, Type: "t", SamplesPerSecond: y / float64(i+1)}}, now)
			same := maps.EqualFunc(before, s.told, maps.Equal[map[string]float64])
			if !changed.IsZero() && now.Sub(changed) < tellPause && !same {
				t.Errorf("%v changed to %v after %v", before, s.told, now.Sub(changed))
			}
			for name, rate := range s.told {
				if r := rate["t"]; !(r > 0) || math.IsInf(r, 0) || strings.ContainsAny(name, ".${}\" /:") {
					t.Errorf("%q: %v", name, r)
				}
			}
			now = now.Add(time.Duration(seconds%1e6) * time.Second)
		}
	})
}
