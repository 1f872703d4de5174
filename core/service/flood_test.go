package service

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/evenstep/evenstep/core/frame"
	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// flood is what users do to a core who mean no good: streams that stay open and say nothing or little, and messages that
// are wrong.
type flood struct {
	core  *shared
	nodes []*grpc.ClientConn
}

// streams opens so many, of users with so many each; every other one opens a job of many ranks.
func (f *flood) streams(ctx context.Context, t testing.TB, n, each int) {
	for i := range n {
		user := uint32(2000 + i/each)
		node := f.nodes[i*len(f.nodes)/n]
		s, err := evenstepv1.NewBalancerClient(node).Balance(identity.OnBehalfOf(ctx, user))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			continue
		}
		rank := uint32(i/2) % 64
		o := &evenstepv1.Open{Job: fmt.Sprint(i / 128), GlobalBatch: 64, Rank: &rank, Workers: make([]*evenstepv1.Worker, 64)}
		for k := range o.Workers {
			o.Workers[k] = &evenstepv1.Worker{}
		}
		if err := s.Send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

// wrongMessages are one of each kind: none, one that two bytes each would make a hundred times as much of, and two that
// break the rules.
var wrongMessages = sync.OnceValue(func() (all []frame.Frame) {
	many := &evenstepv1.Open{Job: "j", GlobalBatch: 8, Workers: slices.Repeat([]*evenstepv1.Worker{{}}, 1<<20)}
	for _, r := range []*evenstepv1.BalanceRequest{
		{}, {Message: &evenstepv1.BalanceRequest_Open{Open: many}}, request(&evenstepv1.StepReport{}),
		{Message: &evenstepv1.BalanceRequest_Open{Open: &evenstepv1.Open{Job: "a b"}}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			panic(err)
		}
		all = append(all, b)
	}
	return append(all, frame.Frame("no message"))
})

// wrong sends a message of the kind that the number says, and wants it refused.
func (f *flood) wrong(ctx context.Context, t testing.TB, i int) {
	s, err := evenstepv1.NewBalancerClient(f.nodes[i%len(f.nodes)]).Balance(identity.OnBehalfOf(ctx, 3000),
		grpc.ForceCodecV2(frame.NewCodec()))
	if err != nil {
		t.Error(err)
		return
	}
	kind := i % len(wrongMessages())
	_ = s.SendMsg(&wrongMessages()[kind])
	if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a wrong message of kind %d: %v", kind, err)
	}
}

// memory is what the process holds now, in bytes.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}

func newFlood(t testing.TB, connections int) *flood {
	f := &flood{core: startShared(t, realPolicies)}
	for range connections {
		f.nodes = append(f.nodes, f.core.dial("node"))
	}
	return f
}

// Streams that a flood leaves behind are forgotten, with all that was kept for them, and an honest job is answered in it.
func TestNothingOfAFloodIsKept(t *testing.T) {
	f := newFlood(t, 2)
	honest := f.core.user(f.core.dial("node"), 1001).mustOpen("job")
	ctx, cancel := context.WithCancel(t.Context())
	f.streams(ctx, t, 256, 100)
	for i := range 10 {
		f.wrong(ctx, t, i)
		honest.reports(uint64(i))
	}
	cancel()
	left := func() (streams, jobs int) {
		f.core.balancer.mu.Lock()
		defer f.core.balancer.mu.Unlock()
		for _, u := range f.core.balancer.users {
			streams += u.streams
		}
		return streams, len(f.core.balancer.jobs)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if streams, jobs := left(); streams == 1 && jobs == 1 {
			break
		}
		if time.Now().After(deadline) {
			streams, jobs := left()
			t.Fatalf("%d streams and %d jobs are left", streams, jobs)
		}
	}
	for _, u := range f.core.balancer.users {
		if u.told > 2 || u.workers > 2 {
			t.Errorf("charged with %d workers, %d told", u.workers, u.told)
		}
	}
	honest.reports(100)
}

// A flood: 10,000 open streams of three users, and 100 wrong messages a second, a fifth of them of 2 MiB, beside ten
// honest jobs of 64 workers at 20 steps a second. Clients and core share the machine. Gate: p99 in the flood as without it, to
// 5 ms; what the process holds, clients and core, below 1 GiB. An operation is a step of all jobs.
func BenchmarkFlood(b *testing.B) {
	for _, streams := range []int{0, 10000} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) { benchmarkFlood(b, streams) })
	}
}

func benchmarkFlood(b *testing.B, streams int) {
	f := newFlood(b, 4)
	conn := f.core.dial("node")
	var trainers []*trainer
	for i := range 10 {
		c := f.core.user(conn, 1001)
		trainers = append(trainers, newTrainerOn(b, c, fmt.Sprint(i), 64))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var flooding sync.WaitGroup
	defer flooding.Wait()
	defer cancel()
	before := memory()
	if streams > 0 {
		f.streams(ctx, b, streams, streams/3)
		flooding.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-tick.C:
					f.wrong(context.Background(), b, i)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	var took []time.Duration
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for step := uint64(0); b.Loop(); step++ {
		<-tick.C
		round := make([]time.Duration, len(trainers))
		var all sync.WaitGroup
		for i, t := range trainers {
			all.Go(func() { round[i] = t.step(step) })
		}
		all.Wait()
		took = append(took, round...)
	}
	slices.Sort(took)
	reportQuantiles(b, took)
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1e3, "max-ms")
	b.ReportMetric((memory()-before)/(1<<20), "MiB")
}
