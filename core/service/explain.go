package service

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// These are our choices.
const (
	leastSlower  = 0.05 // share of the speed of a worker's like below which it is worth a word
	fullClock    = 0.95 // of the greatest one, from which on a clock explains nothing
	scarceCores  = 0.8  // of the others' CPU below which a worker's explains something,
	missingCores = 0.2  // where it is so many cores less
	maxReasons   = 16   // that a worker gives
)

// hint is what a worker reports of its device beside what drives predictors.
type hint struct {
	clock    cluster.Clock
	throttle string // why the device runs slower than it could
}

func newHint(w *evenstepv1.WorkerReport) hint {
	reasons := strings.Join(w.GetThrottleReasons(), ", ")
	if len(reasons) > maxText {
		reasons = strings.ToValidUTF8(reasons[:maxText], "")
	}
	return hint{cluster.Clock{MHz: w.GetSmClockMhz(), MaxMHz: w.GetSmClockMaxMhz()}, reasons}
}

// words are what the hint has to say, if anything.
func (h *hint) words() (words []string) {
	if h.throttle == "" && !(h.clock.MHz > 0 && h.clock.MHz < fullClock*h.clock.MaxMHz) {
		return nil
	}
	if h.throttle != "" {
		words = append(words, h.throttle)
	}
	if h.clock.MHz > 0 {
		words = append(words, h.clock.String())
	}
	return words
}

// like are the workers on devices of one type, as one step showed them: speeds of all, cores of those on CPUs; sorted.
type like struct{ speeds, cores []float64 }

// explain says of the worker that lags most behind its like, and whose device has something to say for itself, by how
// much and why: "rank 3 is 18 % slower: SW power cap, 1,410 of 1,980 MHz". Its like are the workers on devices of the
// same type; of one without any only the why is said. It is empty where there is nothing to say.
func explain(workers []cluster.Worker, seen []speed.Observation, hints []hint) string {
	if !worthALook(workers, seen, hints) {
		return ""
	}
	likes := sortOut(workers, seen)
	worst, slower, why := -1, -1.0, ""
	for i, w := range workers {
		v, known := seen[i].Speed()
		if !known {
			continue
		}
		l, lag, words := likes[w.Device.Type], 0.0, hints[i].words()
		if len(l.speeds) > 1 {
			if lag = 1 - v/upperMedian(l.speeds); lag < leastSlower {
				continue
			}
			if !isAccelerator(w) {
				words = append(words, scarce(seen[i].CPU, upperMedian(l.cores))...)
			}
		}
		if len(words) > 0 && lag > slower {
			worst, slower, why = i, lag, strings.Join(words, ", ")
		}
	}
	switch {
	case worst < 0:
		return ""
	case slower > 0:
		return fmt.Sprintf("rank %d is %.0f %% slower: %s", worst, 100*slower, why)
	}
	return fmt.Sprintf("rank %d: %s", worst, why)
}

// worthALook says whether any worker could have something to say, which in most steps of most jobs none has.
func worthALook(workers []cluster.Worker, seen []speed.Observation, hints []hint) bool {
	least, most := math.Inf(1), 0.0
	for i, w := range workers {
		if hints[i].throttle != "" || hints[i].clock.MHz < fullClock*hints[i].clock.MaxMHz {
			return true
		}
		if !isAccelerator(w) && seen[i].CPU > 0 {
			least, most = min(least, seen[i].CPU), max(most, seen[i].CPU)
		}
	}
	return least <= min(scarceCores*most, most-missingCores)
}

// sortOut sorts speeds and cores of the workers on each type of device.
func sortOut(workers []cluster.Worker, seen []speed.Observation) map[string]*like {
	likes := make(map[string]*like)
	for i, w := range workers {
		l := likes[w.Device.Type]
		if l == nil {
			l = new(like)
			likes[w.Device.Type] = l
		}
		if v, known := seen[i].Speed(); known {
			l.speeds = append(l.speeds, v)
			if !isAccelerator(w) {
				l.cores = append(l.cores, seen[i].CPU)
			}
		}
	}
	for _, l := range likes {
		slices.Sort(l.speeds)
		slices.Sort(l.cores)
	}
	return likes
}

// upperMedian is of sorted numbers; of two, the larger.
func upperMedian(x []float64) float64 { return x[len(x)/2] }

// scarce says that a worker on CPUs has fewer of them than its like.
func scarce(cores, usual float64) []string {
	if !(cores > 0) || cores > min(scarceCores*usual, usual-missingCores) {
		return nil
	}
	return []string{fmt.Sprintf("%.2g CPU cores available, others %.2g", cores, usual)}
}

// isAccelerator says whether the worker's device has a memory of its own, and so is no share of the node's CPUs.
func isAccelerator(w cluster.Worker) bool { return w.Device.MemoryBytes > 0 }
