package main

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/sizing"
)

func newSizeCommand() *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use:   "size [FILE]",
		Short: "Split one global batch among workers of known speed",
		Long: `Size solves one instance of batch sizing, JSON in, JSON out. FILE absent or - is stdin:

  {"global_batch":1024,"quantum":8,"workers":[
    {"id":"a","min":8,"max":512,"communicate_seconds":0.003,
     "curve":{"fixed_seconds":0.01,"seconds_per_sample":0.001,"floor_seconds":0.02}},
    {"id":"b","points":[[8,0.02],[64,0.11],[256,0.43]]}]}

A worker takes communicate + max(floor, fixed + seconds_per_sample*n) for n samples, or, of measured points, what lies
on the line between them, the first before them and the last slope after them; a single point means proportional. It
takes nothing for 0 samples, which only "min":0 allows. Limits count rounded to the quantum, min up and max down.
Defaults: quantum 1, min = quantum, max = global_batch, the rest 0.

Policy auto minimises the time of the slowest worker, exactly; equal deals evenly within the limits. lbbsp-cpu deals in
proportion to the speeds at equal batch sizes; lbbsp-gpu-analytic is LB-BSP's solver for GPUs, as exact as auto.`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPolicy(policy); err != nil {
				return badInput(err)
			}
			var in problemInput
			if err := readInput(args, cmd.InOrStdin(), &in); err != nil {
				return badInput(err)
			}
			problem, err := in.problem()
			if err != nil {
				return badInput(err)
			}
			out, err := size(problem, policy, in.Workers.value)
			var nothingFits *sizing.InfeasibleError
			switch {
			case errors.As(err, &nothingFits):
				return infeasible(err)
			case err != nil:
				return badInput(err)
			}
			return writeJSON(cmd.OutOrStdout(), out)
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "auto", sizingPolicies)
	return cmd
}

const sizingPolicies = "auto, equal, lbbsp-cpu or lbbsp-gpu-analytic"

func checkPolicy(policy string) error {
	switch policy {
	case "auto", "equal", "lbbsp-cpu", "lbbsp-gpu-analytic":
		return nil
	case "lbbsp-gpu-tuning":
		return fmt.Errorf("--policy: %s learns from a job's steps and cannot size one instance; give %s", policy,
			sizingPolicies)
	}
	return fmt.Errorf("--policy: unknown policy %q; give %s", policy, sizingPolicies)
}

// size solves the problem by the policy, and by equal for comparison.
func size(p sizing.Problem, policy string, workers []workerInput) (sizeOutput, error) {
	sizes, equal := make([]int, len(workers)), make([]int, len(workers))
	if err := sizing.Equal(p, equal); err != nil {
		return sizeOutput{}, err
	}
	out := sizeOutput{policy, byID{workers, sizes}, 0, byID{workers, equal}, p.StepSeconds(equal)}
	var err error
	switch policy {
	case "equal":
		out.BatchSizes, out.StepSeconds = out.EqualBatchSizes, out.EqualStepSeconds
	case "lbbsp-cpu":
		out.StepSeconds, err = sizing.ProportionalSizes(p, sizes)
	case "lbbsp-gpu-analytic":
		out.StepSeconds, err = sizing.Analytic(p, sizes)
	default:
		out.StepSeconds, err = sizing.MinMax(p, sizes)
	}
	return out, err
}

// sizeOutput is the JSON that size writes.
type sizeOutput struct {
	Policy           string  `json:"policy"`
	BatchSizes       byID    `json:"batch_sizes"`
	StepSeconds      float64 `json:"step_seconds"`
	EqualBatchSizes  byID    `json:"equal_batch_sizes"`
	EqualStepSeconds float64 `json:"equal_step_seconds"`
}

// byID is an object of batch sizes by worker id, in the order of the input.
type byID struct {
	workers []workerInput
	sizes   []int
}

func (b byID) MarshalJSONTo(e *jsontext.Encoder) error {
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for i, n := range b.sizes {
		if err := e.WriteToken(jsontext.String(b.workers[i].ID.value)); err != nil {
			return err
		}
		if err := e.WriteToken(jsontext.Int(int64(n))); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}
