package profile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/speed"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// seen is a sighting of a device that takes so many seconds a sample.
func seen(perSample float64, steps int) Sighting {
	return Sighting{Curve: speed.Learned{Samples: 64, Seconds: 64 * perSample, Sigma: 0.01, ShareSigma: 0.3},
		LargestBatch: 64, Steps: steps}
}

func cpu(id string) cluster.Device { return cluster.Device{Type: "cpu", ID: id} }

// near says whether two numbers are within a share of each other.
func near(a, b, share float64) bool { return math.Abs(a/b-1) <= share }

func TestAProfileFollowsADeviceThatChanges(t *testing.T) {
	b := NewBook(atNoon)
	for range 20 {
		b.Record("w", cpu("a"), seen(0.001, 100))
	}
	if r := b.Rates("w", []string{"cpu"})[0]; !near(r.SamplesPerSecond, 1000, 1e-5) || r.Source != Measured {
		t.Fatalf("got %+v", r)
	}
	for range 30 {
		b.Record("w", cpu("a"), seen(0.002, 100))
	}
	if r := b.Rates("w", []string{"cpu"})[0]; !near(r.SamplesPerSecond, 500, 0.01) {
		t.Errorf("got %+v after a change", r)
	}
	if p := b.Profiles(); len(p) != 1 || p[0].Steps != 5000 || p[0].LastSeen != noon {
		t.Errorf("got %+v", p)
	}
}

func TestTheBarHoldsWhatDevicesOfATypeDifferBy(t *testing.T) {
	b := NewBook(atNoon)
	b.Record("w", cpu("a"), seen(0.001, 100))
	b.Record("w", cpu("b"), seen(0.003, 100))
	r := b.Rates("w", []string{"cpu"})[0]
	if r.Low > 1000/3.0 || r.High < 1000 {
		t.Errorf("%v to %v does not hold both devices", r.Low, r.High)
	}
	e := b.Expect("w", []cluster.Device{cpu("b"), cpu("a"), cpu("c"), cpu("")})
	for i, want := range []float64{0.003, 0.001, math.Sqrt(0.003 * 0.001), math.Sqrt(0.003 * 0.001)} {
		if got := e[i].Curve.Seconds / 64; !near(got, want, 1e-9) || e[i].OwnDevice != (i < 2) {
			t.Errorf("device %d: got %v a sample, own %v; want %v", i, got, e[i].OwnDevice, want)
		}
	}
}

