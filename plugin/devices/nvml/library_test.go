//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/evenstep/evenstep/plugin/devices"
)

// node is go-nvml's mock of a node with unlike GPUs, and what a driver says of their state. What it leaves open a GPU
// does not support.
func node(t *testing.T, configs ...gpus.Config) (*server.Server, *library) {
	t.Helper()
	s, err := server.New(server.WithGPUs(configs...))
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Devices {
		d := gpu(s, i)
		number := func(n uint32, ret nvml.Return) func() (uint32, nvml.Return) {
			return func() (uint32, nvml.Return) { return n, ret }
		}
		d.UUID = "GPU-" + string(rune('0'+i))
		d.GetPciInfoFunc = func() (info nvml.PciInfo, ret nvml.Return) {
			write(info.BusId[:], d.PciBusID)
			return info, nvml.SUCCESS
		}
		d.GetNumGpuCoresFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetPowerUsageFunc = number(0, nvml.ERROR_NOT_SUPPORTED)
		d.GetEnforcedPowerLimitFunc = number(0, nvml.ERROR_NO_PERMISSION)
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
	}
	s.LookupSymbolFunc = func(name string) error {
		if name == "nvmlEventSetCreate" {
			return nvml.ERROR_FUNCTION_NOT_FOUND
		}
		return nil
	}
	return s, &library{nvml: s}
}

func gpu(s *server.Server, i int) *server.Device { return s.Devices[i].(*server.Device) }

func some[T any](value T) *T { return &value }

// write fills C's characters, which are signed on some machines.
func write[T int8 | uint8](to []T, text string) {
	for i := range text {
		to[i] = T(text[i])
	}
}

// seen are the devices that a probe reports.
func seen(t *testing.T, l *library) devices.Report {
	t.Helper()
	return probe(t, &Prober{driver: l, patience: time.Minute})
}

func TestAMixedNode(t *testing.T) {
	s, l := node(t, gpus.H200_SXM5_141GB, gpus.A30_PCIE_24GB)
	h200 := gpu(s, 0)
	h200.MemoryInfo.Free = 7
	h200.GetNumGpuCoresFunc = func() (int, nvml.Return) { return 16896, nvml.SUCCESS }
	h200.GetMaxClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
		return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1980, nvml.CLOCK_MEM: 3201}[c], nvml.SUCCESS
	}
	h200.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
		return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1410}[c], nvml.SUCCESS
	}
	h200.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return 0x24, nvml.SUCCESS }
	h200.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 699500, nvml.SUCCESS }
	h200.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 700000, nvml.SUCCESS }
	h200.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 71, nvml.SUCCESS }
	h200.GetTotalEccErrorsFunc = func(e nvml.MemoryErrorType, c nvml.EccCounterType) (uint64, nvml.Return) {
		return 3, nvml.SUCCESS
	}
	h200.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		switch {
		case link == 1:
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		case link < 5:
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	h200.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
		var info nvml.PciInfo
		write(info.BusId[:], "00000000:0"+string(rune('0'+link/3))+":00.0")
		return info, nvml.SUCCESS
	}
	a30 := gpu(s, 1)
	a30.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0x80, nvml.SUCCESS } // an old driver
	want := devices.Report{Devices: []devices.Device{
		{ID: "gpu0", Kind: devices.GPU, Type: gpus.H200_SXM5_141GB.Name, UUID: "GPU-0", PCI: "0000:00:00.0", Cores: 16896,
			MemoryBytes: gpus.H200_SXM5_141GB.MemoryMB << 20, MemoryFreeBytes: some[uint64](7), ComputeCapability: "9.0",
			NVLinkPeers: []string{"00000000:00:00.0", "00000000:01:00.0"}, SMClockMHz: some(1410.0), SMClockMaxMHz: 1980,
			MemoryClockMaxMHz: 3201, Throttle: []string{"SW power cap", "SW thermal slowdown"}, PowerWatts: some(699.5),
			PowerLimitWatts: some(700.0), TemperatureCelsius: some(71.0), ECCErrors: some[uint64](3)},
		{ID: "gpu1", Kind: devices.GPU, Type: gpus.A30_PCIE_24GB.Name, UUID: "GPU-1", PCI: "0000:01:00.0",
			MemoryBytes: gpus.A30_PCIE_24GB.MemoryMB << 20, MemoryFreeBytes: some[uint64](0), ComputeCapability: "8.0",
			Throttle: []string{"HW power brake"}},
	}}
	if diff := cmp.Diff(want, seen(t, l)); diff != "" {
		t.Error(diff)
	}
}

