// Command evenstep-policy-smoothed is a complete policy plugin: batch sizes follow each worker's smoothed speed.
//
//	go build -o plugins/evenstep-policy-smoothed ./examples/policy-plugin
//	evenstep plugins --plugin-dir plugins
//	torchrun --rdzv-backend=evenstep --rdzv-conf=policy=smoothed,plugin_dir=$PWD/plugins ... train.py
package main

import (
	"fmt"
	"slices"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
	"github.com/evenstep/evenstep/plugin/policy"
)

func main() { policy.Serve(policy.Policy{Version: "1.0.0", Size: newSmoothed}) }

const (
	newest = 0.2  // weight of the newest speed
	worth  = 0.02 // share of the step time that a move must save
)

// smoothed is the policy of one job.
type smoothed struct {
	problem  sizing.Problem
	speeds   []float64 // samples per second, by worker; 0 while not known
	decision sizing.Decision
}

func newSmoothed(p sizing.Problem, start []int) (sizing.Policy, error) {
	s := &smoothed{problem: p, speeds: make([]float64, len(p.Workers))}
	s.decision.BatchSizes = start
	return s, nil
}

// Step learns from a step and decides which sizes to train on.
func (s *smoothed) Step(seen []speed.Observation, _ int) (d sizing.Decision, changed bool) {
	for i, o := range seen {
		switch v, known := o.Speed(); {
		case known && s.speeds[i] == 0:
			s.speeds[i] = v
		case known:
			s.speeds[i] += newest * (v - s.speeds[i])
		}
	}
	if slices.Contains(s.speeds, 0) {
		s.decision.Reason = "not all speeds are known yet"
		return s.decision, false
	}
	p := s.problem
	p.Workers = slices.Clone(p.Workers)
	for i, v := range s.speeds {
		p.Workers[i].Curve = speed.Affine{PerSample: 1 / v}
	}
	now := p.StepSeconds(s.decision.BatchSizes)
	next := make([]int, len(p.Workers))
	then, err := sizing.MinMax(p, next)
	if err != nil || then > (1-worth)*now {
		s.decision.StepSeconds = now
		return s.decision, false
	}
	s.decision = sizing.Decision{
		BatchSizes:  next,
		StepSeconds: then,
		Reason:      fmt.Sprintf("by the smoothed speeds a step takes %.3g s, not %.3g s", then, now),
	}
	return s.decision, true
}
