package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawProblem is small enough for exhaustive search: a few pools, some alike, and jobs with all that can restrict them.
func drawProblem(t *rapid.T) *Problem {
	p := &Problem{Bandwidth: 1e9, Seed: rapid.Uint64Range(0, 3).Draw(t, "seed")}
	pools := rapid.IntRange(1, 3).Draw(t, "pools")
	for k := range pools {
		p.Pools = append(p.Pools, Pool{
			Node: fmt.Sprint("n", rapid.IntRange(0, 1).Draw(t, "node")), Type: fmt.Sprint("t", k%2),
			Count:       rapid.IntRange(0, 3).Draw(t, "count"),
			MemoryBytes: rapid.SampledFrom([]uint64{0, 16, 80}).Draw(t, "memory"),
		})
		if k == 2 {
			p.Pools[k].Node = "n2"
		}
	}
	left := make([]int, pools)
	for k := range left {
		left[k] = p.Pools[k].Count
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
		p.Jobs = append(p.Jobs, drawJob(t, i, p.Pools, left))
	}
	return p
}

func drawJob(t *rapid.T, i int, pools []Pool, left []int) Job {
	j := Job{
		ID: fmt.Sprint("j", i), RemainingSamples: math.Pow(10, rapid.Float64Range(0, 12).Draw(t, "remaining")),
		GlobalBatch: rapid.IntRange(1, 1000).Draw(t, "batch"), MinWorkers: rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "min"),
		AllreduceBytes: rapid.SampledFrom([]float64{0, 1e6, 1e9}).Draw(t, "allreduce"),
		SingleType:     rapid.Bool().Draw(t, "single"), MemoryBytes: rapid.SampledFrom([]uint64{0, 0, 16, 40}).Draw(t, "needs"),
		Weight:           rapid.SampledFrom([]float64{1, 1, 0.5, 10}).Draw(t, "weight"),
		RestartSeconds:   rapid.SampledFrom([]float64{0, 10, 1e4}).Draw(t, "restart"),
		SamplesPerSecond: make(map[string]float64),
	}
	j.MaxWorkers = j.MinWorkers + rapid.IntRange(0, 6).Draw(t, "more")
	for _, typ := range []string{"t0", "t1"} {
		j.SamplesPerSecond[typ] = rapid.SampledFrom([]float64{0, 1, 1.7, 90, 700}).Draw(t, "speed")
	}
	if rapid.IntRange(0, 3).Draw(t, "restricted") == 0 {
		j.Nodes = []string{"n0", "n2"}
	}
	if rapid.IntRange(0, 2).Draw(t, "runs") == 0 {
		for k, pool := range pools {
			if c := rapid.IntRange(0, left[k]).Draw(t, "has"); c > 0 {
				j.Current = append(j.Current, Share{pool.Node, pool.Type, c})
				left[k] -= c
			}
		}
	}
	return j
}

// may says whether a job may have so many devices of each pool, and how long it then takes, both as the contract of
// `evenstep place` states them.
func (j *Job) may(p *Problem, counts []int) (seconds float64, ok bool) {
	n, rate, stays := 0, 0.0, true
	types := make(map[string]bool)
	for k, c := range counts {
		pool := p.Pools[k]
		current := 0
		for _, s := range j.Current {
			if s.Node == pool.Node && s.Type == pool.Type {
				current = s.Count
			}
		}
		stays = stays && current == c
		if c == 0 {
			continue
		}
		if j.SamplesPerSecond[pool.Type] == 0 || pool.MemoryBytes != 0 && pool.MemoryBytes < j.MemoryBytes ||
			j.Nodes != nil && !slices.Contains(j.Nodes, pool.Node) {
			return 0, false
		}
		n += c
		rate += float64(c) * j.SamplesPerSecond[pool.Type]
		types[pool.Type] = true
	}
	if n < j.MinWorkers || n > min(j.MaxWorkers, j.GlobalBatch) || j.SingleType && len(types) > 1 {
		return 0, false
	}
	k := float64(n)
	seconds = j.RemainingSamples/rate + j.RemainingSamples/float64(j.GlobalBatch)*2*(k-1)*j.AllreduceBytes/(k*p.Bandwidth)
	if j.Current != nil && !stays {
		seconds += j.RestartSeconds
	}
	return seconds, true
}

// exhaustive is the least weighted mean of the static model over the jobs that can run at all; infinite where they do not
// fit at once.
func exhaustive(p *Problem, jobs []int) float64 {
	left := make([]int, len(p.Pools))
	weight := 0.0
	for k, pool := range p.Pools {
		left[k] = pool.Count
	}
	for _, i := range jobs {
		weight += p.Jobs[i].Weight
	}
	var best func(at int) float64
	best = func(at int) float64 {
		if at == len(jobs) {
			return 0
		}
		j := &p.Jobs[jobs[at]]
		least := math.Inf(1)
		limits, counts := slices.Clone(left), make([]int, len(left))
		for more := true; more; more = increment(counts, limits) {
			if seconds, ok := j.may(p, counts); ok {
				for k, c := range counts {
					left[k] -= c
				}
				least = min(least, j.Weight*seconds+best(at+1))
				for k, c := range counts {
					left[k] += c
				}
			}
		}
		return least
	}
	return best(0) / weight
}

