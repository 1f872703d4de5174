package placement

import (
	"fmt"
	"math"
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
	if n < j.MinWorkers || n > j.MaxWorkers || j.SingleType && len(types) > 1 {
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
		if p.check() != nil {
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
