package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// bookOf knows how many seconds a sample takes the devices.
func bookOf(perSample map[string]float64) *profile.Book {
	b := profile.NewBook(time.Now)
	for _, id := range []string{"a", "b", "c"} {
		if s := perSample[id]; s > 0 {
			b.Record("w", cluster.Device{Type: "cpu", ID: id}, profile.Sighting{
				Curve: speed.Learned{Samples: 100, Seconds: 100 * s, Sigma: 0.01}, LargestBatch: 100, Steps: 100})
		}
	}
	return b
}

// opened opens the job of three workers on devices a, b and c, which leaves the choice of sizes, and returns what it
// starts from.
func opened(t *testing.T, profiles Profiles, change ...func(*evenstepv1.Open)) *evenstepv1.Allocation {
	t.Helper()
	balancer, c := startServer(t, realPolicies)
	balancer.Profiles = profiles
	s := dial(t, c)
	o := &evenstepv1.Open{Job: "job", GlobalBatch: 120, Workload: "w", ChooseStart: true}
	for _, id := range []string{"a", "b", "c"} {
		o.Workers = append(o.Workers, &evenstepv1.Worker{DeviceType: "cpu", Device: id})
	}
	for _, f := range change {
		f(o)
	}
	s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}})
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r.GetOpened().GetAllocation()
}

func TestAJobStartsFromProfiles(t *testing.T) {
	uneven := map[string]float64{"a": 0.003, "b": 0.0015, "c": 0.001}
	for name, c := range map[string]struct {
		known  map[string]float64
		change func(*evenstepv1.Open)
		want   []uint32
		reason string
	}{
		"of its own devices": {uneven, nil, []uint32{20, 40, 60}, "3 workers by their own device's"},
		"of a device's type where its own is missing": {map[string]float64{"a": 0.003, "b": 0.0015}, nil,
			[]uint32{27, 55, 38}, "2 workers by their own device's, 1 by their device type's"},
		"where it leaves the choice": {uneven, func(o *evenstepv1.Open) { o.ChooseStart = false },
			[]uint32{40, 40, 40}, "the job begins"},
		"where its policy may move": {uneven, func(o *evenstepv1.Open) { o.Policy = "equal" }, []uint32{40, 40, 40},
			"the job begins"},
		"of its workload": {uneven, func(o *evenstepv1.Open) { o.Workload = "other" }, []uint32{40, 40, 40},
			"no profile of other says how fast worker 0 will be"},
		"if it names a workload": {uneven, func(o *evenstepv1.Open) { o.Workload = "" }, []uint32{40, 40, 40},
			"the job begins"},
		"where they promise a gain": {map[string]float64{"a": 0.001, "b": 0.001, "c": 0.00101}, nil,
			[]uint32{40, 40, 40}, "given sizes are as good as any"},
		"within its limits": {uneven, func(o *evenstepv1.Open) { o.Workers[2].MaxBatchSize = 50 }, []uint32{23, 47, 50},
			"predicted step"},
		"in its quanta": {uneven, func(o *evenstepv1.Open) { o.Quantum = 12 }, []uint32{24, 36, 60}, "predicted step"},
		"no further from the given sizes than may fit": {uneven, func(o *evenstepv1.Open) { o.GlobalBatch = 1200 },
			[]uint32{233, 467, 500}, "predicted step"},
	} {
		t.Run(name, func(t *testing.T) {
			var change []func(*evenstepv1.Open)
			if c.change != nil {
				change = append(change, c.change)
			}
			a := opened(t, bookOf(c.known), change...)
			if !slices.Equal(a.GetBatchSizes(), c.want) || !strings.Contains(a.GetReason(), c.reason) {
				t.Errorf("got %v, %q; want %v, %q", a.GetBatchSizes(), a.GetReason(), c.want, c.reason)
			}
		})
	}
}

func TestAJobStartsWithoutProfiles(t *testing.T) {
	if a := opened(t, nil); !slices.Equal(a.GetBatchSizes(), []uint32{40, 40, 40}) {
		t.Errorf("got %v", a.GetBatchSizes())
	}
}

func TestAJobStartsFromAnEstimate(t *testing.T) {
	b := profile.NewBook(time.Now)
	for _, w := range []string{"w", "x", "y", "z"} {
		for device, rate := range map[string]float64{"k80": 100, "v100": 300} {
			if w != "w" || device == "v100" {
				b.Record(w, cluster.Device{Type: device}, profile.Sighting{
					Curve: speed.Learned{Samples: 64, Seconds: 64 / rate, Sigma: 0.01}, LargestBatch: 200, Steps: 100})
			}
		}
	}
	a := opened(t, b, func(o *evenstepv1.Open) {
		o.GlobalBatch = 120
		o.Workers = []*evenstepv1.Worker{{DeviceType: "k80"}, {DeviceType: "v100"}}
	})
	if n := a.GetBatchSizes()[0]; n < 26 || n > 36 || !strings.Contains(a.GetReason(), "1 estimated") {
		t.Errorf("got %v, %q; want about 30 for the slower one", a.GetBatchSizes(), a.GetReason())
	}
}

