package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawRound draws a round of few jobs on few devices; speeds and lengths come from short lists, so that ties are
// common.
func drawRound(t *rapid.T) *RoundProblem {
	p := &RoundProblem{Aim: Aim(rapid.IntRange(0, 2).Draw(t, "aim"))}
	types := rapid.IntRange(1, 3).Draw(t, "types")
	for range types {
		p.Devices = append(p.Devices, rapid.IntRange(0, 4).Draw(t, "devices"))
	}
	for range rapid.IntRange(0, 6).Draw(t, "jobs") {
		j := RoundJob{SecondsLeft: rapid.SampledFrom([]float64{0, 60, 3600, 3600, 1e5}).Draw(t, "left"),
			SecondsServed: rapid.SampledFrom([]float64{0, 3600, 1e6}).Draw(t, "served"), Weight: 1, Now: -1}
		devices := rapid.IntRange(1, 3).Draw(t, "size")
		for range rapid.IntRange(0, 4).Draw(t, "ways") {
			way := Way{Counts: make([]int, types), Speed: rapid.SampledFrom([]float64{1, 0.5, 0.1}).Draw(t, "speed")}
			for range devices {
				way.Counts[rapid.IntRange(0, types-1).Draw(t, "type")]++
			}
			j.Ways = append(j.Ways, way)
		}
		if len(j.Ways) > 0 {
			j.Now = rapid.IntRange(-1, len(j.Ways)-1).Draw(t, "now")
		}
		p.Jobs = append(p.Jobs, j)
	}
	return p
}

// checkFits checks that a plan has one of its ways, or none, for each job, within what is free.
func checkFits(t interface{ Fatalf(string, ...any) }, p *RoundProblem, plan *RoundPlan) {
	left := slices.Clone(p.Devices)
	for i, w := range plan.Ways {
		if w < -1 || w >= len(p.Jobs[i].Ways) {
			t.Fatalf("job %d has no way %d", i, w)
		}
		if w < 0 || p.Hold && p.Jobs[i].Now >= 0 {
			continue
		}
		for k, n := range p.Jobs[i].Ways[w].Counts {
			if left[k] -= n; left[k] < 0 {
				t.Fatalf("more devices of type %d than the %d that are free: %v", k, p.Devices[k], plan.Ways)
			}
		}
	}
}

// every is the largest value over all choices.
func (k *knapsack) every(i int, left []int) float64 {
	if i == len(k.items) {
		return 0
	}
	best := k.every(i+1, left)
	for w, way := range k.items[i].ways {
		if within(way.Counts, left) {
			rest := slices.Clone(left)
			for t, n := range way.Counts {
				rest[t] -= n
			}
			best = max(best, k.items[i].values[w]+k.every(i+1, rest))
		}
	}
	return best
}

func TestRoundIsTheBestChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawRound(t)
		plan, err := Round(p)
		if err != nil {
			t.Fatal(err)
		}
		checkFits(t, p, plan)
		k := p.knapsack()
		if best := k.every(0, p.Devices); math.Abs(plan.Value-best) > 1e-9*best || plan.Bound != plan.Value {
			t.Fatalf("worth %v, bound %v; the best of all is %v", plan.Value, plan.Bound, best)
		}
	})
}

// Prices give a choice that fits, below a bound that holds, on any instance however small.
func TestPricesBoundTheBestChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawRound(t)
		k := p.knapsack()
		plan := k.priced()
		checkFits(t, p, plan)
		best := k.every(0, p.Devices)
		if plan.Bound < best-1e-9*best || plan.Value > best+1e-9*best {
			t.Fatalf("%v <= %v <= %v does not hold", plan.Value, best, plan.Bound)
		}
	})
}

// roundCrowd is so many jobs on so many devices, with the sizes of Gavel's generator.
func roundCrowd(jobs, types, devices int, seed uint64) *RoundProblem {
	random := rand.New(rand.NewPCG(seed, 1))
	p := &RoundProblem{Devices: slices.Repeat([]int{devices / types}, types)}
	for range jobs {
		size := []int{1, 1, 1, 1, 2, 2, 4, 8}[random.IntN(8)]
		j := RoundJob{SecondsLeft: 3600 * math.Exp(1.5*random.NormFloat64()), Weight: 1, Now: -1}
		fastest := 0.0
		for t := range types {
			way := Way{Counts: make([]int, types), Speed: math.Exp(0.7*random.NormFloat64() - 0.3*float64(t))}
			way.Counts[t] = size
			fastest = max(fastest, way.Speed)
			j.Ways = append(j.Ways, way)
		}
		for w := range j.Ways {
			j.Ways[w].Speed /= fastest
		}
		p.Jobs = append(p.Jobs, j)
	}
	return p
}

