package service

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/placement"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

func twoJobs() *evenstepv1.PlaceRequest {
	r := &evenstepv1.PlaceRequest{Devices: []*evenstepv1.DevicePool{{Node: "n", Type: "t", Count: 4}}}
	for i := range 2 {
		r.Jobs = append(r.Jobs, &evenstepv1.PlacementJob{Id: fmt.Sprint(i), RemainingSamples: 1000, GlobalBatch: 64,
			SamplesPerSecond: map[string]float64{"t": 10}})
	}
	return r
}

func TestPlaceOverTheWire(t *testing.T) {
	_, conn := connectToServer(t, nil)
	client := evenstepv1.NewPlacerClient(conn)
	got, err := client.Place(t.Context(), twoJobs())
	if err != nil {
		t.Fatal(err)
	}
	if got.Model != "static" || !got.Complete || got.MeanJctSeconds != 50 || got.LowerBoundSeconds != 50 || len(got.Jobs) != 2 {
		t.Fatalf("%v", got)
	}
	r := twoJobs()
	r.Jobs[1].RemainingSamples = -1
	_, err = client.Place(t.Context(), r)
	const want = "jobs[1].remaining_samples: -1 is not a number > 0 and <= 1e+18"
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != want {
		t.Fatalf("%v, want %s", err, want)
	}
}

// A search that would not end by itself.
func endless(asked chan<- struct{}) Place {
	return func(p *placement.Problem, policy string, s placement.Search) (*placement.Plan, error) {
		asked <- struct{}{}
		for !s.Stop() {
			time.Sleep(time.Millisecond)
		}
		return &placement.Plan{}, nil
	}
}

func TestPlaceEndsInTime(t *testing.T) {
	asked := make(chan struct{}, maxSearches)
	p := NewPlacer(endless(asked))
	r := twoJobs()
	r.DeadlineMilliseconds = 10
	if got, err := p.Place(t.Context(), r); err != nil || got.Complete {
		t.Fatalf("by the request's deadline: %v, %v", got, err)
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
	defer cancel()
	if _, err := p.Place(ctx, twoJobs()); err != nil {
		t.Fatalf("a plan should be back before the call's deadline: %v", err)
	}
	<-asked
	ctx, cancel = context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.Place(ctx, twoJobs())
		ended <- err
	}()
	<-asked
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Fatalf("cancelled: %v", err)
	}
}

func TestPlaceRefusesTooManySearches(t *testing.T) {
	asked := make(chan struct{}, maxSearches)
	p := NewPlacer(endless(asked))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range maxSearches {
		go func() {
			_, err := p.Place(ctx, twoJobs())
			ended <- err
		}()
		<-asked
	}
	if _, err := p.Place(t.Context(), twoJobs()); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("%v", err)
	}
	cancel()
	for range maxSearches {
		<-ended
	}
}
