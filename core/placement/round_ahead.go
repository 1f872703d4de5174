package placement

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// ahead looks beyond the round, where who starts holds its devices to its end. Each order of the jobs makes a schedule:
// one job after the other takes the way in which it ends first, now or once others have ended. An order with a small
// sum of weighted ends is sought, and who starts at once in its schedule runs.
type ahead struct {
	jobs  []RoundJob
	round float64     // seconds
	busy  []float64   // by type and device: when it is free, rising within a type; 0 for now
	flat  []float64   // the same while a schedule is made
	free  [][]float64 // flat by type
	start []float64   // by job, in the last schedule
	ways  []int       // by job, in the last schedule; -1 where it has none
	// The schedule that candidates are compared with, before each place of the order: flat, and the sum so far.
	before [][]float64
	sums   []float64
}

// The numbers of the search are ours.
const (
	horizon     = 256     // so many jobs are searched, those that are first by the best start
	aheadWork   = 250_000 // about so many jobs are placed
	freshWork   = 20      // times as many, where most jobs are new
	triesPerJob = 300     // no more than so many orders are tried
	nearby      = 10      // places that a job is moved by at most, three times out of four
	heat        = 0.06    // of the mean end: how much worse an order may be at first to be searched on from
)

// holding chooses who starts beside those who run, and the order that the next search can start from.
func (p *RoundProblem) holding() (ways, order []int) {
	a := newAhead(p)
	order, known := p.waiting()
	if !p.anyFits(order) {
		return a.ways, order
	}
	order = a.starts(order)
	first := order[:min(len(order), horizon)]
	work := aheadWork
	if 2*known < len(order) {
		work *= freshWork
	}
	a.search(first, min(work/len(first), triesPerJob*len(first)), p.Seed)
	a.schedule(order, 0, math.Inf(1))
	for _, i := range order {
		if a.start[i] > 0 {
			a.ways[i] = -1
		}
	}
	return a.ways, order
}

// waiting are the jobs that do not run: those of the last order, which is known, then the others.
func (p *RoundProblem) waiting() (order []int, known int) {
	seen := make([]bool, len(p.Jobs))
	for _, i := range p.Order {
		if i >= 0 && i < len(seen) && !seen[i] && p.Jobs[i].Now < 0 {
			seen[i] = true
			order = append(order, i)
		}
	}
	known = len(order)
	for i := range p.Jobs {
		if !seen[i] && p.Jobs[i].Now < 0 {
			order = append(order, i)
		}
	}
	return order, known
}

func (p *RoundProblem) anyFits(order []int) bool {
	for _, i := range order {
		for _, way := range p.Jobs[i].Ways {
			if within(way.Counts, p.Devices) {
				return true
			}
		}
	}
	return false
}

func newAhead(p *RoundProblem) *ahead {
	a := &ahead{jobs: p.Jobs, round: p.Seconds, start: make([]float64, len(p.Jobs)),
		ways: slices.Repeat([]int{-1}, len(p.Jobs))}
	var sizes []int
	for t, n := range p.Devices {
		free := make([]float64, n)
		for i := range p.Jobs {
			if j := &p.Jobs[i]; j.Now >= 0 {
				a.ways[i] = j.Now
				end := a.freed(j.SecondsLeft / j.Ways[j.Now].Speed)
				free = append(free, slices.Repeat([]float64{end}, j.Ways[j.Now].Counts[t])...)
			}
		}
		slices.Sort(free)
		sizes = append(sizes, len(free))
		a.busy = append(a.busy, free...)
	}
	a.flat = make([]float64, len(a.busy))
	rest := a.flat
	for _, n := range sizes {
		a.free = append(a.free, rest[:n:n])
		rest = rest[n:]
	}
	return a
}

// freed is when the devices of a job that ends at some time are free: when the round ends. It is never now.
func (a *ahead) freed(end float64) float64 {
	const soon = 1e-6 // seconds
	end = max(end, soon)
	if a.round > 0 {
		return a.round * math.Ceil(end/a.round)
	}
	return end
}