// check recomputes a plan from its devices and complains of what is broken.
func check(t interface{ Fatalf(string, ...any) }, p *Problem, plan *Plan) {
	seen := make(map[int]bool)
	mean, weight := 0.0, 0.0
	type event struct {
		at     float64
		counts []int
	}
	var starts, stops []event
	for _, placed := range plan.Placed {
		j := &p.Jobs[placed.Job]
		seen[placed.Job] = true
		counts := make([]int, len(p.Pools))
		for _, s := range placed.Shares {
			for k, pool := range p.Pools {
				if pool.Node == s.Node && pool.Type == s.Type {
					counts[k] += s.Count
				}
			}
		}
		seconds, ok := j.may(p, counts)
		if !ok {
			t.Fatalf("job %s may not have %v", j.ID, placed.Shares)
		}
		if placed.StartSeconds > 0 && j.Current != nil {
			again := *j
			again.Current = []Share{{"elsewhere", "", 1}} // it has to restart, wherever it was
			seconds, _ = again.may(p, counts)
		}
		if got := placed.JCTSeconds - placed.StartSeconds; !near(got, seconds, placed.JCTSeconds) {
			t.Fatalf("job %s runs for %v s, by its devices %v s", j.ID, got, seconds)
		}
		batch := 0
		for _, n := range placed.BatchSizes {
			batch += n
		}
		if batch != j.GlobalBatch || len(placed.BatchSizes) != sum(counts) {
			t.Fatalf("job %s: batch sizes %v on %d devices, global batch %d", j.ID, placed.BatchSizes, sum(counts), j.GlobalBatch)
		}
		if plan.Model == Static && placed.StartSeconds != 0 || placed.StartSeconds < 0 || (placed.Reason != "") != (placed.StartSeconds > 0) {
			t.Fatalf("job %s starts at %v, %q", j.ID, placed.StartSeconds, placed.Reason)
		}
		mean += j.Weight * placed.JCTSeconds
		weight += j.Weight
		starts = append(starts, event{placed.StartSeconds, counts})
		stops = append(stops, event{placed.JCTSeconds, counts})
	}
	for _, now := range starts {
		for k, pool := range p.Pools {
			held := 0
			for i, other := range starts {
				if other.at <= now.at && (plan.Model == Static || stops[i].at > now.at) {
					held += other.counts[k]
				}
			}
			if held > pool.Count {
				t.Fatalf("%d devices of %v held at %v s", held, pool, now.at)
			}
		}
	}
	for _, i := range plan.Impossible {
		if seen[i.Job] || i.Reason == "" {
			t.Fatalf("job %d is both placed and impossible, or without a reason", i.Job)
		}
		seen[i.Job] = true
	}
	if len(seen) != len(p.Jobs) {
		t.Fatalf("%d of %d jobs are in the plan", len(seen), len(p.Jobs))
	}
	if weight > 0 && !near(plan.MeanSeconds, mean/weight, mean/weight) {
		t.Fatalf("mean %v s, by its jobs %v s", plan.MeanSeconds, mean/weight)
	}
	if !(plan.LowerBoundSeconds >= 0 && plan.LowerBoundSeconds <= plan.MeanSeconds && plan.Gap() >= 0) {
		t.Fatalf("bound %v s, mean %v s", plan.LowerBoundSeconds, plan.MeanSeconds)
	}
}

func near(a, b, scale float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(scale) }

func TestPlaceAgainstExhaustiveSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		for _, policy := range Policies {
			plan, err := Place(p, policy, Search{})
			if err != nil {
				if policy == "auto" {
					t.Skip(err)
				}
				t.Fatalf("%s: %v", policy, err)
			}
			check(t, p, plan)
			var jobs []int
			for _, placed := range plan.Placed {
				jobs = append(jobs, placed.Job)
			}
			for _, i := range plan.Impossible {
				if alone := exhaustive(p, []int{i.Job}); !math.IsInf(alone, 1) {
					t.Fatalf("job %d is impossible (%s) but runs in %v s", i.Job, i.Reason, alone)
				}
			}
			optimum := exhaustive(p, jobs)
			if plan.Model == Queue {
				if !math.IsInf(optimum, 1) {
					t.Fatalf("queue model though all jobs fit at once")
				}
				optimum = queueOptimum(compile(p), true)
			}
			if plan.LowerBoundSeconds > optimum*(1+1e-12) {
				t.Fatalf("%s: bound %v s above the optimum %v s", policy, plan.LowerBoundSeconds, optimum)
			}
			if plan.MeanSeconds < optimum*(1-1e-9) {
				t.Fatalf("%s: mean %v s below the optimum %v s", policy, plan.MeanSeconds, optimum)
			}
			if policy != "paper" && plan.MeanSeconds > optimum*(1+1e-9) {
				t.Fatalf("%s: mean %v s above the optimum %v s", policy, plan.MeanSeconds, optimum)
			}
		}
	})
}

