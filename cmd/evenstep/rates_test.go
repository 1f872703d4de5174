package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/identity"
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
		got := ratesBy(t, &ratesFlags{profiles: path})
		if want := (reconcile.Rate{SamplesPerSecond: 100, Source: "profile"}); len(got) != 1 || got["fast"] != want {
			t.Errorf("%s: %v", filepath.Base(path), got)
		}
	}
}

// ratesBy are the rates of workload w on two types of devices, by the flags.
func ratesBy(t *testing.T, f *ratesFlags) map[string]reconcile.Rate {
	t.Helper()
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	rates, done, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	got, err := rates.Rates("w", []string{"fast", "slow"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// While a core holds the file, the controller asks it, over mutual TLS or through the node's agent as root; a user may not.
func TestRatesOfACoreThatHoldsTheProfiles(t *testing.T) {
	c := startClusterWith(t, func(profiles string) {
		keeper, err := profile.Hold(profiles, time.Second, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		keeper.Record("w", cluster.Device{Type: "fast"}, profile.Sighting{
			Curve: speed.Learned{Samples: 10, Seconds: 0.1, Sigma: 0.1}, LargestBatch: 10, Steps: 20})
		if err := keeper.Close(); err != nil {
			t.Fatal(err)
		}
	})
	controller := identity.Files{Certificate: filepath.Join(c.keys, "controller.pem"), Key: filepath.Join(c.keys, "controller.key"),
		Authorities: filepath.Join(c.keys, "ca.pem")}
	for name, f := range map[string]coreFlags{
		"a controller": {core: c.target, tls: controller}, "root of a node": {core: c.socket}, "who runs it": {core: c.own},
	} {
		got := ratesBy(t, &ratesFlags{coreFlags: f})
		if want := (reconcile.Rate{SamplesPerSecond: 100, Source: "profile"}); len(got) != 1 || got["fast"] != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	startTrainer(t, userA, c.programs, c.socket, "rates").says("PermissionDenied")
}

func TestRatesOfACoreThatIsAway(t *testing.T) {
	rates, done, err := (&ratesFlags{coreFlags: coreFlags{core: "unix:" + filepath.Join(t.TempDir(), "none")}}).open()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	core := rates.(*coreRates)
	if _, err := core.Rates("w", []string{"fast"}); err == nil || !strings.Contains(err.Error(), "none: ") {
		t.Errorf("got %v", err)
	}
	// The next job of the round does not wait as long again.
	failed := core.failed
	if _, err := core.Rates("w", []string{"fast"}); err != failed {
		t.Errorf("got %v, want what it said before", err)
	}
}

func TestRatesOfATableThatIsNotThere(t *testing.T) {
	if _, _, err := (&ratesFlags{profiles: "/nope.json"}).open(); err == nil || !strings.Contains(err.Error(), "--profiles: ") {
		t.Errorf("got %v", err)
	}
}

func TestRatesNeedOneSource(t *testing.T) {
	for _, c := range []struct {
		flags ratesFlags
		want  string
	}{
		{ratesFlags{}, "--profiles: missing"},
		{ratesFlags{profiles: "f", coreFlags: coreFlags{core: "unix:/c"}}, "--profiles: contradicts --core"},
		{ratesFlags{profiles: "f", coreFlags: coreFlags{tls: identity.Files{Certificate: "c"}}}, "they are for --core"},
	} {
		if err := c.flags.check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
