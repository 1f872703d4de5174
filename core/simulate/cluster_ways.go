package simulate

import (
	"cmp"
	"slices"

	"github.com/evenstep/evenstep/core/placement"
)

// Mixing says what devices one job may have.
type Mixing int

// The ways of mixing types within a job. Speeds on one type are measured. On a mix they are a model: each device brings
// its share of the job's speed on as many devices of its type.
const (
	SingleType Mixing = iota // devices of one type
	Balanced                 // of two types at most, each with as many samples as it is worth: the speeds add up
	Unbalanced               // of two types at most, each with as many samples: all wait for the slowest
)

// workClass is what jobs of one workload and number of devices have in common.
type workClass struct {
	ways    []placement.Way // in the order of the types' names, mixes last
	rates   []float64       // steps per second, by way
	fastest float64         // the largest of rates
	typical float64         // their mean over the single types
	singles int             // so many ways have one type
}

// newWorkClass lists the ways in which the cluster can run the workload: those that it has the devices for, on which at
// least one step ends within a round.
func newWorkClass(c Cluster, t *Throughputs, rules *Rules, workload string, devices int) *workClass {
	w := &workClass{}
	perDevice := make([]float64, len(c.Types))
	order := make([]int, len(c.Types))
	for k, typ := range c.Types {
		order[k] = k
		perDevice[k] = t.rate(workload, devices, typ) / float64(devices)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(c.Types[a], c.Types[b]) })
	add := func(rate float64, counts map[int]int) {
		if !(rate*rules.RoundSeconds >= 1) {
			return
		}
		way := placement.Way{Counts: make([]int, len(c.Types))}
		for k, n := range counts {
			if way.Counts[k] = n; n > c.Counts[k] {
				return
			}
		}
		w.ways, w.rates = append(w.ways, way), append(w.rates, rate)
	}
	for _, k := range order {
		add(t.rate(workload, devices, c.Types[k]), map[int]int{k: devices})
	}
	w.singles = len(w.ways)
	for _, r := range w.rates {
		w.typical += r / float64(w.singles)
	}
	if rules.Types != SingleType {
		for i, a := range order {
			for _, b := range order[i+1:] {
				for n := 1; n < devices; n++ {
					rate := float64(devices) * min(perDevice[a], perDevice[b])
					if rules.Types == Balanced && rate > 0 {
						rate = float64(float64(n)*perDevice[a]) + float64(float64(devices-n)*perDevice[b])
					}
					add(rate, map[int]int{a: n, b: devices - n})
				}
			}
		}
	}
	for _, r := range w.rates {
		w.fastest = max(w.fastest, r)
	}
	for i, r := range w.rates {
		w.ways[i].Speed = r / w.fastest
	}
	return w
}
