package device

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// Nomad remembers by a class of nodes where a job does not fit, and what devices are like is part of the class: a node
// that is told apart anew all the time makes it forget. Hence few numbers, rounded, that seldom change.
const (
	mostWorkloads = 32
	leaveAfter    = 64               // workloads that were seen later end the telling of one
	tellPause     = 10 * time.Minute // between two changes, whatever they are of
	tellBeyond    = 0.10             // a speed counts as another when it differs by more than this share
	mostRate      = 1e300            // samples per second; what is above might be no number when it is rounded
)

// speeds are how fast workloads run, as Nomad was told last: samples per second by attribute and type of device. The
// zero value tells nothing.
type speeds struct {
	told    map[string]map[string]float64
	whose   map[string]string // workload by attribute
	changed time.Time
}

// learn takes what is known now, the workload that was seen last first.
func (s *speeds) learn(rates []*evenstepv1.Rate, now time.Time) {
	if !s.changed.IsZero() && now.Sub(s.changed) < tellPause {
		return
	}
	known, whose, order := s.byAttribute(rates)
	next := make(map[string]map[string]float64)
	for _, name := range s.choose(order) {
		next[name] = make(map[string]float64)
		for device, rate := range known[name] {
			next[name][device] = s.tell(name, device, rate)
		}
	}
	if !maps.EqualFunc(s.told, next, maps.Equal[map[string]float64, map[string]float64]) {
		s.told, s.whose, s.changed = next, whose, now
	}
}

// byAttribute are samples per second by attribute and type of device, the workload of each, and the attributes by when
// their workload was seen, the last one first. Of two workloads with one attribute the one that is told stays, so that
// two which train at the same time do not take turns; else it is the one that was seen last.
func (s *speeds) byAttribute(rates []*evenstepv1.Rate) (
	known map[string]map[string]float64, whose map[string]string, order []string,
) {
	known, whose = make(map[string]map[string]float64), make(map[string]string)
	for _, r := range rates {
		name, workload, rate := attribute(r.GetWorkload()), r.GetWorkload(), r.GetSamplesPerSecond()
		if !(rate > 0 && rate <= mostRate) {
			continue
		}
		if known[name] == nil {
			order = append(order, name)
		}
		if known[name] == nil || workload == s.whose[name] && workload != whose[name] {
			known[name], whose[name] = make(map[string]float64), workload
		}
		if workload == whose[name] {
			known[name][r.GetType()] = rate
		}
	}
	return known, whose, order
}

// choose chooses what to tell: what is told stays, while it is among those seen lately, before what is new.
func (s *speeds) choose(order []string) (chosen []string) {
	for _, name := range order[:min(len(order), leaveAfter)] {
		if s.told[name] != nil {
			chosen = append(chosen, name)
		}
	}
	for _, name := range order {
		if len(chosen) < mostWorkloads && !slices.Contains(chosen, name) {
			chosen = append(chosen, name)
		}
	}
	return chosen
}

// tell is what is said of a rate: what was, while that is near.
func (s *speeds) tell(name, device string, rate float64) float64 {
	if was, told := s.told[name][device]; told && math.Abs(rate-was) <= tellBeyond*was {
		return was
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(rate, 'e', 1, 64), 64) // two digits
	return rounded
}

// attribute is the name under which a job finds the speed of a workload. Other characters would end the name in a job's
// specification.
func attribute(workload string) string {
	return "samples_per_second_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, workload)
}
