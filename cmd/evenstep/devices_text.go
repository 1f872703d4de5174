package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/plugin/devices"
)

// text is the report for people.
func (r nodeReport) text() string {
	var out strings.Builder
	fmt.Fprintln(&out, oneLine(r.Node))
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, d := range r.Devices {
		what := []string{d.ID, string(d.Kind), d.Type, memoryText(d), speedText(d), powerText(d), strings.Join(d.Throttle, ", ")}
		for i, column := range what {
			what[i] = oneLine(column)
			if what[i] == "" {
				what[i] = "-"
			}
		}
		fmt.Fprintln(w, "  "+strings.Join(what, "\t"))
	}
	w.Flush() // to a Builder, which never fails
	for _, note := range r.Notes {
		fmt.Fprintln(&out, "  note:", oneLine(note))
	}
	return out.String()
}

func memoryText(d devices.Device) string {
	const gib = 1 << 30
	switch {
	case d.MemoryBytes == 0:
		return ""
	case d.MemoryFreeBytes == nil:
		return fmt.Sprintf("%.1f GiB", float64(d.MemoryBytes)/gib)
	}
	return fmt.Sprintf("%.1f of %.1f GiB free", float64(*d.MemoryFreeBytes)/gib, float64(d.MemoryBytes)/gib)
}

// speedText is a GPU's clock, or the CPUs that are left.
func speedText(d devices.Device) string {
	switch {
	case d.Kind == devices.CPU && d.CoresAvailable != nil:
		cores := float64(d.Cores)
		if d.QuotaCores > 0 {
			cores = d.QuotaCores
		}
		return fmt.Sprintf("%.3g of %.3g cores free", *d.CoresAvailable, cores)
	case d.Kind == devices.CPU && d.Cores > 0:
		return fmt.Sprintf("%d cores", d.Cores)
	case d.SMClockMHz != nil:
		return cluster.Clock{MHz: *d.SMClockMHz, MaxMHz: d.SMClockMaxMHz}.String()
	}
	return cluster.Clock{MaxMHz: d.SMClockMaxMHz}.String()
}

func powerText(d devices.Device) string {
	var parts []string
	switch {
	case d.PowerWatts != nil && d.PowerLimitWatts != nil:
		parts = append(parts, fmt.Sprintf("%.0f of %.0f W", *d.PowerWatts, *d.PowerLimitWatts))
	case d.PowerWatts != nil:
		parts = append(parts, fmt.Sprintf("%.0f W", *d.PowerWatts))
	}
	if d.TemperatureCelsius != nil {
		parts = append(parts, fmt.Sprintf("%.0f °C", *d.TemperatureCelsius))
	}
	return strings.Join(parts, ", ")
}