func TestMIGDevicesAreDevicesOfTheirOwn(t *testing.T) {
	s, l := node(t, gpus.A100_PCIE_40GB, gpus.A30_PCIE_24GB)
	a100 := gpu(s, 0)
	a100.MigMode = nvml.DEVICE_MIG_ENABLE
	a100.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 40, nvml.SUCCESS }
	a100.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	a100.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 0 && i != 3 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetNameFunc: func() (string, nvml.Return) { return "NVIDIA A100-PCIE-40GB MIG 1g.5gb", nvml.SUCCESS },
			GetUUIDFunc: func() (string, nvml.Return) { return "MIG-" + string(rune('0'+i)), nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: 5 << 30, Free: 4 << 30}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	r := seen(t, l)
	if got := ids(r); !slices.Equal(got, []string{"gpu0:mig0", "gpu0:mig3", "gpu1"}) {
		t.Fatalf("got %q", got)
	}
	want := devices.Device{ID: "gpu0:mig3", Kind: devices.MIG, Type: "NVIDIA A100-PCIE-40GB MIG 1g.5gb", UUID: "MIG-3",
		Parent: "GPU-0", PCI: "0000:00:00.0", MemoryBytes: 5 << 30, MemoryFreeBytes: some[uint64](4 << 30),
		ComputeCapability: "8.0", TemperatureCelsius: some(40.0)}
	if diff := cmp.Diff(want, r.Devices[1]); diff != "" {
		t.Error(diff)
	}
}

func TestALostGPU(t *testing.T) {
	s, l := node(t, gpus.A30_PCIE_24GB, gpus.A30_PCIE_24GB, gpus.A30_PCIE_24GB)
	gpu(s, 0).GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
	asked := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 1 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return asked(i)
	}
	r := seen(t, l)
	lost := "the GPU is lost: it has fallen off the bus"
	if !slices.Equal(ids(r), []string{"gpu2"}) || !slices.Equal(r.Notes, []string{"gpu0: " + lost, "gpu1: " + lost}) {
		t.Errorf("got %+v", r)
	}
}

func TestFunctionsThatAnOldDriverHasNotAreNotCalled(t *testing.T) {
	s, l := node(t, gpus.A30_PCIE_24GB)
	s.LookupSymbolFunc = func(name string) error {
		if name == "nvmlDeviceGetName" {
			return nil
		}
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	gpu(s, 0).GetMigModeFunc = nil // would panic
	gpu(s, 0).GetUUIDFunc = nil
	want := []devices.Device{{ID: "gpu0", Kind: devices.GPU, Type: gpus.A30_PCIE_24GB.Name}}
	if diff := cmp.Diff(want, seen(t, l).Devices); diff != "" {
		t.Error(diff)
	}
}

func TestErrorsOfTheDriverAreKept(t *testing.T) {
	s, l := node(t, gpus.A30_PCIE_24GB, gpus.H100_SXM5_80GB)
	s.LookupSymbolFunc = func(string) error { return nil }
	events := make(chan nvml.EventData)
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: func(uint32) (nvml.EventData, nvml.Return) { return <-events, nvml.SUCCESS }}, nvml.SUCCESS
	}
	registered := 0
	for i := range s.Devices {
		gpu(s, i).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return {
			registered++
			return nvml.SUCCESS
		}
		gpu(s, i).GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	}
	p := &Prober{driver: l, patience: time.Minute}
	probe(t, p)
	for _, code := range []uint64{79, 48, 79} {
		events <- nvml.EventData{Device: s.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: code}
	}
	events <- nvml.EventData{Device: s.Devices[1], EventType: nvml.EventTypeClock, EventData: 1}
	r := probe(t, p)
	if r.Devices[0].XIDs != nil || !slices.Equal(r.Devices[1].XIDs, []uint32{79, 48}) {
		t.Errorf("got %v and %v", r.Devices[0].XIDs, r.Devices[1].XIDs)
	}
	if registered != 2 {
		t.Errorf("%d registered", registered)
	}
}

