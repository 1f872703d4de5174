package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/speed"

	"github.com/evenstep/evenstep/core/simulate/evidence/document"
)

func TestRunSaysWhatItNeeds(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "alibaba-v2020", "job_1_norm.csv"), "worker,step,seconds\na,0,1\n")
	for name, c := range map[string]struct {
		data string
		args []string
		want string
	}{
		"no data":         {"", nil, "EVENSTEP_DATA is not set; give a folder that has "},
		"a wrong folder":  {"nowhere", nil, "nowhere/alibaba-v2020/*.csv: no such file"},
		"no such section": {folder, []string{"core", "demo"}, `no section "demo"; give some of traces, generators, alike, `},
	} {
		_, err := run(c.args, c.data, "none", io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "document")
	write(t, path, "A\n<!-- begin x -->\nold\n<!-- end x -->\nB\n<!-- begin y -->\n<!-- end y -->\n")
	for _, section := range []string{"x", "y", "x"} { // the second time changes nothing
		if err := document.Update(path, section, "new "+section+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := os.ReadFile(path)
	want := "A\n<!-- begin x -->\nnew x\n<!-- end x -->\nB\n<!-- begin y -->\nnew y\n<!-- end y -->\n"
	if string(got) != want {
		t.Errorf("%s", got)
	}
	if err := document.Update(path, "z", ""); err == nil ||
		!strings.HasSuffix(err.Error(), `no section between "<!-- begin z -->" and "<!-- end z -->"`) {
		t.Error(err)
	}
	if err := document.Update("none", "x", ""); err == nil {
		t.Error("no error without a document")
	}
}

func TestTheDocumentHasEverySection(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "document")
	write(t, copied, string(text))
	for _, s := range sections(nil) {
		if err := document.Update(copied, s.name, "new\n"); err != nil {
			t.Error(err)
		}
	}
}

// flips is a trace in which nothing is learned from the last twelve steps that those twelve steps do not repeat.
func flips(t *testing.T) []trace {
	var rows strings.Builder
	rows.WriteString("worker,step,seconds\n")
	for step := range 240 {
		fmt.Fprintf(&rows, "a,%d,%d\nb,%d,3\n", step, 1+4*(step%12%5%2), step)
	}
	folder := t.TempDir()
	write(t, filepath.Join(folder, "flip.csv"), rows.String())
	traces, err := readTraces(filepath.Join(folder, "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	return traces
}

func TestRecorded(t *testing.T) {
	var out strings.Builder
	missed, err := recorded(&out, flips(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| policy | flip, lag 1 | flip, lag 12 |", "| equal | 0.000 | 0.000 |", "| best"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	// At lag 12 the last value is what comes, so nothing else is as good.
	if len(missed) != 1 || !strings.HasPrefix(missed[0], "flip at lag 12: auto captures ") {
		t.Errorf("missed %q in\n%s", missed, out.String())
	}
}

func TestNaiveOfTimes(t *testing.T) {
	h := ofTimes{speed.EWMA{HalfLife: math.Inf(1)}}
	h.Observe(speed.Observation{Samples: 10, Seconds: 1})
	h.Observe(speed.Observation{Samples: 10, Seconds: 3})
	if v, _ := h.Speed(speed.Inputs{}); v != 5 {
		t.Errorf("%v samples a second, want 10 in the 2 seconds that they take on average", v)
	}
}

// The mean of two workers, one of which repeats itself every other step.
func TestMeanErrors(t *testing.T) {
	flip := &simulate.Trace{Workers: []string{"a", "b"}}
	for step := range 250 {
		flip.Seconds = append(flip.Seconds, []float64{1, 1 / (1 + float64(step%2))})
	}
	made := jobs([]trace{{"flip", flip}})
	errors := meanErrors(made[0], 1)
	// Worker b has 1 and 2 samples/s; the last value is off by 1 in every step, which is two thirds of the mean.
	if got := errors["last value"]; math.Abs(got.RMSE-1./3) > 1e-9 || math.Abs(got.MAE-1./3) > 1e-9 || got.Steps != 400 {
		t.Errorf("last value: %+v", got)
	}
	if got := errors["ensemble"]; !(got.RMSE < 0.1) {
		t.Errorf("ensemble: %+v, want it to follow who sees two steps back", got)
	}
	made[1].workers = made[1].workers[:1]
	errors = meanErrors(made[1], 1)
	if narx, naive := errors["NARX"].RMSE, errors["last value"].RMSE; !(narx < naive/2) {
		t.Errorf("RMSE of NARX, which knows the cores: %v; of the last value: %v", narx, naive)
	}
}

func TestParseBenchmark(t *testing.T) {
	printed := `goos: linux
cpu: Abacus 2
BenchmarkCount/by_hand/10-2         	     100	   5000 ns/op	    0.5000 p50-ms
BenchmarkCount/by_hand/100-2        	      10	  51234567 ns/op	    51.23 p50-ms
BenchmarkCount/in_the_head/10-2     	       1	 400000000 ns/op	   400.4 p50-ms
PASS
`
	b, err := parseBenchmark(strings.NewReader(printed), "BenchmarkCount", 2)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	b.table(&out, "way", func(metrics map[string]float64) string {
		return short(metrics["ns/op"]/1e6) + " " + short(metrics["p50-ms"])
	})
	want := "| way | 10 | 100 |\n|---|---|---|\n| by hand | 0.005 0.5 | 51.2 51.2 |\n| in the head | 400 400 |  |\n"
	if out.String() != want || b.cpu != "Abacus 2" {
		t.Errorf("%s of %s", out.String(), b.cpu)
	}
	for _, bad := range []string{"PASS\n", "BenchmarkCount/10-2 1 2 ns/op\n", "BenchmarkCount/a/b-2 1 two ns/op\n"} {
		if _, err := parseBenchmark(strings.NewReader(bad), "BenchmarkCount", 2); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestDemoTable(t *testing.T) {
	var out strings.Builder
	err := demoTable(&out, []byte(`{"policies":[{"policy":"auto","step_seconds":0.0741,"gain":0.25,"share_of_ideal":0.953,
		"total_seconds":20.5,"steps":256,"workers":[{"batch_size":289,"compute_seconds":0.07},{"batch_size":95.5}]}],
		"ideal":{"policy":"fixed 288,96","step_seconds":0.073,"gain":0.26,"share_of_ideal":1,"workers":[{"batch_size":288}]},
		"loss":0.1}`))
	want := `| policy | a step | less than equal | of the way to the ideal | sizes | all steps |
|---|---|---|---|---|---|
| auto | 74 ms | 25 % | 95 % | 289, 96 | 256 in 20.5 s |
| ideal: the best sizes that stay | 73 ms | 26 % | 100 % | 288 |  |
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := demoTable(io.Discard, []byte("demo:")); err == nil {
		t.Error("no error")
	}
}
