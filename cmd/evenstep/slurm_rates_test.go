package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/speed"
)

// The controller plans with a table of an administrator's and with what jobs have shown alike.
func TestRatesOfBothKindsOfFile(t *testing.T) {
	table := filepath.Join(t.TempDir(), "rates.json")
	if err := os.WriteFile(table, []byte(`{"w":{"fast":100,"idle":0},"v":{"fast":5}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := filepath.Join(t.TempDir(), "profiles.db")
	keeper, err := profile.Hold(shown, time.Second, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	keeper.Record("w", cluster.Device{Type: "fast"}, profile.Sighting{
		Curve: speed.Learned{Samples: 10, Seconds: 0.1, Sigma: 0.1}, LargestBatch: 10, Steps: 20})
	if err := keeper.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{table, shown} {
		got, err := ratesOf(path).Rates("w", []string{"fast", "slow"})
		if want := (reconcile.Rate{SamplesPerSecond: 100, Source: "profile"}); err != nil || len(got) != 1 || got["fast"] != want {
			t.Errorf("%s: %v, %v", filepath.Base(path), got, err)
		}
	}
}
