package simulate

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCluster(t *testing.T) {
	got, err := ParseCluster("v100=8, k80 = 24", 4)
	if diff := cmp.Diff(Cluster{[]string{"v100", "k80"}, []int{8, 24}, 4}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, c := range [][2]string{
		{"", "empty; give types and counts: v100=8,p100=16"},
		{"v100", `"v100" is not type=count with a count of at least 1`},
		{"v100=0", `"v100=0" is not type=count with a count of at least 1`},
		{"=4", `"=4" is not type=count with a count of at least 1`},
		{"v100=1,", `"" is not type=count with a count of at least 1`},
		{"v100=1,v100=1", "v100 is given twice"},
		{"a=1000000,b=1", "more than 1000000 devices"},
		{"a=9223372036854775807", "more than 1000000 devices"},
	} {
		spec, want := c[0], c[1]
		if _, err := ParseCluster(spec, 4); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", spec, err, want)
		}
	}
	if _, err := ParseCluster("a=1", 0); err == nil || err.Error() != "0 devices per node; give at least 1" {
		t.Errorf("got %v", err)
	}
}

const speedsHeader = "table,job_type,scale_factor,worker_type,consolidated,steps_per_s\n"

func TestReadThroughputs(t *testing.T) {
	const both = speedsHeader + "simulation,w,1,a,1,1\nphysical_cluster,w,1,a,1.0,2\nphysical_cluster,w,2,a,0,3\n"
	for name, c := range map[string]struct {
		csv, table string
		rate       float64
		counts     [3]int
	}{
		"the preferred of several": {both, "", 2, [3]int{1, 1, 1}},
		"the named one":            {both, "simulation", 1, [3]int{1, 2, 0}},
		"the only one":             {speedsHeader + "mine,w,1,a,1,5\n", "", 5, [3]int{1, 0, 0}},
		"without tables, consolidation": {"steps_per_s,job_type,worker_type,scale_factor\n7,w,a,1\n", "", 7,
			[3]int{1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadThroughputs(strings.NewReader(c.csv), c.table)
			if err != nil {
				t.Fatal(err)
			}
			if got.rate("w", 1, "a") != c.rate || [3]int{got.Rows, got.OtherTables, got.Spread} != c.counts {
				t.Errorf("%v steps/s, %d rows, %d of other tables, %d spread", got.rate("w", 1, "a"), got.Rows,
					got.OtherTables, got.Spread)
			}
		})
	}
	for _, c := range [][2]string{
		{"", "empty; give a header with the columns job_type, scale_factor, worker_type, steps_per_s"},
		{"job_type,scale_factor\n",
			"line 1: no column worker_type in the header; give job_type, scale_factor, worker_type, steps_per_s"},
		{speedsHeader, "no rows; give one for each workload, number of devices and type"},
		{speedsHeader + "t,w,0,a,1,1\n", `line 2: scale_factor: "0" is not a whole number from 1 to 4096`},
		{speedsHeader + "t,w,1,a,1,-1\n", `line 2: steps_per_s: "-1" is not a number from 0 to 1e+09`},
		{speedsHeader + "t,w,1,a,1,NaN\n", `line 2: steps_per_s: "NaN" is not a number from 0 to 1e+09`},
		{speedsHeader + "t,w,1,a,maybe,1\n", `line 2: consolidated: "maybe" is not 0 or 1`},
		{speedsHeader + "t,,1,a,1,1\n", `line 2: job_type: "" is not the name of a workload`},
		{speedsHeader + "t,w,1,,1,1\n", `line 2: worker_type: "" is not a device type`},
		{speedsHeader + "t,w,1,a,1,1\nt,w,1,a,1,1\n", `line 3: w on 1 a is in table "t" already; give it once`},
		{speedsHeader + "s,w,1,a,1,1\nt,w,1,a,1,1\n", `several tables; name one of ["s" "t"]`},
		{speedsHeader + "t,w,1\n", "line 2: 3 fields; give 6 as in the header"},
	} {
		csv, want := c[0], c[1]
		if _, err := ReadThroughputs(strings.NewReader(csv), ""); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", csv, err, want)
		}
	}
}

const jobsHeader = "job_id,job_type,scale_factor,total_steps,priority_weight,arrival_s\n"

