package slurm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/evenstep/evenstep/core/reconcile"
)

// needs are what a job asks for beside devices. Memory is in MiB.
type needs struct {
	cpus          int // of each node, at least
	cpusPerDevice int
	// The memory is asked for in one of three ways; where in none, it is all that a node has.
	memory, memoryPerCPU, memoryPerDevice int
}

// parseNeeds reads scontrol show job -o of a job that waits, for so many nodes at least.
func parseNeeds(text string, nodes int) (n needs, err error) {
	number := func(key string) int {
		low, _, _ := strings.Cut(field(text, key), "-") // of a range the least
		value, _ := strconv.Atoi(low)                   // what is not there is 0
		return value
	}
	n.cpus = max(1, number("MinCPUsNode"), number("CPUs/Task"), (number("NumCPUs")+nodes-1)/nodes)
	n.cpusPerDevice = perDevice(field(text, "CpusPerTres"))
	n.memoryPerDevice = perDevice(field(text, "MemPerTres"))
	if n.memory, err = parseMemory(field(text, "MinMemoryNode")); err == nil {
		n.memoryPerCPU, err = parseMemory(field(text, "MinMemoryCPU"))
	}
	if err != nil {
		err = fmt.Errorf("scontrol show job: %w", err)
	}
	return n, err
}

// room is what a node with so many of the job's devices has to have. CPUs come in whole cores.
func (n needs) room(devices, threads int) reconcile.Room {
	cpus := max(n.cpus, n.cpusPerDevice*devices)
	cpus = (cpus + threads - 1) / threads * threads
	return reconcile.Room{CPUs: cpus, Memory: max(n.memory, n.memoryPerCPU*cpus, n.memoryPerDevice*devices)}
}

// parseMemory reads 1500M, 2.50G or 0, in MiB, rounded up.
func parseMemory(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	scale := 1.0
	number := strings.TrimRight(text, "KMGTP")
	switch text[len(number):] {
	case "K":
		scale = 1.0 / 1024
	case "G":
		scale = 1 << 10
	case "T":
		scale = 1 << 20
	case "P":
		scale = 1 << 30
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || !(value >= 0 && value*scale <= 1<<40) {
		return 0, fmt.Errorf("memory is %.40q; want a number with K, M, G, T or P", text)
	}
	return int(value*scale + 0.999), nil
}
