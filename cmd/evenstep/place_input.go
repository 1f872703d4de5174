package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/profile"
)

// placementInput is one instance of placement as users write it.
type placementInput struct {
	Devices                 given[[]deviceInput] `json:"devices"`
	Jobs                    given[[]jobInput]    `json:"jobs"`
	BandwidthBytesPerSecond given[amount]        `json:"bandwidth_bytes_per_second"`
	DeadlineMilliseconds    given[amount]        `json:"deadline_milliseconds"`
	Budget                  given[whole]         `json:"budget"`
	Seed                    given[whole]         `json:"seed"`
}

type deviceInput struct {
	Node        given[string] `json:"node"`
	Type        given[string] `json:"type"`
	Count       given[whole]  `json:"count"`
	MemoryBytes given[whole]  `json:"memory_bytes"`
}

type jobInput struct {
	ID               given[string]            `json:"id"`
	RemainingSamples given[amount]            `json:"remaining_samples"`
	GlobalBatch      given[whole]             `json:"global_batch"`
	Workload         given[string]            `json:"workload"`
	SamplesPerSecond given[map[string]amount] `json:"samples_per_second"`
	Workers          given[workersInput]      `json:"workers"`
	AllreduceBytes   given[amount]            `json:"allreduce_bytes"`
	Types            given[string]            `json:"types"`
	MemoryBytes      given[whole]             `json:"memory_bytes"`
	Nodes            given[[]string]          `json:"nodes"`
	Weight           given[amount]            `json:"weight"`
	Current          given[[]shareInput]      `json:"current"`
	RestartSeconds   given[amount]            `json:"restart_seconds"`
	WaitedSeconds    given[amount]            `json:"waited_seconds"`
}

type workersInput struct {
	Min given[whole] `json:"min"`
	Max given[whole] `json:"max"`
}

type shareInput struct {
	Node  given[string] `json:"node"`
	Type  given[string] `json:"type"`
	Count given[whole]  `json:"count"`
}

// problem fills in the defaults. The error names the field that is wrong; what concerns values is left to placement.
func (in *placementInput) problem() (*placement.Problem, error) {
	p := &placement.Problem{
		Bandwidth: float64(in.BandwidthBytesPerSecond.value),
		Seed:      uint64(in.Seed.or(1)),
	}
	switch {
	case in.Seed.value < 0:
		return nil, fmt.Errorf("seed: %d is below 0", in.Seed.value)
	case in.Budget.set && in.Budget.value < 1:
		return nil, fmt.Errorf("budget: %d is below 1", in.Budget.value)
	}
	devices := 0
	for i, d := range in.Devices.value {
		if !d.Count.set {
			return nil, fmt.Errorf("devices[%d].count: missing; give how many there are", i)
		}
		if d.MemoryBytes.value < 0 {
			return nil, fmt.Errorf("devices[%d].memory_bytes: %d is below 0", i, d.MemoryBytes.value)
		}
		p.Pools = append(p.Pools, placement.Pool{Node: d.Node.value, Type: d.Type.value, Count: int(d.Count.value),
			MemoryBytes: uint64(d.MemoryBytes.value)})
		devices += max(0, min(int(d.Count.value), maxWhole-devices))
	}
	for i := range in.Jobs.value {
		j, err := in.Jobs.value[i].job(devices)
		if err != nil {
			return nil, fmt.Errorf("jobs[%d].%w", i, err)
		}
		p.Jobs = append(p.Jobs, j)
	}
	return p, nil
}

// job fills in the defaults of one job; devices is how many there are in all.
func (in *jobInput) job(devices int) (j placement.Job, err error) {
	workers := in.Workers.value
	j = placement.Job{
		ID: in.ID.value, RemainingSamples: float64(in.RemainingSamples.value), GlobalBatch: int(in.GlobalBatch.value),
		SamplesPerSecond: make(map[string]float64, len(in.SamplesPerSecond.value)),
		MinWorkers:       int(workers.Min.or(1)), AllreduceBytes: float64(in.AllreduceBytes.value),
		MemoryBytes: uint64(in.MemoryBytes.value), Weight: float64(in.Weight.or(1)),
		RestartSeconds: float64(in.RestartSeconds.value), WaitedSeconds: float64(in.WaitedSeconds.value),
	}
	j.MaxWorkers = int(workers.Max.or(whole(max(devices, j.MinWorkers))))
	switch {
	case in.MemoryBytes.value < 0:
		return j, fmt.Errorf("memory_bytes: %d is below 0", in.MemoryBytes.value)
	case !in.RemainingSamples.set:
		return j, errors.New("remaining_samples: missing; give the samples left to train on")
	case !in.GlobalBatch.set:
		return j, errors.New("global_batch: missing; give the samples of one step")
	case !in.SamplesPerSecond.set && !in.Workload.set:
		return j, errors.New("samples_per_second: missing; give the speed on each device type, or a workload of the profiles")
	}
	for t, rate := range in.SamplesPerSecond.value {
		j.SamplesPerSecond[t] = float64(rate)
	}
	switch types := in.Types.or("mixed"); types {
	case "mixed":
	case "single":
		j.SingleType = true
	default:
		return j, fmt.Errorf("types: %q is neither mixed nor single", types)
	}
	if in.Nodes.set {
		j.Nodes = append([]string{}, in.Nodes.value...)
	}
	for i, s := range in.Current.value {
		if !s.Count.set {
			return j, fmt.Errorf("current[%d].count: missing; give how many it has", i)
		}
		j.Current = append(j.Current, placement.Share{Node: s.Node.value, Type: s.Type.value, Count: int(s.Count.value)})
	}
	return j, nil
}

// rateSources is where each job's speeds come from, by device type; nil for jobs that name no workload.
type rateSources []map[string]string

// profiled fills in the speeds of the jobs that name a workload and give none, from the profiles.
func (in *placementInput) profiled(p *placement.Problem, file string) (rateSources, error) {
	var book *profile.Book
	sources := make(rateSources, len(p.Jobs))
	for i := range in.Jobs.value {
		job := &in.Jobs.value[i]
		if !job.Workload.set {
			continue
		}
		if err := profile.CheckWorkload(job.Workload.value); err != nil {
			return nil, badInput(fmt.Errorf("jobs[%d].workload: %w", i, err))
		}
		sources[i] = make(map[string]string)
		for t := range job.SamplesPerSecond.value {
			sources[i][t] = "input"
		}
		if job.SamplesPerSecond.set {
			continue
		}
		if book == nil {
			var err error
			if book, err = (&profilesFlags{file: file}).read(); err != nil {
				return nil, err
			}
		}
		for _, rate := range book.Rates(job.Workload.value, types(p)) {
			if rate.Source != "" {
				p.Jobs[i].SamplesPerSecond[rate.Type] = rate.SamplesPerSecond
				sources[i][rate.Type] = string(rate.Source)
			}
		}
		if len(sources[i]) == 0 {
			return nil, badInput(fmt.Errorf("jobs[%d].workload: nothing is known of %q on these devices; give "+
				"samples_per_second", i, job.Workload.value))
		}
	}
	return sources, nil
}

// types lists the problem's device types, each once.
func types(p *placement.Problem) (all []string) {
	for _, pool := range p.Pools {
		if !slices.Contains(all, pool.Type) {
			all = append(all, pool.Type)
		}
	}
	return all
}