// Workers that each have a stream start from the same sizes, whenever they come.
func TestWorkersStartFromTheSameSizes(t *testing.T) {
	balancer, c := startServer(t, realPolicies)
	book := bookOf(map[string]float64{"a": 0.001, "b": 0.003})
	balancer.Profiles = book
	for r := range uint32(2) {
		s := dial(t, c)
		o := &evenstepv1.Open{Job: "job", GlobalBatch: 40, Workload: "w", ChooseStart: true, Rank: proto.Uint32(r),
			Workers: []*evenstepv1.Worker{{DeviceType: "cpu", Device: "a"}, {DeviceType: "cpu", Device: "b"}}}
		s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}})
		got, err := s.Recv()
		if err != nil || !slices.Equal(got.GetOpened().GetAllocation().GetBatchSizes(), []uint32{30, 10}) {
			t.Fatalf("rank %d: %v, %v", r, got, err)
		}
		// By now it is known better.
		book.Record("w", cluster.Device{Type: "cpu", ID: "a"}, profile.Sighting{
			Curve: speed.Learned{Samples: 100, Seconds: 1, Sigma: 0.01}, Steps: 1000})
		o.Job, o.ChooseStart = "job", false
		other := dial(t, c)
		other.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}})
		other.fails(codes.AlreadyExists, "open.choose_start: false, not true")
	}
}

// What a job showed of its devices is in the profiles while it trains and when it has ended.
func TestWhatAJobShowsIsRecorded(t *testing.T) {
	for name, ends := range map[string]bool{"while it trains": false, "when it has ended": true} {
		t.Run(name, func(t *testing.T) {
			book := profile.NewBook(time.Now)
			balancer, c := startServer(t, realPolicies)
			balancer.Profiles = book
			s := open(t, c, newOpen(func(o *evenstepv1.Open) {
				o.Workload, o.Policy = "w", "equal"
				for i, w := range o.Workers {
					w.DeviceType, w.Device = "cpu", fmt.Sprint(i)
				}
			}))
			for step := range uint64(20) {
				r := newReport(step, 1, 0, 1, 2)
				for i, w := range r.Workers {
					w.Samples, w.ComputeSeconds = float64(10+2*(step%2)), 0.01*float64(10+2*(step%2))
					w.WaitSeconds = proto.Float64(0.1 * float64(1+i))
					w.DeviceMemoryUsedBytes = proto.Uint64(1000 + 50*(10+2*(step%2)))
				}
				s.send(request(r))
				if _, err := s.Recv(); err != nil {
					t.Fatal(err)
				}
			}
			if ends {
				if err := s.CloseSend(); err != nil {
					t.Fatal(err)
				}
				_, _ = s.Recv()
			} else {
				balancer.Record()
			}
			for deadline := time.Now().Add(10 * time.Second); len(book.Profiles()) < 3; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("got %+v", book.Profiles())
				}
			}
			p := book.Profiles()[2]
			if p.Steps != 20 || p.LargestBatch != 12 || p.MemoryPerSample != 50 || p.Device != "2" ||
				!near(p.Rate(), 100) || !near(p.CommunicateSeconds, 0.1) {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// Devices of which one has a third of the other's speed, whose times vary by 5 %: the second job's first ten steps take at
// most a tenth longer than with the best sizes, on the mean.
func TestTheSecondRunsFirstStepsAreNearTheIdeal(t *testing.T) {
	book := profile.NewBook(time.Now)
	balancer, c := startServer(t, realPolicies)
	balancer.Profiles = book
	perSample := []float64{0.001, 0.003}
	random := rand.New(rand.NewPCG(1, 2))
	for run := range 2 {
		s := dial(t, c)
		o := &evenstepv1.Open{Job: fmt.Sprint(run), GlobalBatch: 384, Workload: "w", ChooseStart: true,
			Workers: []*evenstepv1.Worker{{DeviceType: "cpu", Device: "a"}, {DeviceType: "cpu", Device: "b"}}}
		s.send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}})
		answer, err := s.Recv()
		sizes := answer.GetOpened().GetAllocation().GetBatchSizes()
		first := 0.0
		for step := range uint64(60) {
			if err != nil {
				t.Fatal(err)
			}
			r, longest := newReport(step, 1, 0, 1), 0.0
			for i, w := range r.Workers {
				w.Samples = float64(sizes[i])
				w.ComputeSeconds = perSample[i] * w.Samples * (1 + 0.05*random.NormFloat64())
				longest = max(longest, perSample[i]*w.Samples)
			}
			if step < 10 {
				first += longest / 10
			}
			s.send(request(r))
			answer, err = s.Recv()
			sizes = answer.GetAllocation().GetBatchSizes()
		}
		if ideal := 0.288; run == 1 && first > 1.1*ideal {
			t.Errorf("the first ten steps take %v s, %v s is ideal", first, ideal)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for len(book.Profiles()) < 2 {
			time.Sleep(time.Millisecond)
		}
	}
}

func near(a, b float64) bool { return a > 0.99*b && a < 1.01*b }
