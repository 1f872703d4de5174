package main

import (
	"bytes"
	"testing"
	"time"
)

// FuzzProfilesImport lets whatever is imported be refused, or be valid and the same when it is exported and imported again.
func FuzzProfilesImport(f *testing.F) {
	f.Add([]byte(`{"version":1,"profiles":[{"workload":"w","type":"t","curve":{"seconds_per_sample":1},"batch_size":8}]}`))
	f.Add([]byte(`{"version":1,"profiles":[{"workload":"w","type":"t","device":"d","curve":{"fixed_seconds":1e300,` +
		`"seconds_per_sample":1e-300},"batch_size":1e12,"steps":1e15,"last_seen":"0000-01-01T00:00:00Z","sigma":1}]}`))
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		var in profilesInput
		if readInput(nil, bytes.NewReader(data), &in) != nil {
			return
		}
		entries, err := in.entries(now)
		if err != nil {
			return
		}
		for _, e := range entries {
			again, err := e.Record().Entry()
			if err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
			if a, b := e.Record(), again.Record(); a != b {
				t.Fatalf("%+v was exported, %+v the second time", a, b)
			}
		}
	})
}
