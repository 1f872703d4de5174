package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// solvers is the table of solve times by number of workers.
func solvers(out io.Writer) (missed []string, err error) {
	load := loadBefore()
	b, err := runBenchmark("BenchmarkSolve", "./core/sizing", 1)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Milliseconds, median, on one core of %s, %s:\n\n", b.cpu, load)
	b.table(out, "workers", func(metrics map[string]float64) string { return short(metrics["p50-ms"]) })
	return nil, nil
}

// core is the table of the core's latency by number of jobs and of their workers.
func core(out io.Writer) (missed []string, err error) {
	load := loadBefore()
	b, err := runBenchmark("BenchmarkSteps", "./core/service", 2)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Milliseconds from report to answer, median / 99th percentile, at so many steps/s of each job,\n")
	fmt.Fprintf(out, "on two cores of %s, which the clients share, %s:\n\n", b.cpu, load)
	b.table(out, "jobs \\ workers of each", func(metrics map[string]float64) string {
		return fmt.Sprintf("%s / %s at %s", short(metrics["p50-ms"]), short(metrics["p99-ms"]), short(metrics["steps/s"]))
	})
	return nil, nil
}

// loadBefore says how busy the machine is before it is measured on.
func loadBefore() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "load average not known"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return "load average before " + load
}

// short writes a positive number with two or three digits that count.
func short(x float64) string {
	switch {
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

// benchmark is what a Go benchmark with two levels of names printed.
type benchmark struct {
	cpu     string
	results []result
}

type result struct {
	row, column string
	metrics     map[string]float64 // by unit
}

// runBenchmark runs a benchmark of a package on so many cores.
func runBenchmark(name, folder string, cores int) (*benchmark, error) {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^"+name+"$", "-cpu", strconv.Itoa(cores), folder)
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, printed)
	}
	return parseBenchmark(bytes.NewReader(printed), name, cores)
}

// parseBenchmark reads Go's format: name/row/column-cores, how often it ran, then values, each followed by its unit.
func parseBenchmark(printed io.Reader, name string, cores int) (*benchmark, error) {
	b := &benchmark{}
	lines := bufio.NewScanner(printed)
	for lines.Scan() {
		if cpu, found := strings.CutPrefix(lines.Text(), "cpu: "); found {
			b.cpu = cpu
		}
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], name+"/") {
			continue
		}
		path := strings.Split(strings.ReplaceAll(words[0], "_", " "), "/")
		if len(path) != 3 {
			return nil, fmt.Errorf("%s: not the name of a row and a column", words[0])
		}
		r := result{path[1], strings.TrimSuffix(path[2], fmt.Sprintf("-%d", cores)), map[string]float64{}}
		for i := 2; i+1 < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", words[0], err)
			}
			r.metrics[words[i+1]] = value
		}
		b.results = append(b.results, r)
	}
	if len(b.results) == 0 {
		return nil, fmt.Errorf("%s: no results", name)
	}
	return b, lines.Err()
}

// table writes the results, rows and columns in the order in which they came.
func (b *benchmark) table(out io.Writer, corner string, cell func(metrics map[string]float64) string) {
	var rows, columns []string
	cells := map[[2]string]string{}
	for _, r := range b.results {
		if !slices.Contains(rows, r.row) {
			rows = append(rows, r.row)
		}
		if !slices.Contains(columns, r.column) {
			columns = append(columns, r.column)
		}
		cells[[2]string{r.row, r.column}] = cell(r.metrics)
	}
	header(out, corner, columns)
	for _, name := range rows {
		var line []string
		for _, column := range columns {
			line = append(line, cells[[2]string{name, column}])
		}
		row(out, name, line)
	}
}
