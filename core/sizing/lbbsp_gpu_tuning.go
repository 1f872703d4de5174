package sizing

import (
	"fmt"
	"math"
	"slices"

	"github.com/evenstep/evenstep/core/speed"
)

// GPUTuning is LB-BSP on GPUs as of 2020 (Chen et al., "Semi-Dynamic Load Balancing", SoCC 2020), which needs no model
// of time against batch size. Over an observation window it finds the straggler, the slowest worker, and the leader,
// the fastest one with memory to spare, and moves Δ samples from one to the other. A move that undoes an earlier one
// shows that the optimum is between the two: Δ is halved, and the window is made longer. It has no idea how long a step
// will take.
//
// Ours: the numbers below and that the window doubles; the dead-band; that a worker keeps a quantum, since nothing
// would be known of it without; that a move undoes earlier ones when it takes from a worker that was last given to and
// gives to one that was last taken from, which also ends a round of three workers; that a single quantum does not move
// where it would make the leader as slow as the straggler is, by proportion, since nothing finer is left to try; that a
// step counts only once it runs with the sizes decided; and the start from the beginning when the straggler stays far
// behind, as after a change.
type GPUTuning struct {
	problem  Problem
	decision Decision
	before   []int // the sizes before the last move
	window   int   // steps
	delta    int   // Δ, samples
	apart    int   // windows in a row beyond restartRatio

	steps  int       // in this window
	total  []float64 // seconds in this window, by worker
	timed  []int     // steps in this window that were measured, by worker
	lately []int     // +1 for a worker that was last given to, -1 for one that was last taken from, else 0
}

// These are our defaults, not published values.
const (
	firstWindow  = 5    // steps
	mostWindow   = 40   // steps
	moveParts    = 64   // the first move is this part of the global batch
	tuningBand   = 0.05 // what the straggler may take longer than the leader, relative to it
	restartRatio = 1.3  // straggler to leader, beyond which tuning starts over
	restartAfter = 2    // such windows in a row
)

// NewGPUTuning starts from the given sizes, or from equal ones if start is nil. The problem's curves are ignored. The
// error names the field that is wrong; it is an *InfeasibleError when no vector fits.
func NewGPUTuning(p Problem, start []int) (*GPUTuning, error) {
	sizes, err := startSizes(&p, start)
	if err != nil {
		return nil, err
	}
	p.Workers = slices.Clone(p.Workers)
	g := &GPUTuning{
		problem:  p,
		decision: Decision{BatchSizes: sizes, Reason: "nothing known yet"},
		before:   sizes,
		total:    make([]float64, len(sizes)),
		timed:    make([]int, len(sizes)),
		lately:   make([]int, len(sizes)),
	}
	g.restart()
	return g, nil
}

// restart goes back to long moves and short windows.
func (g *GPUTuning) restart() {
	g.window, g.apart = firstWindow, 0
	g.delta = max(1, g.problem.GlobalBatch/moveParts/g.problem.Quantum) * g.problem.Quantum
	clear(g.lately)
}

// Step learns from one step, observed in rank order, and says which sizes to train on and whether they are new.
// Observations that are not one per worker count as nothing measured.
func (g *GPUTuning) Step(observed []speed.Observation, _ int) (d Decision, changed bool) {
	if len(observed) != len(g.total) || !g.arrived(observed) {
		return g.decision, false
	}
	for i, o := range observed {
		if _, known := o.Speed(); known {
			g.total[i] += o.Seconds
			g.timed[i]++
		}
	}
	if g.steps++; g.steps < g.window {
		return g.decision, false
	}
	straggler, leader, ratio := g.ends()
	g.steps = 0
	clear(g.total)
	clear(g.timed)
	if straggler < 0 || leader < 0 || ratio <= 1+tuningBand {
		g.apart = 0
		return g.decision, false
	}
	if g.apart++; ratio <= restartRatio {
		g.apart = 0
	} else if g.apart >= restartAfter {
		g.restart()
	}
	return g.decision, g.move(straggler, leader, ratio)
}

// arrived says whether a step ran with the sizes decided, rather than with those before, as far as it was measured.
func (g *GPUTuning) arrived(observed []speed.Observation) bool {
	for i, o := range observed {
		_, known := o.Speed()
		toNew := math.Abs(o.Samples - float64(g.decision.BatchSizes[i]))
		toOld := math.Abs(o.Samples - float64(g.before[i]))
		if known && g.before[i] != g.decision.BatchSizes[i] && toNew >= toOld {
			return false
		}
	}
	return true
}

// ends finds the straggler and the leader of the window, -1 where there is none, and by which factor the straggler took
// longer. Nothing can be taken from a straggler that is at its least.
func (g *GPUTuning) ends() (straggler, leader int, ratio float64) {
	straggler, leader = -1, -1
	slowest, fastest := 0.0, math.Inf(1)
	for i := range g.total {
		if g.timed[i] == 0 {
			continue
		}
		n, w := g.decision.BatchSizes[i], &g.problem.Workers[i]
		t := w.CommunicateSeconds + g.total[i]/float64(g.timed[i])
		if t > slowest {
			straggler, slowest = i, t
			if n <= g.keep(i) {
				straggler = -1
			}
		}
		if t < fastest && n < g.problem.most(w) {
			leader, fastest = i, t
		}
	}
	return straggler, leader, slowest / fastest
}

// keep is what is never taken from a worker.
func (g *GPUTuning) keep(worker int) int {
	return max(g.problem.least(&g.problem.Workers[worker]), g.problem.Quantum)
}

// move moves Δ samples, or as many as limits allow. It is false where a quantum is too much.
func (g *GPUTuning) move(straggler, leader int, ratio float64) bool {
	if g.lately[straggler] > 0 && g.lately[leader] < 0 {
		g.delta = max(1, g.delta/2/g.problem.Quantum) * g.problem.Quantum
		g.window = min(2*g.window, mostWindow)
	}
	sizes := slices.Clone(g.decision.BatchSizes)
	if g.delta == g.problem.Quantum && float64(sizes[leader]+g.delta) >= ratio*float64(sizes[leader]) {
		return false
	}
	n := min(g.delta, sizes[straggler]-g.keep(straggler),
		g.problem.most(&g.problem.Workers[leader])-sizes[leader])
	sizes[straggler] -= n
	sizes[leader] += n
	g.lately[straggler], g.lately[leader] = -1, 1
	g.before, g.decision.BatchSizes = g.decision.BatchSizes, sizes
	g.decision.Reason = fmt.Sprintf("worker %d is the slowest and worker %d the fastest: %d samples move", straggler,
		leader, n)
	return true
}
