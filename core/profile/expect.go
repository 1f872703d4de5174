package profile

import (
	"math"
	"strconv"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/speed"
)

// Source says where a number came from.
type Source string

const (
	// Measured is a number that was measured on such a device.
	Measured Source = "profile"
	// Estimated is a number that was made from others.
	Estimated Source = "estimate"
)

// Rate is how fast a workload runs on a device type.
type Rate struct {
	Type             string
	SamplesPerSecond float64
	Low, High        float64 // nine of ten times it is between these
	Source           Source  // empty where nothing is known; then the numbers are 0
}

// Expectation is what is expected of a device that a worker is to train on.
type Expectation struct {
	Curve           speed.Learned
	Sigma           float64 // of the time at the curve's batch size, relative to it
	Source          Source  // empty where nothing is known
	OwnDevice       bool    // measured on that very device, not on another one of its type
	LargestBatch    float64 // samples in the largest batch seen on such a device; 0 is not known
	MemoryPerSample float64 // bytes of device memory that one more sample takes; 0 is not known
}

// Rates is how fast a workload runs on each of the types, in their order: measured, or estimated from the workload's
// other devices, the devices' other workloads and what is public about devices. A rate that was measured is the one at
// the batch size that it was measured at. Of a workload that was never seen nothing is known.
func (b *Book) Rates(workload string, types []string) []Rate {
	columns := b.columnsOf(types)
	b.mu.Lock()
	defer b.mu.Unlock()
	rates := make([]Rate, len(types))
	for i, t := range types {
		rates[i].Type = t
		if p, known := b.shelves[workload].ofType(t, columns[i]); known {
			rates[i].set(math.Log(p.Rate()), p.Sigma(), Measured)
		} else if value, sigma, known := b.estimate(workload, columns[i]); known {
			rates[i].set(value, sigma, Estimated)
		}
	}
	return rates
}

// columnsOf are the columns of types, in their order.
func (b *Book) columnsOf(types []string) []string {
	columns := make([]string, len(types))
	for i, t := range types {
		columns[i] = b.columns.of(t)
	}
	return columns
}

// Recent are at most so many of the workloads that were measured on one of the types, the one seen last first.
func (b *Book) Recent(types []string, most int) []string {
	columns := map[string]bool{}
	for _, c := range b.columnsOf(types) {
		columns[c] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var on []shelved
	for w, s := range b.shelves {
		for _, t := range s.types {
			if columns[t.column] {
				on = append(on, shelved{w, s})
				break
			}
		}
	}
	lastFirst(on)
	var workloads []string
	for _, s := range on[:min(len(on), most)] {
		workloads = append(workloads, s.workload)
	}
	return workloads
}

// set fills in what is known: the logarithm of the rate and one sigma of it.
func (r *Rate) set(value, sigma float64, source Source) {
	const bar = 1.645 // sigmas to either side hold nine of ten
	// Other machines round otherwise; what is planned with a rate shall not depend on that.
	n := 6
	if source == Estimated {
		n = 4
	}
	r.SamplesPerSecond = digits(math.Exp(value), n)
	r.Low, r.High = digits(math.Exp(value-bar*sigma), n), digits(math.Exp(value+bar*sigma), n)
	r.Source = source
}

// digits rounds to n significant digits.
func digits(x float64, n int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', n-1, 64), 64)
	if err != nil {
		return x
	}
	return rounded
}

// Expect says what to expect of each of the devices: by its own profile, else by that of its type, else by an estimate,
// which is the workload's surest profile, faster or slower by a factor.
func (b *Book) Expect(workload string, devices []cluster.Device) []Expectation {
	types := make([]string, len(devices))
	for i, d := range devices {
		types[i] = d.Type
	}
	columns := b.columnsOf(types)
	b.mu.Lock()
	defer b.mu.Unlock()
	out, s := make([]Expectation, len(devices)), b.shelves[workload]
	if s == nil {
		return out
	}
	estimated := map[string]Expectation{} // by column
	for i, d := range devices {
		if t := s.types[d.Type]; t != nil && d.ID != "" {
			if p, ok := t.devices[d.ID]; ok {
				out[i] = expectation(p, Measured)
				out[i].OwnDevice = true
				continue
			}
		}
		if p, known := s.ofType(d.Type, columns[i]); known {
			out[i] = expectation(p, Measured)
			continue
		}
		e, ok := estimated[columns[i]]
		if !ok {
			e = b.expectEstimate(workload, columns[i])
			estimated[columns[i]] = e
		}
		out[i] = e
	}
	return out
}

func expectation(p Profile, source Source) Expectation {
	return Expectation{Curve: p.Curve, Sigma: p.Sigma(), Source: source, LargestBatch: p.LargestBatch,
		MemoryPerSample: p.MemoryPerSample}
}

func (b *Book) expectEstimate(workload, column string) Expectation {
	value, sigma, known := b.estimate(workload, column)
	if !known {
		return Expectation{}
	}
	surest, s := Profile{}, b.shelves[workload]
	for i, name := range s.names() {
		if p := s.types[name].pool(); i == 0 || p.Sigma() < surest.Sigma() {
			surest = p
		}
	}
	e := expectation(surest, Estimated)
	e.Curve.Seconds, e.Sigma = surest.Curve.Samples/math.Exp(value), sigma
	e.LargestBatch = 0 // another type has another memory
	return e
}
