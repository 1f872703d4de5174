package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evenstep/evenstep/core/reconcile"
)

// ratesOf is how fast workloads run by the file at the path: a table in JSON, or what jobs have shown, as in evenstep profiles.
func ratesOf(path string) reconcile.Profiles {
	if strings.HasSuffix(path, ".json") {
		return &ratesFile{path: path}
	}
	return &measuredRates{path: path}
}

// measuredRates reads the file of profiles anew each time, since jobs go on to show more.
type measuredRates struct{ path string }

// Rates is samples per second of one device, by type.
func (m *measuredRates) Rates(workload string, types []string) (map[string]reconcile.Rate, error) {
	book, err := (&profilesFlags{file: m.path}).read()
	if err != nil {
		return nil, err
	}
	rates := map[string]reconcile.Rate{}
	for _, r := range book.Rates(workload, types) {
		if r.Source != "" {
			rates[r.Type] = reconcile.Rate{SamplesPerSecond: r.SamplesPerSecond, Source: string(r.Source)}
		}
	}
	return rates, nil
}

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
