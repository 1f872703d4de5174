// Command evidence measures placement on single instances: how far its plans are from the optimum and from the bound, and
// how long they take by jobs and devices. It writes the tables of docs/placement.md on single instances, and fails when a
// requirement is missed. `make evidence` runs it; EVENSTEP_DATA is the folder with the public inventory.
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/simulate/evidence/document"
)

func main() {
	var text strings.Builder
	missed, err := run(os.Getenv("EVENSTEP_DATA"), io.MultiWriter(os.Stdout, &text))
	if err == nil {
		err = document.Update("docs/placement.md", "instances", text.String())
	}
	document.Conclude(missed, err)
}

// run writes the tables and says which requirements are missed.
func run(data string, out io.Writer) (missed []string, err error) {
	pools, err := readInventory(filepath.Join(data, "openb", "openb_node_list_gpu_node.csv"))
	if err != nil {
		return nil, err
	}
	for _, part := range []func(io.Writer) ([]string, error){
		static, queue, func(w io.Writer) ([]string, error) { return scale(w, pools) },
	} {
		more, err := part(out)
		if err != nil {
			return missed, err
		}
		missed = append(missed, more...)
	}
	return missed, nil
}

// setting is a kind of instance: so many jobs on so many devices of each type.
type setting struct {
	jobs, instances int
	capacity        []int
	bandwidth       float64 // bytes per second
}

func (s setting) String() string {
	return fmt.Sprintf("%d jobs on %v, %.0e B/s", s.jobs, s.capacity, s.bandwidth)
}

const (
	mostMeanGap = 0.001
	mostP99Gap  = 0.0204
)

// static compares plans with the optimum where all jobs start at once. Problems of the first kinds are solved exactly by auto
// too; those of the last are too large for it.
func static(out io.Writer) (missed []string, err error) {
	var settings []setting
	for _, bandwidth := range []float64{1e12, 1e8} {
		for _, s := range []setting{
			{2, 100, []int{3, 3, 3}, 0}, {3, 100, []int{3, 3, 3}, 0}, {3, 100, []int{4, 4, 4}, 0}, {4, 100, []int{3, 3, 3}, 0},
			{12, 10, []int{20, 20, 20}, 0},
		} {
			s.bandwidth = bandwidth
			settings = append(settings, s)
		}
	}
	fmt.Fprint(out, "Static model, gap to the optimum:\n\n")
	return compare(out, settings)
}

// queue does so where they cannot: more jobs than devices, or minimums that do not fit at once.
func queue(out io.Writer) (missed []string, err error) {
	fmt.Fprint(out, "\nQueue model, gap to the optimum:\n\n")
	return compare(out, []setting{
		{3, 50, []int{1, 1}, 1e12}, {4, 50, []int{2, 1}, 1e8}, {4, 50, []int{1, 1, 1}, 1e8}, {5, 30, []int{2, 2}, 1e8},
	})
}

// compare writes a row for each setting.
func compare(out io.Writer, settings []setting) (missed []string, err error) {
	fmt.Fprintln(out, "| setting | instances | auto: mean | worst | paper: mean | worst | bound below the optimum, mean |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	var all []float64
	for _, s := range settings {
		rng := rand.New(rand.NewPCG(1, 2))
		var auto, paper, below []float64
		for range s.instances {
			p := instance(rng, s)
			plans := make(map[string]*placement.Plan)
			for _, policy := range placement.Policies {
				if plans[policy], err = placement.Place(p, policy, placement.Search{}); err != nil {
					return missed, err
				}
			}
			optimum := plans["exact"].MeanSeconds
			auto = append(auto, plans["auto"].MeanSeconds/optimum-1)
			paper = append(paper, plans["paper"].MeanSeconds/optimum-1)
			below = append(below, 1-plans["paper"].LowerBoundSeconds/optimum)
		}
		all = append(all, auto...)
		fmt.Fprintf(out, "| %v | %d | %.3f %% | %.2f %% | %.1f %% | %.0f %% | %.1f %% |\n", s, s.instances, 100*mean(auto),
			100*slices.Max(auto), 100*mean(paper), 100*slices.Max(paper), 100*mean(below))
	}
	slices.Sort(all)
	if p99 := all[len(all)*99/100]; mean(all) > mostMeanGap || p99 > mostP99Gap {
		missed = append(missed, fmt.Sprintf("gap to the optimum: mean %.3f %%, 99th percentile %.2f %%", 100*mean(all), 100*p99))
	}
	return missed, nil
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

const mostCertifiedGap = 0.005 // at 1,000 jobs on the inventory

// scale plans many jobs on many devices and certifies the gap by the bound.
func scale(out io.Writer, inventory []placement.Pool) (missed []string, err error) {
	fmt.Fprint(out, "\nLarge instances, gap to the bound (openb: 1,213 nodes with 6,212 devices of 7 types):\n\n")
	fmt.Fprintln(out, "| jobs | devices | model | gap at most | seconds |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	rng := rand.New(rand.NewPCG(1, 2))
	synthetic := make([]placement.Pool, 0, 7*1786)
	for n := range 7 * 1786 {
		synthetic = append(synthetic, placement.Pool{Node: fmt.Sprint("n", n), Type: fmt.Sprint("t", n%7), Count: 8})
	}
	for _, s := range []struct {
		jobs  int
		pools []placement.Pool
		name  string
		model placement.Model
	}{
		{100, inventory, "openb", placement.Static}, {300, inventory, "openb", placement.Static},
		{1000, inventory, "openb", placement.Static}, {3000, inventory, "openb", placement.Static},
		{10_000, synthetic, "100,016 of 7 types", placement.Static}, {100, inventory[:20], "openb's first 20 nodes", placement.Queue},
		{1000, inventory[:100], "openb's first 100 nodes", placement.Queue},
	} {
		p := &placement.Problem{Pools: s.pools, Jobs: jobs(rng, s.jobs, s.pools), Bandwidth: 1e10, Seed: 1}
		begin := time.Now()
		plan, err := placement.Place(p, "auto", placement.Search{})
		if err != nil {
			return missed, err
		}
		fmt.Fprintf(out, "| %d | %s | %s | %.2f %% | %.1f |\n", s.jobs, s.name, plan.Model, 100*plan.Gap(), time.Since(begin).Seconds())
		if s.name == "openb" && s.jobs == 1000 && plan.Gap() > mostCertifiedGap {
			missed = append(missed, fmt.Sprintf("1,000 jobs on openb: certified gap %.2f %%", 100*plan.Gap()))
		}
	}
	return missed, nil
}
