package simulate

import "fmt"

// deviceMap says which devices are free. Devices are numbered through in the order of the types, and every PerNode of a
// type make a node.
type deviceMap struct {
	types []nodesOfType
}

type nodesOfType struct {
	first int     // device
	nodes [][]int // free devices by node
	size  int
}

func newDeviceMap(c Cluster) *deviceMap {
	m := &deviceMap{}
	next := 0
	for _, count := range c.Counts {
		t := nodesOfType{first: next, size: c.PerNode}
		for i := range count {
			if i%c.PerNode == 0 {
				t.nodes = append(t.nodes, nil)
			}
			node := &t.nodes[len(t.nodes)-1]
			*node = append(*node, next)
			next++
		}
		m.types = append(m.types, t)
	}
	return m
}

// take takes so many devices of each type, on few nodes.
func (m *deviceMap) take(counts []int) ([]int, error) {
	var taken []int
	for k, n := range counts {
		for n > 0 {
			node := m.types[k].bestFor(n)
			if node == nil {
				return nil, fmt.Errorf("no free device of type %d", k)
			}
			some := min(n, len(*node))
			taken = append(taken, (*node)[:some]...)
			*node = (*node)[some:]
			n -= some
		}
	}
	return taken, nil
}

// bestFor is the node with the fewest free devices among those that have n, or else the one with the most.
func (t *nodesOfType) bestFor(n int) *[]int {
	var best *[]int
	for i := range t.nodes {
		node := &t.nodes[i]
		switch {
		case len(*node) == 0:
		case best == nil, len(*best) < n && len(*node) > len(*best), len(*node) >= n && len(*node) < len(*best):
			best = node
		}
	}
	return best
}

// free gives devices back.
func (m *deviceMap) free(devices []int) {
	for _, d := range devices {
		k := len(m.types) - 1
		for m.types[k].first > d {
			k--
		}
		t := &m.types[k]
		node := &t.nodes[(d-t.first)/t.size]
		*node = append(*node, d)
	}
}
