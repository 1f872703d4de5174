package nomad

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

func TestConstraintsOnNodes(t *testing.T) {
	n := newNode(&api.Node{
		ID: "id", Name: "n1", Datacenter: "dc1", NodeClass: "big", NodePool: "gold",
		Attributes: map[string]string{"cpu.numcores": "16", "kernel.version": "6.1.0-18-amd64", "os": "debian", "empty": ""},
		Meta:       map[string]string{"rack": "r1", "tags": "a, b,c"},
	})
	for _, c := range []struct {
		left, operand, right string
		want                 bool
	}{
		{"${node.class}", "=", "big", true},
		{"${node.class}", "==", "small", false},
		{"${node.class}", "is", "big", true},
		{"${node.pool}", "!=", "gold", false},
		{"${node.datacenter}", "not", "dc2", true},
		{"${node.unique.id}", "=", "id", true},
		{"${node.unique.name}", "regexp", "^n[0-9]$", true},
		{"${node.unique.name}", "regexp", "(", false},
		{"${attr.cpu.numcores}", ">=", "9", true}, // as numbers, not as text
		{"${attr.cpu.numcores}", "<", "9", false},
		{"${attr.cpu.numcores}", "<=", "16.0", true},
		{"${attr.cpu.numcores}", ">", "16", false},
		{"${attr.cpu.numcores}", "=", "16.0", false}, // as text
		{"${attr.os}", ">", "alpine", true},
		{"${attr.kernel.version}", "version", ">= 5.0", false}, // a pre-release
		{"${attr.kernel.version}", "semver", ">= 5.0, < 7", true},
		{"${attr.os}", "semver", ">= 1", false},
		{"${attr.missing}", "=", "", false},
		{"${attr.missing}", "!=", "x", true},
		{"${attr.missing}", "is_set", "", false},
		{"${attr.missing}", "is_not_set", "", true},
		{"${attr.empty}", "is_set", "", true},
		{"${meta.rack}", "set_contains_any", "r2, r1", true},
		{"${meta.rack}", "set_contains_any", "r2", false},
		{"${meta.tags}", "set_contains", "a,b", true},
		{"${meta.tags}", "set_contains_all", "a,d", false},
		{"${node.strange}", "=", "x", false},
		{"r1", "=", "${meta.rack}", true},
		{"${node.class}", "a_riddle", "x", true}, // Nomad's to judge
		{"", "distinct_hosts", "true", true},
		{"${node.unique.id}", "set_contains_any", "evenstep-hold", true}, // ours
		{"${node.unique.id}", "set_contains_any", "other", false},
	} {
		if got := n.meets(*api.NewConstraint(c.left, c.operand, c.right)); got != c.want {
			t.Errorf("%s %s %s is %v", c.left, c.operand, c.right, got)
		}
	}
}

func TestConstraintsOnDevices(t *testing.T) {
	memory, speed, yes, words := int64(40960), 1234.5, true, "9.0"
	d := &api.NodeDeviceResource{
		Vendor: "evenstep", Type: "gpu", Name: "NVIDIA A100", Instances: []*api.NodeDevice{{ID: "a"}, {ID: "b"}},
		Attributes: map[string]*api.Attribute{
			"memory": {IntVal: &memory, Unit: "MiB"}, "samples_per_second_w": {FloatVal: &speed}, "ecc": {BoolVal: &yes},
			"compute_capability": {StringVal: &words}, "nothing": {},
		},
	}
	for _, c := range []struct {
		left, operand, right string
		want                 bool
	}{
		{"${device.attr.memory}", ">=", "40 GiB", true},
		{"${device.attr.memory}", ">", "40GiB", false},
		{"${device.attr.memory}", "=", "40960 MiB", true},
		{"${device.attr.memory}", "<", "50 GB", true},
		{"${device.attr.memory}", ">=", "40", false}, // without a unit it cannot be compared
		{"${device.attr.memory}", ">=", "40 GHz", false},
		{"${device.attr.memory}", "!=", "40 GHz", false},
		{"${device.attr.samples_per_second_w}", ">=", "1000", true},
		{"${device.attr.samples_per_second_w}", ">", "1.3e3", false},
		{"${device.attr.ecc}", "=", "true", true},
		{"${device.attr.ecc}", "!=", "false", true},
		{"${device.attr.compute_capability}", "=", "9.0", false}, // a text is no number
		{"${device.attr.compute_capability}", "version", ">= 8", true},
		{"${device.attr.missing}", "is_not_set", "", true},
		{"${device.attr.missing}", "!=", "1", true},
		{"${device.attr.missing}", "<", "1", false},
		{"${device.attr.nothing}", "is_set", "", false},
		{"${device.model}", "regexp", "A100$", true},
		{"${device.vendor}", "=", "evenstep", true},
		{"${device.type}", "!=", "gpu", false},
		{"${device.ids}", "set_contains", "b", true},
		{"${device.strange}", "=", "x", false},
		{"${node.class}", "=", "${node.class}", false},
	} {
		if got := deviceMeets(d, []api.Constraint{*api.NewConstraint(c.left, c.operand, c.right)}); got != c.want {
			t.Errorf("%s %s %s is %v", c.left, c.operand, c.right, got)
		}
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "dc1", true}, {"dc1", "dc1", true}, {"dc1", "dc12", false}, {"dc*", "dc12", true}, {"*1", "dc1", true}, {"*1", "dc12", false},
		{"a*b*c", "a-b-c", true}, {"a*b*c", "a-c", false}, {"ab*ba", "aba", false}, {"", "", true}, {"**", "x", true},
	} {
		if got := globs(c.pattern, c.text); got != c.want {
			t.Errorf("%q on %q is %v", c.pattern, c.text, got)
		}
	}
}
