package policy

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/plugin"
)

// placers are what the plugins of those names place by.
var placers = map[string]func(*placement.Problem) ([]placement.Placed, error){
	// Gives each job one device of the first pool that has one left.
	"moves": func(p *placement.Problem) (plan []placement.Placed, err error) {
		used := make([]int, len(p.Pools))
		for i := range p.Jobs {
			for k, pool := range p.Pools {
				if used[k] < pool.Count {
					used[k]++
					share := placement.Share{Node: pool.Node, Type: pool.Type, Count: 1}
					plan = append(plan, placement.Placed{Job: i, Shares: []placement.Share{share}})
					break
				}
			}
		}
		return plan, nil
	},
	"nonsense": func(*placement.Problem) ([]placement.Placed, error) { return nil, nil },
	"refuses":  func(*placement.Problem) ([]placement.Placed, error) { return nil, errors.New("not these jobs") },
	"panics":   func(*placement.Problem) ([]placement.Placed, error) { panic("oh no") },
	"hangs":    func(*placement.Problem) ([]placement.Placed, error) { time.Sleep(time.Hour); return nil, nil },
}

func twoJobs() *placement.Problem {
	job := placement.Job{ID: "x", RemainingSamples: 100, GlobalBatch: 8, MinWorkers: 1, MaxWorkers: 4, Weight: 1,
		SamplesPerSecond: map[string]float64{"a": 1, "b": 4}}
	p := &placement.Problem{Pools: []placement.Pool{{Node: "n", Type: "a", Count: 2}, {Node: "n", Type: "b", Count: 2}},
		Jobs: []placement.Job{job, job}}
	p.Jobs[1].ID = "y"
	return p
}

func TestAPluginPlans(t *testing.T) {
	place := NewPlace([]*plugin.External{external(t, "moves")}, placement.Place, hclog.NewNullLogger())
	plan, err := place(twoJobs(), "moves", placement.Search{})
	if err != nil {
		t.Fatal(err)
	}
	auto, err := place(twoJobs(), "auto", placement.Search{})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Policy != "moves" || plan.MeanSeconds != 100 || plan.LowerBoundSeconds != auto.LowerBoundSeconds ||
		auto.Policy != "auto" || !(auto.MeanSeconds < 100) {
		t.Errorf("got %+v, auto %+v", plan, auto)
	}
	if _, err := place(&placement.Problem{}, "moves", placement.Search{}); err == nil {
		t.Error("a wrong problem was planned")
	}
	if _, err := place(twoJobs(), "unknown", placement.Search{}); err == nil {
		t.Error("an unknown policy planned")
	}
}

func TestAutoPlansInThePlaceOfAPluginThatFails(t *testing.T) {
	for name, why := range map[string]string{
		"nonsense": "placed: job x is not in it",
		"refuses":  "not these jobs",
		"panics":   "its process died",
		"hangs":    "no plan within 5s",
		"stays":    "it does not offer that",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said lines
			log := hclog.New(&hclog.LoggerOptions{Output: &said})
			place := NewPlace([]*plugin.External{external(t, name)}, placement.Place, log)
			plan, err := place(twoJobs(), name, placement.Search{})
			if err != nil || plan.Policy != "auto" || len(plan.Placed) != 2 || !strings.Contains(said.String(), why) {
				t.Errorf("got %+v, %v: %s", plan, err, said.String())
			}
		})
	}
}

// The search that the caller bounds is not outlasted by a plugin.
func TestAPlanThatIsLateIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	var said lines
	place := NewPlace([]*plugin.External{external(t, "hangs")}, placement.Place, hclog.New(&hclog.LoggerOptions{Output: &said}))
	asked := 0
	stop := func() bool { asked++; return asked > 20 }
	plan, err := place(twoJobs(), "hangs", placement.Search{Stop: stop})
	if err != nil || plan.Policy != "auto" || !strings.Contains(said.String(), "no plan before the deadline") {
		t.Errorf("got %+v, %v: %s", plan, err, said.String())
	}
}

func TestAPlanThatDoesNotFitTheWire(t *testing.T) {
	p := twoJobs()
	p.Jobs[1].GlobalBatch = math.MaxUint32 + 1
	var said lines
	place := NewPlace([]*plugin.External{external(t, "moves")}, placement.Place, hclog.New(&hclog.LoggerOptions{Output: &said}))
	if plan, err := place(p, "moves", placement.Search{}); err != nil || plan.Policy != "auto" ||
		!strings.Contains(said.String(), "jobs[1].global_batch: 4294967296 is more than plugins are told") {
		t.Errorf("got %+v, %v: %s", plan, err, said.String())
	}
}

// No field of a problem is forgotten on the way.
func TestAProblemOnTheWire(t *testing.T) {
	share := []placement.Share{{Node: "n", Type: "a", Count: 1}}
	p := &placement.Problem{
		Pools: []placement.Pool{{Node: "n", Type: "a", Count: 2, MemoryBytes: 3}},
		Jobs: []placement.Job{{ID: "x", RemainingSamples: 1, GlobalBatch: 2, SamplesPerSecond: map[string]float64{"a": 3},
			MinWorkers: 4, MaxWorkers: 5, AllreduceBytes: 6, SingleType: true, MemoryBytes: 7, Nodes: []string{"n"}, Weight: 8,
			Current: share, RestartSeconds: 9, WaitedSeconds: 10, Fixed: true}},
		Bandwidth: 11, Seed: 12,
	}
	for _, value := range []any{*p, p.Pools[0], p.Jobs[0]} {
		v := reflect.ValueOf(value)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s is not set", v.Type().Field(i).Name)
			}
		}
	}
	if diff := cmp.Diff(p, placementProblem(placeRequest(p))); diff != "" {
		t.Error(diff)
	}
}
