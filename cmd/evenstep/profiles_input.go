package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/evenstep/evenstep/core/profile"
)

// profilesInput is profiles as import reads them.
type profilesInput struct {
	Version  given[whole]          `json:"version"`
	Profiles given[[]profileInput] `json:"profiles"`
}

type profileInput struct {
	Workload           string            `json:"workload"`
	Type               string            `json:"type"`
	Device             string            `json:"device"`
	Curve              given[curveInput] `json:"curve"`
	BatchSize          given[amount]     `json:"batch_size"`
	Sigma              given[amount]     `json:"sigma"`
	FixedShareSigma    given[amount]     `json:"fixed_share_sigma"`
	Spread             given[amount]     `json:"spread"`
	CommunicateSeconds amount            `json:"communicate_seconds"`
	MemoryPerSample    amount            `json:"memory_per_sample_bytes"`
	LargestBatch       given[amount]     `json:"largest_batch_size"`
	Steps              given[whole]      `json:"steps"`
	LastSeen           given[string]     `json:"last_seen"`
}

// entries fills in the defaults. The error names the field that is wrong.
func (in *profilesInput) entries(now time.Time) ([]profile.Entry, error) {
	switch {
	case !in.Version.set:
		return nil, fmt.Errorf("version: missing; give %d", profile.Version)
	case in.Version.value != profile.Version:
		return nil, fmt.Errorf("version: %d is unknown; this release reads %d", in.Version.value, profile.Version)
	case !in.Profiles.set:
		return nil, errors.New("profiles: missing; give an array, which may be empty")
	}
	seen := map[profile.Key]int{}
	entries := make([]profile.Entry, len(in.Profiles.value))
	for i := range entries {
		e, err := in.Profiles.value[i].entry(now)
		if err != nil {
			return nil, fmt.Errorf("profiles[%d].%w", i, err)
		}
		if first, twice := seen[e.Key]; twice {
			return nil, fmt.Errorf("profiles[%d]: the same workload, type and device as profiles[%d]", i, first)
		}
		seen[e.Key] = i
		entries[i] = e
	}
	return entries, nil
}

func (in *profileInput) entry(now time.Time) (profile.Entry, error) {
	switch {
	case !in.Curve.set:
		return profile.Entry{}, errors.New("curve: missing; give fixed_seconds and seconds_per_sample")
	case !in.Curve.value.SecondsPerSample.set:
		return profile.Entry{}, errors.New("curve.seconds_per_sample: missing")
	case in.Curve.value.FloorSeconds.set:
		return profile.Entry{}, errors.New("curve.floor_seconds: unknown field")
	case !in.BatchSize.set:
		return profile.Entry{}, errors.New("batch_size: missing; give the samples of the batches that were measured")
	}
	seen := now.UTC().Truncate(time.Second)
	if in.LastSeen.set {
		var err error
		if seen, err = time.Parse(time.RFC3339, in.LastSeen.value); err != nil {
			return profile.Entry{}, fmt.Errorf("last_seen: %.40q is not a time such as 2026-01-31T12:00:00Z",
				in.LastSeen.value)
		}
		// A profile of the future would stay for good.
		if seen.After(now) {
			return profile.Entry{}, fmt.Errorf("last_seen: %s is in the future", in.LastSeen.value)
		}
	}
	return profile.Record{
		Workload: in.Workload, Type: in.Type, Device: in.Device,
		Curve: profile.Curve{FixedSeconds: float64(in.Curve.value.FixedSeconds.value),
			SecondsPerSample: float64(in.Curve.value.SecondsPerSample.value)},
		BatchSize:          float64(in.BatchSize.value),
		Sigma:              float64(in.Sigma.or(0.05)),
		FixedShareSigma:    float64(in.FixedShareSigma.or(0.3)),
		Spread:             float64(in.Spread.or(0.05)),
		CommunicateSeconds: float64(in.CommunicateSeconds),
		MemoryPerSample:    float64(in.MemoryPerSample),
		LargestBatch:       float64(in.LargestBatch.or(in.BatchSize.value)),
		Steps:              int(in.Steps.or(1)),
		LastSeen:           seen.UTC(),
	}.Entry()
}
