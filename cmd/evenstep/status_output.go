package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// statusReport is the JSON that status writes.
type statusReport struct {
	Core string      `json:"core"`
	Jobs []jobReport `json:"jobs"`
}

type jobReport struct {
	ID          string         `json:"id"`
	Owner       string         `json:"owner,omitempty"` // missing for whoever the core's own socket lets in
	Workload    string         `json:"workload,omitempty"`
	Policy      string         `json:"policy,omitempty"`
	GlobalBatch uint32         `json:"global_batch,omitzero"`
	Steps       uint64         `json:"steps"`
	Resizes     uint64         `json:"resizes"`
	StepSeconds float64        `json:"step_seconds,omitzero"` // measured
	WaitShare   *float64       `json:"wait_share,omitempty"`
	Predicted   float64        `json:"predicted_step_seconds,omitzero"` // compute only
	Reason      string         `json:"reason,omitempty"`
	Waiting     string         `json:"waiting,omitempty"`
	Workers     []workerReport `json:"workers"`
}

type workerReport struct {
	Rank           int      `json:"rank"`
	Node           string   `json:"node,omitempty"`
	DeviceType     string   `json:"device_type,omitempty"`
	Device         string   `json:"device,omitempty"`
	BatchSize      uint32   `json:"batch_size"`
	ComputeSeconds float64  `json:"compute_seconds,omitzero"`
	WaitSeconds    *float64 `json:"wait_seconds,omitempty"`
	Here           bool     `json:"here"`
}

func newJobReport(j *evenstepv1.JobStatus) jobReport {
	r := jobReport{ID: j.GetJob(), Owner: j.GetOwner(), Workload: j.GetWorkload(), Policy: j.GetPolicy(),
		GlobalBatch: j.GetGlobalBatch(), Steps: j.GetSteps(), Resizes: j.GetResizes(), StepSeconds: j.GetStepSeconds(),
		Predicted: j.GetAllocation().GetStepSeconds(), Reason: j.GetAllocation().GetReason(), Waiting: j.GetWaiting(),
		Workers: []workerReport{}}
	if share := j.GetWaitShare(); r.StepSeconds > 0 {
		r.WaitShare = &share
	}
	sizes := j.GetAllocation().GetBatchSizes()
	for i, w := range j.GetWorkers() {
		worker := workerReport{Rank: i, Node: w.GetNode(), DeviceType: w.GetDeviceType(), Device: w.GetDevice(),
			ComputeSeconds: w.GetComputeSeconds(), WaitSeconds: w.WaitSeconds, Here: w.GetHere()}
		if i < len(sizes) {
			worker.BatchSize = sizes[i]
		}
		r.Workers = append(r.Workers, worker)
	}
	return r
}

// text is the report for people.
func (r statusReport) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %d jobs\n", oneLine(r.Core), len(r.Jobs))
	for _, j := range r.Jobs {
		fmt.Fprintln(&out, "\n"+oneLine(j.headline()))
		if j.Waiting != "" {
			fmt.Fprintln(&out, "  waits:", oneLine(j.Waiting))
		}
		if j.Reason != "" {
			fmt.Fprintln(&out, "  sizes:", oneLine(j.Reason))
		}
		if len(j.Workers) > 0 {
			j.writeWorkers(&out)
		}
	}
	return out.String()
}

func (j *jobReport) headline() string {
	parts := []string{j.ID}
	for _, part := range []string{j.Owner, j.Workload, j.Policy} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if j.GlobalBatch > 0 {
		parts = append(parts, fmt.Sprintf("global batch %d", j.GlobalBatch), fmt.Sprintf("%d steps", j.Steps),
			fmt.Sprintf("%d resizes", j.Resizes))
	}
	if j.StepSeconds > 0 {
		parts = append(parts, fmt.Sprintf("%.3g s a step, %.0f %% of it wait", j.StepSeconds, 100**j.WaitShare))
	}
	return strings.Join(parts, "  ")
}

func (j *jobReport) writeWorkers(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  rank\tbatch\tcompute\twait\tnode\ttype\tdevice\t")
	for _, k := range j.Workers {
		compute, wait, gone := "-", "-", ""
		if k.ComputeSeconds > 0 {
			compute = fmt.Sprintf("%.3g s", k.ComputeSeconds)
		}
		if k.WaitSeconds != nil {
			wait = fmt.Sprintf("%.3g s", *k.WaitSeconds)
		}
		if !k.Here {
			gone = "not here"
		}
		fmt.Fprintf(w, "  %d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Rank, k.BatchSize, compute, wait, cmp.Or(oneLine(k.Node), "-"),
			cmp.Or(oneLine(k.DeviceType), "-"), cmp.Or(oneLine(k.Device), "-"), gone)
	}
	w.Flush() // to a Builder, which never fails
}