func TestLargeRoundsAreNearTheirBound(t *testing.T) {
	for _, c := range []struct {
		jobs, types, devices int
		gap                  float64
	}{{2048, 3, 980, 1e-5}, {2048, 7, 980, 2e-4}, {10000, 3, 1000, 1e-5}} {
		for seed := range uint64(3) {
			p := roundCrowd(c.jobs, c.types, c.devices, seed)
			plan, err := Round(p)
			if err != nil {
				t.Fatal(err)
			}
			checkFits(t, p, plan)
			if gap := 1 - plan.Value/plan.Bound; !(gap <= c.gap) {
				t.Errorf("%d jobs on %d devices of %d types, seed %d: %.2g below the bound", c.jobs, c.devices, c.types,
					seed, gap)
			}
		}
	}
}

func TestRoundPrefers(t *testing.T) {
	job := func(now int, seconds, served float64, speeds ...float64) RoundJob {
		j := RoundJob{SecondsLeft: seconds, SecondsServed: served, Weight: 1, Now: now}
		for w, s := range speeds {
			j.Ways = append(j.Ways, Way{Counts: []int{1 - w, w}, Speed: s})
		}
		return j
	}
	heavy := job(-1, 3600, 0, 1)
	heavy.Weight = 2
	for name, c := range map[string]struct {
		aim     Aim
		devices []int
		jobs    []RoundJob
		want    []int
	}{
		"the shortest": {MeanJCT, []int{1, 0},
			[]RoundJob{job(-1, 7200, 0, 1), job(-1, 3600, 0, 1)}, []int{-1, 0}},
		"the least served where lengths are unknown": {MeanJCTUnknown, []int{1, 0},
			[]RoundJob{job(-1, 1, 7200, 1), job(-1, 9, 0, 1)}, []int{-1, 0}},
		"the longest for the makespan": {Makespan, []int{1, 0},
			[]RoundJob{job(-1, 7200, 0, 1), job(-1, 3600, 0, 1)}, []int{0, -1}},
		"the heavier": {MeanJCT, []int{1, 0},
			[]RoundJob{job(-1, 3600, 0, 1), heavy}, []int{-1, 0}},
		"who runs, where it is nearly the same": {MeanJCT, []int{1, 0},
			[]RoundJob{job(-1, 3500, 0, 1), job(0, 3600, 0, 1)}, []int{-1, 0}},
		"each where it is fast": {MeanJCT, []int{1, 1},
			[]RoundJob{job(-1, 3600, 0, 1, 0.9), job(-1, 3600, 0, 1, 0.2)}, []int{1, 0}},
		"nobody where nothing is free": {MeanJCT, []int{0, 0},
			[]RoundJob{job(-1, 3600, 0, 1, 1)}, []int{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := Round(&RoundProblem{Aim: c.aim, Devices: c.devices, Jobs: c.jobs})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(plan.Ways, c.want) {
				t.Errorf("got %v, want %v", plan.Ways, c.want)
			}
		})
	}
}

// With Hold no one who runs stops, and of few jobs those start who start in the best of all orders.
func TestHolding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawRound(t)
		p.Hold = true
		plan, err := Round(p)
		if err != nil {
			t.Fatal(err)
		}
		checkFits(t, p, plan)
		var waiting []int
		for i, j := range p.Jobs {
			if j.Now >= 0 && plan.Ways[i] != j.Now {
				t.Fatalf("job %d ran in way %d and now does in %d", i, j.Now, plan.Ways[i])
			}
			if j.Now < 0 {
				waiting = append(waiting, i)
			}
		}
		if len(waiting) > 4 || len(waiting) == 0 || !p.anyFits(waiting) {
			return
		}
		a := newAhead(p)
		found, least := a.schedule(plan.Order, 0, math.Inf(1)), math.Inf(1)
		permute(waiting, 0, func(order []int) { least = min(least, a.schedule(order, 0, math.Inf(1))) })
		if found > least*1.0000001 {
			t.Fatalf("ends sum to %v, in the best order to %v", found, least)
		}
	})
}