// What auto does where exact takes too long.
func TestApproximateAgainstExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		if p.Check() != nil {
			t.Skip("not a problem")
		}
		in := compile(p)
		fit := in.fit(false)
		if fit == nil || len(in.jobs) == 0 {
			t.Skip("not static")
		}
		optimum := in.exact(Search{}.work()).total()
		a, bound := in.approximate(fit, Search{}.work(), 1)
		if bound > optimum*(1+1e-12) {
			t.Fatalf("bound %v above the optimum %v", bound, optimum)
		}
		if got := a.total(); got < optimum*(1-1e-9) || got > 1.3*optimum {
			t.Fatalf("%v, optimum %v", got, optimum)
		}
	})
}

func TestPlaceOfExtremes(t *testing.T) {
	job := func(id string, remaining, speed float64) Job {
		return Job{ID: id, RemainingSamples: remaining, GlobalBatch: 10, SamplesPerSecond: map[string]float64{"v": speed},
			MinWorkers: 1, MaxWorkers: 100, Weight: 1}
	}
	overdue, fixed := job("a", 1e12, 1), job("a", 1e12, 1)
	overdue.WaitedSeconds = 90_000
	fixed.Fixed, fixed.Current = true, []Share{{"n", "v", 1}}
	many := make([]Job, 1000)
	for i := range many {
		many[i] = job(fmt.Sprint(i), 1000, 1)
	}
	wanting := job("b", 1, 1)
	wanting.MinWorkers = 11
	one, lots := []Pool{{"n", "v", 1, 0}}, []Pool{{"n", "v", 1000, 0}, {"m", "v", 0, 0}}
	for name, p := range map[string]*Problem{
		"jobs too short to tell after an overdue one": {Pools: one, Jobs: []Job{overdue, job("b", 1, 1e5), job("c", 1, 1e5)}},
		"jobs too short to tell after a fixed one":    {Pools: one, Jobs: []Job{fixed, job("b", 1, 1e5), job("c", 1, 1e5)}},
		"10^12 samples beside 1":                      {Pools: lots, Jobs: []Job{job("a", 1e12, 1), job("b", 1, 1)}},
		"a thousand alike":                            {Pools: lots, Jobs: many},
		"a thousand alike on one device":              {Pools: one, Jobs: many},
		"no devices":                                  {Pools: []Pool{{"n", "v", 0, 0}}, Jobs: []Job{job("a", 1, 1)}},
		"no speed":                                    {Pools: one, Jobs: []Job{job("a", 1, 0), job("b", 1e18, 1e-300)}},
		"more workers than samples":                   {Pools: lots, Jobs: []Job{wanting, job("a", 1e5, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			p.Bandwidth = 1
			for _, policy := range []string{"auto", "paper"} {
				for _, budget := range []int{1, 1_000_000} {
					plan, err := Place(p, policy, Search{Budget: budget})
					if err != nil {
						t.Fatal(err)
					}
					check(t, p, plan)
				}
			}
		})
	}
}

// Auto decides by what the exact programme would take whether to try it: it must not take more.
func TestExactTakesWhatItSays(t *testing.T) {
	in := compile(published(rand.New(rand.NewPCG(1, 2)), 4, []int{2, 3, 4, 5}, 1e9))
	w := Search{Budget: 1 << 40}.work()
	if in.exact(w) == nil {
		t.Fatal("not solved")
	}
	if took := float64(1<<40 - w.left); took > 1.01*in.exactWork() || took < in.exactWork()/10 {
		t.Errorf("took %.3g, said %.3g", took, in.exactWork())
	}
}

// A search that is stopped at once still leaves no device idle that a job could use.
func TestAStoppedSearchLeavesNothingIdle(t *testing.T) {
	p := published(rand.New(rand.NewPCG(1, 2)), 50, []int{100, 100, 100}, 1e12)
	plan, err := Place(p, "auto", Search{Stop: func() bool { return true }})
	if err != nil || plan.Complete {
		t.Fatal(err, plan.Complete)
	}
	check(t, p, plan)
	held := 0
	for _, placed := range plan.Placed {
		held += len(placed.BatchSizes)
	}
	if held != 300 {
		t.Errorf("%d of 300 devices are used", held)
	}
}
