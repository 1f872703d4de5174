package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/evenstep/evenstep/core/simulate"
)

// stepsResult is the JSON that simulate steps writes. Seconds are in the unit of the trace.
type stepsResult struct {
	Trace              string         `json:"trace"`
	Workers            int            `json:"workers"`
	Steps              int            `json:"steps"`
	DroppedSteps       int            `json:"dropped_steps"`
	EqualSeconds       float64        `json:"equal_seconds"`
	ClairvoyantSeconds float64        `json:"clairvoyant_seconds"`
	Policies           []policyResult `json:"policies"`
}

type policyResult struct {
	Policy     string   `json:"policy"`
	Seconds    float64  `json:"seconds"`
	Gain       float64  `json:"gain"`
	Captured   *float64 `json:"captured,omitempty"` // left out where there is nothing to save
	Resizes    int      `json:"resizes"`
	MovedShare float64  `json:"moved_share"`
}

// newStepsResult says what came out of equal sizes, the first of the replays, and of the policies.
func newStepsResult(f stepsFlags, t *simulate.Trace, replays []*simulate.Replay) *stepsResult {
	s := &stepsResult{Trace: f.trace, Workers: len(t.Workers), Steps: len(t.Steps), DroppedSteps: t.Dropped,
		EqualSeconds: replays[0].Seconds, ClairvoyantSeconds: simulate.Clairvoyant(t)}
	if f.synthetic != "" {
		s.Trace = f.synthetic
	}
	for i, r := range replays[1:] {
		p := policyResult{Policy: f.policies[i], Seconds: r.Seconds, Gain: 1 - r.Seconds/s.EqualSeconds,
			Resizes: r.Resizes, MovedShare: r.MovedShare}
		if captured, ok := simulate.Captured(s.EqualSeconds, r.Seconds, s.ClairvoyantSeconds); ok {
			p.Captured = &captured
		}
		s.Policies = append(s.Policies, p)
	}
	return s
}

// writeText writes the result for people.
func (s *stepsResult) writeText(out io.Writer) error {
	fmt.Fprintf(out, "%s: %d workers, %d steps (%d dropped)\n\n", oneLine(s.Trace), s.Workers, s.Steps, s.DroppedSteps)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tseconds\tgain\tcaptured\tresizes\tmoved share\t")
	fmt.Fprintf(w, "(equal)\t%.6g\t0.0 %%\t\t\t\t\n", s.EqualSeconds)
	for _, p := range s.Policies {
		captured := "-"
		if p.Captured != nil {
			captured = fmt.Sprintf("%.3f", *p.Captured)
		}
		fmt.Fprintf(w, "%s\t%.6g\t%.1f %%\t%s\t%d\t%.2f %%\t\n", p.Policy, p.Seconds, 100*p.Gain, captured, p.Resizes,
			100*p.MovedShare)
	}
	fmt.Fprintf(w, "(clairvoyant)\t%.6g\t%.1f %%\t1.000\t\t\t\n", s.ClairvoyantSeconds,
		100*(1-s.ClairvoyantSeconds/s.EqualSeconds))
	return w.Flush()
}

// writeAllocations writes the sizes that each step ran with.
func (f *stepsFlags) writeAllocations(t *simulate.Trace, r *simulate.Replay) error {
	file, err := os.Create(f.allocations)
	if err != nil {
		return err
	}
	defer file.Close()
	out := csv.NewWriter(file)
	out.Write([]string{"step", "worker", "n"}) // what fails is known after Flush
	whole := float64(f.job.Problem(len(t.Workers)).GlobalBatch)
	for k, sizes := range r.Sizes {
		for i, n := range sizes {
			size := strconv.Itoa(n)
			if f.job.GlobalBatch == 0 {
				size = strconv.FormatFloat(float64(n)/whole, 'g', -1, 64)
			}
			out.Write([]string{t.Steps[k], t.Workers[i], size})
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return err
	}
	return file.Close()
}

// checkOutputs tries, before a long run, that the files of the flags can be written and are not the input.
func checkOutputs(input string, files map[string]string) error {
	read, _ := os.Stat(input)
	for _, flag := range slices.Sorted(maps.Keys(files)) {
		path := files[flag]
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil && read != nil && os.SameFile(info, read) {
			return fmt.Errorf("%s: %s is the input; give another file", flag, path)
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		file.Close()
	}
	return nil
}