// schedule places the jobs in an order, from a place on that has its like in before, and says the sum of the weighted
// ends. It gives up above a limit.
func (a *ahead) schedule(order []int, from int, limit float64) float64 {
	sum := 0.0
	if from > 0 {
		copy(a.flat, a.before[from])
		sum = a.sums[from]
	} else {
		copy(a.flat, a.busy)
	}
	for _, i := range order[from:] {
		if sum += a.place(i); sum > limit {
			break
		}
	}
	return sum
}

// keep makes the schedule of an order the one to compare with, from a place on.
func (a *ahead) keep(order []int, from int) {
	sum := a.schedule(order[:from], from, math.Inf(1))
	for place, i := range order[from:] {
		copy(a.before[from+place], a.flat)
		a.sums[from+place] = sum
		sum += a.place(i)
	}
}

// place gives a job the way in which it ends first and says its weighted end; 0 where it has none.
func (a *ahead) place(i int) float64 {
	j := &a.jobs[i]
	best, end := -1, math.Inf(1)
	for w := range j.Ways {
		start := a.earliest(j.Ways[w].Counts)
		if e := start + j.SecondsLeft/j.Ways[w].Speed; e < end {
			best, end = w, e
			a.start[i] = start
		}
	}
	a.ways[i] = best
	if best < 0 {
		return 0
	}
	until := a.freed(end)
	for t, n := range j.Ways[best].Counts {
		if n > 0 {
			hold(a.free[t], n, until)
		}
	}
	return j.Weight * end
}

// earliest is when so many devices are free.
func (a *ahead) earliest(counts []int) float64 {
	start := 0.0
	for t, n := range counts {
		if n > len(a.free[t]) {
			return math.Inf(1)
		}
		if n > 0 {
			start = max(start, a.free[t][n-1])
		}
	}
	return start
}

// hold makes the first n devices free at a later time.
func hold(free []float64, n int, until float64) {
	at, _ := slices.BinarySearch(free, until)
	at = max(at, n) // as many may be free just then
	copy(free, free[n:at])
	for i := at - n; i < at; i++ {
		free[i] = until
	}
}

// starts is the best among the given order and those by length and devices.
func (a *ahead) starts(given []int) []int {
	best, least := given, a.schedule(given, 0, math.Inf(1))
	key := make([]float64, len(a.jobs))
	for _, devices := range []float64{1, 0.5, 0} {
		for _, i := range given {
			j := &a.jobs[i]
			key[i] = j.SecondsLeft * math.Pow(float64(j.devices()), devices) / j.Weight
		}
		order := slices.Clone(given)
		slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(key[x], key[y]) })
		if sum := a.schedule(order, 0, math.Inf(1)); sum < least {
			best, least = order, sum
		}
	}
	return best
}

// search moves single jobs within the order; it takes what is better, and at first also what is a little worse.
func (a *ahead) search(best []int, tries int, seed uint64) {
	a.sums, a.before = make([]float64, len(best)), make([][]float64, len(best))
	for place := range best {
		a.before[place] = make([]float64, len(a.flat))
	}
	order := slices.Clone(best)
	now := a.schedule(order, 0, math.Inf(1))
	a.keep(order, 0)
	least, warm := now, heat*now/float64(len(order))
	random := rand.New(rand.NewPCG(seed, 0))
	for try := range tries {
		from, to := random.IntN(len(order)), random.IntN(len(order))
		if try%4 > 0 {
			to = max(0, min(len(order)-1, from+random.IntN(2*nearby+1)-nearby))
		}
		limit := now + float64(warm*(1-float64(try)/float64(tries))*random.ExpFloat64())
		if from == to {
			continue
		}
		move(order, from, to)
		sum := a.schedule(order, min(from, to), limit)
		if sum > limit {
			move(order, to, from)
			continue
		}
		a.keep(order, min(from, to))
		if now = sum; now < least {
			least = now
			copy(best, order)
		}
	}
}

// move moves the job at one place to another.
func move(order []int, from, to int) {
	i := order[from]
	if from < to {
		copy(order[from:], order[from+1:to+1])
	} else {
		copy(order[to+1:from+1], order[to:from])
	}
	order[to] = i
}
