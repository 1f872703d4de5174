package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/speed"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// askedRates are the rates, as WORKLOAD/TYPE=RATE(SOURCE).
func askedRates(t *testing.T, b *Balancer, workload string, types ...string) (said []string) {
	t.Helper()
	r, err := b.Rates(context.Background(), &evenstepv1.RatesRequest{Workload: workload, Types: types})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range r.GetRates() {
		if r.GetLow() > r.GetSamplesPerSecond() || r.GetHigh() < r.GetSamplesPerSecond() {
			t.Errorf("%v is not within its bar", r)
		}
		said = append(said, fmt.Sprintf("%s/%s=%.0f(%s)", r.GetWorkload(), r.GetType(), r.GetSamplesPerSecond(), r.GetSource()))
	}
	return said
}

func TestRatesOfWorkloads(t *testing.T) {
	now := time.Unix(1e9, 0)
	book := profile.NewBook(func() time.Time { return now })
	for _, r := range []struct {
		workload, on string
		rate         float64
	}{{"old", "Tesla V100-SXM2-16GB", 400}, {"new", "Tesla V100-SXM2-16GB", 200}, {"elsewhere", "Tesla K80", 30}} {
		now = now.Add(time.Hour)
		book.Record(r.workload, cluster.Device{Type: r.on}, profile.Sighting{
			Curve: speed.Learned{Samples: 10, Seconds: 10 / r.rate, Sigma: 0.1}, LargestBatch: 10, Steps: 20})
	}
	b := NewBalancer("test", realPolicies, hclog.NewNullLogger())
	if got := askedRates(t, b, "new", "Tesla K80"); len(got) != 0 {
		t.Errorf("without profiles: %q", got)
	}
	b.Profiles = book
	got := askedRates(t, b, "new", "Tesla K80", "Tesla V100-SXM2-16GB", "unheard of")
	if len(got) != 2 || !strings.HasSuffix(got[0], "(estimate)") || got[1] != "new/Tesla V100-SXM2-16GB=200(profile)" {
		t.Errorf("one workload: %q", got)
	}
	want := []string{"new/Tesla V100-SXM2-16GB=200(profile)", "old/Tesla V100-SXM2-16GB=400(profile)"}
	if got := askedRates(t, b, "", "Tesla V100-SXM2-16GB"); !slices.Equal(got, want) {
		t.Errorf("all workloads: %q, want %q", got, want)
	}
	if got := askedRates(t, b, "never-seen", "Tesla K80"); len(got) != 0 {
		t.Errorf("a workload that was never seen: %q", got)
	}
}

func TestRatesRefuse(t *testing.T) {
	b := NewBalancer("test", realPolicies, hclog.NewNullLogger())
	for want, r := range map[string]*evenstepv1.RatesRequest{
		"types: 0 of them; give 1 to 256":   {Workload: "w"},
		"types: 257 of them; give 1 to 256": {Types: make([]string, 257)},
		"workload: ":                        {Workload: "w w", Types: []string{"t"}},
	} {
		_, err := b.Rates(context.Background(), r)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
