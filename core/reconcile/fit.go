package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/core/speed"
)

// The placement counts devices. A scheduler gives a job the same number of devices on each of its nodes, which are all
// different; so what the plan gives by type is dealt to nodes here, and a job gets fewer nodes than planned where that
// does not come out even.

// fitting is a job that the plan starts now.
type fitting struct {
	job     int // index into the snapshot's jobs
	planned []placement.Share
	seconds float64
	shares  []placement.Share // the outcome: one for each node; nil where there are too few
}

// slots counts the nodes that could give the job its devices, all other jobs of ours gone.
func (j *Job) slots(pools []Pool, rates map[string]float64, devices func(Pool) int) int {
	nodes := map[string]bool{}
	required := 0
	for _, p := range pools {
		if j.takes(p.Node, p.Type, rates) && devices(p) >= j.PerNode && !nodes[p.Node] {
			nodes[p.Node] = true
			if slices.Contains(j.Required, p.Node) {
				required++
			}
		}
	}
	if required < len(j.Required) {
		return 0
	}
	return len(nodes)
}

func (j *Job) takes(node, typ string, rates map[string]float64) bool {
	return rates[typ] > 0 && (j.Nodes == nil || slices.Contains(j.Nodes, node))
}

// fit deals nodes to all jobs: first what the plan gives each by type, who needs most nodes first; then whatever is left, to
// those that are below their minimum, and to those that have fewer than planned, since a node has several devices of a type.
func (r *round) fit(due []fitting) {
	order := make([]*fitting, len(due))
	for k := range due {
		order[k] = &due[k]
	}
	slices.SortStableFunc(order, func(a, b *fitting) int { return cmp.Compare(devices(b.planned), devices(a.planned)) })
	for _, f := range order {
		r.dealPlanned(f)
	}
	for _, f := range order {
		j := &r.snapshot.Jobs[f.job]
		r.deal(f, j.MinNodes, func(Pool) bool { return true })
		if len(f.shares) < j.MinNodes || !j.complete(f.shares) {
			r.giveBack(f)
		}
	}
	for _, f := range order {
		if j := &r.snapshot.Jobs[f.job]; len(f.shares) > 0 {
			r.deal(f, min(j.MaxNodes, devices(f.planned)/j.PerNode), func(Pool) bool { return true })
		}
	}
	for _, f := range order {
		slices.SortFunc(f.shares, func(a, b placement.Share) int { return cmp.Compare(r.place(a), r.place(b)) })
	}
}

func devices(shares []placement.Share) (n int) {
	for _, s := range shares {
		n += s.Count
	}
	return n
}

// complete says whether all that the user requires is there.
func (j *Job) complete(shares []placement.Share) bool {
	for _, node := range j.Required {
		if !slices.ContainsFunc(shares, func(s placement.Share) bool { return s.Node == node }) {
			return false
		}
	}
	return true
}

// dealPlanned gives the job as many nodes of each type as are planned, as far as they are different ones.
func (r *round) dealPlanned(f *fitting) {
	j := &r.snapshot.Jobs[f.job]
	left, most := map[string]int{}, 0 // nodes still to give, by type, and in all
	for _, s := range f.planned {
		left[s.Type] += s.Count
	}
	for t, devices := range left {
		left[t] = devices / j.PerNode
		most += left[t]
	}
	r.deal(f, min(most, j.MaxNodes), func(p Pool) bool {
		left[p.Type]--
		return left[p.Type] >= 0
	})
}

// deal gives the job nodes until it has so many: those that it must have, which may be more, then those that are wanted.
func (r *round) deal(f *fitting, most int, wanted func(Pool) bool) {
	j := &r.snapshot.Jobs[f.job]
	for _, p := range r.candidates(f) {
		must := slices.Contains(j.Required, p.Node)
		switch {
		case len(f.shares) >= max(most, len(j.Required)):
			return
		case r.free[pool{p.Node, p.Type}] < j.PerNode || has(f.shares, p.Node) || !r.holds(j, p.Node):
			continue
		case !wanted(p) && !must:
			continue
		}
		r.free[pool{p.Node, p.Type}] -= j.PerNode
		r.take(p.Node, j.Needs)
		f.shares = append(f.shares, placement.Share{Node: p.Node, Type: p.Type, Count: j.PerNode})
	}
}

