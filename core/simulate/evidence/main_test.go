package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenstep/evenstep/core/speed"
)

func TestRunSaysWhatDataItNeeds(t *testing.T) {
	_, err := run("", new(strings.Builder))
	if err == nil || !strings.HasPrefix(err.Error(), "EVENSTEP_DATA is not set; give a folder that has ") {
		t.Error(err)
	}
	if _, err := run("nowhere", new(strings.Builder)); err == nil {
		t.Error("no error without traces")
	}
}

func TestRecorded(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("worker,step,seconds\n")
	for step := range 60 {
		fmt.Fprintf(&rows, "a,%d,%d\nb,%d,3\n", step, 1+step%2, step)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "flip.csv"), []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	traces, err := readTraces(filepath.Join(folder, "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := recorded(&out, traces); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| policy | flip, lag 1 | flip, lag 12 |", "| equal | 0.000 | 0.000 |", "| best"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
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