func TestOneModelHasManyNames(t *testing.T) {
	for name, want := range map[string]string{
		"v100": "v100", "Tesla V100-SXM2-16GB": "v100", "V100-32GB": "v100", "NVIDIA A100-SXM4-80GB": "a100 80",
		"NVIDIA A100-PCIE-40GB": "a100", "a100": "a100", "NVIDIA H100 PCIe": "h100 pcie", "NVIDIA H100 80GB HBM3": "h100",
		"Tesla K80": "k80", "NVIDIA GeForce RTX 2080 Ti": "2080 ti", "RTX 2080Ti": "2080 ti", "RTX 2080": "2080",
		"NVIDIA L40S": "l40s", "NVIDIA L4": "l4", "Tesla P4": "p4", "Tesla P40": "p40", "NVIDIA A10": "a10",
		"NVIDIA A10G": "a10g", "Quadro RTX 6000": "rtx 6000", "NVIDIA RTX 6000 Ada Generation": "rtx 6000 ada",
		// None that is known.
		"RTX 2080 MAX-Q": "RTX 2080 MAX-Q", "AMD EPYC 7B12": "AMD EPYC 7B12", "NVIDIA A100 MIG 1g.5gb": "NVIDIA A100 MIG 1g.5gb",
		"": "", "a1000": "a1000",
	} {
		if got := column(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestASchedulersNameFindsTheVendors(t *testing.T) {
	b := NewBook(atNoon)
	b.Record("w", cluster.Device{Type: "Tesla V100-SXM2-16GB"}, seen(0.001, 100))
	if r := b.Rates("w", []string{"v100"})[0]; r.Source != Measured || !near(r.SamplesPerSecond, 1000, 1e-5) {
		t.Errorf("got %+v", r)
	}
}

func TestWhatCannotBeKeptIsLeftOut(t *testing.T) {
	b := NewBook(atNoon)
	broken := func(change func(*Sighting)) Sighting {
		s := seen(0.001, 10)
		change(&s)
		return s
	}
	b.Record("a b", cpu("a"), seen(0.001, 10))
	b.Record("", cpu("a"), seen(0.001, 10))
	b.Record(strings.Repeat("w", 129), cpu("a"), seen(0.001, 10))
	b.Record("w", cluster.Device{ID: "a"}, seen(0.001, 10))
	b.Record("w", cpu("a\x00"), seen(0.001, 10))
	b.Record("w", cpu(strings.Repeat("a", 257)), seen(0.001, 10))
	b.Record("w", cpu("a"), broken(func(s *Sighting) { s.Curve.Seconds = math.NaN() }))
	b.Record("w", cpu("a"), broken(func(s *Sighting) { s.Curve.Samples = 0 }))
	b.Record("w", cpu("a"), broken(func(s *Sighting) { s.Curve.Share = 1 }))
	b.Record("w", cpu("a"), broken(func(s *Sighting) { s.MemoryPerSample = math.Inf(1) }))
	b.Record("w", cpu("a"), broken(func(s *Sighting) { s.Steps = 0 }))
	if p := b.Profiles(); len(p) > 0 {
		t.Errorf("kept %+v", p)
	}
}

func TestABookIsBounded(t *testing.T) {
	b := NewBook(atNoon)
	for i := range mostDevices + 10 {
		later(b, i)
		b.Record("w", cpu(strings.Repeat("a", i+1)), seen(0.001, 10))
	}
	for i := range mostTypes + 10 {
		later(b, i)
		for range 3 {
			b.Record("v", cluster.Device{Type: strings.Repeat("t", i+1), ID: "a"}, seen(0.001, 10))
			b.Record("v", cluster.Device{Type: strings.Repeat("t", i+1), ID: "b"}, seen(0.001, 10))
		}
	}
	// A file is bounded in the same way.
	file := maps.Clone(b.pending)
	if removed := trim(file); len(removed) != 10+2*10 {
		t.Errorf("%d removed", len(removed))
	}
	all := b.Profiles()
	if len(all) != mostDevices+2*mostTypes || b.count != len(all) || len(file) != len(all) {
		t.Fatalf("%d left, %d counted, %d in the file", len(all), b.count, len(file))
	}
	for _, e := range all {
		if e.Workload == "w" && len(e.Device) <= 10 || e.Workload == "v" && len(e.Type) <= 10 {
			t.Errorf("%v was seen before others that went", e.Key)
		}
		if _, ok := file[e.Key]; !ok {
			t.Errorf("%v is not in the file", e.Key)
		}
	}
}

// later sets the clock of a book.
func later(b *Book, seconds int) {
	at := noon.Add(time.Duration(seconds) * time.Second)
	b.now = func() time.Time { return at }
}

func TestAFullBookKeepsWhatWasSeenLast(t *testing.T) {
	b := NewBook(atNoon)
	const more = mostProfiles / 8
	for i := range mostProfiles + more + 1 {
		later(b, i)
		b.Record(strconv.Itoa(i/100), cluster.Device{Type: strconv.Itoa(i / 50 % 2), ID: strconv.Itoa(i)}, seen(0.001, 10))
	}
	all := b.Profiles()
	if len(all) != mostProfiles || b.count != mostProfiles {
		t.Errorf("%d left, %d counted", len(all), b.count)
	}
	for _, e := range all {
		if e.LastSeen.Before(noon.Add((more + 1) * time.Second)) {
			t.Fatalf("%v of %v is left", e.Key, e.LastSeen)
		}
	}
}

// Whatever is recorded, in whatever order, all that comes out is within reason.
func TestRecordingStaysWithinReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBook(atNoon)
		types := []string{"v100", "k80", "cpu"}
		number := func(least, most float64, name string) float64 {
			return math.Exp(rapid.Float64Range(math.Log(least), math.Log(most)).Draw(t, name))
		}
		for range rapid.IntRange(1, 12).Draw(t, "sightings") {
			b.Record(rapid.SampledFrom([]string{"a:1", "a:2", "b"}).Draw(t, "workload"),
				cluster.Device{Type: rapid.SampledFrom(types).Draw(t, "type"), ID: rapid.SampledFrom([]string{"", "x"}).Draw(t, "id")},
				Sighting{Curve: speed.Learned{Samples: number(1e-3, 1e12, "samples"), Seconds: number(1e-9, 1e9, "seconds"),
					Share: rapid.Float64Range(0, mostShare).Draw(t, "share"), Sigma: rapid.Float64Range(0, 2).Draw(t, "sigma"),
					ShareSigma: rapid.Float64Range(0, 1).Draw(t, "share sigma")}, Steps: rapid.IntRange(1, 1<<40).Draw(t, "steps")})
		}
		for _, e := range b.Profiles() {
			if err := e.Profile.Check(); err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
			again, err := e.Record().Entry()
			if err != nil || !near(again.Curve.Seconds, e.Curve.Seconds, 1e-9) {
				t.Fatalf("%+v came back as %+v, %v", e, again, err)
			}
		}
		for _, w := range []string{"a:1", "a:2", "b"} {
			for _, r := range b.Rates(w, append(types, "h100", "unknown")) {
				known := r.SamplesPerSecond > 0 && r.Low <= r.SamplesPerSecond && r.SamplesPerSecond <= r.High
				if (r.Source != "") != known || math.IsInf(r.High, 0) {
					t.Fatalf("%s: %+v", w, r)
				}
			}
			for _, e := range b.Expect(w, []cluster.Device{{Type: "v100"}, {Type: "h100"}, {Type: "cpu", ID: "x"}}) {
				if c := e.Curve.Curve(); e.Source != "" && !(c.PerSample > 0 && c.Fixed >= 0 && e.Sigma >= 0) {
					t.Fatalf("%s: %+v", w, e)
				}
			}
		}
	})
}

