package main

import (
	"bytes"
	"testing"
	"time"
)

// Whatever is imported, what is kept of it could be exported and imported again.
func FuzzProfilesImport(f *testing.F) {
	f.Add([]byte(`{"version":1,"profiles":[{"workload":"w","type":"v100","device":"GPU-1","batch_size":64,
		"curve":{"fixed_seconds":0.01,"seconds_per_sample":0.001},"last_seen":"2026-01-31T12:00:00Z","steps":9}]}`))
	f.Add([]byte(`{"version":1,"profiles":[{"workload":"w","type":"t","batch_size":1e-300,"curve":{"seconds_per_sample":1e300}}]}`))
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		var in profilesInput
		if err := readInput(nil, bytes.NewReader(data), &in); err != nil {
			return
		}
		entries, err := in.entries(now)
		if err != nil {
			return
		}
		for i, e := range entries {
			if _, err := e.Record().Entry(); err != nil {
				t.Errorf("profiles[%d]: %+v: %v", i, e, err)
			}
		}
	})
}
