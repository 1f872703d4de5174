package devices

import devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"

// Wire puts a report on the wire.
func (r Report) Wire() *devicesv1.ProbeResponse {
	w := &devicesv1.ProbeResponse{Notes: r.Notes}
	for _, d := range r.Devices {
		w.Devices = append(w.Devices, &devicesv1.Device{
			Id: d.ID, Kind: string(d.Kind), Type: d.Type, Uuid: d.UUID, Parent: d.Parent, Pci: d.PCI,
			Cores: uint32(d.Cores), QuotaCores: d.QuotaCores, CoresAvailable: d.CoresAvailable,
			MemoryBytes: d.MemoryBytes, MemoryFreeBytes: d.MemoryFreeBytes,
			ComputeCapability: d.ComputeCapability, NvlinkPeers: d.NVLinkPeers,
			SmClockMhz: d.SMClockMHz, SmClockMaxMhz: d.SMClockMaxMHz, MemoryClockMaxMhz: d.MemoryClockMaxMHz,
			Throttle: d.Throttle, PowerWatts: d.PowerWatts, PowerLimitWatts: d.PowerLimitWatts,
			TemperatureCelsius: d.TemperatureCelsius, EccErrors: d.ECCErrors, XidErrors: d.XIDs,
		})
	}
	return w
}

// fromWire takes a report from the wire, as it is.
func fromWire(w *devicesv1.ProbeResponse) Report {
	r := Report{Notes: w.GetNotes()}
	for _, d := range w.GetDevices() {
		r.Devices = append(r.Devices, Device{
			ID: d.GetId(), Kind: Kind(d.GetKind()), Type: d.GetType(), UUID: d.GetUuid(), Parent: d.GetParent(), PCI: d.GetPci(),
			Cores: int(d.GetCores()), QuotaCores: d.GetQuotaCores(), CoresAvailable: d.CoresAvailable,
			MemoryBytes: d.GetMemoryBytes(), MemoryFreeBytes: d.MemoryFreeBytes,
			ComputeCapability: d.GetComputeCapability(), NVLinkPeers: d.GetNvlinkPeers(),
			SMClockMHz: d.SmClockMhz, SMClockMaxMHz: d.GetSmClockMaxMhz(), MemoryClockMaxMHz: d.GetMemoryClockMaxMhz(),
			Throttle: d.GetThrottle(), PowerWatts: d.PowerWatts, PowerLimitWatts: d.PowerLimitWatts,
			TemperatureCelsius: d.TemperatureCelsius, ECCErrors: d.EccErrors, XIDs: d.GetXidErrors(),
		})
	}
	return r
}
