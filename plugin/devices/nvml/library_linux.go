//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/devices"
)

// library is NVML itself.
type library struct {
	nvml   nvml.Interface
	path   string
	loaded bool

	mu      sync.Mutex
	events  nvml.EventSet
	watched map[string]bool     // by UUID
	xids    map[string][]uint32 // by UUID, each code once
}

func newDriver(path string) driver {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	return &library{nvml: nvml.New(options...), path: path}
}

func (l *library) count() (int, error) {
	if !l.loaded {
		if ret := l.nvml.Init(); ret != nvml.SUCCESS {
			return 0, l.whyNot(ret)
		}
		l.loaded = true
		l.watch()
	}
	n, ret := l.nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return 0, l.whyNot(ret)
	}
	return n, nil
}

// whyNot says why the library does not work.
func (l *library) whyNot(ret nvml.Return) error {
	switch {
	case ret == nvml.ERROR_LIBRARY_NOT_FOUND && l.path != "":
		return fmt.Errorf("the library %s cannot be loaded", l.path)
	case ret == nvml.ERROR_LIBRARY_NOT_FOUND:
		return errors.New("there is no NVIDIA driver: libnvidia-ml.so.1 is not installed")
	}
	return errors.New(words(ret))
}

// words are our own: the library's function for them may not be there.
func words(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_GPU_IS_LOST:
		return "the GPU is lost: it has fallen off the bus"
	case nvml.ERROR_RESET_REQUIRED:
		return "the GPU needs a reset"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA driver is not loaded"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the NVIDIA driver and its library are of different versions; reboot"
	case nvml.ERROR_NO_PERMISSION:
		return "the NVIDIA driver refuses this user"
	}
	return fmt.Sprintf("the NVIDIA driver answers with error %d", ret)
}

// has says whether the library has one of the functions. A call of one that it has not ends the process.
func (l *library) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return l.nvml.Extensions().LookupSymbol(name) == nil })
}

func (l *library) read(index int) ([]devices.Device, error) {
	handle, ret := l.nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, errors.New(words(ret))
	}
	r := &reader{library: l}
	gpu := r.gpu(fmt.Sprintf("gpu%d", index), handle)
	found := []devices.Device{gpu}
	if mode, known := ask(r, "nvmlDeviceGetMigMode", func() (int, nvml.Return) {
		current, _, ret := handle.GetMigMode()
		return current, ret
	}); known && mode == nvml.DEVICE_MIG_ENABLE {
		found = r.migs(gpu, handle)
	}
	if r.fault != nvml.SUCCESS {
		return nil, errors.New(words(r.fault))
	}
	return found, nil
}

// reader reads one GPU.
type reader struct {
	library *library
	fault   nvml.Return // why the GPU can no longer be asked
}

// ask gets a value, if the driver has the function and the device supports it; else it is zero, whatever the driver left
// there. Nothing more is asked of a GPU that is gone.
func ask[T any](r *reader, function string, get func() (T, nvml.Return)) (value T, known bool) {
	if r.fault != nvml.SUCCESS || !r.library.has(function) {
		return value, false
	}
	got, ret := get()
	if ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED {
		r.fault = ret
	}
	if ret != nvml.SUCCESS {
		return value, false
	}
	return got, true
}

// scaled is a measured quantity in our unit; nil where it is not known.
func scaled(r *reader, function string, unit float64, get func() (uint32, nvml.Return)) *float64 {
	value, known := ask(r, function, get)
	if !known || value == math.MaxUint32 { // NVML's word for not available
		return nil
	}
	x := float64(value) * unit
	return &x
}

// text is a text of the driver's, which may be any bytes.
func text(r *reader, function string, get func() (string, nvml.Return)) string {
	said, _ := ask(r, function, get)
	return strings.TrimSpace(plugin.Line(said))
}

// gpu reads a whole GPU.
func (r *reader) gpu(id string, h nvml.Device) devices.Device {
	d := devices.Device{ID: id, Kind: devices.GPU}
	r.identity(&d, h)
	if address := r.pci(h); address != "" {
		d.PCI = address
	}
	if version, known := ask(r, "nvmlDeviceGetCudaComputeCapability", func() (string, nvml.Return) {
		major, minor, ret := h.GetCudaComputeCapability()
		return fmt.Sprintf("%d.%d", major, minor), ret
	}); known {
		d.ComputeCapability = version
	}
	if cores, known := ask(r, "nvmlDeviceGetNumGpuCores", h.GetNumGpuCores); known && cores < math.MaxUint32 {
		d.Cores = cores
	}
	r.speed(&d, h)
	d.NVLinkPeers = r.peers(h)
	if errors, known := ask(r, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	}); known && errors < math.MaxUint64 {
		d.ECCErrors = &errors
	}
	if r.fault == nvml.SUCCESS && d.UUID != "" {
		d.XIDs = r.library.seen(d.UUID, h)
	}
	return d
}

// identity reads what a GPU and a MIG device have alike.
func (r *reader) identity(d *devices.Device, h nvml.Device) {
	d.Type = text(r, "nvmlDeviceGetName", h.GetName)
	d.UUID = text(r, "nvmlDeviceGetUUID", h.GetUUID)
	memory, known := ask(r, "nvmlDeviceGetMemoryInfo", h.GetMemoryInfo)
	if !known || memory.Total == math.MaxUint64 {
		return
	}
	d.MemoryBytes = memory.Total
	if memory.Free <= memory.Total {
		d.MemoryFreeBytes = &memory.Free
	}
}

