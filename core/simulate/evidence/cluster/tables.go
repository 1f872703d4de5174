package main

import (
	"fmt"
	"math"
	"time"

	"github.com/evenstep/evenstep/core/simulate"
)

// reproduction is the check that time passes as in Gavel's simulator: its FIFO, to the digit.
func (e *evidence) reproduction() error {
	e.table("Mean JCT in hours of `fifo-het` here, and of `fifo_perf` in Gavel's simulator:", "")
	var here, there []string
	for _, c := range columns {
		o, err := e.simulate(c, "fifo-het", simulate.Rules{})
		if err != nil {
			return err
		}
		peer, found := e.of("fifo_perf", c)
		if !found {
			return fmt.Errorf("%s: no result of fifo_perf", c.title)
		}
		// The results are printed to a thousandth of a second.
		if math.Abs(o.jct-peer.jct)*3600 > 0.001 || math.Abs(o.makespan-peer.makespan)*3600 > 0.001 {
			e.miss("%s: fifo-het gives %.4f h, Gavel's simulator %.4f h", c.title, o.jct, peer.jct)
		}
		here = append(here, jctAndMakespan(o))
		there = append(there, jctAndMakespan(outcome{jct: peer.jct, makespan: peer.makespan}))
	}
	e.row("here (makespan)", here...)
	e.row("Gavel (makespan)", there...)
	fmt.Fprintln(e.out)
	return nil
}

// peers are Gavel's policies in the order of the table, and whether they know how long jobs take.
var peers = []struct{ policy, knows string }{
	{"fifo", "no"}, {"fifo_perf", "no"}, {"gandiva", "no"}, {"max_min_fairness", "no"}, {"max_min_fairness_perf", "no"},
	{"max_sum_throughput_perf", "no"}, {"finish_time_fairness", "yes"}, {"finish_time_fairness_perf", "yes"},
	{"min_total_duration_perf", "yes"}, {"allox", "yes"},
}

