package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/evenstep/evenstep/core/sizing"
)

// demoRounds are enough for the tuning policy, which is the slowest to learn, to settle in the first half of them.
const demoRounds = "16"

// torchrun is the table of the policies on a real training: the demo, with all of them beside each other.
func torchrun(out io.Writer) (missed []string, err error) {
	folder, err := os.MkdirTemp("", "evidence")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	args := []string{"examples/torchrun/demo.py", "--out", folder, "--rounds", demoRounds, "--policies"}
	for _, k := range sizing.Kinds() {
		if !k.Naive && k.Name != "auto" && k.Name != "equal" {
			args = append(args, k.Name)
		}
	}
	fmt.Fprintf(out, "On %d cores, %s:\n\n", runtime.NumCPU(), loadBefore())
	demo := exec.Command("python", args...)
	demo.Stdout, demo.Stderr = os.Stderr, os.Stderr
	if err := demo.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(demo.Args, " "), err)
	}
	result, err := os.ReadFile(filepath.Join(folder, "demo.json"))
	if err != nil {
		return nil, err
	}
	return nil, demoTable(out, result)
}

// outcome is what became of one training of the demo.
type outcome struct {
	Policy       string  `json:"policy"`
	StepSeconds  float64 `json:"step_seconds"`
	Gain         float64 `json:"gain"`
	ShareOfIdeal float64 `json:"share_of_ideal"`
	TotalSeconds float64 `json:"total_seconds"`
	Steps        int     `json:"steps"`
	Workers      []struct {
		BatchSize float64 `json:"batch_size"`
	} `json:"workers"`
}

// demoTable makes the table of the demo's result, which is JSON.
func demoTable(out io.Writer, result []byte) error {
	var demo struct {
		Policies []outcome `json:"policies"`
		Ideal    outcome   `json:"ideal"`
	}
	if err := json.Unmarshal(result, &demo); err != nil {
		return err
	}
	header(out, "policy", []string{"a step", "less than equal", "of the way to the ideal", "sizes", "all steps"})
	for _, o := range demo.Policies {
		row(out, o.Policy, append(o.cells(), fmt.Sprintf("%d in %.1f s", o.Steps, o.TotalSeconds)))
	}
	row(out, "ideal: the best sizes that stay", append(demo.Ideal.cells(), ""))
	return nil
}

func (o *outcome) cells() []string {
	var sizes []string
	for _, w := range o.Workers {
		sizes = append(sizes, fmt.Sprintf("%.0f", w.BatchSize))
	}
	return []string{fmt.Sprintf("%.0f ms", 1e3*o.StepSeconds), fmt.Sprintf("%.0f %%", 100*o.Gain),
		fmt.Sprintf("%.0f %%", 100*o.ShareOfIdeal), strings.Join(sizes, ", ")}
}