func permute(order []int, from int, f func([]int)) {
	if from == len(order) {
		f(order)
	}
	for i := from; i < len(order); i++ {
		order[from], order[i] = order[i], order[from]
		permute(order, from+1, f)
		order[from], order[i] = order[i], order[from]
	}
}

// A job waits for a fast device that is free soon rather than start on a slow one for good.
func TestHoldingWaitsForAFastDevice(t *testing.T) {
	ways := []Way{{Counts: []int{1, 0}, Speed: 1}, {Counts: []int{0, 1}, Speed: 0.1}}
	p := &RoundProblem{Devices: []int{0, 1}, Hold: true, Seconds: 360, Jobs: []RoundJob{
		{Ways: ways, SecondsLeft: 300, Weight: 1, Now: 0}, {Ways: ways, SecondsLeft: 3600, Weight: 1, Now: -1}}}
	plan, err := Round(p)
	if err != nil || plan.Ways[1] != -1 {
		t.Errorf("it runs in way %v, %v", plan.Ways, err)
	}
	p.Jobs[0].SecondsLeft = 1e6
	plan, err = Round(p)
	if err != nil || plan.Ways[1] != 1 {
		t.Errorf("it waits for days: %v, %v", plan.Ways, err)
	}
}

func TestRoundRefuses(t *testing.T) {
	good := func() *RoundProblem {
		return &RoundProblem{Devices: []int{4}, Jobs: []RoundJob{
			{Ways: []Way{{Counts: []int{1}, Speed: 1}}, Weight: 1, Now: -1}}}
	}
	for _, c := range []struct {
		want  string
		spoil func(*RoundProblem, *RoundJob)
	}{
		{"devices[0]: -1 is not in 0 ... 10000000",
			func(p *RoundProblem, _ *RoundJob) { p.Devices[0] = -1 }},
		{"seconds: NaN is not a finite number >= 0",
			func(p *RoundProblem, _ *RoundJob) { p.Seconds = math.NaN() }},
		{"jobs[0].seconds_left: -1 is not a finite number >= 0",
			func(_ *RoundProblem, j *RoundJob) { j.SecondsLeft = -1 }},
		{"jobs[0].seconds_served: -1 is not a finite number >= 0",
			func(_ *RoundProblem, j *RoundJob) { j.SecondsServed = -1 }},
		{"jobs[0].weight: 0 is not a finite number > 0",
			func(_ *RoundProblem, j *RoundJob) { j.Weight = 0 }},
		{"jobs[0].now: 1 is not in -1 ... 0",
			func(_ *RoundProblem, j *RoundJob) { j.Now = 1 }},
		{"jobs[0].ways[0].counts: 2 numbers for 1 types",
			ways([]int{1, 0}, 1)},
		{"jobs[0].ways[0].counts: no device",
			ways([]int{0}, 1)},
		{"jobs[0].ways[0].counts: [-1] has a number below 0",
			ways([]int{-1}, 1)},
		{"jobs[0].ways[0].speed: 1.5 is not in (0, 1]",
			ways([]int{1}, 1.5)},
		{"jobs[0].ways: 32769 are more than 32767",
			func(_ *RoundProblem, j *RoundJob) { j.Ways = make([]Way, 32769) }},
	} {
		p := good()
		c.spoil(p, &p.Jobs[0])
		if _, err := Round(p); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func ways(counts []int, speed float64) func(*RoundProblem, *RoundJob) {
	return func(_ *RoundProblem, j *RoundJob) { j.Ways = []Way{{Counts: counts, Speed: speed}} }
}

// Target: 2,048 jobs on 980 devices in 0.3 s; a round of Gavel's traces, 100 jobs on 48 devices, in 50 ms.
func BenchmarkRound(b *testing.B) {
	for _, c := range [][3]int{{100, 3, 48}, {2048, 3, 980}, {2048, 7, 980}, {10000, 3, 1000}} {
		b.Run(fmt.Sprintf("%d jobs on %d devices of %d types", c[0], c[2], c[1]), func(b *testing.B) {
			p := roundCrowd(c[0], c[1], c[2], 1)
			for b.Loop() {
				if _, err := Round(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Target: 50 ms, but for the first round.
func BenchmarkRoundHolding(b *testing.B) {
	p := roundCrowd(100, 3, 48, 1)
	p.Hold, p.Seconds = true, 360
	plan, err := Round(p)
	if err != nil {
		b.Fatal(err)
	}
	p.Order = plan.Order
	for b.Loop() {
		if _, err := Round(p); err != nil {
			b.Fatal(err)
		}
	}
}
