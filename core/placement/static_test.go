package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// published draws an instance as algorithms are compared on: three types, speeds that differ by job and by device type.
func published(rng *rand.Rand, jobs int, capacity []int, bandwidth float64) *Problem {
	p := &Problem{Bandwidth: bandwidth, Seed: 1}
	base := []float64{300, 700, 1500, 500, 1000, 2000, 400}
	uniform := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	total := 0
	for k, c := range capacity {
		p.Pools = append(p.Pools, Pool{Node: "n", Type: fmt.Sprint("t", k), Count: c})
		total += c
	}
	for i := range jobs {
		speeds, own := make(map[string]float64), uniform(0.8, 1.6)
		for k := range capacity {
			speeds[fmt.Sprint("t", k)] = base[k] * own * uniform(0.7, 1.3)
		}
		rounds, samples := math.Floor(uniform(5, 41)), uniform(20e3, 200e3)
		p.Jobs = append(p.Jobs, Job{ID: fmt.Sprint(i), RemainingSamples: rounds * samples, GlobalBatch: int(samples),
			SamplesPerSecond: speeds, MinWorkers: 1, MaxWorkers: total, Weight: 1,
			AllreduceBytes: math.Pow(10, uniform(7, 8.7))})
	}
	return p
}

func TestGapMeasure(t *testing.T) {
	if os.Getenv("GAP") == "" {
		t.Skip()
	}
	for _, bw := range []float64{1e12, 1e8} {
		for _, s := range []struct {
			jobs int
			cap  []int
		}{{2, []int{3, 3, 3}}, {3, []int{3, 3, 3}}, {3, []int{4, 4, 4}}, {4, []int{3, 3, 3}}, {8, []int{8, 8, 8}}} {
			n := 500
			if s.jobs == 8 {
				n = 20
			}
			rng := rand.New(rand.NewPCG(1, 2))
			sum, worst, low, above := 0.0, 0.0, 0.0, 0.0
			bad := 0
			for range n {
				in := compile(published(rng, s.jobs, s.cap, bw))
				opt := in.exact(Search{Budget: 1 << 60}.work()).total()
				a, bound := in.approximate(in.fit(false), Search{}.work(), 1)
				gap := a.total()/opt - 1
				sum += gap
				worst = max(worst, gap)
				if gap > 1e-9 {
					bad++
				}
				low += 1 - bound/opt
				above = max(above, bound/opt-1)
			}
			fmt.Printf("%v bw %g: mean %.4f%% worst %.3f%% notopt %d; bound low %.2f%% above %g\n", s, bw, 100*sum/float64(n), 100*worst, bad, 100*low/float64(n), above)
		}
	}
}

func BenchmarkStatic(b *testing.B) {
	for _, s := range []struct {
		jobs, devices int
	}{{100, 1000}, {1000, 6000}, {10000, 100000}} {
		b.Run(fmt.Sprintf("%dx%d", s.jobs, s.devices), func(b *testing.B) {
			cap := make([]int, 7)
			for k := range cap {
				cap[k] = s.devices / 7
			}
			p := published(rand.New(rand.NewPCG(1, 2)), s.jobs, cap, 1e10)
			for range b.N {
				in := compile(p)
				w := Search{Budget: 1 << 50}.work()
				a, bound := in.static(in.fit(false), w, 1)
				b.ReportMetric(100*(a.total()/bound-1), "gap%")
				b.ReportMetric(float64(1<<50-w.left)/1e6, "Mwork")
			}
		})
	}
}
