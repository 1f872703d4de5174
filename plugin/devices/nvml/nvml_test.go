package nvml

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenstep/evenstep/plugin/devices"
)

// scripted is a driver that answers by functions.
type scripted struct {
	gpus  func() (int, error)
	gpu   func(index int) ([]devices.Device, error)
	reads atomic.Int32
}

func (s *scripted) count() (int, error) { return s.gpus() }

func (s *scripted) read(index int) ([]devices.Device, error) {
	s.reads.Add(1)
	return s.gpu(index)
}

func probe(t *testing.T, p *Prober) devices.Report {
	t.Helper()
	r, err := p.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return r
}

func ids(r devices.Report) (ids []string) {
	for _, d := range r.Devices {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestAGPUThatHangsKeepsNobodyFromReadingTheOthers(t *testing.T) {
	release := make(chan struct{})
	s := &scripted{
		gpus: func() (int, error) { return 4, nil },
		gpu: func(index int) ([]devices.Device, error) {
			switch index {
			case 1:
				<-release
			case 2:
				return nil, errors.New("the GPU is lost")
			}
			return []devices.Device{{ID: string(rune('a' + index)), Kind: devices.GPU}}, nil
		},
	}
	p := &Prober{driver: s, patience: 50 * time.Millisecond}
	want := []string{"gpu1: the driver does not answer for it", "gpu2: the GPU is lost"}
	for range 3 {
		r := probe(t, p)
		if !slices.Equal(ids(r), []string{"a", "d"}) || !slices.Equal(r.Notes, want) {
			t.Fatalf("got %+v", r)
		}
	}
	if n := s.reads.Load(); n != 10 {
		t.Errorf("%d reads; the one that hangs was made again", n)
	}
	close(release)
	for range 1000 {
		if r := probe(t, p); slices.Equal(ids(r), []string{"a", "b", "d"}) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the GPU that hung never comes back")
}

func TestADriverThatCannotBeAsked(t *testing.T) {
	forever := make(chan struct{})
	missing := errors.New("there is no NVIDIA driver")
	for name, c := range map[string]struct {
		gpus func() (int, error)
		want string
	}{
		"none":  {func() (int, error) { return 0, missing }, "no NVIDIA GPUs: there is no NVIDIA driver"},
		"empty": {func() (int, error) { return 0, nil }, "no NVIDIA GPUs: the driver has none"},
		"hangs": {func() (int, error) { <-forever; return 0, nil }, "the NVIDIA driver does not answer"},
	} {
		p := &Prober{driver: &scripted{gpus: c.gpus}, patience: 50 * time.Millisecond}
		for range 2 {
			if diff := cmp.Diff(devices.Report{Notes: []string{c.want}}, probe(t, p)); diff != "" {
				t.Error(name, diff)
			}
		}
	}
}

func TestThrottleReasonsInWords(t *testing.T) {
	for set, want := range map[uint64][]string{
		0:             nil,
		1:             nil, // nothing runs
		0x4 | 1:       {"SW power cap"},
		0x8 | 0x40:    {"HW slowdown", "HW thermal slowdown"},
		1<<63 | 0x400: {"reliability limit", "reason 0x8000000000000000"},
	} {
		if got := throttle(set); !slices.Equal(got, want) {
			t.Errorf("%#x: got %q, want %q", set, got, want)
		}
	}
}

func TestMoreGPUsThanThereAre(t *testing.T) {
	s := &scripted{
		gpus: func() (int, error) { return math.MaxUint32, nil },
		gpu:  func(index int) ([]devices.Device, error) { return nil, errors.New("there is none") },
	}
	r := probe(t, &Prober{driver: s, patience: time.Minute})
	last := "the driver speaks of 4294967295 GPUs; the first 128 are shown"
	if len(r.Notes) != maxGPUs+1 || r.Notes[maxGPUs] != last || s.reads.Load() != maxGPUs {
		t.Errorf("%d notes, %d reads: %q", len(r.Notes), s.reads.Load(), r.Notes[len(r.Notes)-1])
	}
}
