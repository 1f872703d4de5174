package slurm

import (
	"slices"
	"strconv"
	"strings"

	"github.com/evenstep/evenstep/core/reconcile"
)

// node is a node as scontrol -d show node -o tells it.
type node struct {
	name     string
	usable   bool // it may start jobs
	features []string
	devices  map[string]int // by type
	used     map[string]int
	// room is what jobs may have of it beside devices, left what they have not: CPUs, and MiB of memory.
	room, left reconcile.Room
	threads    int // of a core
}

// untyped is the type of devices that Slurm knows no type of.
const untyped = "gpu"

// unusable are the words in a node's state with which it starts no job, or cannot be trusted to.
var unusable = []string{
	"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE", "NOT_RESPONDING", "NO_RESPOND",
	"INVALID", "INVALID_REG", "MAINT", "MAINTENANCE", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "POWERING_DOWN",
	"POWER_DOWN", "BLOCKED",
}

// parseNodes reads scontrol -d show node -o: a node a line, in the order in which Slurm gives out ranks.
func parseNodes(text string) []node {
	var nodes []node
	for _, line := range strings.Split(text, "\n") {
		n := node{name: field(line, "NodeName")}
		if n.name == "" {
			continue
		}
		n.usable = true
		for _, word := range strings.FieldsFunc(field(line, "State"), func(r rune) bool { return r == '+' }) {
			if strings.HasSuffix(word, "*") || slices.Contains(unusable, strings.ToUpper(word)) {
				n.usable = false
			}
		}
		n.room, n.left, n.threads = roomOf(line)
		n.features = strings.Split(field(line, "ActiveFeatures"), ",")
		n.devices = parseGres(field(line, "Gres"))
		n.used = parseGres(field(line, "GresUsed"))
		nodes = append(nodes, n)
	}
	return nodes
}

// roomOf is what a node has beside devices: in all, what is left of it, and the CPUs of a core, which Slurm gives out together.
func roomOf(line string) (all, left reconcile.Room, threads int) {
	number := func(key string) int {
		n, _ := strconv.Atoi(field(line, key)) // what is not there is 0
		return n
	}
	all = reconcile.Room{CPUs: number("CPUEfctv"), Memory: number("RealMemory") - number("MemSpecLimit")}
	if all.CPUs == 0 {
		all.CPUs = number("CPUTot")
	}
	left = reconcile.Room{CPUs: all.CPUs - number("CPUAlloc"), Memory: all.Memory - number("AllocMem")}
	return all, left, max(1, number("ThreadsPerCore"))
}

// field is a field of a line of key=value that are split by spaces; empty where it is missing or null.
func field(line, key string) string {
	for at := 0; ; {
		i := strings.Index(line[at:], key+"=")
		if i < 0 {
			return ""
		}
		i += at
		at = i + len(key) + 1
		if i > 0 && line[i-1] != ' ' {
			continue
		}
		value, _, _ := strings.Cut(line[at:], " ")
		if value == "(null)" || value == "N/A" {
			return ""
		}
		return value
	}
}

// parseGres counts the GPUs in gpu:a100:4(S:0-1),gpu:v100:2(IDX:0-1),shard:8 by type.
func parseGres(text string) map[string]int {
	devices := map[string]int{}
	for _, one := range strings.Split(withoutParentheses(text), ",") {
		parts := strings.Split(one, ":")
		count, err := strconv.Atoi(parts[len(parts)-1])
		if parts[0] != "gpu" || err != nil || count < 0 || count > mostHosts {
			continue
		}
		switch len(parts) {
		case 2:
			devices[untyped] += count
		case 3:
			devices[parts[1]] += count
		}
	}
	return devices
}

// withoutParentheses drops what stands in parentheses, where commas mean something else.
func withoutParentheses(text string) string {
	var kept strings.Builder
	depth := 0
	for _, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0:
			kept.WriteRune(c)
		}
	}
	return kept.String()
}

// group is a partition or a reservation.
type group struct {
	up    bool
	nodes []string
}

// parsePartitions reads scontrol show partition -o.
func parsePartitions(text string) (map[string]group, error) {
	return parseGroups(text, "PartitionName", "UP")
}

// parseReservations reads scontrol show reservation -o; up are those that hold their nodes now.
func parseReservations(text string) (map[string]group, error) {
	return parseGroups(text, "ReservationName", "ACTIVE")
}

func parseGroups(text, key, up string) (map[string]group, error) {
	groups := map[string]group{}
	for _, line := range strings.Split(text, "\n") {
		name := field(line, key)
		if name == "" {
			continue
		}
		nodes, err := hosts(field(line, "Nodes"))
		if err != nil {
			return nil, err
		}
		groups[name] = group{field(line, "State") == up, nodes}
	}
	return groups, nil
}
