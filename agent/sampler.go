// Package agent is what runs once per node, for all workers on it: it samples the node's devices and serves what it
// saw.
//
// A worker asks the agent instead of the devices: a driver that hangs keeps a sample from getting newer, and nobody
// from training. Where a core serves the whole cluster, the agent also passes on what workers say to it, and says for whom.
package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/evenstep/evenstep/plugin/devices"
)

const (
	interval = time.Second // between two samples
	// fresh is how old a sample may be and still say how a device is now. A plugin that hangs is given up before.
	fresh = 10 * time.Second
)

// Sampler is a prober that looks at regular intervals, and answers with what it saw last.
type Sampler struct {
	prober devices.Prober
	now    func() time.Time

	mu   sync.Mutex
	last devices.Report
	at   time.Time // of the last look that succeeded; zero before
}

// NewSampler returns a sampler that has not looked yet; see Run.
func NewSampler(p devices.Prober) *Sampler { return &Sampler{prober: p, now: time.Now} }

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		began := s.now()
		if r, err := s.prober.Probe(ctx); err == nil {
			s.mu.Lock()
			s.last, s.at = r, began
			s.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// Probe answers at once with the last sample; an error where there is none that is fresh.
func (s *Sampler) Probe(context.Context) (devices.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || s.now().Sub(s.at) > fresh {
		return devices.Report{}, errors.New("no sample of the devices yet")
	}
	return s.last, nil
}
