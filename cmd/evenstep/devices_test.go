package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/evenstep/evenstep/plugin/devices"
)

func some[T any](value T) *T { return &value }

func TestDevicesForPeople(t *testing.T) {
	const gib = 1 << 30
	got := nodeReport{
		Node: "n1",
		Devices: []devices.Device{
			{ID: "gpu0", Kind: devices.GPU, Type: "NVIDIA H200", MemoryBytes: 140 * gib, MemoryFreeBytes: some[uint64](35 * gib),
				SMClockMHz: some(1410.0), SMClockMaxMHz: 1980, PowerWatts: some(699.7), PowerLimitWatts: some(700.0),
				TemperatureCelsius: some(71.0), Throttle: []string{"SW power cap", "HW slowdown"}},
			{ID: "gpu1", Kind: devices.GPU, Type: "evil\n\x1b[31m", SMClockMaxMHz: 875, PowerWatts: some(9.0)},
			{ID: "cpu", Kind: devices.CPU, Cores: 2, QuotaCores: 1.5, CoresAvailable: some(0.25), MemoryBytes: gib},
			{ID: "cpu2", Kind: devices.CPU, Cores: 12},
		},
		Notes: []string{"no more"},
	}.text()
	const want = `n1
  gpu0  gpu  NVIDIA H200  35.0 of 140.0 GiB free  1,410 of 1,980 MHz      700 of 700 W, 71 °C  SW power cap, HW slowdown
  gpu1  gpu  evil  [31m   -                       up to 875 MHz           9 W                  -
  cpu   cpu  -            1.0 GiB                 0.25 of 1.5 cores free  -                    -
  cpu2  cpu  -            -                       12 cores                -                    -
  note: no more
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestInPlace(t *testing.T) {
	const want = "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J"
	if got := inPlace("a\nb\n", false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := inPlace("a\nb\n", true); got != "\x1b[2J"+want {
		t.Errorf("got %q", got)
	}
}

func TestDevicesLooksAgainUntilToldToEnd(t *testing.T) {
	cmd := exec.Command("evenstep", "devices", "--watch=10ms", "--output", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	node, _ := os.Hostname()
	for range 2 {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		var r nodeReport
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Node != node || len(r.Devices) != 1 ||
			r.Devices[0].ID != "cpu" || len(r.Notes) == 0 {
			t.Errorf("got %s, %v", lines.Bytes(), err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v: %s", err, stderr.String())
	}
}
