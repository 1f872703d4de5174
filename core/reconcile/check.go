package reconcile

import (
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evenstep/evenstep/core/placement"
)

// What a snapshot may hold.
const (
	maxEntries = 1 << 16 // pools, jobs, nodes of a job, devices of a pool
	maxName    = 256     // characters
	maxRoom    = 1 << 53
	maxTime    = 100 * 365 * 24 * time.Hour
)

// Check says what in a snapshot of somebody else's making cannot be, if anything: the planner relies on the rest. It names
// the field. Of a job that is not steered, what does not count is not looked at.
func (s *Snapshot) Check() error {
	if n := max(len(s.Pools), len(s.Jobs), len(s.Room)); n > maxEntries {
		return fmt.Errorf("pools, jobs, room: %d of one; give at most %d", n, maxEntries)
	}
	if err := checkPools(s.Pools); err != nil {
		return err
	}
	for node, r := range s.Room {
		if err := r.check(); err != nil {
			return fmt.Errorf("room of %.40q: %w", node, err)
		}
	}
	seen := map[string]bool{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if !isName(j.ID) {
			return fmt.Errorf("jobs[%d].id: %.40q is not a printable text of 1 to %d characters", i, j.ID, maxName)
		}
		if seen[j.ID] {
			return fmt.Errorf("jobs[%d].id: %s is there twice", i, j.ID)
		}
		seen[j.ID] = true
		err := checkShares(j.On)
		if err == nil && j.Unsteerable == "" {
			err = j.check()
		}
		if err != nil {
			return fmt.Errorf("job %s: %w", j.ID, err)
		}
	}
	return nil
}

func checkPools(pools []Pool) error {
	seen, before := map[pool]bool{}, map[string]int{}
	for i, p := range pools {
		last, known := before[p.Node]
		switch {
		case !isName(p.Node) || !isName(p.Type):
			return fmt.Errorf("pools[%d]: node %.40q, type %.40q: not printable texts of 1 to %d characters", i, p.Node, p.Type,
				maxName)
		case seen[pool{p.Node, p.Type}]:
			return fmt.Errorf("pools[%d]: type %s of node %s is there twice", i, p.Type, p.Node)
		case known && last != i-1:
			return fmt.Errorf("pools[%d]: node %s is there already, before others; list its devices together", i, p.Node)
		case p.Total < 0 || p.Total > maxEntries || p.Others < 0 || p.Others > p.Total:
			return fmt.Errorf("pools[%d]: %d devices, %d of them others'; give 0 to %d, and no more of others than there are", i,
				p.Total, p.Others, maxEntries)
		}
		seen[pool{p.Node, p.Type}], before[p.Node] = true, i
	}
	return nil
}

func (r Room) check() error {
	if min(r.CPUs, r.Memory) < -maxRoom || max(r.CPUs, r.Memory) > maxRoom {
		return fmt.Errorf("%d CPUs, %d memory are beyond 2^53", r.CPUs, r.Memory)
	}
	return nil
}

// check checks a job that is steered.
func (j *Job) check() error {
	switch {
	case j.State != Waiting && j.State != Named && j.State != Running:
		return fmt.Errorf("state: %d is none", j.State)
	case j.MinNodes < 1 || j.MaxNodes < j.MinNodes || j.MaxNodes > maxEntries:
		return fmt.Errorf("nodes: %d to %d; give 1 to %d, the lesser first", j.MinNodes, j.MaxNodes, maxEntries)
	case j.PerNode < 1 || j.PerNode > maxEntries:
		return fmt.Errorf("per_node: %d is not in 1 to %d", j.PerNode, maxEntries)
	case j.Request.Workload == "" || j.Request.GlobalBatch < 1 || !(j.Request.Samples > 0):
		return fmt.Errorf("words: %q; give workload, global_batch and samples", j.Request.String())
	case j.Needs.CPUs < 0 || j.Needs.Memory < 0:
		return fmt.Errorf("needs: %d CPUs, %d memory; give 0 or more", j.Needs.CPUs, j.Needs.Memory)
	}
	for _, d := range []time.Duration{j.Waited, j.Lease, j.For} {
		if d < 0 || d > maxTime {
			return fmt.Errorf("waited, lease, for: %v is not in 0 to %v", d, maxTime)
		}
	}
	for _, names := range [][]string{j.Types, j.Nodes, j.Required} {
		if len(names) > maxEntries {
			return fmt.Errorf("types, nodes, required: %d of them; give at most %d", len(names), maxEntries)
		}
	}
	return j.Needs.check()
}

// checkShares checks where a job is.
func checkShares(on []placement.Share) error {
	if len(on) > maxEntries {
		return fmt.Errorf("on: %d shares; give at most %d", len(on), maxEntries)
	}
	for i, s := range on {
		if s.Count < 1 || s.Count > maxEntries {
			return fmt.Errorf("on[%d]: %d devices; give 1 to %d", i, s.Count, maxEntries)
		}
		if slices.ContainsFunc(on[:i], func(other placement.Share) bool { return other.Node == s.Node && other.Type == s.Type }) {
			return fmt.Errorf("on[%d]: type %s of node %s is there twice", i, s.Type, s.Node)
		}
	}
	return nil
}

func isName(text string) bool {
	if text == "" || !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxName {
		return false
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
