package profile

import (
	"fmt"
	"math"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/evenstep/evenstep/core/speed"
)

// Version is that of the form in which profiles are exported and kept on disk.
const Version = 1

// Record is a profile as JSON: in a file, an export and an import.
type Record struct {
	Workload           string    `json:"workload"`
	Type               string    `json:"type"`
	Device             string    `json:"device,omitempty"`
	Curve              Curve     `json:"curve"`
	BatchSize          float64   `json:"batch_size"` // where the curve was measured
	Sigma              float64   `json:"sigma"`      // of the time there, relative to it
	FixedShareSigma    float64   `json:"fixed_share_sigma"`
	Spread             float64   `json:"spread"`
	CommunicateSeconds float64   `json:"communicate_seconds,omitzero"`
	MemoryPerSample    float64   `json:"memory_per_sample_bytes,omitzero"`
	LargestBatch       float64   `json:"largest_batch_size,omitzero"`
	Steps              int       `json:"steps"`
	LastSeen           time.Time `json:"last_seen"`
}

// Curve is the time of n samples, fixed + seconds_per_sample·n.
type Curve struct {
	FixedSeconds     float64 `json:"fixed_seconds"`
	SecondsPerSample float64 `json:"seconds_per_sample"`
}

// Record is the entry as JSON. Its curve is rounded, so that it does not change by being read and written again.
func (e Entry) Record() Record {
	c := e.Curve.Curve()
	return Record{e.Workload, e.Type, e.Device, Curve{digits(c.Fixed, 12), digits(c.PerSample, 12)}, e.Curve.Samples,
		e.Curve.Sigma, e.Curve.ShareSigma, e.Spread, e.CommunicateSeconds, e.MemoryPerSample, e.LargestBatch, e.Steps,
		e.LastSeen}
}

// Entry is what the record says. The error names the field that is wrong.
func (r Record) Entry() (Entry, error) {
	for _, x := range []float64{r.Curve.FixedSeconds, r.Curve.SecondsPerSample} {
		// Written so that NaN fails it too.
		if !(x >= 0 && x <= math.MaxFloat64) {
			return Entry{}, fmt.Errorf("curve: %v is not a finite number >= 0", x)
		}
	}
	seconds := r.Curve.FixedSeconds + r.Curve.SecondsPerSample*r.BatchSize
	e := Entry{Key{r.Workload, r.Type, r.Device}, Profile{
		Curve: speed.Learned{Samples: r.BatchSize, Seconds: seconds, Share: r.Curve.FixedSeconds / seconds,
			Sigma: r.Sigma, ShareSigma: r.FixedShareSigma},
		Spread: r.Spread, CommunicateSeconds: r.CommunicateSeconds, MemoryPerSample: r.MemoryPerSample,
		LargestBatch: r.LargestBatch, Steps: r.Steps, LastSeen: r.LastSeen}}
	if err := e.Key.Check(); err != nil {
		return e, err
	}
	if seconds == 0 {
		return e, fmt.Errorf("curve: takes no time for %v samples; give seconds_per_sample above 0", r.BatchSize)
	}
	return e, e.Profile.Check()
}

// encode is the value that a file keeps for an entry.
func encode(e Entry) ([]byte, error) { return json.Marshal(e.Record()) }

// decode is the entry that a file's value says.
func decode(value []byte) (Entry, error) {
	var r Record
	if err := json.Unmarshal(value, &r); err != nil {
		return Entry{}, err
	}
	return r.Entry()
}
