// Package nvml is the prober of NVIDIA GPUs. It runs as a plugin, in a process of its own: the driver's library needs
// cgo, and a call of it may hang or end the process.
//
// A GPU that hangs or is lost is one that the notes name; the others are reported. What the driver does not support is
// not known.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evenstep/evenstep/plugin/devices"
)

// patience bounds the wait for the driver: once for the number of GPUs and once for all of them.
const patience = 1500 * time.Millisecond

// maxGPUs bounds how many GPUs are asked, whatever the driver says that there are.
const maxGPUs = 128

// driver is what the prober asks of NVML. Each call may hang. Calls about different GPUs come at the same time.
type driver interface {
	// count loads the driver's library, if that is not done, and counts the GPUs.
	count() (int, error)
	// read reads one GPU: itself, or the MIG devices that it is divided into, which may be none.
	read(index int) ([]devices.Device, error)
}

// Prober asks the driver.
type Prober struct {
	driver   driver
	patience time.Duration

	mu    sync.Mutex
	count call[int]
	gpus  []*call[[]devices.Device]
}

// New returns a prober that loads the library at the path, or the driver's own if that is empty.
func New(library string) *Prober { return &Prober{driver: newDriver(library), patience: patience} }

// Probe reads all GPUs at the same time. It fails never, and takes twice the patience at most.
func (p *Prober) Probe(context.Context) (devices.Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count, err := p.count.ask(time.After(p.patience), p.driver.count)
	switch {
	case errors.Is(err, errHangs):
		return note("the NVIDIA driver does not answer"), nil
	case err != nil:
		return note("no NVIDIA GPUs: %v", err), nil
	case count == 0:
		return note("no NVIDIA GPUs: the driver has none"), nil
	}
	for len(p.gpus) < min(count, maxGPUs) {
		p.gpus = append(p.gpus, new(call[[]devices.Device]))
	}
	r := p.read(min(count, maxGPUs))
	if count > maxGPUs {
		r.Notes = append(r.Notes, fmt.Sprintf("the driver speaks of %d GPUs; the first %d are shown", count, maxGPUs))
	}
	return r, nil
}

func note(format string, args ...any) devices.Report {
	return devices.Report{Notes: []string{fmt.Sprintf(format, args...)}}
}

// read reads the first GPUs, count of them.
func (p *Prober) read(count int) (r devices.Report) {
	found := make([][]devices.Device, count)
	failures := make([]error, count)
	var asked sync.WaitGroup
	for i := range count {
		late := time.After(p.patience)
		asked.Go(func() {
			found[i], failures[i] = p.gpus[i].ask(late, func() ([]devices.Device, error) { return p.driver.read(i) })
		})
	}
	asked.Wait()
	for i, err := range failures {
		switch {
		case err != nil:
			r.Notes = append(r.Notes, fmt.Sprintf("gpu%d: %v", i, err))
		case len(found[i]) == 0:
			r.Notes = append(r.Notes, fmt.Sprintf("gpu%d: it is in MIG mode and has no MIG devices", i))
		}
		r.Devices = append(r.Devices, found[i]...)
	}
	return r
}

// errHangs says that the driver has not answered yet.
var errHangs = errors.New("the driver does not answer for it")

// call is a call of the driver that may hang. Then nobody waits for it again, and it is not made again before it has
// come back.
type call[T any] struct{ pending chan result[T] }

type result[T any] struct {
	value T
	err   error
}

// ask makes the call and waits for the result, or until it is late.
func (c *call[T]) ask(late <-chan time.Time, make_ func() (T, error)) (value T, err error) {
	if c.pending != nil {
		select {
		case <-c.pending: // what it says is old
		default:
			return value, errHangs
		}
	}
	pending := make(chan result[T], 1)
	c.pending = pending
	go func() {
		value, err := make_()
		pending <- result[T]{value, err}
	}()
	select {
	case r := <-pending:
		c.pending = nil
		return r.value, r.err
	case <-late:
		return value, errHangs
	}
}

// reasons are NVML's reasons to run slower than it could, in words, by bit. That nothing runs is no such reason.
var reasons = []string{
	"", "application clocks setting", "SW power cap", "HW slowdown", "sync boost", "SW thermal slowdown",
	"HW thermal slowdown", "HW power brake", "display clocks setting", "board limit", "reliability limit",
}

// throttle says a set of reasons in words.
func throttle(set uint64) (words []string) {
	for bit := range 64 {
		switch {
		case set&(1<<bit) == 0:
		case bit >= len(reasons):
			words = append(words, fmt.Sprintf("reason %#x", uint64(1)<<bit))
		case reasons[bit] != "":
			words = append(words, reasons[bit])
		}
	}
	return words
}
