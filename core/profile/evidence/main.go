// Command evidence holds pairs of public throughput tables out, one by one, and says how far package profile's estimates
// are off. EVENSTEP_DATA names the folder of the tables.
package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/speed"
)

func main() {
	if err := run(os.Stdout, os.Getenv("EVENSTEP_DATA")); err != nil {
		fmt.Fprintf(os.Stderr, "evidence: %v\n", err)
		os.Exit(2)
	}
}

// measurement is one cell of a table.
type measurement struct {
	workload, device string
	rate             float64 // in whatever unit, the same for a workload
}

// protocol says what is held out together with a pair.
type protocol struct {
	name string
	out  func(held, other measurement) bool
}

var protocols = []protocol{
	{"the pair", func(measurement, measurement) bool { return false }},
	{"the pair and its model's others on that device", func(held, other measurement) bool {
		return held.device == other.device && model(held.workload) == model(other.workload)
	}},
	{"all of the workload but one device", func(held, other measurement) bool { return false }},
	{"all other workloads: public figures alone", func(held, other measurement) bool {
		return held.workload != other.workload
	}},
}

// model is the workload without its batch size or precision.
func model(workload string) string {
	name, _, _ := strings.Cut(workload, ":")
	return name
}

func run(out io.Writer, data string) error {
	if data == "" {
		return errors.New("EVENSTEP_DATA is not set; give a folder that has gavel/gavel_throughputs.csv from " +
			"stanford-futuredata/gavel with the columns table, job_type, scale_factor, worker_type, consolidated, " +
			"steps_per_s, and lambda/tf-train-throughput-fp16.csv and -fp32.csv from " +
			"lambdal/lambda-tensorflow-benchmark with the columns name_gpu, num_gpu and one for each network")
	}
	fmt.Fprintf(out, "Estimates of held-out pairs (stanford-futuredata/gavel, MIT; lambdal/lambda-tensorflow-benchmark, "+
		"BSD-3-Clause):\n\n| table | held out | pairs | median error | p90 error | in the bars (of 90 %%) |\n"+
		"|---|---|---|---|---|---|\n")
	for _, table := range []struct {
		name string
		read func(string) ([]measurement, error)
	}{
		{"Gavel, physical cluster, one GPU", gavel("physical_cluster", "1")},
		{"Gavel, physical cluster, two GPUs", gavel("physical_cluster", "2")},
		{"Gavel, simulation, one GPU", gavel("simulation", "1")},
		{"Gavel, simulation, two GPUs", gavel("simulation", "2")},
		{"Lambda, one GPU", lambda},
	} {
		measured, err := table.read(data)
		if err != nil {
			return err
		}
		for _, p := range protocols {
			if err := heldOut(out, table.name, p, measured); err != nil {
				return err
			}
		}
	}
	return nil
}

// heldOut writes the line of one table and protocol. An error is the distance from the truth, relative to it.
func heldOut(out io.Writer, table string, p protocol, measured []measurement) error {
	var off []float64
	inside := 0
	for _, held := range measured {
		for _, only := range sources(p, held, measured) {
			r := estimate(held, p, only, measured)
			if r.Source != profile.Estimated {
				continue
			}
			off = append(off, math.Abs(r.SamplesPerSecond/held.rate-1))
			if r.Low <= held.rate && held.rate <= r.High {
				inside++
			}
		}
	}
	if len(off) == 0 {
		return fmt.Errorf("%s: no pair could be estimated", table)
	}
	slices.Sort(off)
	_, err := fmt.Fprintf(out, "| %s | %s | %d | %.0f %% | %.0f %% | %.0f %% |\n", table, p.name, len(off),
		100*off[len(off)/2], 100*off[len(off)*9/10], 100*float64(inside)/float64(len(off)))
	return err
}

// sources are the devices that the held workload is known on, one estimate for each; "" stands for all others.
func sources(p protocol, held measurement, measured []measurement) []string {
	if !strings.HasPrefix(p.name, "all") {
		return []string{""}
	}
	var devices []string
	for _, m := range measured {
		if m.workload == held.workload && m.device != held.device {
			devices = append(devices, m.device)
		}
	}
	return devices
}

func estimate(held measurement, p protocol, only string, measured []measurement) profile.Rate {
	book := profile.NewBook(func() time.Time { return time.Unix(0, 0) })
	for _, m := range measured {
		own := m.workload == held.workload
		if m == held || own && only != "" && m.device != only || p.out(held, m) {
			continue
		}
		book.Record(m.workload, cluster.Device{Type: m.device}, profile.Sighting{
			Curve: speed.Learned{Samples: 1, Seconds: 1 / m.rate, Sigma: 0.01}, Steps: 1})
	}
	return book.Rates(held.workload, []string{held.device})[0]
}

func gavel(table, scale string) func(string) ([]measurement, error) {
	return func(data string) (measured []measurement, err error) {
		rows, err := read(filepath.Join(data, "gavel", "gavel_throughputs.csv"))
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r["table"] == table && r["scale_factor"] == scale && r["consolidated"] == "1" {
				name, batch, _ := strings.Cut(strings.TrimSuffix(r["job_type"], ")"), " (batch size ")
				if measured, err = appendRate(measured, name+":"+batch, r["worker_type"], r["steps_per_s"]); err != nil {
					return nil, err
				}
			}
		}
		return measured, nil
	}
}

func lambda(data string) (measured []measurement, err error) {
	for _, precision := range []string{"fp16", "fp32"} {
		rows, err := read(filepath.Join(data, "lambda", "tf-train-throughput-"+precision+".csv"))
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r["num_gpu"] != "1" {
				continue
			}
			for _, network := range []string{"alexnet", "inception3", "inception4", "resnet152", "resnet50", "vgg16"} {
				measured, err = appendRate(measured, network+":"+precision, r["name_gpu"], r[network])
				if err != nil {
					return nil, err
				}
			}
		}
	}
	return measured, nil
}

// appendRate appends a cell, unless it says that the workload does not run there.
func appendRate(measured []measurement, workload, device, text string) ([]measurement, error) {
	rate, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return nil, err
	case rate <= 0:
		return measured, nil
	}
	return append(measured, measurement{workload, device, rate}), nil
}

// read reads a CSV file whose first line names the columns.
func read(path string) (rows []map[string]string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil, fmt.Errorf("%s: not a table: %w", path, err)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows, nil
}
