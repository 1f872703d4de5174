package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// Two jobs on plenty of devices are done soon, whatever the policy; only what the peers are made to say here is not
// what comes out.
func TestRun(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "gavel")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	const jobs = "job_id,job_type,scale_factor,total_steps,priority_weight,arrival_s\na,w,1,7200,1,0\nb,w,1,3600,1,0\n"
	for name, content := range map[string]string{
		"gavel_throughputs.csv": "table,job_type,scale_factor,worker_type,consolidated,steps_per_s\n" +
			"physical_cluster,w,1,v100,1,1\nphysical_cluster,w,1,k80,1,0.5\nsimulation,w,1,v100,1,9\n",
		"gavel_trace_minimize_makespan.csv": jobs,
		"gavel_trace_max_min_fairness.csv":  jobs,
		"gavel_simulator_results.csv": "trace,cluster_v100:p100:k80,throughputs_file,policy,avg_jct_s,makespan_s\n" +
			"minimize_makespan,8:16:24,physical_cluster,fifo_perf,5400,7200\n" +
			"minimize_makespan_sf1,4:8:12,physical_cluster,fifo_perf,5400,7200\n" +
			"max_min_fairness,8:16:24,physical_cluster,fifo_perf,1,1\n" +
			"max_min_fairness_sf1,4:8:12,physical_cluster,fifo_perf,5400,7200\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	missed, err := run(filepath.Dir(folder), &out)
	if err != nil {
		t.Fatal(err)
	}
	want := "online, 8:16:24: fifo-het gives 1.5000 h, Gavel's simulator 0.0003 h"
	if len(missed) != 1 || missed[0] != want {
		t.Errorf("missed %q, want %s", missed, want)
	}
	for _, want := range []string{
		"| here (makespan) | 1.500 (2.0) |", "| `auto` | Evenstep | yes | 1.500 (2.0) |",
		"| mean JCT | `auto` | 1.500 of 6.65 |", "| sigma 0.6 | 1.500 |", "| one type (measured speeds) | 1.500 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
