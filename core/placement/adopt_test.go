package placement

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Whatever our own searches plan is adopted when another proposes it, and comes to the same.
func TestAdoptTakesOurOwnPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		want, err := Place(p, rapid.SampledFrom([]string{"auto", "paper"}).Draw(t, "policy"), Search{})
		if err != nil {
			t.Fatal(err)
		}
		var proposed []Placed
		for _, placed := range want.Placed {
			proposed = append(proposed, Placed{Job: placed.Job, StartSeconds: placed.StartSeconds, Shares: placed.Shares})
		}
		slices.Reverse(proposed)
		got, err := Adopt(p, want.Policy, proposed)
		if err != nil {
			t.Fatal(err)
		}
		want.LowerBoundSeconds = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Whatever is proposed, what is adopted is a plan.
func TestAdoptTakesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		var proposed []Placed
		for job := range p.Jobs {
			placed := Placed{Job: job, StartSeconds: float64(rapid.IntRange(0, 3).Draw(t, "start")) * 1000}
			for _, pool := range p.Pools {
				if n := rapid.IntRange(0, pool.Count).Draw(t, "count"); n > 0 {
					placed.Shares = append(placed.Shares, Share{pool.Node, pool.Type, n})
				}
			}
			proposed = append(proposed, placed)
		}
		if plan, err := Adopt(p, "mine", proposed); err == nil {
			check(t, p, plan)
		}
	})
}

func TestAdoptRefuses(t *testing.T) {
	job := func(id string) Job {
		return Job{ID: id, RemainingSamples: 100, GlobalBatch: 8, SamplesPerSecond: map[string]float64{"a": 1, "b": 2},
			MinWorkers: 1, MaxWorkers: 2, Weight: 1}
	}
	p := &Problem{Pools: []Pool{{"n1", "a", 2, 0}, {"n2", "a", 2, 0}, {"n1", "b", 1, 0}, {"n1", "c", 1, 0}},
		Jobs: []Job{job("x"), job("y")}}
	p.Jobs[1].SingleType = true
	p.Jobs[1].Current = []Share{{"n2", "a", 1}}
	crowded := &Problem{Pools: []Pool{{"n1", "a", 1, 0}}, Jobs: []Job{job("x"), job("y")}}
	at := func(job int, shares ...Share) Placed { return Placed{Job: job, Shares: shares} }
	later := func(start float64, placed Placed) Placed { placed.StartSeconds = start; return placed }
	y := at(1, Share{"n2", "a", 1})
	for want, c := range map[string]struct {
		p        *Problem
		proposed []Placed
	}{
		"":                           {p, []Placed{y, at(0, Share{"n1", "b", 1}, Share{"n1", "a", 1})}},
		"placed: job x is not in it": {p, []Placed{y}},
		"placed: 3 entries for 2 jobs that can run": {p, []Placed{y, at(0, Share{"n1", "a", 1}), y}},
		"placed[1].start_seconds: 1e+300, though one after another all jobs are done after 200 s": {crowded,
			[]Placed{later(1e300, at(1, Share{"n1", "a", 1})), later(1e300, at(0, Share{"n1", "a", 1}))}},
		"placed[1].shares[0]: no z on n1 in devices": {p, []Placed{y, at(0, Share{"n1", "z", 1})}},
		"placed[1].shares[1].count: 2 is not in 1 ... 1": {p, []Placed{y,
			at(0, Share{"n1", "a", 1}, Share{"n1", "a", 2})}},
		"placed[1].shares[0].count: 0 is not in 1 ... 2":         {p, []Placed{y, at(0, Share{"n1", "a", 0})}},
		"placed[1].shares: the job cannot run on all of these c": {p, []Placed{y, at(0, Share{"n1", "c", 1})}},
		"placed[1].shares: 0 devices for a job of 1 to 2":        {p, []Placed{y, at(0)}},
		"placed[1].shares: 3 devices for a job of 1 to 2": {p, []Placed{y,
			at(0, Share{"n1", "a", 2}, Share{"n1", "b", 1})}},
		"placed[0].shares: 2 types of devices for a job of a": {p, []Placed{at(1, Share{"n1", "a", 1}, Share{"n1", "b", 1}),
			at(0, Share{"n1", "a", 1})}},
		"placed[0].shares: not the devices that the job has now": {p, []Placed{at(1, Share{"n1", "a", 1}),
			at(0, Share{"n1", "a", 1})}},
		"placed[1].start_seconds: 5, though all minimums fit": {p, []Placed{y, later(5, at(0, Share{"n1", "a", 1}))}},
		"placed[1].start_seconds: -1 is not a finite number":  {p, []Placed{y, later(-1, at(0, Share{"n1", "a", 1}))}},
		"placed: 3 a on n2 in use after 0 s; there are 2":     {p, []Placed{y, at(0, Share{"n2", "a", 2})}},
		"placed: 2 a on n1 in use after 99 s; there are 1": {crowded,
			[]Placed{at(0, Share{"n1", "a", 1}), later(99, at(1, Share{"n1", "a", 1}))}},
	} {
		_, err := Adopt(c.p, "mine", c.proposed)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	plan, err := Adopt(crowded, "mine", []Placed{at(0, Share{"n1", "a", 1}), later(100, at(1, Share{"n1", "a", 1}))})
	if err != nil || plan.Model != Queue || plan.MeanSeconds != 150 || plan.Placed[1].Reason == "" {
		t.Errorf("got %+v, %v", plan, err)
	}
}
