package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenstep/evenstep/plugin/devices"
)

// nvmlPlugin builds evenstep-devices-nvml into a folder, with cgo or without.
func nvmlPlugin(t *testing.T, cgo string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "evenstep-devices-nvml"), "../evenstep-devices-nvml")
	build.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

// nvmlDevices runs evenstep devices with the plugin of the folder, which loads the library.
func nvmlDevices(t *testing.T, folder, library string) nodeReport {
	t.Helper()
	// What hangs does so for a minute.
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "evenstep", "devices", "--plugin-dir", folder, "--output", "json")
	cmd.Env = append(os.Environ(), "EVENSTEP_NVML_LIBRARY="+library)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r nodeReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// stub builds a stand-in for libnvidia-ml.so, which go-nvml loads.
func stub(t *testing.T, how ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	source := "../../plugin/devices/nvml/testdata/stub.c"
	gcc := exec.Command("gcc", append(how, "-shared", "-fPIC", "-o", path, source)...)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func TestDevicesOfALibrary(t *testing.T) {
	r := nvmlDevices(t, nvmlPlugin(t, "1"), stub(t))
	if len(r.Devices) != 3 || r.Devices[2].ID != "cpu" {
		t.Fatalf("got %+v", r)
	}
	const gib = 1 << 30
	want := []devices.Device{
		{ID: "gpu0", Kind: devices.GPU, Type: "NVIDIA H200", UUID: "GPU-h200", MemoryBytes: 141 * gib,
			MemoryFreeBytes: some[uint64](140 * gib), SMClockMHz: some(1410.0), SMClockMaxMHz: 1980, MemoryClockMaxMHz: 3201,
			Throttle: []string{"SW power cap"}, PowerWatts: some(699.5)},
		{ID: "gpu1", Kind: devices.GPU, Type: "NVIDIA A30", UUID: "GPU-a30", MemoryBytes: 24 * gib,
			MemoryFreeBytes: some[uint64](23 * gib), SMClockMHz: some(1440.0), SMClockMaxMHz: 1440, MemoryClockMaxMHz: 3201},
	}
	if diff := cmp.Diff(want, r.Devices[:2]); diff != "" {
		t.Error(diff)
	}
	notes := []string{"gpu2: the GPU is lost: it has fallen off the bus", "gpu3: the driver does not answer for it"}
	if !slices.Equal(r.Notes, notes) {
		t.Errorf("got %q", r.Notes)
	}
}

// Whatever is wrong with the driver, evenstep devices shows the rest, says why, and exits 0.
func TestDevicesWithoutAGPU(t *testing.T) {
	with, without := nvmlPlugin(t, "1"), nvmlPlugin(t, "0")
	for name, c := range map[string]struct {
		folder  string
		library string
		want    string
	}{
		"no driver":            {with, "", "there is no NVIDIA driver: libnvidia-ml.so.1 is not installed"},
		"no such library":      {with, "/no/library", "the library /no/library cannot be loaded"},
		"a library that hangs": {with, stub(t, "-DHANGS"), "the NVIDIA driver does not answer"},
		"one that crashes":     {with, stub(t, "-DCRASHES"), "devices plugin nvml failed: its process died"},
		"built without cgo":    {without, "", "evenstep-devices-nvml was built without cgo"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/dev/nvidiactl"); err == nil && name == "no driver" {
				t.Skip("there is one here")
			}
			r := nvmlDevices(t, c.folder, c.library)
			if len(r.Devices) != 1 || r.Devices[0].ID != "cpu" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], c.want) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestTheVersionIsThatOfTheOtherBinaries(t *testing.T) {
	for _, name := range []string{"evenstep-devices-nvml", "evenstep-device"} {
		source, err := os.ReadFile("../" + name + "/main.go")
		if err != nil {
			t.Fatal(err)
		}
		if want := "\nconst version = \"" + version + "\"\n"; !strings.Contains(string(source), want) {
			t.Errorf("not %s in cmd/%s", strings.TrimSpace(want), name)
		}
	}
}