func has(shares []placement.Share, node string) bool {
	return slices.ContainsFunc(shares, func(s placement.Share) bool { return s.Node == node })
}

// candidates are the pools that the job may use: those that it must have first, then those of the plan, then the fastest,
// then those with most free, which leaves the others a choice of different nodes.
func (r *round) candidates(f *fitting) []Pool {
	j := &r.snapshot.Jobs[f.job]
	rates := r.rates[f.job]
	var pools []Pool
	for _, p := range r.snapshot.Pools {
		if j.takes(p.Node, p.Type, rates) {
			pools = append(pools, p)
		}
	}
	first := func(is bool) int {
		if is {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pools, func(a, b Pool) int {
		return cmp.Or(
			cmp.Compare(first(slices.Contains(j.Required, a.Node)), first(slices.Contains(j.Required, b.Node))),
			cmp.Compare(first(has(f.planned, a.Node)), first(has(f.planned, b.Node))),
			cmp.Compare(rates[b.Type], rates[a.Type]),
			cmp.Compare(r.free[pool{b.Node, b.Type}], r.free[pool{a.Node, a.Type}]))
	})
	return pools
}

func (r *round) giveBack(f *fitting) {
	needs := r.snapshot.Jobs[f.job].Needs
	for _, s := range f.shares {
		r.free[pool{s.Node, s.Type}] += s.Count
		r.take(s.Node, Room{-needs.CPUs, -needs.Memory})
	}
	f.shares = nil
}

// place is where a share's pool stands in the snapshot.
func (r *round) place(s placement.Share) int {
	return slices.IndexFunc(r.snapshot.Pools, func(p Pool) bool { return p.Node == s.Node && p.Type == s.Type })
}

// start makes the update of a job that has its nodes. One that was named before and would get the same again is left.
func (r *round) start(f fitting) {
	j := &r.snapshot.Jobs[f.job]
	if j.State == Named && slices.Equal(j.On, f.shares) {
		return
	}
	names := make([]string, len(f.shares))
	for k, s := range f.shares {
		names[k] = s.Node
	}
	u := &Update{Job: j.ID, Kind: Start, Shares: f.shares, Why: "the plan starts it on " + strings.Join(names, ",")}
	sizes, err := r.batchSizes(f)
	if err != nil {
		u.Why += fmt.Sprintf("; without batch sizes: %v", err)
	}
	u.BatchSizes = sizes
	if slices.Equal(byType(f.shares), byType(f.planned)) {
		u.Seconds = f.seconds
	}
	r.updates[f.job] = u
}

// byType is how many devices of each type there are, as sorted words.
func byType(shares []placement.Share) []string {
	var words []string
	for _, s := range shares {
		for range s.Count {
			words = append(words, s.Type)
		}
	}
	slices.Sort(words)
	return words
}

// batchSizes let all devices finish a step together, at the rates that the plan was made with.
func (r *round) batchSizes(f fitting) ([]int, error) {
	n := r.snapshot.Jobs[f.job].Request.GlobalBatch
	p := sizing.Problem{GlobalBatch: n, Quantum: 1}
	for _, s := range f.shares {
		for range s.Count {
			curve := speed.Affine{PerSample: 1 / r.rates[f.job][s.Type]}
			p.Workers = append(p.Workers, sizing.Worker{Min: 1, Max: n, Curve: curve})
		}
	}
	sizes := make([]int, len(p.Workers))
	if _, err := sizing.MinMax(p, sizes); err != nil {
		return nil, err
	}
	return sizes, nil
}
