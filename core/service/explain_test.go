package service

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

func TestExplain(t *testing.T) {
	capped := &evenstepv1.WorkerReport{SmClockMhz: some(1410.0), SmClockMaxMhz: some(1980.0),
		ThrottleReasons: []string{"SW power cap"}}
	full := &evenstepv1.WorkerReport{SmClockMhz: some(1980.0), SmClockMaxMhz: some(1980.0)}
	low := &evenstepv1.WorkerReport{SmClockMhz: some(1000.0), SmClockMaxMhz: some(1980.0)}
	quota := &evenstepv1.WorkerReport{ThrottleReasons: []string{"CPU quota"}}
	none := &evenstepv1.WorkerReport{}
	const gpu, old = "h200", "k80"
	for name, c := range map[string]struct {
		types   []string
		speeds  []float64
		cores   []float64
		reports []*evenstepv1.WorkerReport
		want    string
	}{
		"one is capped": {types: []string{gpu, gpu, gpu, gpu}, speeds: []float64{100, 100, 100, 82},
			reports: []*evenstepv1.WorkerReport{full, full, full, capped},
			want:    "rank 3 is 18 % slower: SW power cap, 1,410 of 1,980 MHz"},
		"a low clock says it too": {types: []string{gpu, gpu}, speeds: []float64{50, 100},
			reports: []*evenstepv1.WorkerReport{low, full}, want: "rank 0 is 50 % slower: 1,000 of 1,980 MHz"},
		"the slowest that can explain it": {types: []string{gpu, gpu, gpu, gpu}, speeds: []float64{100, 90, 80, 50},
			reports: []*evenstepv1.WorkerReport{none, capped, low, none}, want: "rank 2 is 11 % slower: 1,000 of 1,980 MHz"},
		"who is capped and not slow": {types: []string{gpu, gpu}, speeds: []float64{100, 99},
			reports: []*evenstepv1.WorkerReport{full, capped}, want: ""},
		"the only one of its type": {types: []string{gpu, gpu, old}, speeds: []float64{100, 100, 10},
			reports: []*evenstepv1.WorkerReport{full, full, capped}, want: "rank 2: SW power cap, 1,410 of 1,980 MHz"},
		"not measured": {types: []string{gpu, gpu}, speeds: []float64{0, 0},
			reports: []*evenstepv1.WorkerReport{capped, capped}, want: ""},
		"fewer cores": {types: []string{"", ""}, speeds: []float64{100, 50}, cores: []float64{1, 0.52},
			reports: []*evenstepv1.WorkerReport{none, none}, want: "rank 1 is 50 % slower: 0.52 CPU cores available, others 1"},
		"hardly fewer cores": {types: []string{"", ""}, speeds: []float64{100, 50}, cores: []float64{0.2, 0.1},
			reports: []*evenstepv1.WorkerReport{none, none}, want: ""},
		"a quota": {types: []string{"", ""}, speeds: []float64{100, 50}, cores: []float64{1, 1},
			reports: []*evenstepv1.WorkerReport{none, quota}, want: "rank 1 is 50 % slower: CPU quota"},
		"nothing is known": {types: []string{"", ""}, speeds: []float64{100, 50},
			reports: []*evenstepv1.WorkerReport{none, none}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			workers := make([]cluster.Worker, len(c.types))
			seen := make([]speed.Observation, len(c.types))
			hints := make([]hint, len(c.types))
			for i, typ := range c.types {
				workers[i].Device.Type = typ
				if typ != "" {
					workers[i].Device.MemoryBytes = 1 << 30
				}
				seen[i] = speed.Observation{Samples: c.speeds[i], Seconds: 1}
				if c.cores != nil {
					seen[i].CPU = c.cores[i]
				}
				hints[i] = newHint(c.reports[i])
			}
			if got := explain(workers, seen, hints); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// What workers report reaches the reason of the answer, whether they report together or each for itself.
func TestTheReasonOfAnAnswerExplains(t *testing.T) {
	device := &evenstepv1.Worker{DeviceType: "NVIDIA H200", DeviceMemoryBytes: 1 << 37}
	o := &evenstepv1.Open{Job: "job", GlobalBatch: 8, Workers: []*evenstepv1.Worker{device, device}, Policy: "equal"}
	reports := []*evenstepv1.WorkerReport{
		{Rank: 0, Samples: 4, ComputeSeconds: 1},
		{Rank: 1, Samples: 4, ComputeSeconds: 2, SmClockMhz: some(990.0), SmClockMaxMhz: some(1980.0),
			ThrottleReasons: []string{"HW thermal slowdown", "HW slowdown"}},
	}
	const want = "policy equal; rank 1 is 50 % slower: HW thermal slowdown, HW slowdown, 990 of 1,980 MHz"
	_, c := startServer(t, realPolicies)
	together := open(t, c, o)
	together.send(request(&evenstepv1.StepReport{NextFreeStep: 2, Workers: reports}))
	if got := together.allocation(0, 1, 4, 4).GetReason(); got != want {
		t.Errorf("got %q", got)
	}
	var each []*client
	for rank := range reports {
		own := proto.CloneOf(o)
		own.Job, own.Rank = "each", some(uint32(rank))
		each = append(each, open(t, c, own))
	}
	for rank, s := range each {
		s.send(request(&evenstepv1.StepReport{NextFreeStep: 2, Workers: reports[rank : rank+1]}))
	}
	if got := each[0].allocation(0, 1, 4, 4).GetReason(); got != want {
		t.Errorf("got %q", got)
	}
}

func TestReasonsThatAreRefused(t *testing.T) {
	for want, reasons := range map[string][]string{
		"report.workers[0].throttle_reasons: 17 of them; give at most 16":             make([]string, 17),
		"report.workers[0].throttle_reasons[1]: not at most 256 printable characters": {"", "a\nb"},
		"report.workers[0].throttle_reasons[0]: not at most 256 printable characters": {strings.Repeat("x", 257)},
	} {
		err := checkWorker(0, &evenstepv1.WorkerReport{ThrottleReasons: reasons})
		if status.Convert(err).Message() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The clock of an accelerator is its driving input, not the cores of its host.
func TestWhatDrivesAWorker(t *testing.T) {
	r := &evenstepv1.WorkerReport{CpuAvailable: some(8.0), SmClockMhz: some(1410.0)}
	gpu := cluster.Worker{Device: cluster.Device{MemoryBytes: 1}}
	if got := observation(gpu, r).CPU; got != 1410 {
		t.Errorf("a GPU: %v", got)
	}
	if got := observation(cluster.Worker{}, r).CPU; got != 8 {
		t.Errorf("CPUs: %v", got)
	}
}

// Target: below a tenth of what the answer to a step of so many workers may take, 2 ms.
func BenchmarkExplain1024Workers(b *testing.B) {
	workers, seen, hints := make([]cluster.Worker, 1024), make([]speed.Observation, 1024), make([]hint, 1024)
	for i := range workers {
		workers[i].Device = cluster.Device{Type: "NVIDIA H200", MemoryBytes: 1 << 37}
		seen[i] = speed.Observation{Samples: float64(64 + i*7919%64), Seconds: 0.1}
	}
	hints[77] = hint{cluster.Clock{MHz: 1410, MaxMHz: 1980}, "SW power cap"}
	for b.Loop() {
		explain(workers, seen, hints)
	}
}

func some[T any](value T) *T { return &value }

// Whatever is reported, an explanation is of bounded length and names a worker that was measured.
func TestAnyExplanation(t *testing.T) {
	number := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, math.MaxFloat64), rapid.Just(5e-324))
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "workers")
		workers, seen, hints := make([]cluster.Worker, n), make([]speed.Observation, n), make([]hint, n)
		for i := range n {
			workers[i].Device.Type = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "type")
			workers[i].Device.MemoryBytes = rapid.Uint64Range(0, 1).Draw(t, "memory")
			seen[i] = speed.Observation{Samples: number.Draw(t, "samples"), Seconds: number.Draw(t, "seconds"),
				CPU: number.Draw(t, "cores")}
			reason := strings.Repeat(rapid.SampledFrom([]string{"", "x", "é"}).Draw(t, "reason"), maxText)
			hints[i] = newHint(&evenstepv1.WorkerReport{SmClockMhz: some(number.Draw(t, "clock")),
				SmClockMaxMhz: some(number.Draw(t, "most")), ThrottleReasons: []string{reason, reason}})
		}
		got := explain(workers, seen, hints)
		if got == "" {
			return
		}
		var rank int
		if _, err := fmt.Sscanf(got, "rank %d", &rank); err != nil || len(got) > 2000 || strings.Contains(got, "NaN") {
			t.Fatalf("got %q", got)
		}
		if _, known := seen[rank].Speed(); !known {
			t.Fatalf("worker %d was not measured: %q", rank, got)
		}
	})
}