func TestWhyTheLibraryDoesNotWork(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND: "there is no NVIDIA driver: libnvidia-ml.so.1 is not installed",
		nvml.ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
		nvml.ERROR_UNKNOWN:           "the NVIDIA driver answers with error 999",
	} {
		s, l := node(t)
		s.InitFunc = func() nvml.Return { return ret }
		if got := seen(t, l).Notes; !slices.Equal(got, []string{"no NVIDIA GPUs: " + want}) {
			t.Errorf("got %q", got)
		}
	}
	r := probe(t, New("/no/such/library"))
	if want := "no NVIDIA GPUs: the library /no/such/library cannot be loaded"; !slices.Equal(r.Notes, []string{want}) {
		t.Errorf("got %q", r.Notes)
	}
}

// Whatever bytes and numbers a driver gives, what comes of them is a report, in which nonsense is not known.
func TestWhatADriverSaysIsNotBelieved(t *testing.T) {
	s, l := node(t, gpus.A30_PCIE_24GB, gpus.A30_PCIE_24GB)
	odd := gpu(s, 0)
	odd.GetNameFunc = func() (string, nvml.Return) { return " NVIDIA\x1b[31m\u00a0A30\xff\n", nvml.SUCCESS }
	odd.GetUUIDFunc = func() (string, nvml.Return) { return "GPU-\x00", nvml.SUCCESS }
	odd.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 1 << 30, Free: math.MaxUint64}, nvml.SUCCESS
	}
	odd.GetNumGpuCoresFunc = func() (int, nvml.Return) { return math.MaxUint32, nvml.SUCCESS }
	odd.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return math.MaxUint32, nvml.SUCCESS }
	odd.GetPowerUsageFunc = func() (uint32, nvml.Return) { return math.MaxUint32, nvml.SUCCESS }
	odd.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return math.MaxUint64, nvml.SUCCESS
	}
	// A call that fails may leave anything behind.
	odd.GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1980, nvml.ERROR_NOT_SUPPORTED }
	gpu(s, 1).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: math.MaxUint64, Free: math.MaxUint64}, nvml.SUCCESS
	}
	r := seen(t, l)
	want := devices.Device{ID: "gpu0", Kind: devices.GPU, Type: "NVIDIA [31m A30", UUID: "GPU-", PCI: "0000:00:00.0",
		MemoryBytes: 1 << 30, ComputeCapability: "8.0"}
	if diff := cmp.Diff(want, r.Devices[0]); diff != "" {
		t.Error(diff)
	}
	if r.Devices[1].MemoryBytes != 0 || r.Devices[1].MemoryFreeBytes != nil {
		t.Errorf("got %+v", r.Devices[1])
	}
}

func TestAGPUInMIGModeWithoutMIGDevicesIsNamed(t *testing.T) {
	s, l := node(t, gpus.A100_PCIE_40GB)
	gpu(s, 0).MigMode = nvml.DEVICE_MIG_ENABLE
	gpu(s, 0).GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return math.MaxUint32, nvml.SUCCESS }
	gpu(s, 0).GetMigDeviceHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_NOT_FOUND }
	r := seen(t, l)
	if want := "gpu0: it is in MIG mode and has no MIG devices"; len(r.Devices) > 0 || !slices.Equal(r.Notes, []string{want}) {
		t.Errorf("got %+v", r)
	}
}