// completion is the table of mean completion times: the peers' own numbers, then ours.
func (e *evidence) completion() error {
	e.table("Mean JCT in hours (makespan), devices of one type a job:", "policy", "run by", "knows lengths")
	for _, p := range peers {
		cells := []string{"Gavel", p.knows}
		for _, c := range columns {
			if peer, found := e.of(p.policy, c); found {
				cells = append(cells, jctAndMakespan(outcome{jct: peer.jct, makespan: peer.makespan}))
			} else {
				cells = append(cells, "-")
			}
		}
		e.row(p.policy, cells...)
	}
	for _, p := range simulate.ClusterPolicies() {
		cells, err := e.cells(p.Name, simulate.Rules{}, jctAndMakespan)
		if err != nil {
			return err
		}
		e.row("`"+p.Name+"`", append([]string{"Evenstep", yes(p.KnowsLengths)}, cells...)...)
	}
	cells, err := e.cells("auto", simulate.Rules{NoPreempt: true}, jctAndMakespan)
	if err != nil {
		return err
	}
	e.row("`auto --no-preempt`", append([]string{"Evenstep", "yes"}, cells...)...)
	fmt.Fprintln(e.out)
	return nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// requirement is what a policy must reach in each column.
type requirement struct {
	name   string
	policy string
	rules  simulate.Rules
	of     func(outcome) float64
	most   [4]float64
}

func jct(o outcome) float64      { return o.jct }
func makespan(o outcome) float64 { return o.makespan }
func maxRho(o outcome) float64   { return o.maxRho }

var requirements = []requirement{
	{"mean JCT", "auto", simulate.Rules{}, jct, [4]float64{6.65, 3.25, 6.10, 2.98}},
	{"max rho of it", "auto", simulate.Rules{}, maxRho, [4]float64{1.05, 1.20, 1.10, 1.45}},
	{"mean JCT, never preempting", "auto", simulate.Rules{NoPreempt: true}, jct, [4]float64{6.80, 4.00, 6.30, 3.32}},
	{"mean JCT, lengths unknown", "auto-unknown", simulate.Rules{}, jct, [4]float64{7.5, 3.45, 7.8, 3.15}},
	{"makespan", "makespan", simulate.Rules{}, makespan, [4]float64{17.6, 16.3, 13.2, 16.3}},
}

// required is the table of what must be reached.
func (e *evidence) required() error {
	e.table("What must be reached (hours, but for rho), and what is:", "", "policy")
	for _, r := range requirements {
		cells := []string{"`" + r.policy + "`"}
		for i, c := range columns {
			o, err := e.simulate(c, r.policy, r.rules)
			if err != nil {
				return err
			}
			got := r.of(o)
			if !(got <= r.most[i]) {
				e.miss("%s: %s is %.4f, more than %.2f", c.title, r.name, got, r.most[i])
			}
			cells = append(cells, fmt.Sprintf("%.3f of %.2f", got, r.most[i]))
		}
		e.row(r.name, cells...)
	}
	fmt.Fprintln(e.out)
	return nil
}

// fairness compares with the fluid equal share.
func (e *evidence) fairness() error {
	e.table("Fairness: Jain's index of all jobs' rho, and the largest rho:", "policy")
	for _, p := range simulate.ClusterPolicies() {
		cells, err := e.cells(p.Name, simulate.Rules{}, func(o outcome) string {
			return fmt.Sprintf("%.3f, %.2f", o.jain, o.maxRho)
		})
		if err != nil {
			return err
		}
		e.row("`"+p.Name+"`", cells...)
	}
	fmt.Fprintln(e.out)
	return nil
}

// errorSeeds is over how many draws of wrong lengths a mean is.
const errorSeeds = 10

// sensitivity is to wrong lengths and to restarts.
func (e *evidence) sensitivity() error {
	e.table(fmt.Sprintf("Mean JCT in hours of `auto` where the lengths that it knows are wrong by a factor "+
		"e^(sigma · normal), mean of %d seeds, and where a restart costs:", errorSeeds), "")
	for _, sigma := range []float64{0, 0.3, 0.6, 1} {
		var cells []string
		for _, c := range columns {
			mean := 0.0
			for seed := range uint64(errorSeeds) {
				o, err := e.simulate(c, "auto", simulate.Rules{LengthError: sigma, Seed: seed + 1})
				if err != nil {
					return err
				}
				mean += o.jct / errorSeeds
			}
			cells = append(cells, fmt.Sprintf("%.3f", mean))
		}
		e.row(fmt.Sprintf("sigma %v", sigma), cells...)
	}
	for _, policy := range []string{"auto", "auto-unknown", "las-het"} {
		for _, seconds := range []float64{0, 60, 120, 300} {
			cells, err := e.cells(policy, simulate.Rules{RestartSeconds: seconds}, func(o outcome) string {
				return fmt.Sprintf("%.3f", o.jct)
			})
			if err != nil {
				return err
			}
			e.row(fmt.Sprintf("`%s`, restarts of %v s", policy, seconds), cells...)
		}
	}
	fmt.Fprintln(e.out)
	return nil
}

// pools are clusters for mixed types: those of the traces, and one that job sizes do not divide.
var pools = []struct{ title, cluster string }{
	{"8:16:24", "v100=8,p100=16,k80=24"}, {"3:5:9", "v100=3,p100=5,k80=9"},
}

// mixed is what types mixed within a job would change; a model, since only single types were measured.
func (e *evidence) mixed() error {
	fmt.Fprintf(e.out, "Types mixed within a job, modelled: mean JCT in hours of `auto`.\n\n")
	e.row("devices of a job", "static, 8:16:24", "online, 8:16:24", "static, 3:5:9", "online, 3:5:9")
	fmt.Fprintln(e.out, "|---|---|---|---|---|")
	for _, m := range []struct {
		title string
		types simulate.Mixing
	}{
		{"one type (measured speeds)", simulate.SingleType},
		{"two types, equal batches: n × slowest (model)", simulate.Unbalanced},
		{"two types, balanced: the sum of what each brings (model)", simulate.Balanced},
	} {
		var cells []string
		for _, pool := range pools {
			for _, c := range columns[:2] {
				c.cluster = pool.cluster
				o, err := e.simulate(c, "auto", simulate.Rules{Types: m.types})
				if err != nil {
					return err
				}
				cells = append(cells, fmt.Sprintf("%.3f", o.jct))
			}
		}
		e.row(m.title, cells...)
	}
	fmt.Fprintln(e.out)
	return nil
}

// mostDecision is the 99th percentile of a round's decision at most.
const mostDecision = 50 * time.Millisecond

// decisions says how long a decision of ours takes.
func (e *evidence) decisions() error {
	if e.slowest > mostDecision {
		e.miss("the 99th percentile of a run's decisions is %v, more than %v", e.slowest, mostDecision)
		return nil
	}
	fmt.Fprintf(e.out, "Processor time of a round's decision: the 99th percentile is below %v in every run of `auto`, "+
		"`auto-unknown` and `makespan` above.\n\n", mostDecision)
	return nil
}
