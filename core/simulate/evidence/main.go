// Command evidence measures the policies of batch sizing on public traces and on synthetic ones, writes the tables of
// docs/lb-bsp.md to stdout, and fails when a requirement is missed. `make evidence` runs it; EVENSTEP_DATA is the
// folder with the public data.
//
// It is a program rather than a test, since its output is the point, and it needs data that no test may need.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/sizing"
)

var lags = []int{1, 12}

func main() {
	missed, err := run(os.Getenv("EVENSTEP_DATA"), os.Stdout)
	for _, m := range missed {
		fmt.Fprintln(os.Stderr, "evidence: missed:", m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
	}
	if err != nil || len(missed) > 0 {
		os.Exit(1)
	}
}

// run writes the tables and says which requirements are missed.
func run(data string, out io.Writer) (missed []string, err error) {
	if data == "" {
		return nil, errors.New("EVENSTEP_DATA is not set; give a folder that has alibaba-v2020/job_*_norm.csv from " +
			"alibaba/clusterdata, cluster-trace-gpu-v2020, with the columns worker, time, batch_time_norm")
	}
	traces, err := readTraces(filepath.Join(data, "alibaba-v2020", "*.csv"))
	if err != nil {
		return nil, err
	}
	missed, err = recorded(out, traces)
	if err != nil {
		return missed, err
	}
	if err := synthetic(out); err != nil {
		return missed, err
	}
	more, err := homogeneous(out)
	return append(missed, more...), err
}

// trace is a trace with a name for the tables.
type trace struct {
	name string
	*simulate.Trace
}

func readTraces(pattern string) (traces []trace, err error) {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s: no such file", pattern)
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		t, err := simulate.ReadTrace(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		traces = append(traces, trace{strings.TrimSuffix(filepath.Base(path), ".csv"), t})
	}
	return traces, nil
}

// recorded is the table of the recorded traces. auto must capture at least what the best naive policy does.
func recorded(out io.Writer, traces []trace) (missed []string, err error) {
	var best, which []string
	auto, _ := sizing.Named("auto")
	for _, t := range traces {
		for _, lag := range lags {
			name, bar, err := bestNaive(t.Trace, lag)
			if err != nil {
				return nil, err
			}
			got, err := captured(t.Trace, lag, auto.New)
			if err != nil {
				return nil, err
			}
			if got < bar {
				missed = append(missed, fmt.Sprintf("%s at lag %d: auto captures %.4f, %s in hindsight %.4f", t.name,
					lag, got, name, bar))
			}
			best, which = append(best, fmt.Sprintf("%.3f", bar)), append(which, name)
		}
	}
	fmt.Fprintf(out, "Share of the clairvoyant's gain, recorded traces (alibaba/clusterdata, CC BY 4.0):\n\n")
	if err := table(out, traces); err != nil {
		return nil, err
	}
	row(out, "best naive in hindsight", best)
	row(out, "which is", which)
	fmt.Fprintln(out)
	return missed, nil
}

// synthetic is the table of the generators.
func synthetic(out io.Writer) error {
	var traces []trace
	for _, name := range simulate.Synthetics() {
		t, err := simulate.Synthetic(name, 8, 2000, 1)
		if err != nil {
			return err
		}
		traces = append(traces, trace{name, t})
	}
	fmt.Fprintf(out, "Share of the clairvoyant's gain, generators (8 workers, 2,000 steps, seed 1):\n\n")
	if err := table(out, traces); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return nil
}

// table writes what every policy captures of every trace at every lag.
func table(out io.Writer, traces []trace) error {
	var columns []string
	for _, t := range traces {
		for _, lag := range lags {
			columns = append(columns, fmt.Sprintf("%s, lag %d", t.name, lag))
		}
	}
	row(out, "policy", columns)
	fmt.Fprintln(out, "|---|"+strings.Repeat("---|", len(columns)))
	for _, k := range sizing.Kinds() {
		var cells []string
		for _, t := range traces {
			for _, lag := range lags {
				share, err := captured(t.Trace, lag, k.New)
				if err != nil {
					return err
				}
				cells = append(cells, fmt.Sprintf("%.3f", share))
			}
		}
		row(out, k.Name, cells)
	}
	return nil
}

func row(out io.Writer, name string, cells []string) {
	fmt.Fprintf(out, "| %s | %s |\n", name, strings.Join(cells, " | "))
}

// againstEqual is how many seconds a trace takes with equal sizes and under a policy.
func againstEqual(t *simulate.Trace, lag int, policy sizing.Constructor) (equal, took float64, err error) {
	even, _ := sizing.Named("equal")
	if equal, err = seconds(t, lag, even.New); err != nil {
		return 0, 0, err
	}
	took, err = seconds(t, lag, policy)
	return equal, took, err
}

// captured is what a policy captures of a trace, with real-valued shares and the defaults of `simulate steps`.
func captured(t *simulate.Trace, lag int, policy sizing.Constructor) (float64, error) {
	equal, took, err := againstEqual(t, lag, policy)
	if err != nil {
		return 0, err
	}
	share, ok := simulate.Captured(equal, took, simulate.Clairvoyant(t))
	if !ok {
		return 0, errors.New("a trace with nothing to save")
	}
	return share, nil
}

func seconds(t *simulate.Trace, lag int, policy sizing.Constructor) (float64, error) {
	r, err := simulate.Job{Quantum: 1, Lag: lag, Warmup: 5}.Run(t, policy, func() {})
	if err != nil {
		return 0, err
	}
	return r.Seconds, nil
}
