package simulate

import (
	"fmt"
	"slices"

	"github.com/evenstep/evenstep/core/placement"
)

// paperBudget bounds a search. The jobs' sizes are fixed, so that there is one category and more samples find nothing.
const paperBudget = 100_000

// paper is the pipeline of core/placement as published, for the jobs that run: they enter in the order of arrival while
// the next one fits beside those before it, which is our choice, since the paper's model has all of them start at once.
// Whenever one enters or ends they are placed anew, each on devices of one type.
type paper struct {
	restart float64 // seconds
	seed    uint64
	chosen  map[int]int // way by job
}

func (p *paper) decide(s *situation) error {
	if s.changed {
		if err := p.place(s); err != nil {
			return err
		}
	}
	for _, j := range s.jobs {
		if w, runs := p.chosen[j.index]; runs {
			j.next = w
		}
	}
	return nil
}

func (p *paper) place(s *situation) error {
	jobs := p.enter(s)
	problem := placement.Problem{Seed: p.seed}
	for t, n := range s.counts {
		problem.Pools = append(problem.Pools, placement.Pool{Node: typeName(t), Type: typeName(t), Count: n})
	}
	for _, j := range jobs {
		of := placement.Job{
			ID: fmt.Sprint(j.index), RemainingSamples: float64(j.left) * j.belief, GlobalBatch: j.devices,
			SamplesPerSecond: map[string]float64{}, MinWorkers: j.devices, MaxWorkers: j.devices, SingleType: true,
			Weight: j.weight,
		}
		for w, way := range j.ways[:j.singles] {
			t := slices.IndexFunc(way.Counts, func(n int) bool { return n > 0 })
			of.SamplesPerSecond[typeName(t)] = j.rates[w] / float64(j.devices)
			if w == j.way {
				of.Current = []placement.Share{{Node: typeName(t), Type: typeName(t), Count: j.devices}}
				of.RestartSeconds = p.restart
			}
		}
		problem.Jobs = append(problem.Jobs, of)
	}
	p.chosen = make(map[int]int)
	if len(jobs) == 0 {
		return nil
	}
	plan, err := placement.Place(&problem, "paper", placement.Search{Budget: paperBudget})
	if err != nil {
		return err
	}
	for _, placed := range plan.Placed {
		if j := jobs[placed.Job]; placed.StartSeconds == 0 {
			counts := make([]int, len(s.counts))
			for t := range counts {
				for _, share := range placed.Shares {
					if share.Type == typeName(t) {
						counts[t] += share.Count
					}
				}
			}
			p.chosen[j.index] = slices.IndexFunc(j.ways, func(w placement.Way) bool {
				return slices.Equal(w.Counts, counts)
			})
		}
	}
	return nil
}

// enter lists the jobs that run.
func (p *paper) enter(s *situation) []*runningJob {
	free := slices.Clone(s.counts)
	var jobs []*runningJob
	for _, j := range s.jobs {
		if j.way >= 0 {
			take(j.ways[j.way].Counts, free)
			jobs = append(jobs, j)
		}
	}
	for _, j := range s.jobs {
		if j.way >= 0 {
			continue
		}
		w := fastestOf(j, j.singles, free)
		if w < 0 {
			break
		}
		take(j.ways[w].Counts, free)
		jobs = append(jobs, j)
	}
	return jobs
}

// typeName is a name for a type in a problem of placement.
func typeName(t int) string { return fmt.Sprintf("type-%03d", t) }
