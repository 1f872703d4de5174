package device

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evenstep/evenstep/plugin/devices"
)

func gpu(uuid, name string) devices.Device {
	return devices.Device{ID: uuid, Kind: devices.GPU, Type: name, UUID: uuid}
}

// shown is the inventory as UUID or UUID(why it may not be used).
func (v *inventory) shown() string {
	var texts []string
	for _, s := range v.all() {
		text := s.UUID
		if s.why != "" {
			text += "(" + s.why + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// A device that is missing for a moment stays; then it is not to be used; at last it is forgotten.
func TestADeviceThatIsMissing(t *testing.T) {
	var v inventory
	start := time.Unix(1e9, 0)
	a, b := gpu("a", "H200"), gpu("b", "H200")
	for i, c := range []struct {
		at   time.Duration
		sees []devices.Device
		want string
	}{
		{0, nil, ""},
		{0, []devices.Device{b, a}, "a b"},
		{time.Second, []devices.Device{a}, "a b"},
		{30 * time.Second, []devices.Device{a}, "a b"},
		{31 * time.Second, []devices.Device{a}, "a b(the agent does not see it; note)"},
		{32 * time.Second, []devices.Device{a, b}, "a b"},
		{33 * time.Second, nil, "a b"}, // a new absence has its own grace
		{62 * time.Second, nil, "a b"},
		{63 * time.Second, nil, "a(the agent does not see it; note) b(the agent does not see it; note)"},
		{time.Hour, []devices.Device{b}, "a(the agent does not see it; note) b"},
		{time.Hour + 33*time.Second, []devices.Device{b}, "b"},
	} {
		now := start.Add(c.at)
		v.learn(devices.Report{Devices: c.sees, Notes: []string{"note"}}, now)
		if got := v.shown(); got != c.want {
			t.Fatalf("%d: got %q, want %q", i, got, c.want)
		}
	}
}

func TestWhatCannotBeGivenToAJobIsNoDevice(t *testing.T) {
	var v inventory
	mig := devices.Device{ID: "gpu0:mig0", Kind: devices.MIG, Type: "H200 MIG 1g", UUID: "MIG-1", Parent: "GPU-1"}
	cpu := devices.Device{ID: "cpu", Kind: devices.CPU, Type: "EPYC", UUID: "x"}
	all := []devices.Device{mig, cpu, gpu("", "H200"), gpu("c", ""), gpu("d", "H200")}
	v.learn(devices.Report{Devices: all}, time.Time{})
	if got := v.shown(); got != "d MIG-1" {
		t.Errorf("got %q", got)
	}
	if got := fmt.Sprint(v.types()); got != "[H200 H200 MIG 1g]" {
		t.Errorf("got %s", got)
	}
}

// Nomad is told of each change of the reason, so there is one for as long as the device is missing.
func TestWhyADeviceIsMissingIsSaidOnce(t *testing.T) {
	var v inventory
	now := time.Unix(1e9, 0)
	v.learn(devices.Report{Devices: []devices.Device{gpu("a", "H200")}}, now)
	for i := range 100 {
		now = now.Add(time.Second)
		v.learn(devices.Report{Notes: []string{fmt.Sprint("try ", i)}}, now)
	}
	if got, want := v.shown(), "a(the agent does not see it; try 30)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What an agent said as it ended does not count for as long as it is away.
func TestADeviceIsNotMissingWhileThereAreNoReports(t *testing.T) {
	var v inventory
	now := time.Unix(1e9, 0)
	both := []devices.Device{gpu("a", "H200"), gpu("b", "H200")}
	v.learn(devices.Report{Devices: both}, now)
	v.learn(devices.Report{Devices: both[1:]}, now)
	v.learn(devices.Report{Devices: both[1:]}, now.Add(grace))
	v.learn(devices.Report{}, now.Add(grace))
	v.excuse()
	now = now.Add(30 * time.Minute)
	v.learn(devices.Report{}, now)
	if got, want := v.shown(), "a(the agent does not see it) b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	v.learn(devices.Report{}, now.Add(grace))
	if got, want := v.shown(), "a(the agent does not see it) b(the agent does not see it)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A GPU that is divided is no device any more, at once, and its parts are none when it is whole again: the same memory
// is given to one job.
func TestAGPUIsWholeOrDivided(t *testing.T) {
	var v inventory
	whole := []devices.Device{gpu("g", "H200"), gpu("other", "H200")}
	part := func(uuid string) devices.Device {
		return devices.Device{ID: uuid, Kind: devices.MIG, Type: "H200 MIG 1g", UUID: uuid, Parent: "g"}
	}
	for i, c := range []struct {
		sees []devices.Device
		want string
	}{
		{whole, "g other"},
		{nil, "g other"}, // that it is missing does not mean that it is divided
		{[]devices.Device{part("m"), part("n"), whole[1]}, "other m n"},
		{[]devices.Device{part("m"), whole[1]}, "other m n"},
		{whole, "g other"},
	} {
		if v.learn(devices.Report{Devices: c.sees}, time.Unix(1e9, 0)); v.shown() != c.want {
			t.Errorf("%d: got %q, want %q", i, v.shown(), c.want)
		}
	}
}

// MIG devices that are made anew all the time do not fill the memory.
func TestWhatIsGoneForGoodIsForgotten(t *testing.T) {
	var v inventory
	now := time.Unix(1e9, 0)
	for i := range 10000 {
		now = now.Add(time.Minute)
		v.learn(devices.Report{Devices: []devices.Device{gpu(fmt.Sprint(i), "H200")}}, now)
	}
	if len(v.seen) != 61 {
		t.Errorf("%d devices", len(v.seen))
	}
}
