package nomad

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// value is what a constraint compares: a property of a node, an attribute of a device, or what the user wrote.
type value struct {
	text   string  // as written
	number float64 // in base units; counts where isNumber
	unit   string  // the base unit; empty for none
	// isNumber and isBool say what the text is as well, of devices' attributes alone: those of nodes are text to Nomad.
	isNumber, isBool bool
}

// unit is a unit of Nomad's, as so many of a base unit.
type unit struct {
	base string
	of   float64
}

// units are those of devices' attributes.
var units = makeUnits()

// unitNames begin with the longest, since MiB ends in B.
var unitNames = slices.SortedFunc(maps.Keys(units), func(a, b string) int {
	return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
})

func makeUnits() map[string]unit {
	units := map[string]unit{
		"B": {"B", 1}, "kB": {"B", 1e3}, "kB/s": {"B/s", 1e3}, "B/s": {"B/s", 1}, "MHz": {"Hz", 1e6}, "GHz": {"Hz", 1e9},
		"mW": {"W", 1e-3}, "W": {"W", 1}, "kW": {"W", 1e3}, "MW": {"W", 1e6}, "GW": {"W", 1e9},
	}
	decimal, binary := 1.0, 1.0
	for _, prefix := range []string{"K", "M", "G", "T", "P", "E"} {
		decimal *= 1000
		binary *= 1024
		for _, base := range []string{"B", "B/s"} {
			units[prefix+base] = unit{base, decimal}
			units[prefix+"i"+base] = unit{base, binary}
		}
	}
	return units
}

// written is what a constraint on a device says, as Nomad takes it: a number, maybe with a unit; true or false; or
// text.
func written(text string) value {
	v := value{text: text}
	number, times := text, 1.0
	for _, name := range unitNames {
		if rest, ends := strings.CutSuffix(text, name); ends {
			number, times, v.unit = strings.TrimSpace(rest), units[name].of, units[name].base
			break
		}
	}
	if x, err := strconv.ParseFloat(number, 64); err == nil {
		v.number, v.isNumber = x*times, true
		return v
	}
	v.unit = ""
	_, err := strconv.ParseBool(text)
	v.isBool = err == nil
	return v
}

// attribute is a device's, as the API has it.
func attribute(a *api.Attribute) (v value, ok bool) {
	switch {
	case a == nil:
		return value{}, false
	case a.FloatVal != nil:
		v = value{number: *a.FloatVal, isNumber: true}
	case a.IntVal != nil:
		v = value{number: float64(*a.IntVal), isNumber: true}
	case a.BoolVal != nil:
		return value{text: strconv.FormatBool(*a.BoolVal), isBool: true}, true
	case a.StringVal != nil:
		return value{text: *a.StringVal}, true
	default:
		return value{}, false
	}
	if u, known := units[a.Unit]; known {
		v.number, v.unit = v.number*u.of, u.base
	}
	return v, true
}

// compare is below, at or above 0; of values that cannot be compared ok is false.
func compare(a, b value) (order int, ok bool) {
	switch {
	case a.unit != b.unit || a.isNumber != b.isNumber || a.isBool != b.isBool:
		return 0, false
	case a.isNumber:
		return cmp.Compare(a.number, b.number), true
	case a.isBool:
		x, _ := strconv.ParseBool(a.text)
		y, _ := strconv.ParseBool(b.text)
		if x == y {
			return 0, true
		}
		return 1, true
	}
	return cmp.Compare(a.text, b.text), true
}