// speed reads how fast a GPU runs, how fast it could, and why it does not.
func (r *reader) speed(d *devices.Device, h nvml.Device) {
	most := func(clock nvml.ClockType) float64 {
		mhz := scaled(r, "nvmlDeviceGetMaxClockInfo", 1, func() (uint32, nvml.Return) { return h.GetMaxClockInfo(clock) })
		if mhz == nil {
			return 0
		}
		return *mhz
	}
	d.SMClockMaxMHz, d.MemoryClockMaxMHz = most(nvml.CLOCK_SM), most(nvml.CLOCK_MEM)
	d.SMClockMHz = scaled(r, "nvmlDeviceGetClockInfo", 1, func() (uint32, nvml.Return) {
		return h.GetClockInfo(nvml.CLOCK_SM)
	})
	// The older name is that of drivers before 535.
	if set, known := ask(r, "nvmlDeviceGetCurrentClocksEventReasons", h.GetCurrentClocksEventReasons); known {
		d.Throttle = throttle(set)
	} else if set, known := ask(r, "nvmlDeviceGetCurrentClocksThrottleReasons", h.GetCurrentClocksThrottleReasons); known {
		d.Throttle = throttle(set)
	}
	const milli = 1e-3
	d.PowerWatts = scaled(r, "nvmlDeviceGetPowerUsage", milli, h.GetPowerUsage)
	d.PowerLimitWatts = scaled(r, "nvmlDeviceGetEnforcedPowerLimit", milli, h.GetEnforcedPowerLimit)
	d.TemperatureCelsius = scaled(r, "nvmlDeviceGetTemperature", 1, func() (uint32, nvml.Return) {
		return h.GetTemperature(nvml.TEMPERATURE_GPU)
	})
}

func (r *reader) pci(h nvml.Device) string {
	for _, function := range []string{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"} {
		if r.library.has(function) {
			info, _ := ask(r, function, h.GetPciInfo)
			return address(info)
		}
	}
	return ""
}

// address is a PCI address as text; empty where there is none.
func address(info nvml.PciInfo) string {
	var text strings.Builder
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		text.WriteByte(byte(c))
	}
	return plugin.Line(text.String())
}

// peers are the PCI addresses at the other ends of the NVLinks, each once.
func (r *reader) peers(h nvml.Device) (addresses []string) {
	if !r.library.has("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo") {
		return nil
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, known := ask(r, "nvmlDeviceGetNvLinkState", func() (nvml.EnableState, nvml.Return) {
			return h.GetNvLinkState(link)
		})
		if !known {
			return addresses // links are numbered without gaps
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		info, ret := h.GetNvLinkRemotePciInfo(link)
		if a := address(info); ret == nvml.SUCCESS && a != "" && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// migs reads the MIG devices of a GPU. Of clocks, power and temperature they have those of the whole GPU, which alone
// knows them.
func (r *reader) migs(gpu devices.Device, h nvml.Device) (found []devices.Device) {
	if !r.library.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	most, _ := ask(r, "nvmlDeviceGetMaxMigDeviceCount", h.GetMaxMigDeviceCount)
	for i := range min(most, maxMIGs) {
		part, ret := h.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // there is none of that number
		}
		d := gpu
		d.ID, d.Kind, d.Parent = fmt.Sprintf("%s:mig%d", gpu.ID, i), devices.MIG, gpu.UUID
		d.UUID, d.Cores, d.MemoryBytes, d.MemoryFreeBytes = "", 0, 0, nil
		r.identity(&d, part)
		found = append(found, d)
	}
	return found
}

const (
	maxMIGs     = 64   // that a GPU may have; today's have 7
	maxXIDs     = 16   // that are kept of a GPU
	eventMillis = 1000 // that one wait for an event takes at most
	eventRest   = 100 * time.Millisecond
)

// watch begins to collect the critical errors that the driver reports, if it can.
func (l *library) watch() {
	l.watched, l.xids = make(map[string]bool), make(map[string][]uint32)
	if !l.has("nvmlEventSetCreate") || !l.has("nvmlDeviceRegisterEvents") || !l.has("nvmlDeviceGetUUID") ||
		!l.has("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		return
	}
	events, ret := l.nvml.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	l.mu.Lock()
	l.events = events
	l.mu.Unlock()
	go func() {
		for {
			l.wait(events)
			time.Sleep(eventRest) // so that a flood of them costs little
		}
	}()
}

// wait takes the next event.
func (l *library) wait(events nvml.EventSet) {
	event, ret := events.Wait(eventMillis)
	if ret != nvml.SUCCESS {
		if ret != nvml.ERROR_TIMEOUT {
			time.Sleep(eventMillis * time.Millisecond) // not to spin on an error
		}
		return
	}
	uuid, ret := event.Device.GetUUID()
	if ret != nvml.SUCCESS || event.EventType != nvml.EventTypeXidCriticalError {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if xid := uint32(event.EventData); !slices.Contains(l.xids[uuid], xid) && len(l.xids[uuid]) < maxXIDs {
		l.xids[uuid] = append(l.xids[uuid], xid)
	}
}

// seen are the errors of a GPU so far. It is watched from the first time that it is asked for.
func (l *library) seen(uuid string, h nvml.Device) []uint32 {
	l.mu.Lock()
	events, watched := l.events, l.watched[uuid]
	l.watched[uuid] = true
	l.mu.Unlock()
	if events != nil && !watched {
		h.RegisterEvents(nvml.EventTypeXidCriticalError, events) // one that does not support it reports none
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.xids[uuid])
}
