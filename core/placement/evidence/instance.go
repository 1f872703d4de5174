package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/evenstep/evenstep/core/placement"
)

// instance draws a problem: devices of types 0, 1, 2 … on one node.
func instance(rng *rand.Rand, s setting) *placement.Problem {
	p := &placement.Problem{Bandwidth: s.bandwidth, Seed: 1}
	for k, c := range s.capacity {
		p.Pools = append(p.Pools, placement.Pool{Node: "n", Type: fmt.Sprint("t", k), Count: c})
	}
	p.Jobs = jobs(rng, s.jobs, p.Pools)
	return p
}

// jobs draws jobs for the types of the pools. A job's speed on a type is what is usual there, of 300 to 2,000 samples a
// second, times 0.8 to 1.6 for the job, times 0.7 to 1.3 for the pair; it has 5 to 40 rounds of 20,000 to 200,000 samples
// and exchanges 10 to 500 MB.
func jobs(rng *rand.Rand, n int, pools []placement.Pool) []placement.Job {
	var types []string
	devices := 0
	for _, pool := range pools {
		if !slices.Contains(types, pool.Type) {
			types = append(types, pool.Type)
		}
		devices += pool.Count
	}
	uniform := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	base := []float64{300, 700, 1500, 500, 1000, 2000, 400}
	all := make([]placement.Job, n)
	for i := range all {
		own, speeds := uniform(0.8, 1.6), make(map[string]float64)
		for k, t := range types {
			speeds[t] = base[k%len(base)] * own * uniform(0.7, 1.3)
		}
		samples := math.Floor(uniform(20e3, 200e3))
		all[i] = placement.Job{ID: fmt.Sprint("j", i), RemainingSamples: math.Floor(uniform(5, 41)) * samples,
			GlobalBatch: int(samples), SamplesPerSecond: speeds, MinWorkers: 1, MaxWorkers: devices, Weight: 1,
			AllreduceBytes: uniform(1e7, 5e8)}
	}
	return all
}

// readInventory reads nodes with the columns sn (the node), gpu (how many) and model.
func readInventory(path string) ([]placement.Pool, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w; EVENSTEP_DATA is to hold openb/openb_node_list_gpu_node.csv of "+
			"hkust-adsl/kubernetes-scheduler-simulator, with the columns sn, gpu, model", err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	node, count, model := column("sn"), column("gpu"), column("model")
	if len(rows) < 2 || min(node, count, model) < 0 {
		return nil, fmt.Errorf("%s: no columns sn, gpu, model", path)
	}
	var pools []placement.Pool
	for i, row := range rows[1:] {
		n, err := strconv.Atoi(row[count])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: gpu: %q is not a number", path, i+2, row[count])
		}
		pools = append(pools, placement.Pool{Node: row[node], Type: row[model], Count: n})
	}
	return pools, nil
}
