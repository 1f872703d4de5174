package service

import (
	"strings"
	"unicode"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// mostQuantity bounds what is reported: beyond reason, but sums over all workers, and over years in the metrics, are finite.
const mostQuantity = 1e12

// checkReport checks the form of a report on a stream of the given rank, in a job of that many workers. It looks at
// nothing that a lost, late or repeated message could explain: those are for the job to ignore.
func checkReport(r *evenstepv1.StepReport, rank, workers int) error {
	if r.GetNextFreeStep() <= r.GetStep() {
		return invalid("report.next_free_step: %d is not past step %d, whose batch was drawn",
			r.GetNextFreeStep(), r.GetStep())
	}
	if rank != allRanks {
		if len(r.GetWorkers()) != 1 || int(r.GetWorkers()[0].GetRank()) != rank {
			return invalid("report.workers: give one entry, of rank %d, as the stream is that worker's", rank)
		}
		return checkWorker(0, r.GetWorkers()[0])
	}
	if len(r.GetWorkers()) != workers {
		return wrongNumber(len(r.GetWorkers()), workers)
	}
	seen := make([]bool, workers)
	for i, w := range r.GetWorkers() {
		if int(w.GetRank()) >= workers || seen[w.GetRank()] {
			return invalid("report.workers[%d].rank: %d is unknown or repeated; give each of 0 to %d once",
				i, w.GetRank(), workers-1)
		}
		seen[w.GetRank()] = true
		if err := checkWorker(i, w); err != nil {
			return err
		}
	}
	return nil
}

func wrongNumber(entries, workers int) error {
	return invalid("report.workers: %d entries for %d workers; give one per worker", entries, workers)
}

func checkWorker(i int, w *evenstepv1.WorkerReport) error {
	for _, quantity := range []struct {
		name  string
		value float64
	}{
		{"compute_seconds", w.GetComputeSeconds()},
		{"samples", w.GetSamples()},
		{"cpu_available", w.GetCpuAvailable()},
		{"sm_clock_mhz", w.GetSmClockMhz()},
		{"sm_clock_max_mhz", w.GetSmClockMaxMhz()},
		{"wait_seconds", w.GetWaitSeconds()},
	} {
		// Written so that NaN fails it too.
		if !(quantity.value >= 0 && quantity.value <= mostQuantity) {
			return invalid("report.workers[%d].%s: %v is not a number from 0 to %g", i, quantity.name, quantity.value, mostQuantity)
		}
	}
	if n := len(w.GetThrottleReasons()); n > maxReasons {
		return invalid("report.workers[%d].throttle_reasons: %d of them; give at most %d", i, n, maxReasons)
	}
	for k, reason := range w.GetThrottleReasons() {
		if isTooLong(reason) || strings.ContainsFunc(reason, isUnprintable) {
			return invalid("report.workers[%d].throttle_reasons[%d]: not at most %d printable characters", i, k, maxText)
		}
	}
	return nil
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// observation is what a checked report says about the speed of a worker. What computes on an accelerator is driven by
// its clock, elsewhere by the cores.
func observation(w cluster.Worker, r *evenstepv1.WorkerReport) speed.Observation {
	processor := r.GetCpuAvailable()
	if isAccelerator(w) {
		processor = r.GetSmClockMhz()
	}
	return speed.Observation{
		Samples:     r.GetSamples(),
		Seconds:     r.GetComputeSeconds(),
		CPU:         processor,
		MemoryBytes: float64(r.GetMemoryAvailableBytes()),
	}
}