func TestReadJobs(t *testing.T) {
	got, err := ReadJobs(strings.NewReader(jobsHeader + "b,w,2,1e3,2,7.5\na,w,1,10,,0\nc,w,1,1,1,0\n"))
	want := []ClusterJob{{"a", "w", 1, 10, 1, 0, 3}, {"c", "w", 1, 1, 1, 0, 4}, {"b", "w", 2, 1000, 2, 7.5, 2}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, c := range [][2]string{
		{"job_id\n",
			"line 1: no column job_type in the header; give job_id, job_type, scale_factor, total_steps, arrival_s"},
		{jobsHeader, "no rows; give one for each job"},
		{jobsHeader + ",w,1,1,1,0\n", `line 2: job_id: "" is not a name`},
		{jobsHeader + "a,,1,1,1,0\n", `line 2: job_type: "" is not the name of a workload`},
		{jobsHeader + "a,w,x,1,1,0\n", `line 2: scale_factor: "x" is not a whole number from 1 to 4096`},
		{jobsHeader + "a,w,1,0,1,0\n", `line 2: total_steps: "0" is not a whole number from 1 to 1000000000000000`},
		{jobsHeader + "a,w,1,1.5,1,0\n", `line 2: total_steps: "1.5" is not a whole number from 1 to 1000000000000000`},
		{jobsHeader + "a,w,1,1,0,0\n", `line 2: priority_weight: "0" is not above 0`},
		{jobsHeader + "a,w,1,1,-1,0\n", `line 2: priority_weight: "-1" is not a number from 0 to 1e+09`},
		{jobsHeader + "a,w,1,1,1,-1\n", `line 2: arrival_s: "-1" is not a number from 0 to 1e+12`},
		{jobsHeader + "a,w,1,1,1,\n", `line 2: arrival_s: "" is not a number from 0 to 1e+12`},
		{jobsHeader + "a,w,1,1,1,0\na,w,1,1,1,0\n", `line 3: job_id: "a" is that of line 2 already`},
	} {
		csv, want := c[0], c[1]
		if _, err := ReadJobs(strings.NewReader(csv)); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", csv, err, want)
		}
	}
}

func TestTablesAreBounded(t *testing.T) {
	for _, filler := range []endless{'\n', '1', ',', '"'} {
		in, err := openTable(io.MultiReader(strings.NewReader("a\n"), filler), ',', 1<<20, "a")
		for err == nil {
			err = in.next()
		}
		if err.Error() != "larger than 1 MiB" {
			t.Errorf("%q: %v", filler, err)
		}
	}
}