// table records a made-up table of rates: workloads and devices that are so fast on the whole, and suit each other so.
func table(b *Book, suits float64) map[[2]string]float64 {
	rates := map[[2]string]float64{}
	for i, w := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		for j, d := range []string{"slow", "mid", "fast"} {
			own := suits * float64(i-4) / 4 * float64(j-1)
			rates[[2]string{w, d}] = 100 * math.Exp(float64(i%3)+float64(j)+own)
			if w != "h" || d != "fast" {
				b.Record(w, cluster.Device{Type: d}, Sighting{Curve: speed.Learned{Samples: 1,
					Seconds: 1 / rates[[2]string{w, d}], Sigma: 0.01}, Steps: 100})
			}
		}
	}
	return rates
}

func TestAnEstimateLearnsFromOtherWorkloadsAndDevices(t *testing.T) {
	b := NewBook(atNoon)
	want := table(b, 0)[[2]string{"h", "fast"}]
	r := b.Rates("h", []string{"fast"})[0]
	if r.Source != Estimated || !near(r.SamplesPerSecond, want, 0.1) || r.Low > want || r.High < want {
		t.Errorf("got %+v, want %v", r, want)
	}
}

func TestAnEstimateLearnsWhatSuitsWhichWorkload(t *testing.T) {
	b := NewBook(atNoon)
	rates := table(b, 0.5)
	want := rates[[2]string{"h", "fast"}]
	// How much faster the device is for the others, on the mean.
	factor := 1.0
	for _, w := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		factor *= math.Pow(rates[[2]string{w, "fast"}]/rates[[2]string{w, "mid"}], 1/7.0)
	}
	naive := rates[[2]string{"h", "mid"}] * factor
	r := b.Rates("h", []string{"fast"})[0]
	if r.SamplesPerSecond < 1.05*naive || r.SamplesPerSecond > want || r.Low > want || r.High < want {
		t.Errorf("got %+v, want above %v and towards %v", r, naive, want)
	}
}

// What one user's jobs show that cannot be spoils nobody else's estimates.
func TestAbsurdRatesOfOthersDoNotCount(t *testing.T) {
	clean, spoilt := NewBook(atNoon), NewBook(atNoon)
	table(clean, 0)
	want := table(spoilt, 0)[[2]string{"h", "fast"}]
	for i := range 100 {
		for j, d := range []string{"slow", "mid", "fast"} {
			spoilt.Record("absurd:"+strconv.Itoa(i), cluster.Device{Type: d}, Sighting{Curve: speed.Learned{Samples: 1,
				Seconds: []float64{1e-9, 1e9}[(i+j)%2], Sigma: 0.01}, Steps: 100})
		}
	}
	if got, honest := spoilt.Rates("h", []string{"fast"})[0], clean.Rates("h", []string{"fast"})[0]; got != honest || !near(got.SamplesPerSecond, want, 0.1) {
		t.Errorf("got %+v, want %+v", got, honest)
	}
}

