// Command evidence measures what docs/lb-bsp.md reports and puts the tables into it, each between its two markers. It
// fails when a requirement is missed; what is timed is reported and not judged. `make evidence` runs it, from the root
// of the repository; EVENSTEP_DATA is the folder with the public data. Sections that are named as arguments are made
// alone.
//
// It is a program rather than a test, since its output is the point, and it needs data that no test may need.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/simulate/evidence/document"
)

const path = "docs/lb-bsp.md"

var lags = []int{1, 12}

func main() {
	missed, err := run(os.Args[1:], os.Getenv("EVENSTEP_DATA"), path, os.Stdout)
	document.Conclude(missed, err)
}

// section is a part of the document that is made. It says which requirements are missed.
type section struct {
	name  string // in the markers
	write func(out io.Writer) (missed []string, err error)
}

func sections(traces []trace) []section {
	return []section{
		{"traces", func(out io.Writer) ([]string, error) { return recorded(out, traces) }},
		{"generators", synthetic},
		{"alike", homogeneous},
		{"predictors", func(out io.Writer) ([]string, error) { return predictors(out, traces) }},
		{"solvers", solvers},
		{"core", core},
		{"torchrun", torchrun},
	}
}

// run makes the sections that are named, all if none is, and says which requirements are missed. A section that fails
// does not keep the others from being made.
func run(names []string, data, path string, out io.Writer) (missed []string, err error) {
	if data == "" {
		return nil, errors.New("EVENSTEP_DATA is not set; give a folder that has alibaba-v2020/job_*_norm.csv from " +
			"alibaba/clusterdata, cluster-trace-gpu-v2020, with the columns worker, time, batch_time_norm")
	}
	traces, err := readTraces(filepath.Join(data, "alibaba-v2020", "*.csv"))
	if err != nil {
		return nil, err
	}
	chosen, err := choose(sections(traces), names)
	if err != nil {
		return nil, err
	}
	for _, s := range chosen {
		var text strings.Builder
		more, failed := s.write(&text)
		missed = append(missed, more...)
		if failed == nil {
			fmt.Fprintln(out, text.String())
			failed = document.Update(path, s.name, text.String())
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.name, failed))
		}
	}
	return missed, err
}

// choose picks the sections that are named, all if none is.
func choose(all []section, names []string) (chosen []section, err error) {
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, s := range all {
		known = append(known, s.name)
		if slices.Contains(names, s.name) {
			chosen = append(chosen, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no section %q; give some of %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
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

func generated() (traces []trace, err error) {
	for _, name := range simulate.Synthetics() {
		t, err := simulate.Synthetic(name, 8, 2000, 1)
		if err != nil {
			return nil, err
		}
		traces = append(traces, trace{name, t})
	}
	return traces, nil
}

// header begins a table.
func header(out io.Writer, name string, columns []string) {
	row(out, name, columns)
	fmt.Fprintln(out, "|---|"+strings.Repeat("---|", len(columns)))
}

func row(out io.Writer, name string, cells []string) {
	fmt.Fprintf(out, "| %s | %s |\n", name, strings.Join(cells, " | "))
}