func TestJobsThatCannotRunAreDropped(t *testing.T) {
	speeds, err := ReadThroughputs(strings.NewReader(speedsHeader+"t,w,1,a,1,1\nt,w,8,a,1,1\nt,w,2,a,1,0\n"+
		"t,slow,1,a,1,0.001\nt,other,1,b,1,1\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := ReadJobs(strings.NewReader(jobsHeader +
		"fine,w,1,1,1,0\nwide,w,8,1,1,0\nzero,w,2,1,1,0\nslow,slow,1,1,1,0\nnone,x,1,1,1,0\nelsewhere,other,1,1,1,0\n"))
	if err != nil {
		t.Fatal(err)
	}
	rounds, err := NewRounds(Cluster{[]string{"a"}, []int{4}, 4}, speeds, jobs, Rules{RoundSeconds: 360})
	if err != nil {
		t.Fatal(err)
	}
	want := []DroppedJob{
		{"wide", 3, "it needs more devices than there are of any type"},
		{"zero", 4, "the throughputs have no speed above 0 for so many devices of any type that is here"},
		{"slow", 5, "no type that it has a speed on has the devices, or a step takes longer than a round"},
		{"none", 6, "its workload is not in the throughputs"},
		{"elsewhere", 7, "the throughputs have no speed above 0 for so many devices of any type that is here"},
	}
	if diff := cmp.Diff(want, rounds.Dropped); diff != "" || len(rounds.Jobs) != 1 {
		t.Error(diff)
	}
	for want, rules := range map[string]Rules{
		"round: 0 s is not in (0, 1e+12]":    {},
		"restart: -1 s is not in [0, 1e+12]": {RoundSeconds: 1, RestartSeconds: -1},
		"length error: 11 is not in [0, 10]": {RoundSeconds: 1, LengthError: 11},
	} {
		if _, err := NewRounds(Cluster{}, speeds, jobs, rules); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

const accountHeader = "JobID|JobName|Partition|Submit|Elapsed|AllocTRES|State\n"

func TestReadSacct(t *testing.T) {
	speeds, err := ReadThroughputs(strings.NewReader(speedsHeader+
		"t,resnet,4,v100,1,10\nt,resnet,1,v100,1,3\nt,lm,1,k80,1,0.5\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := ReadWorkloads(strings.NewReader("pattern,workload,type\nresnet*,resnet,\nlm-?,lm,k80\n"))
	if err != nil {
		t.Fatal(err)
	}
	jobs, dropped, err := ReadSacct(strings.NewReader(accountHeader+
		"7|lm-a|gpu|2026-01-02T00:00:10|00:01:00|billing=1,gres/gpu=1|COMPLETED\n"+
		"8|resnet50 \"x\"|gpu|2026-01-02T00:00:00|1-00:00:10|gres/gpu=4,gres/gpu:V100=4,gres/gpuutil=3|TIMEOUT\n"+
		"8.batch|batch|||1-00:00:10|cpu=8|COMPLETED\n"+
		"9|mystery|gpu|2026-01-02T00:00:00|00:10:00|gres/gpu:v100=1|COMPLETED\n"+
		"10|resnet|gpu|2026-01-02T00:00:00|00:00:00|gres/gpu:v100=1|CANCELLED by 7\n"+
		"11|resnet|cpu|2026-01-02T00:00:00|00:10:00|cpu=4|COMPLETED\n"+
		"12|resnet|gpu|2026-01-02T00:00:00|00:10:00|gres/gpu:v100=1,gres/gpu:k80=1|COMPLETED\n"+
		"13|resnet|gpu|2026-01-02T00:00:00|00:10:00|gres/gpu=1|COMPLETED\n"+
		"14|resnet|gpu|2026-01-02T00:00:00|00:10:00|gres/gpu:v100=2|COMPLETED\n"+
		"15|lm-b|gpu|2026-01-02T00:00:00|00:00:01|gres/gpu:k80=1|COMPLETED\n"+
		"16|resnet|gpu|2026-01-02T00:00:00|00:10:00|gres/gpu:v100=1|RUNNING\n"+
		"17|resnet|gpu|Unknown|00:10:00|gres/gpu:v100=1|FAILED\n"+
		"7|lm-a|gpu|2026-01-02T00:00:10|00:01:00|gres/gpu=1|COMPLETED\n"), rules, speeds)
	if err != nil {
		t.Fatal(err)
	}
	wantJobs := []ClusterJob{{"8", "resnet", 4, 864100, 1, 0, 3}, {"7", "lm", 1, 30, 1, 10, 2}}
	wantDropped := []DroppedJob{
		{"8.batch", 4, "a step of a job, not a job"},
		{"9", 5, "no rule matches its name"},
		{"10", 6, "it never ran"},
		{"11", 7, "it had no GPU"},
		{"12", 8, "it had GPUs of several types, whose speed together was not measured"},
		{"13", 9, "neither AllocTRES nor its rule names the type of its GPUs"},
		{"14", 10, "the throughputs have no speed above 0 for its workload on what it had"},
		{"15", 11, "it ran for less than a step"},
		{"16", 12, "it has not ended: RUNNING"},
		{"17", 13, "its time of submission is not known"},
		{"7", 14, "the same JobID came before: it was requeued"},
	}
	if diff := cmp.Diff(wantJobs, jobs) + cmp.Diff(wantDropped, dropped); diff != "" {
		t.Error(diff)
	}
}

func TestReadSacctRefuses(t *testing.T) {
	for _, c := range [][2]string{
		{"|resnet|gpu|2026-01-02T00:00:00|00:10:00||", `line 2: JobID: "" is not a job id`},
		{"1|resnet|gpu|yesterday|00:10:00||", `line 2: Submit: "yesterday" is not a time like 2026-01-31T23:59:59`},
		{"1|resnet|gpu|2026-01-02T00:00:00|10 min||", `line 2: Elapsed: "10 min" is not a time like 1-23:59:59`},
		{"1|resnet|gpu|2026-01-02T00:00:00|-1:00:00:00||",
			`line 2: Elapsed: "-1:00:00:00" is not a time like 1-23:59:59`},
		{"1|r|gpu|2026-01-02T00:00:00|00:10:00|gres/gpu=many|",
			`line 2: AllocTRES: "gres/gpu=many" is not like gres/gpu:v100=4 with a count from 0 to 4096`},
	} {
		row, want := c[0], c[1]
		_, _, err := ReadSacct(strings.NewReader(accountHeader+row+"\n"), nil, &Throughputs{})
		if err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", row, err, want)
		}
	}
	for _, c := range [][2]string{
		{"pattern,workload,pattern\n", "line 1: column pattern is twice in the header; give it once"},
		{"pattern\n", "line 1: no column workload in the header; give pattern, workload"},
		{"pattern,workload\n", "no rows; give at least one rule"},
		{"pattern,workload\n[,w\n", `line 2: pattern: "[" is not a pattern as of a shell: resnet50-*`},
		{"pattern,workload\n*,\n", `line 2: workload: "" is not the name of a workload`},
	} {
		csv, want := c[0], c[1]
		if _, err := ReadWorkloads(strings.NewReader(csv)); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", csv, err, want)
		}
	}
}

// FuzzClusterFiles: whatever the files, what is read runs to its end, or there is an error.
func FuzzClusterFiles(f *testing.F) {
	f.Add(speedsHeader+"t,w,1,a,1,1\nt,w,2,b,1,9\n", jobsHeader+"x,w,1,100,1,0\ny,w,2,3,1,5\n",
		accountHeader+"7|w|gpu|2026-01-02T00:00:10|00:01:00|gres/gpu:a=1|COMPLETED\n")
	f.Fuzz(func(t *testing.T, speeds, trace, accounts string) {
		throughputs, err := ReadThroughputs(strings.NewReader(speeds), "")
		if err != nil {
			return
		}
		jobs, err := ReadJobs(strings.NewReader(trace))
		if err != nil {
			return
		}
		more, _, err := ReadSacct(strings.NewReader(accounts), []WorkloadRule{{"*", "w", "a"}}, throughputs)
		if err == nil {
			jobs = append(jobs, more...)
		}
		for i := range jobs {
			jobs[i].Steps = min(jobs[i].Steps, 10_000)
		}
		slices.SortStableFunc(jobs, func(a, b ClusterJob) int { return strings.Compare(a.ID, b.ID) })
		sortByArrival(jobs)
		cluster := Cluster{[]string{"a", "b"}, []int{2, 2}, 2}
		rounds, err := NewRounds(cluster, throughputs, jobs, Rules{RoundSeconds: 360})
		if err != nil {
			t.Fatal(err)
		}
		r, err := rounds.Run("auto", func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		checkBooks(t, r, Rules{Types: Balanced})
	})
}

// sacct quotes nothing: a quote in a job's name is one, and a | in it makes a row that is counted as dropped.
func TestReadSacctTakesNamesAsTheyAre(t *testing.T) {
	speeds, err := ReadThroughputs(strings.NewReader(speedsHeader+"t,w,1,a,1,1\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	rows := "JobID|JobName|Submit|Elapsed|AllocTRES|State\n" +
		"1|\"w1|2026-01-01T00:00:00|00:10:00|gres/gpu:a=1|COMPLETED\n" +
		"2|\"w2|2026-01-01T00:00:00|00:10:00|gres/gpu:a=1|COMPLETED\n" +
		"3|w|3|2026-01-01T00:00:00|00:10:00|gres/gpu:a=1|COMPLETED\n"
	jobs, dropped, err := ReadSacct(strings.NewReader(rows), []WorkloadRule{{"*w*", "w", ""}}, speeds)
	if err != nil || len(jobs) != 2 || len(dropped) != 1 || dropped[0].Line != 4 {
		t.Errorf("%v jobs, dropped %v, %v", jobs, dropped, err)
	}
}
