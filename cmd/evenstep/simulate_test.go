package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What --allocations writes, together with the trace and nothing of ours but these two files, gives the seconds and the
// captured share that the command says.
func TestAllocationsReproduceTheResult(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.csv")
	random := rand.New(rand.NewPCG(1, 1))
	var rows strings.Builder
	rows.WriteString("worker,step,seconds\n")
	for step := range 100 {
		for worker := range 4 {
			seconds := float64(1+worker) * math.Exp(0.1*random.NormFloat64())
			fmt.Fprintf(&rows, "w%d,%d,%v\n", worker, 10*step, seconds)
		}
	}
	if err := os.WriteFile(trace, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, policy := range kindNames() {
		for _, flags := range []string{"", "--lag=12", "--global-batch=256 --quantum=8 --lag=2 --warmup=20"} {
			sizes := filepath.Join(t.TempDir(), "sizes.csv")
			args := append(strings.Fields(flags), "--policy", policy, "--allocations", sizes, "--output", "json")
			var out bytes.Buffer
			root := newRootCommand()
			root.SetArgs(append([]string{"simulate", "steps", "--trace", trace}, args...))
			root.SetOut(&out)
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			var said stepsResult
			if err := json.Unmarshal(out.Bytes(), &said); err != nil {
				t.Fatal(err)
			}
			seconds, captured := recompute(t, trace, sizes)
			p := said.Policies[0]
			if math.Abs(p.Seconds/seconds-1) > 1e-9 || math.Abs(*p.Captured-captured) > 1e-9 {
				t.Errorf("%s %s: %v s and %v captured, the files say %v and %v", policy, flags, p.Seconds, *p.Captured,
					seconds, captured)
			}
		}
	}
}

// recompute is by the definitions alone: a worker takes its time in the trace · n · W / Σn.
func recompute(t *testing.T, trace, sizes string) (seconds, captured float64) {
	recorded, n := table(t, trace, "seconds"), table(t, sizes, "n")
	if len(recorded) != len(n) {
		t.Fatalf("sizes of %d steps, the trace has %d", len(n), len(recorded))
	}
	equal, clairvoyant := 0.0, 0.0
	for step, times := range recorded {
		sum, slowest, slowestEqual, rate := 0.0, 0.0, 0.0, 0.0
		for worker := range times {
			sum += n[step][worker]
		}
		for worker, s := range times {
			slowest = max(slowest, s*n[step][worker]*float64(len(times))/sum)
			slowestEqual = max(slowestEqual, s)
			rate += 1 / s
		}
		seconds += slowest
		equal += slowestEqual
		clairvoyant += float64(len(times)) / rate
	}
	return seconds, (equal - seconds) / (equal - clairvoyant)
}

// table is a column of a CSV by step and worker.
func table(t *testing.T, path, column string) map[string]map[string]float64 {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	values := map[string]map[string]float64{}
	for _, row := range rows[1:] {
		x, err := strconv.ParseFloat(row[at[column]], 64)
		if err != nil {
			t.Fatal(err)
		}
		step := row[at["step"]]
		if values[step] == nil {
			values[step] = map[string]float64{}
		}
		values[step][row[at["worker"]]] = x
	}
	return values
}
