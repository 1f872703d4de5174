package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// Whatever the input, size answers with sizes that sum to the global batch or with an error, and does not hang.
func FuzzSize(f *testing.F) {
	f.Add([]byte(`{"global_batch":1024,"quantum":8,"workers":[
		{"id":"a","min":8,"max":512,"communicate_seconds":0.003,
		 "curve":{"fixed_seconds":0.01,"seconds_per_sample":0.001,"floor_seconds":0.02}},
		{"id":"b","points":[[8,0.02],[64,0.11],[256,0.43]]}]}`))
	f.Add([]byte(`{"global_batch":9007199254740992,"workers":[{"id":"a","points":[[1,1e-300],[2,1e291]]},
		{"id":"b","min":0,"curve":{"seconds_per_sample":0}},{"id":"c","curve":{"seconds_per_sample":1e-320}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in problemInput
		if err := readInput(nil, bytes.NewReader(data), &in); err != nil {
			return
		}
		p, err := in.problem()
		if err != nil {
			return
		}
		out, err := size(p, "auto", in.Workers.value)
		if err != nil {
			if strings.Contains(err.Error(), "falls") {
				t.Fatal(err)
			}
			return
		}
		for _, sizes := range [][]int{out.BatchSizes.sizes, out.EqualBatchSizes.sizes} {
			sum := 0
			for _, n := range sizes {
				sum += n
			}
			if sum != p.GlobalBatch {
				t.Fatalf("%v sum to %d", sizes, sum)
			}
		}
		if !(out.StepSeconds <= out.EqualStepSeconds) || math.IsInf(out.EqualStepSeconds, 1) {
			t.Fatalf("%v s, equal %v s", out.StepSeconds, out.EqualStepSeconds)
		}
		if err := writeJSON(&bytes.Buffer{}, out); err != nil {
			t.Fatal(err)
		}
	})
}
