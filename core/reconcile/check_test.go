package reconcile

import (
	"strings"
	"testing"

	"github.com/evenstep/evenstep/core/placement"
)

func TestCheckNamesWhatCannotBe(t *testing.T) {
	good := func() *Snapshot {
		return &Snapshot{Pools: mixed[:2:2], Room: map[string]Room{"m1": {-1, 0}}, Jobs: []Job{
			held("a", func(j *Job) { j.State, j.On = Running, []placement.Share{{Node: "m1", Type: "fast", Count: 1}} }), held("b"),
			{ID: "c", Unsteerable: "no words", MinNodes: -1, Lease: -1}}}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", maxName+1)
	for want, edit := range map[string]func(*Snapshot){
		"pools[0]: node \"\", type \"fast\": not printable":   func(s *Snapshot) { s.Pools = []Pool{{"", "fast", 1, 0}} },
		"pools[0]: node \"m\\n1\", type \"fast\": not printa": func(s *Snapshot) { s.Pools = []Pool{{"m\n1", "fast", 1, 0}} },
		"type \"nnnnnnnn":                           func(s *Snapshot) { s.Pools = []Pool{{"m1", long, 1, 0}} },
		"pools[2]: type fast of node m1 is there":   func(s *Snapshot) { s.Pools = append(s.Pools, s.Pools[0]) },
		"pools[2]: node m1 is there already, befor": func(s *Snapshot) { s.Pools = append(s.Pools, Pool{"m1", "slow", 1, 0}) },
		"pools[0]: 1 devices, 2 of them others'":    func(s *Snapshot) { s.Pools = []Pool{{"m1", "fast", 1, 2}} },
		"pools[0]: -1 devices, 0 of them others'":   func(s *Snapshot) { s.Pools = []Pool{{"m1", "fast", -1, 0}} },
		"pools[0]: 65537 devices, 0 of":             func(s *Snapshot) { s.Pools = []Pool{{"m1", "fast", 65537, 0}} },
		"room of \"m1\": 9007199254740993 CPUs":     func(s *Snapshot) { s.Room["m1"] = Room{maxRoom + 1, 0} },
		"pools, jobs, room: 65537 of one":           func(s *Snapshot) { s.Jobs = make([]Job, 65537) },
		"jobs[1].id: \"\" is not a printable text":  func(s *Snapshot) { s.Jobs[1].ID = "" },
		"jobs[1].id: a is there twice":              func(s *Snapshot) { s.Jobs[1].ID = "a" },
		"job b: state: 7 is none":                   func(s *Snapshot) { s.Jobs[1].State = 7 },
		"job b: nodes: 0 to 1; give":                func(s *Snapshot) { s.Jobs[1].MinNodes = 0 },
		"job b: nodes: 2 to 1; give":                func(s *Snapshot) { s.Jobs[1].MinNodes = 2 },
		"job b: per_node: 0 is not in":              func(s *Snapshot) { s.Jobs[1].PerNode = 0 },
		"job b: words: \"workload= ":                func(s *Snapshot) { s.Jobs[1].Request.Workload = "" },
		"job b: needs: -1 CPUs, 0 memory; give":     func(s *Snapshot) { s.Jobs[1].Needs.CPUs = -1 },
		"job b: 0 CPUs, 9007199254740993 memory":    func(s *Snapshot) { s.Jobs[1].Needs.Memory = maxRoom + 1 },
		"job b: waited, lease, for: -1ns is not in": func(s *Snapshot) { s.Jobs[1].Lease = -1 },
		"job b: types, nodes, required: 65537 of":   func(s *Snapshot) { s.Jobs[1].Nodes = make([]string, 65537) },
		"job a: on[0]: 0 devices; give":             func(s *Snapshot) { s.Jobs[0].On[0].Count = 0 },
		"job a: on[1]: type fast of node m1 is":     func(s *Snapshot) { s.Jobs[0].On = append(s.Jobs[0].On, s.Jobs[0].On[0]) },
		"job c: on[0]: -1 devices; give":            func(s *Snapshot) { s.Jobs[2].On = []placement.Share{{Node: "m1", Type: "fast", Count: -1}} },
	} {
		s := good()
		edit(s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
