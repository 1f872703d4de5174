package devices

import (
	"fmt"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"
)

// What a report may hold.
const (
	maxDevices = 1024
	maxNotes   = 1024
	maxText    = 256 // characters
	maxList    = 64  // entries of a device's lists
)

// Check says what in a report no device can be, if anything: an id that is missing or not unique, another kind than
// those there are, a number that is negative or not finite, more memory free than there is, a text that is long or not
// printable. It names the field.
func (r Report) Check() error {
	if len(r.Devices) > maxDevices || len(r.Notes) > maxNotes {
		return fmt.Errorf("devices, notes: %d and %d of them; give at most %d and %d", len(r.Devices), len(r.Notes),
			maxDevices, maxNotes)
	}
	for i, note := range r.Notes {
		if !isText(note) {
			return fmt.Errorf("notes[%d]: not a printable text of at most %d characters", i, maxText)
		}
	}
	seen := make(map[string]int, len(r.Devices))
	for i := range r.Devices {
		d := &r.Devices[i]
		if first, twice := seen[d.ID]; twice {
			return fmt.Errorf("devices[%d].id: %q is the id of devices[%d] already", i, d.ID, first)
		}
		seen[d.ID] = i
		if err := d.check(); err != nil {
			return fmt.Errorf("devices[%d].%w", i, err)
		}
	}
	return nil
}

func (d *Device) check() error {
	if d.ID == "" {
		return fmt.Errorf("id: missing; give each device a name")
	}
	if d.Kind != GPU && d.Kind != MIG && d.Kind != CPU {
		return fmt.Errorf("kind: %.40q is none of gpu, mig, cpu", string(d.Kind))
	}
	texts := []string{d.ID, d.Type, d.UUID, d.Parent, d.PCI, d.ComputeCapability}
	for _, text := range slices.Concat(texts, d.Throttle, d.NVLinkPeers) {
		if !isText(text) {
			return fmt.Errorf("texts: %.40q is not a printable text of at most %d characters", text, maxText)
		}
	}
	if n := max(len(d.Throttle), len(d.NVLinkPeers), len(d.XIDs)); n > maxList {
		return fmt.Errorf("throttle, nvlink_peers, xid_errors: %d entries; give at most %d", n, maxList)
	}
	for _, quantity := range []struct {
		name  string
		value *float64
	}{
		{"quota_cores", &d.QuotaCores},
		{"cores_available", d.CoresAvailable},
		{"sm_clock_mhz", d.SMClockMHz},
		{"sm_clock_max_mhz", &d.SMClockMaxMHz},
		{"memory_clock_max_mhz", &d.MemoryClockMaxMHz},
		{"power_watts", d.PowerWatts},
		{"power_limit_watts", d.PowerLimitWatts},
	} {
		// Written so that NaN fails it too.
		if quantity.value != nil && !(*quantity.value >= 0 && *quantity.value <= math.MaxFloat64) {
			return fmt.Errorf("%s: %v is not a finite number >= 0", quantity.name, *quantity.value)
		}
	}
	if t := d.TemperatureCelsius; t != nil && !(*t >= -273.15 && *t <= math.MaxFloat64) {
		return fmt.Errorf("temperature_celsius: %v is no temperature", *t)
	}
	if d.MemoryFreeBytes != nil && *d.MemoryFreeBytes > d.MemoryBytes {
		return fmt.Errorf("memory_free_bytes: %d is above memory_bytes %d", *d.MemoryFreeBytes, d.MemoryBytes)
	}
	return nil
}

func isText(text string) bool {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxText {
		return false
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