func TestAnEstimateFromLessIsLessSure(t *testing.T) {
	bar := func(r Rate) float64 { return r.High / r.Low }
	many := NewBook(atNoon)
	table(many, 0)
	few := NewBook(atNoon)
	few.Record("h", cluster.Device{Type: "v100"}, seen(0.001, 100))
	fromMany := many.Rates("h", []string{"fast"})[0]
	fromFigures := few.Rates("h", []string{"k80"})[0]
	if fromFigures.Source != Estimated || !near(fromFigures.SamplesPerSecond, 220, 0.3) {
		t.Errorf("by public figures a K80 does %+v", fromFigures)
	}
	if bar(fromMany) >= bar(fromFigures) {
		t.Errorf("the bar is %v with many measured, %v with one", bar(fromMany), bar(fromFigures))
	}
}

func TestWhatNothingIsKnownOfIsNotEstimated(t *testing.T) {
	b := NewBook(atNoon)
	table(b, 0)
	for _, r := range append(b.Rates("never seen", []string{"fast", "v100"}), b.Rates("a", []string{"cpu of ours", ""})...) {
		if r.Source != "" || r.SamplesPerSecond != 0 {
			t.Errorf("got %+v", r)
		}
	}
}

// The order in which a book came to know is not in what it says.
func TestAnEstimateDoesNotDependOnOrder(t *testing.T) {
	var got []Rate
	for range 10 {
		b := NewBook(atNoon) // its maps differ in order each time
		table(b, 0.3)
		got = append(got, b.Rates("h", []string{"fast"})[0])
	}
	if slices.ContainsFunc(got, func(r Rate) bool { return r != got[0] }) {
		t.Errorf("got %+v", got)
	}
}

// Estimates for place: 1,000 workloads on 7 types, of which a fifth is not measured. Target: below 500 ms.
func BenchmarkRates(b *testing.B) {
	book := NewBook(atNoon)
	types := []string{"k80", "p100", "v100", "t4", "a100", "h100", "cpu"}
	var workloads []string
	for i := range 1000 {
		w := "w" + strings.Repeat("x", i%7) + ":" + strings.Repeat("y", i/7+1)[:min(i/7+1, 100)]
		workloads = append(workloads, w)
		for j, d := range types {
			if (i+j)%5 > 0 {
				book.Record(w, cluster.Device{Type: d}, seen(0.001*float64(1+i%11)/float64(1+j), 100))
			}
		}
	}
	for b.Loop() {
		book.fit = fit{}
		for _, w := range workloads {
			book.Rates(w, types)
		}
	}
}

// What a job waits for that opens, and a controller that asks for all: a full book in several shapes, as friends and others
// fill it. Each operation is the first after a change, on 64 types. Target: below 500 ms.
func BenchmarkFullBook(b *testing.B) {
	for name, at := range map[string]func(i int) Key{
		"devices of few types": func(i int) Key {
			return Key{fmt.Sprint("w:", i/128), []string{"A100", "v100"}[i%2], fmt.Sprint(i % 128)}
		},
		"types of each workload": func(i int) Key { return Key{fmt.Sprint("w:", i/64), fmt.Sprint("type ", i%64), ""} },
		"types nobody shares":    func(i int) Key { return Key{fmt.Sprint("w:", i/4), fmt.Sprint("type ", i), ""} },
		"types of two workloads": func(i int) Key { return Key{fmt.Sprint("w:", i%2), fmt.Sprint("type ", i/2), ""} },
	} {
		book := NewBook(time.Now)
		for i := range mostProfiles {
			k := at(i)
			book.Record(k.Workload, cluster.Device{Type: k.Type, ID: k.Device}, seen(0.001*float64(1+i%11), 100))
		}
		types := []string{"h100", "v100"}
		var devices []cluster.Device
		for i := range 62 {
			types = append(types, fmt.Sprint("type ", i))
		}
		for i := range 4096 {
			devices = append(devices, cluster.Device{Type: types[i%len(types)], ID: fmt.Sprint(i)})
		}
		for what, ask := range map[string]func(){
			"expect": func() { book.Expect("w:0", devices) },
			"rates": func() {
				for _, w := range book.Recent(types, mostRows) {
					book.Rates(w, types)
				}
			},
		} {
			b.Run(name+", "+what, func(b *testing.B) {
				for b.Loop() {
					book.Record("w:0", cluster.Device{Type: "type 0"}, seen(0.001, 100))
					book.fit = fit{}
					ask()
				}
			})
		}
	}
}
