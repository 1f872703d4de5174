// Command cluster measures the policies of the cluster simulator on Gavel's traces, writes the tables of
// docs/placement.md on traces, and fails when a requirement is missed. `make evidence` runs it; EVENSTEP_DATA
// is the folder with the public data.
package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/simulate/evidence/document"
)

func main() {
	var text strings.Builder
	missed, err := run(os.Getenv("EVENSTEP_DATA"), io.MultiWriter(os.Stdout, &text))
	if err == nil {
		err = document.Update("docs/placement.md", "traces", text.String())
	}
	document.Conclude(missed, err)
}

// evidence is what the tables are made from.
type evidence struct {
	out     io.Writer
	speeds  *simulate.Throughputs
	traces  map[string][]simulate.ClusterJob
	peers   []peer
	missed  []string
	slowest time.Duration // of the runs of ours: the 99th percentile of a round's decision
}

// column is one of the four settings that all tables have.
type column struct {
	title   string
	trace   string // in the name of its file
	cluster string
	single  bool // only jobs of one device
}

var columns = []column{
	{"static, 8:16:24", "minimize_makespan", "v100=8,p100=16,k80=24", false},
	{"online, 8:16:24", "max_min_fairness", "v100=8,p100=16,k80=24", false},
	{"static, one GPU, 4:8:12", "minimize_makespan", "v100=4,p100=8,k80=12", true},
	{"online, one GPU, 4:8:12", "max_min_fairness", "v100=4,p100=8,k80=12", true},
}

// round is that of Gavel's runs.
const round = 360

// run writes the tables and says which requirements are missed.
func run(data string, out io.Writer) (missed []string, err error) {
	if data == "" {
		return nil, errors.New("EVENSTEP_DATA is not set; give a folder that has gavel/gavel_throughputs.csv, " +
			"gavel/gavel_trace_minimize_makespan.csv, gavel/gavel_trace_max_min_fairness.csv and " +
			"gavel/gavel_simulator_results.csv, flattened from stanford-futuredata/gavel; docs/placement.md has " +
			"their columns")
	}
	e := &evidence{out: out, traces: map[string][]simulate.ClusterJob{}}
	if err := e.read(filepath.Join(data, "gavel")); err != nil {
		return nil, err
	}
	for _, table := range []func() error{e.reproduction, e.completion, e.required, e.fairness, e.sensitivity, e.mixed,
		e.decisions} {
		if err := table(); err != nil {
			return e.missed, err
		}
	}
	return e.missed, nil
}

// read reads the files.
func (e *evidence) read(folder string) error {
	return errors.Join(
		open(filepath.Join(folder, "gavel_throughputs.csv"), func(r io.Reader) (err error) {
			e.speeds, err = simulate.ReadThroughputs(r, "physical_cluster")
			return err
		}),
		e.readTrace(folder, "minimize_makespan"), e.readTrace(folder, "max_min_fairness"),
		open(filepath.Join(folder, "gavel_simulator_results.csv"), e.readPeers))
}

func (e *evidence) readTrace(folder, name string) error {
	return open(filepath.Join(folder, "gavel_trace_"+name+".csv"), func(r io.Reader) (err error) {
		e.traces[name], err = simulate.ReadJobs(r)
		return err
	})
}

func open(path string, read func(io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := read(file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// peer is what Gavel's simulator says of a policy of its own.
type peer struct {
	trace, policy string
	jct, makespan float64 // hours
}

func (e *evidence) readPeers(r io.Reader) error {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return err
	}
	at := func(row []string, name string) string {
		if i := slices.Index(rows[0], name); i >= 0 {
			return row[i]
		}
		return ""
	}
	for _, row := range rows[1:] {
		if at(row, "throughputs_file") != "physical_cluster" {
			continue
		}
		jct, err := strconv.ParseFloat(at(row, "avg_jct_s"), 64)
		makespan, also := strconv.ParseFloat(at(row, "makespan_s"), 64)
		if err := errors.Join(err, also); err != nil {
			return err
		}
		e.peers = append(e.peers, peer{at(row, "trace"), at(row, "policy"), jct / 3600, makespan / 3600})
	}
	return nil
}

// of finds a peer's result in a column.
func (e *evidence) of(policy string, c column) (peer, bool) {
	trace := c.trace
	if c.single {
		trace += "_sf1"
	}
	i := slices.IndexFunc(e.peers, func(p peer) bool { return p.trace == trace && p.policy == policy })
	if i < 0 {
		return peer{}, false
	}
	return e.peers[i], true
}

// outcome is what one policy makes of one column. Times are in hours.
type outcome struct {
	jct, makespan, jain, maxRho float64
}

// simulate runs a policy on a column; the zero of each rule that is not given is the plain one.
func (e *evidence) simulate(c column, policy string, rules simulate.Rules) (o outcome, err error) {
	cluster, err := simulate.ParseCluster(c.cluster, 4)
	if err != nil {
		return o, err
	}
	jobs := slices.Clone(e.traces[c.trace])
	if c.single {
		jobs = slices.DeleteFunc(jobs, func(j simulate.ClusterJob) bool { return j.Devices > 1 })
	}
	rules.RoundSeconds, rules.Clock = round, processorTime
	if rules.Seed == 0 {
		rules.Seed = 1
	}
	rounds, err := simulate.NewRounds(cluster, e.speeds, jobs, rules)
	if err != nil {
		return o, err
	}
	if len(rounds.Dropped) > 0 {
		return o, fmt.Errorf("%s: dropped %v", c.title, rounds.Dropped)
	}
	r, err := rounds.Run(policy, func(int) {})
	if err != nil {
		return o, err
	}
	if isOurs(policy) {
		e.slowest = max(e.slowest, percentile(r.Decisions))
	}
	o = outcome{jct: simulate.Mean(r.JCTs()) / 3600, makespan: r.MakespanSeconds() / 3600}
	o.jain, o.maxRho = r.Fairness(rounds.EqualShare())
	return o, nil
}

// processorTime is what this process has had, whatever else the machine does.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it takes no argument that could be wrong
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func isOurs(policy string) bool { return strings.HasPrefix(policy, "auto") || policy == "makespan" }

func percentile(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, len(sorted)*99/100)]
}

// table begins a table with a cell for each column.
func (e *evidence) table(title, first string, more ...string) {
	fmt.Fprintf(e.out, "%s\n\n", title)
	heads := slices.Clone(more)
	for _, c := range columns {
		heads = append(heads, c.title)
	}
	e.row(first, heads...)
	fmt.Fprintln(e.out, "|---|"+strings.Repeat("---|", len(heads)))
}

func (e *evidence) row(first string, cells ...string) {
	fmt.Fprintf(e.out, "| %s | %s |\n", first, strings.Join(cells, " | "))
}

// cells has a text for each column.
func (e *evidence) cells(policy string, rules simulate.Rules, text func(outcome) string) (cells []string, err error) {
	for _, c := range columns {
		if policy == "allox" && !c.single {
			cells = append(cells, "-")
			continue
		}
		o, err := e.simulate(c, policy, rules)
		if err != nil {
			return nil, err
		}
		cells = append(cells, text(o))
	}
	return cells, nil
}

func (e *evidence) miss(format string, args ...any) {
	e.missed = append(e.missed, fmt.Sprintf(format, args...))
}

func jctAndMakespan(o outcome) string { return fmt.Sprintf("%.3f (%.1f)", o.jct, o.makespan) }
