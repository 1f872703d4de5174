// Package devices says what devices are on this node, how fast each may run, and why it is slower than that.
//
// A Prober looks. The one for CPUs is built in (see package cpu); others are plugins of kind devices: Serve is for a
// plugin's main function, New for who asks it. What a plugin answers is checked: see Check.
package devices

import "context"

// Prober looks at the devices of this node. Calls may come at the same time.
type Prober interface {
	// Probe says how the devices are now. What it could not find out it says in a note; an error means that it found
	// out nothing.
	Probe(ctx context.Context) (Report, error)
}

// Report is what a Prober saw.
type Report struct {
	Devices []Device
	Notes   []string // why something is missing, one line each
}

// Kind tells devices apart by what they are.
type Kind string

// The kinds of devices.
const (
	GPU Kind = "gpu"
	MIG Kind = "mig" // a part of a GPU that is a device of its own
	CPU Kind = "cpu" // the share of this node's CPUs that a process may use
)

// Device is one device as it is now. A zero is not known, and so is a nil.
type Device struct {
	ID     string `json:"id"` // unique on the node
	Kind   Kind   `json:"kind"`
	Type   string `json:"type,omitempty"`   // the vendor's model name
	UUID   string `json:"uuid,omitempty"`   // unique in the world
	Parent string `json:"parent,omitempty"` // UUID of the GPU that a MIG device is a part of
	PCI    string `json:"pci,omitempty"`    // address, as domain:bus:device.function

	Cores          int      `json:"cores,omitzero"`           // CPUs, or the cores of a GPU
	QuotaCores     float64  `json:"quota_cores,omitzero"`     // CPUs' worth of time that control groups grant
	CoresAvailable *float64 `json:"cores_available,omitzero"` // CPUs' worth of time that is left

	MemoryBytes     uint64  `json:"memory_bytes,omitzero"`
	MemoryFreeBytes *uint64 `json:"memory_free_bytes,omitzero"`

	ComputeCapability string   `json:"compute_capability,omitempty"` // as major.minor
	NVLinkPeers       []string `json:"nvlink_peers,omitempty"`       // PCI addresses at the other ends, each once

	SMClockMHz        *float64 `json:"sm_clock_mhz,omitzero"`
	SMClockMaxMHz     float64  `json:"sm_clock_max_mhz,omitzero"`
	MemoryClockMaxMHz float64  `json:"memory_clock_max_mhz,omitzero"`
	Throttle          []string `json:"throttle,omitempty"` // why it runs slower than it could, in words

	PowerWatts         *float64 `json:"power_watts,omitzero"`
	PowerLimitWatts    *float64 `json:"power_limit_watts,omitzero"`
	TemperatureCelsius *float64 `json:"temperature_celsius,omitzero"`

	ECCErrors *uint64  `json:"ecc_errors,omitzero"`  // uncorrected ones since the driver was loaded
	XIDs      []uint32 `json:"xid_errors,omitempty"` // codes of the driver's critical errors since the prober began
}
