package service

import (
	"context"

	"github.com/evenstep/evenstep/core/profile"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// Bounds of a request for rates; the service definition tells them.
const (
	mostRateTypes     = 256
	mostRateWorkloads = 256
)

// Rates says how fast workloads run, as the service definition says.
func (b *Balancer) Rates(_ context.Context, r *evenstepv1.RatesRequest) (*evenstepv1.RatesResponse, error) {
	types := r.GetTypes()
	if len(types) == 0 || len(types) > mostRateTypes {
		return nil, invalid("types: %d of them; give 1 to %d", len(types), mostRateTypes)
	}
	workloads, estimates := []string{r.GetWorkload()}, true
	if r.GetWorkload() != "" {
		if err := profile.CheckWorkload(r.GetWorkload()); err != nil {
			return nil, invalid("%v", err)
		}
	}
	response := new(evenstepv1.RatesResponse)
	if b.Profiles == nil {
		return response, nil
	}
	if r.GetWorkload() == "" {
		workloads, estimates = b.Profiles.Recent(types, mostRateWorkloads), false
	}
	for _, w := range workloads {
		for _, rate := range b.Profiles.Rates(w, types) {
			if rate.Source == "" || rate.Source == profile.Estimated && !estimates {
				continue
			}
			response.Rates = append(response.Rates, &evenstepv1.Rate{Workload: w, Type: rate.Type,
				SamplesPerSecond: rate.SamplesPerSecond, Low: rate.Low, High: rate.High, Source: string(rate.Source)})
		}
	}
	return response, nil
}
