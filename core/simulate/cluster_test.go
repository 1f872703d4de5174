package simulate

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// small is the trace in testdata on a cluster of three types.
func small(t *testing.T, rules Rules) *Rounds {
	t.Helper()
	open := func(name string) *os.File {
		file, err := os.Open(filepath.Join("testdata", "cluster", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	speeds, err := ReadThroughputs(open("throughputs.csv"), "ours")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := ReadJobs(open("trace.csv"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := ParseCluster("fast=4,medium=6,slow=8", 4)
	if err != nil {
		t.Fatal(err)
	}
	rounds, err := NewRounds(cluster, speeds, jobs, rules)
	if err != nil || len(rounds.Dropped) > 0 {
		t.Fatal(err, rounds.Dropped)
	}
	return rounds
}

func run(t *testing.T, r *Rounds, policy string) *ClusterResult {
	t.Helper()
	result, err := r.Run(policy, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// The numbers come from a program of 50 lines that was written from Gavel's scheduler.py and fifo.py alone, and that
// gives the digits of Gavel's simulator on its own traces.
func TestFIFOIsThatOfGavel(t *testing.T) {
	r := run(t, small(t, Rules{RoundSeconds: 360}), "fifo-het")
	if jct := Mean(r.JCTs()); math.Abs(jct-4461.029785709359) > 1e-6 {
		t.Errorf("a mean JCT of %v s", jct)
	}
	if end := r.MakespanSeconds(); math.Abs(end-22771.52421307506) > 1e-6 {
		t.Errorf("a makespan of %v s", end)
	}
}

// flat is a cluster of one type on which any job of one device makes a step a second, half of it on another.
func flat(t *testing.T, spec string, rules Rules, jobs ...ClusterJob) *Rounds {
	t.Helper()
	speeds, err := ReadThroughputs(strings.NewReader("job_type,scale_factor,worker_type,steps_per_s\n"+
		"w,1,a,1\nw,2,a,2\nw,1,b,0.5\nw,2,b,1\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := ParseCluster(spec, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		jobs[i].Workload, jobs[i].ID, jobs[i].Weight = "w", string(rune('A'+i)), 1
		jobs[i].Devices = max(1, jobs[i].Devices)
	}
	rounds, err := NewRounds(cluster, speeds, jobs, rules)
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

func finishes(r *ClusterResult) []float64 {
	var times []float64
	for _, j := range r.Jobs {
		times = append(times, j.FinishSeconds)
	}
	return times
}

func TestHowTimePasses(t *testing.T) {
	restarts := Rules{RoundSeconds: 100, RestartSeconds: 30}
	for name, c := range map[string]struct {
		spec, policy string
		rules        Rules
		jobs         []ClusterJob
		want         []float64 // finishes
	}{
		"a job that ends within a round has its exact finish, and the next one waits for the round's end": {"a=2",
			"las-het", Rules{RoundSeconds: 100}, []ClusterJob{{Steps: 30}, {Steps: 150}, {Steps: 10}},
			[]float64{30, 150, 110}},
		"a round ends with its last job": {"a=1", "las-het",
			Rules{RoundSeconds: 100}, []ClusterJob{{Steps: 30}, {Steps: 10}}, []float64{30, 40}},
		"only whole steps count": {"b=1", "las-het",
			Rules{RoundSeconds: 101}, []ClusterJob{{Steps: 51}}, []float64{102}},
		"who arrives waits for the next round": {"a=2", "las-het",
			Rules{RoundSeconds: 100}, []ClusterJob{{Steps: 150}, {Steps: 10, ArrivalSeconds: 1}}, []float64{150, 110}},
		"an idle cluster waits for the next arrival": {"a=1", "las-het",
			Rules{RoundSeconds: 100}, []ClusterJob{{Steps: 10}, {Steps: 10, ArrivalSeconds: 77}}, []float64{10, 87}},
		"the first start costs no restart": {"a=1", "las-het",
			Rules{RoundSeconds: 100, RestartSeconds: 30}, []ClusterJob{{Steps: 110}}, []float64{110}},
		"turns cost restarts": {"a=1", "las-het", // 0 A, 100 B, 200 restart, 230 A, 240 restart, 270 B, 280
			restarts, []ClusterJob{{Steps: 110}, {Steps: 110}}, []float64{240, 280}},
		"auto does not take turns": {"a=1", "auto",
			restarts, []ClusterJob{{Steps: 110}, {Steps: 110}}, []float64{110, 220}},
		"two devices work as one job": {"a=2", "auto",
			Rules{RoundSeconds: 100}, []ClusterJob{{Steps: 100, Devices: 2}}, []float64{50}},
		"types mix where balanced, each bringing its share": {"a=1,b=1", "auto",
			Rules{RoundSeconds: 1000, Types: Balanced}, []ClusterJob{{Steps: 150, Devices: 2}}, []float64{100}},
		"types mix where not balanced, all at the slowest's speed": {"a=1,b=1", "auto",
			Rules{RoundSeconds: 1000, Types: Unbalanced}, []ClusterJob{{Steps: 150, Devices: 2}}, []float64{150}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := finishes(run(t, flat(t, c.spec, c.rules, c.jobs...), c.policy)); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestEndlessRunsAreRefused(t *testing.T) {
	rounds := flat(t, "a=1", Rules{RoundSeconds: 100, RestartSeconds: 1e7}, ClusterJob{Steps: 300},
		ClusterJob{Steps: 300})
	const want = "policy las-het: no job made a step in 10000 rounds; give shorter restarts or longer rounds"
	if _, err := rounds.Run("las-het", func(int) {}); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	run(t, rounds, "auto")
	rounds = flat(t, "a=1", Rules{RoundSeconds: 100}, ClusterJob{Steps: 2_000_000_000})
	if len(rounds.Dropped) != 1 || rounds.Dropped[0].Reason != "it takes more than 10000000 rounds, even alone" {
		t.Errorf("dropped %v", rounds.Dropped)
	}
}

// Whatever the policy and the rules: all jobs are done, on devices that are there and that no two hold at once; what
// they had is what their steps take.
func TestEveryPolicyKeepsTheBooks(t *testing.T) {
	for _, p := range ClusterPolicies() {
		for name, rules := range map[string]Rules{
			"plain":      {RoundSeconds: 360, Seed: 1},
			"restarts":   {RoundSeconds: 300, RestartSeconds: 60, LengthError: 0.5, Seed: 1},
			"no preempt": {RoundSeconds: 360, NoPreempt: true},
			"mixed":      {RoundSeconds: 360, Types: Balanced},
			"unbalanced": {RoundSeconds: 360, Types: Unbalanced, NoPreempt: true},
		} {
			t.Run(p.Name+" "+name, func(t *testing.T) {
				rounds := small(t, rules)
				if p.SingleDevice {
					if _, err := rounds.Run(p.Name, func(int) {}); err == nil {
						t.Fatal("it takes jobs of several devices")
					}
					rounds = singles(t, rounds, rules)
				}
				r := run(t, rounds, p.Name)
				checkBooks(t, r, rules)
				if (rules.NoPreempt && p.Name == "auto" || p.Name == "fifo") && r.Preemptions > 0 {
					t.Errorf("%d preemptions", r.Preemptions)
				}
			})
		}
	}
}

// singles leaves the jobs of one device.
func singles(t *testing.T, r *Rounds, rules Rules) *Rounds {
	jobs := slices.DeleteFunc(slices.Clone(r.Jobs), func(j ClusterJob) bool { return j.Devices > 1 })
	rounds, err := NewRounds(r.Cluster, r.speeds, jobs, rules)
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

func checkBooks(t *testing.T, r *ClusterResult, rules Rules) {
	t.Helper()
	until := make([]float64, r.Rounds.Cluster.Devices()) // by device: when its last span ended
	for _, s := range r.Spans {
		if len(s.Devices) != r.Rounds.Jobs[s.Job].Devices {
			t.Fatalf("job %d holds %d devices", s.Job, len(s.Devices))
		}
		for _, d := range s.Devices {
			if s.FromSeconds < until[d] {
				t.Fatalf("device %d has two jobs at %v s", d, s.FromSeconds)
			}
			until[d] = s.ToSeconds
		}
	}
	for i, j := range r.Jobs {
		job, class := r.Rounds.Jobs[i], r.Rounds.classes[i]
		if j.StartSeconds < job.ArrivalSeconds || j.FinishSeconds <= j.StartSeconds {
			t.Fatalf("job %s: arrived %v, started %v, finished %v", job.ID, job.ArrivalSeconds, j.StartSeconds,
				j.FinishSeconds)
		}
		had := 0.0
		for _, s := range j.DeviceSeconds {
			had += s / float64(job.Devices)
		}
		least := float64(job.Steps) / class.fastest
		if had < least*(1-1e-9) || had > j.FinishSeconds-j.StartSeconds+1e-6 {
			t.Fatalf("job %s ran %v s; its steps take %v s at least", job.ID, had, least)
		}
		if rules.Types != SingleType || rules.RestartSeconds > 0 {
			continue
		}
		steps := 0.0
		for w, way := range class.ways {
			for k, n := range way.Counts {
				if n > 0 {
					steps += j.DeviceSeconds[k] / float64(n) * class.rates[w]
				}
			}
		}
		if math.Abs(steps-float64(job.Steps)) > 1e-6*float64(job.Steps) {
			t.Fatalf("job %s made %v steps of %d", job.ID, steps, job.Steps)
		}
	}
}

// Same seed, same result; and decisions are timed only where there is a clock.
func TestRunsAreReproducible(t *testing.T) {
	for _, policy := range []string{"auto", "las", "paper"} {
		rules := Rules{RoundSeconds: 360, LengthError: 0.3, Seed: 5}
		first := run(t, small(t, rules), policy)
		if len(first.Decisions) > 0 {
			t.Error("decisions were timed without a clock")
		}
		now := time.Duration(0)
		rules.Clock = func() time.Duration { now += time.Second; return now }
		again := run(t, small(t, rules), policy)
		if !slices.Equal(first.JCTs(), again.JCTs()) {
			t.Errorf("%s: not the same with the same seed", policy)
		}
		if len(again.Decisions) == 0 || again.Decisions[0] != time.Second {
			t.Errorf("%s: decisions took %v", policy, again.Decisions)
		}
	}
	if slices.Equal(run(t, small(t, Rules{RoundSeconds: 360, LengthError: 1, Seed: 5}), "auto").JCTs(),
		run(t, small(t, Rules{RoundSeconds: 360, LengthError: 1, Seed: 6}), "auto").JCTs()) {
		t.Error("the same errors with another seed")
	}
}

func TestEqualShare(t *testing.T) {
	// Until 100 A has the device alone; A and B share it until A's 200 steps are done at 300, then B does its last 50.
	rounds := flat(t, "a=1", Rules{RoundSeconds: 100}, ClusterJob{Steps: 200},
		ClusterJob{Steps: 150, ArrivalSeconds: 100})
	if got := rounds.EqualShare(); !slices.Equal(got, []float64{300, 250}) {
		t.Errorf("got %v", got)
	}
	// A job cannot be on both devices at once: it takes turns on a (1 step/s) and b (0.5 steps/s).
	rounds = flat(t, "a=1,b=1", Rules{RoundSeconds: 100}, ClusterJob{Steps: 75})
	if got := rounds.EqualShare(); !slices.Equal(got, []float64{100}) {
		t.Errorf("got %v", got)
	}
}

func TestMeasures(t *testing.T) {
	r := run(t, flat(t, "a=2", Rules{RoundSeconds: 100}, ClusterJob{Steps: 100},
		ClusterJob{Steps: 50, ArrivalSeconds: 50}, ClusterJob{Steps: 100, ArrivalSeconds: 50}), "fifo-het")
	jain, rho := r.Fairness([]float64{100, 100, 100})
	if got := []float64{r.MakespanSeconds(), r.Utilization(), jain, rho}; !slices.Equal(got, []float64{200, 0.625,
		3.5 * 3.5 / (3 * (1 + 1 + 1.5*1.5)), 1.5}) {
		t.Errorf("got %v", got)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := Quantile([]float64{4, 1, 3, 2}, q); got != want {
			t.Errorf("the %v-quantile is %v", q, got)
		}
	}
}

func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.IntRange(1, 4).Draw(t, "rows")
		columns := rapid.IntRange(rows, 5).Draw(t, "columns")
		costs := make([][]float64, rows)
		for i := range costs {
			costs[i] = rapid.SliceOfN(rapid.Float64Range(0, 9), columns, columns).Draw(t, "costs")
		}
		sum, used := 0.0, make([]bool, columns)
		for i, c := range assign(rows, columns, func(r, c int) float64 { return costs[r][c] }) {
			if used[c] {
				t.Fatalf("column %d has two rows", c)
			}
			used[c] = true
			sum += costs[i][c]
		}
		if best := cheapest(costs, make([]bool, columns)); sum > best+1e-9 {
			t.Fatalf("it costs %v, the best %v", sum, best)
		}
	})
}

func cheapest(costs [][]float64, used []bool) float64 {
	if len(costs) == 0 {
		return 0
	}
	best := math.Inf(1)
	for c, cost := range costs[0] {
		if !used[c] {
			used[c] = true
			best = min(best, cost+cheapest(costs[1:], used))
			used[c] = false
		}
	}
	return best
}

func TestDevicesAreOnFewNodes(t *testing.T) {
	m := newDeviceMap(Cluster{Types: []string{"a", "b"}, Counts: []int{8, 2}, PerNode: 4})
	want := func(counts []int, devices ...int) []int {
		t.Helper()
		got, err := m.take(counts)
		if err != nil || !slices.Equal(got, devices) {
			t.Errorf("got %v, %v; want %v", got, err, devices)
		}
		return got
	}
	want([]int{1, 0}, 0)
	pair := want([]int{2, 0}, 1, 2)  // beside the first
	want([]int{4, 1}, 4, 5, 6, 7, 8) // the node that is whole
	want([]int{0, 1}, 9)             // the last of its type
	m.free(pair)                     //
	want([]int{3, 0}, 3, 1, 2)       // what is left
	if _, err := m.take([]int{1, 0}); err == nil {
		t.Error("no error where none is free")
	}
}

// Target: 10,000 jobs on 1,000 devices in two minutes, which is 12 ms a round.
func BenchmarkCluster(b *testing.B) {
	speeds, err := ReadThroughputs(strings.NewReader("job_type,scale_factor,worker_type,steps_per_s\n"+
		"w,1,a,1\nw,1,b,0.5\nw,4,a,3\nw,4,b,1.8\nv,1,a,1\nv,1,b,0.9\n"), "")
	if err != nil {
		b.Fatal(err)
	}
	cluster, err := ParseCluster("a=300,b=700", 4)
	if err != nil {
		b.Fatal(err)
	}
	var jobs []ClusterJob
	for i := range 10_000 {
		j := ClusterJob{ID: string(rune(i)), Workload: "w", Devices: 1 + 3*(i%3/2), Weight: 1,
			Steps: 1000 + i*7919%30_000, ArrivalSeconds: float64(20 * i)}
		if i%5 == 0 {
			j.Workload, j.Devices = "v", 1
		}
		jobs = append(jobs, j)
	}
	rounds, err := NewRounds(cluster, speeds, jobs, Rules{RoundSeconds: 360})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := rounds.Run("auto", func(int) {}); err != nil {
			b.Fatal(err)
		}
	}
}
