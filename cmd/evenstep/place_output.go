package main

import (
	"time"

	"github.com/evenstep/evenstep/core/placement"
)

// placeOutput is the JSON that place writes.
type placeOutput struct {
	Model             placement.Model    `json:"model"`
	Policy            string             `json:"policy"`
	Complete          bool               `json:"complete"`
	MeanJCTSeconds    float64            `json:"mean_jct_seconds"`
	LowerBoundSeconds float64            `json:"lower_bound_seconds"`
	Gap               float64            `json:"gap"`
	DecisionSeconds   float64            `json:"decision_seconds"`
	Fairness          fairnessOutput     `json:"fairness"`
	Jobs              []placedOutput     `json:"jobs"`
	Waiting           []waitingOutput    `json:"waiting"`
	Impossible        []impossibleOutput `json:"impossible"`
}

type fairnessOutput struct {
	Jain   float64 `json:"jain"`
	MaxRho float64 `json:"max_rho"`
}

// placedOutput is a job that runs, now or later.
type placedOutput struct {
	ID           string         `json:"id"`
	JCTSeconds   float64        `json:"jct_seconds"`
	StartSeconds float64        `json:"start_seconds"`
	Workers      map[string]int `json:"workers"` // by type
	Devices      []shareOutput  `json:"devices"`
	BatchSizes   []int          `json:"batch_sizes"`
	// RateSource says by type where the speed came from: profile, estimate or input.
	RateSource map[string]string `json:"rate_source,omitzero"`
}

type shareOutput struct {
	Node  string `json:"node"`
	Type  string `json:"type"`
	Count int    `json:"count"`
}

// waitingOutput says of a job that runs later why it does.
type waitingOutput struct {
	ID           string  `json:"id"`
	Reason       string  `json:"reason"`
	StartSeconds float64 `json:"start_seconds"`
}

type impossibleOutput struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

func placeOutputOf(p *placement.Problem, plan *placement.Plan, sources rateSources, took time.Duration) placeOutput {
	out := placeOutput{
		Model: plan.Model, Policy: plan.Policy, Complete: plan.Complete, MeanJCTSeconds: plan.MeanSeconds,
		LowerBoundSeconds: plan.LowerBoundSeconds, Gap: plan.Gap(), DecisionSeconds: took.Seconds(),
		Fairness: fairnessOutput(plan.Fairness), Jobs: []placedOutput{}, Waiting: []waitingOutput{},
		Impossible: []impossibleOutput{},
	}
	for _, placed := range plan.Placed {
		id := p.Jobs[placed.Job].ID
		job := placedOutput{ID: id, JCTSeconds: placed.JCTSeconds, StartSeconds: placed.StartSeconds,
			Workers: make(map[string]int), BatchSizes: placed.BatchSizes, RateSource: sources[placed.Job]}
		for _, s := range placed.Shares {
			job.Workers[s.Type] += s.Count
			job.Devices = append(job.Devices, shareOutput(s))
		}
		out.Jobs = append(out.Jobs, job)
		if placed.Reason != "" {
			out.Waiting = append(out.Waiting, waitingOutput{id, placed.Reason, placed.StartSeconds})
		}
	}
	for _, i := range plan.Impossible {
		out.Impossible = append(out.Impossible, impossibleOutput{p.Jobs[i.Job].ID, i.Reason})
	}
	return out
}
