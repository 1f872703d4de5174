package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/evenstep/evenstep/core/simulate"
)

// clusterResult is what simulate cluster says of one policy.
type clusterResult struct {
	Policy           string    `json:"policy"`
	MeanJCTSeconds   float64   `json:"mean_jct_seconds"`
	MedianJCTSeconds float64   `json:"median_jct_seconds"`
	P95JCTSeconds    float64   `json:"p95_jct_seconds"`
	MakespanSeconds  float64   `json:"makespan_seconds"`
	Utilization      float64   `json:"utilization"`
	Jain             float64   `json:"jain"`
	MaxRho           float64   `json:"max_rho"`
	Preemptions      int       `json:"preemptions"`
	DecisionSeconds  decisions `json:"decision_seconds"`
	KnowsLengths     bool      `json:"knows_lengths"`
}

type decisions struct {
	Mean float64 `json:"mean"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func newClusterResults(policies []string, results []*simulate.ClusterResult) []clusterResult {
	knows := map[string]bool{}
	for _, p := range simulate.ClusterPolicies() {
		knows[p.Name] = p.KnowsLengths
	}
	equal := results[0].Rounds.EqualShare()
	var out []clusterResult
	for i, r := range results {
		jcts := r.JCTs()
		c := clusterResult{Policy: policies[i], MeanJCTSeconds: simulate.Mean(jcts),
			MedianJCTSeconds: simulate.Quantile(jcts, 0.5), P95JCTSeconds: simulate.Quantile(jcts, 0.95),
			MakespanSeconds: r.MakespanSeconds(), Utilization: r.Utilization(), Preemptions: r.Preemptions,
			DecisionSeconds: newDecisions(r.Decisions), KnowsLengths: knows[policies[i]]}
		c.Jain, c.MaxRho = r.Fairness(equal)
		out = append(out, c)
	}
	return out
}

func newDecisions(times []time.Duration) decisions {
	seconds := make([]float64, len(times))
	for i, t := range times {
		seconds[i] = t.Seconds()
	}
	return decisions{simulate.Mean(seconds), simulate.Quantile(seconds, 0.99), simulate.Quantile(seconds, 1)}
}

// writeText writes the results for people.
func (f *clusterFlags) writeText(out io.Writer, rounds *simulate.Rounds, results []clusterResult) error {
	trace := f.trace
	if f.sacct != "" {
		trace = f.sacct
	}
	fmt.Fprintf(out, "%s: %d jobs (%d dropped) on %s\n\n", oneLine(trace), len(rounds.Jobs), len(rounds.Dropped),
		oneLine(f.cluster))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tmean JCT\tmedian\tp95\tmakespan\tutilization\tJain\tmax rho\tpreemptions\tdecision p99\t"+
		"knows lengths\t")
	for _, r := range results {
		knows := "no"
		if r.KnowsLengths {
			knows = "yes"
		}
		fmt.Fprintf(w, "%s\t%.3f h\t%.3f h\t%.3f h\t%.3f h\t%.1f %%\t%.3f\t%.3f\t%d\t%.1f ms\t%s\t\n", r.Policy,
			r.MeanJCTSeconds/3600, r.MedianJCTSeconds/3600, r.P95JCTSeconds/3600, r.MakespanSeconds/3600,
			100*r.Utilization, r.Jain, r.MaxRho, r.Preemptions, 1000*r.DecisionSeconds.P99, knows)
	}
	return w.Flush()
}

// tellDropped says what the files had that is in no result, a line for each reason.
func (f *clusterFlags) tellDropped(stderr io.Writer, speeds *simulate.Throughputs, rounds *simulate.Rounds) {
	if left := speeds.OtherTables + speeds.Spread; left > 0 {
		fmt.Fprintf(stderr, "%s: %d rows used, %d of other tables and %d not consolidated left out\n",
			oneLine(f.throughputs), speeds.Rows, speeds.OtherTables, speeds.Spread)
	}
	count := map[string]int{}
	var first []simulate.DroppedJob // of each reason
	for _, d := range rounds.Dropped {
		if count[d.Reason]++; count[d.Reason] == 1 {
			first = append(first, d)
		}
	}
	for _, d := range first {
		fmt.Fprintf(stderr, "dropped %d of %d: %s (first: %s, line %d)\n", count[d.Reason],
			len(rounds.Dropped)+len(rounds.Jobs), d.Reason, oneLine(d.ID), d.Line)
	}
}

// writeJobs writes when and where each job ran.
func (f *clusterFlags) writeJobs(results []*simulate.ClusterResult) error {
	file, err := os.Create(f.jobsOut)
	if err != nil {
		return err
	}
	defer file.Close()
	out := csv.NewWriter(file)
	header := []string{"policy", "job_id", "arrival_seconds", "start_seconds", "finish_seconds"}
	for _, typ := range results[0].Rounds.Cluster.Types {
		header = append(header, typ+"_device_seconds")
	}
	out.Write(header) // what fails is known after Flush
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	for i, r := range results {
		for k, j := range r.Jobs {
			job := r.Rounds.Jobs[k]
			record := []string{f.policies[i], job.ID, number(job.ArrivalSeconds), number(j.StartSeconds),
				number(j.FinishSeconds)}
			for _, s := range j.DeviceSeconds {
				record = append(record, number(s))
			}
			out.Write(record)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return err
	}
	return file.Close()
}
