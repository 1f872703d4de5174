package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/evenstep/evenstep/core/placement"
)

// Whatever the input, place answers with a plan that takes no device twice, or with an error, and does not hang.
func FuzzPlace(f *testing.F) {
	f.Add([]byte(`{"devices":[{"node":"n1","type":"v100","count":4,"memory_bytes":17179869184}],
		"jobs":[{"id":"j1","remaining_samples":9e7,"global_batch":1024,"samples_per_second":{"v100":700,"k80":90},
		"workers":{"min":1,"max":8},"allreduce_bytes":1e8,"types":"mixed"}],"bandwidth_bytes_per_second":1e9,"seed":1}`))
	f.Add([]byte(`{"devices":[{"node":"a","type":"t","count":1},{"node":"b","type":"u","count":2}],"jobs":[
		{"id":"x","remaining_samples":1e12,"global_batch":1,"samples_per_second":{"t":1e-300,"u":1}},
		{"id":"y","remaining_samples":1,"global_batch":9007199254740992,"samples_per_second":{"t":1e17},"weight":1e300,
		 "current":[{"node":"b","type":"u","count":2}],"restart_seconds":1e17,"waited_seconds":1e6},
		{"id":"z","remaining_samples":5,"global_batch":2,"samples_per_second":{"u":3},"workers":{"min":2},"types":"single",
		 "nodes":["b"],"memory_bytes":5}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in placementInput
		if err := readInput(nil, bytes.NewReader(data), &in); err != nil {
			return
		}
		p, err := in.problem()
		if err != nil {
			return
		}
		for _, policy := range []string{"auto", "paper"} {
			plan, err := placement.Place(p, policy, placement.Search{Budget: 10_000})
			if err != nil {
				return
			}
			if err := writeJSON(&bytes.Buffer{}, placeOutputOf(p, plan, make(rateSources, len(p.Jobs)), time.Second)); err != nil {
				t.Fatalf("%s: %v", policy, err)
			}
			explainPlan(&bytes.Buffer{}, p, plan)
			noDeviceTwice(t, p, plan)
		}
	})
}

func noDeviceTwice(t *testing.T, p *placement.Problem, plan *placement.Plan) {
	held := make(map[placement.Share]int) // by node and type
	for _, placed := range plan.Placed {
		batch := 0
		for _, n := range placed.BatchSizes {
			batch += n
		}
		if batch != p.Jobs[placed.Job].GlobalBatch {
			t.Fatalf("job %d: %v sum to %d", placed.Job, placed.BatchSizes, batch)
		}
		for _, s := range placed.Shares {
			if placed.StartSeconds == 0 {
				held[placement.Share{Node: s.Node, Type: s.Type}] += s.Count
			}
		}
	}
	for _, pool := range p.Pools {
		if n := held[placement.Share{Node: pool.Node, Type: pool.Type}]; n > pool.Count {
			t.Fatalf("%d devices of %v held", n, pool)
		}
	}
	if len(plan.Placed)+len(plan.Impossible) != len(p.Jobs) || !(plan.Gap() >= 0) {
		t.Fatalf("%d placed, %d impossible of %d; gap %v", len(plan.Placed), len(plan.Impossible), len(p.Jobs), plan.Gap())
	}
}
