package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/evenstep/evenstep/core/reconcile"
)

// ratesFile reads how fast workloads run from a JSON file, anew each time, so that it may be edited at any moment.
type ratesFile struct{ path string }

// Rates is samples per second of one device, by type.
func (f *ratesFile) Rates(workload string, types []string) (map[string]reconcile.Rate, error) {
	var table map[string]map[string]amount
	if err := readInput([]string{f.path}, nil, &table); err != nil {
		return nil, err
	}
	rates := map[string]reconcile.Rate{}
	for _, t := range slices.Sorted(maps.Keys(table[workload])) {
		rate := float64(table[workload][t])
		if rate > maxWhole {
			return nil, fmt.Errorf("%s.%s: %v is beyond 2^53 samples per second", workload, t, rate)
		}
		if slices.Contains(types, t) && rate > 0 {
			rates[t] = reconcile.Rate{SamplesPerSecond: rate, Source: "profile"}
		}
	}
	return rates, nil
}
