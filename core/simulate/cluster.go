package simulate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Cluster is the devices that the jobs of a trace share.
type Cluster struct {
	Types   []string // device types, in the order of the specification
	Counts  []int    // devices of each type; at least 1
	PerNode int      // devices of a node, all of one type; at least 1
}

const mostDevices = 1_000_000

// ParseCluster reads a specification: v100=8,p100=16,k80=24.
func ParseCluster(specification string, perNode int) (Cluster, error) {
	c := Cluster{PerNode: perNode}
	if perNode < 1 {
		return c, fmt.Errorf("%d devices per node; give at least 1", perNode)
	}
	if specification == "" {
		return c, errors.New("empty; give types and counts: v100=8,p100=16")
	}
	known := map[string]bool{}
	total := 0
	for _, part := range strings.Split(specification, ",") {
		name, number, _ := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		count, err := strconv.Atoi(strings.TrimSpace(number))
		switch {
		case name == "" || err != nil || count < 1:
			return c, fmt.Errorf("%.40q is not type=count with a count of at least 1", part)
		case known[name]:
			return c, fmt.Errorf("%.40s is given twice", name)
		case count > mostDevices-total:
			return c, fmt.Errorf("more than %d devices", mostDevices)
		}
		known[name] = true
		total += count
		c.Types = append(c.Types, name)
		c.Counts = append(c.Counts, count)
	}
	return c, nil
}

// Devices is how many there are.
func (c Cluster) Devices() int {
	total := 0
	for _, n := range c.Counts {
		total += n
	}
	return total
}
