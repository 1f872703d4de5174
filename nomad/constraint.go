package nomad

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"
)

// A constraint that is not understood here counts as satisfied: Nomad itself is asked before anything is placed.

// meets says whether a node satisfies a constraint on nodes. Our own says where the job is, not where it may be.
func (n *node) meets(c api.Constraint) bool {
	left, leftOK := n.property(c.LTarget)
	right, rightOK := n.property(c.RTarget)
	return parseMark(c) != nil || satisfied(c.Operand, left, right, leftOK, rightOK)
}

// property is what a side of a constraint on nodes stands for.
func (n *node) property(target string) (value, bool) {
	name, isName := strings.CutPrefix(target, "${")
	if !isName {
		return value{text: target}, true
	}
	name = strings.TrimSuffix(name, "}")
	if attr, is := strings.CutPrefix(name, "attr."); is {
		text, found := n.Attributes[attr]
		return value{text: text}, found
	}
	if meta, is := strings.CutPrefix(name, "meta."); is {
		text, found := n.Meta[meta]
		return value{text: text}, found
	}
	text, found := map[string]string{
		"node.unique.id": n.ID, "node.unique.name": n.Name, "node.datacenter": n.Datacenter, "node.class": n.NodeClass,
		"node.pool": n.NodePool,
	}[name]
	return value{text: text}, found
}

// deviceMeets says whether devices satisfy constraints on devices.
func deviceMeets(d *api.NodeDeviceResource, constraints []api.Constraint) bool {
	for _, c := range constraints {
		left, leftOK := deviceProperty(d, c.LTarget)
		right, rightOK := deviceProperty(d, c.RTarget)
		if !satisfied(c.Operand, left, right, leftOK, rightOK) {
			return false
		}
	}
	return true
}

// deviceProperty is what a side of a constraint on devices stands for.
func deviceProperty(d *api.NodeDeviceResource, target string) (value, bool) {
	name, isName := strings.CutPrefix(target, "${device.")
	if !isName {
		return written(target), !strings.HasPrefix(target, "${")
	}
	name = strings.TrimSuffix(name, "}")
	if attr, is := strings.CutPrefix(name, "attr."); is {
		return attribute(d.Attributes[attr])
	}
	switch name {
	case "ids":
		ids := make([]string, len(d.Instances))
		for i, one := range d.Instances {
			ids[i] = one.ID
		}
		return value{text: strings.Join(ids, ",")}, true
	case "model":
		return value{text: d.Name}, true
	case "vendor":
		return value{text: d.Vendor}, true
	case "type":
		return value{text: d.Type}, true
	}
	return value{}, false
}

// satisfied decides one constraint.
func satisfied(operand string, left, right value, leftOK, rightOK bool) bool {
	both := leftOK && rightOK
	switch operand {
	case api.ConstraintAttributeIsSet:
		return leftOK
	case api.ConstraintAttributeIsNotSet:
		return !leftOK
	case "!=", "not":
		order, comparable := compare(left, right)
		return both && comparable && order != 0 || leftOK != rightOK
	case "=", "==", "is":
		order, comparable := compare(left, right)
		return both && comparable && order == 0
	case "<", "<=", ">", ">=":
		return both && inOrder(operand, left, right)
	case api.ConstraintRegex:
		form, err := regexp.Compile(right.text)
		return both && err == nil && form.MatchString(left.text)
	case api.ConstraintSetContains, api.ConstraintSetContainsAll:
		missing := func(word string) bool { return !slices.Contains(set(left.text), word) }
		return both && !slices.ContainsFunc(set(right.text), missing)
	case api.ConstraintSetContainsAny:
		there := func(word string) bool { return slices.Contains(set(left.text), word) }
		return both && slices.ContainsFunc(set(right.text), there)
	case api.ConstraintVersion, api.ConstraintSemver:
		return both && versionIn(left.text, right.text, operand == api.ConstraintSemver)
	}
	return true
}

// inOrder compares texts that both are numbers as such.
func inOrder(operand string, left, right value) bool {
	x, errX := strconv.ParseFloat(left.text, 64)
	y, errY := strconv.ParseFloat(right.text, 64)
	if errX == nil && errY == nil {
		left, right = value{number: x, isNumber: true}, value{number: y, isNumber: true}
	}
	order, comparable := compare(left, right)
	switch operand {
	case "<":
		return comparable && order < 0
	case "<=":
		return comparable && order <= 0
	case ">":
		return comparable && order > 0
	}
	return comparable && order >= 0
}

// set are the words of a list with commas.
func set(list string) []string {
	words := strings.Split(list, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

// versionIn says whether a version is in a range such as ">= 1.6, < 2". A pre-release is in one without pre-releases
// where versions are semantic.
func versionIn(text, wanted string, semantic bool) bool {
	v, err := version.NewVersion(text)
	if err != nil {
		return false
	}
	in, err := version.NewConstraint(wanted)
	return err == nil && (in.Check(v) || semantic && in.Check(v.Core()))
}
