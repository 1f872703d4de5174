// Package profile keeps what training has shown: how fast each device runs each workload, with how sure that is.
//
// A Profile is what was measured of one workload on one device. A Book holds profiles in memory, pools those of a device
// type, and estimates what was never measured. A File holds them on disk, and a Keeper brings the two together, so that
// several cores of one user share a file without waiting for each other.
//
// Clocks are handed in. What others wrote (files, imports) is checked before it counts.
package profile

import (
	"fmt"
	"math"
	"regexp"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evenstep/evenstep/core/speed"
)

const (
	// maxName bounds the characters of a device's type and id.
	maxName = 256
	// memory is how many steps of the past count beside new ones: what was seen longer ago fades.
	memory = 500
	// mostSteps bounds the count of steps, far from where adding overflows.
	mostSteps = 1 << 53
	// firstSpread stands for the spread of the level between runs before two were seen; ours.
	firstSpread = 0.05
	// mostShare bounds the fixed share of the time, so that more samples always take longer.
	mostShare = 0.999
	// mostSigma bounds the sigma of the level: e times as long or as short.
	mostSigma = 1
)

// workloadForm is what a workload's key is made of.
var workloadForm = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]{1,128}$`)

// Key says what a profile is of.
type Key struct {
	Workload string // 1 to 128 of A-Za-z0-9._:/@+-
	Type     string // of the device: the vendor's model name, 1 to 256 printable characters
	Device   string // its own id; empty where that was not known
}

// Profile is what was measured of a workload on a device.
type Profile struct {
	Curve speed.Learned // compute time by batch size
	// Spread is how far, relative to the time, the level was off from one sighting to the next: one sigma.
	Spread float64
	// CommunicateSeconds is what a step takes after the slowest worker's last gradient; 0 is not known.
	CommunicateSeconds float64
	// MemoryPerSample is the device memory that one more sample takes, in bytes; 0 is not known.
	MemoryPerSample float64
	LargestBatch    float64 // samples in the largest batch that the device was seen to train
	Steps           int     // measured, at least 1
	LastSeen        time.Time
}

// CheckWorkload says whether a workload's key is one.
func CheckWorkload(workload string) error {
	if !workloadForm.MatchString(workload) {
		return fmt.Errorf("workload: %.140q is not a key; give 1 to 128 of A-Za-z0-9._:/@+-", workload)
	}
	return nil
}

// Check says whether the key is one; the error names the field.
func (k Key) Check() error {
	if err := CheckWorkload(k.Workload); err != nil {
		return err
	}
	if k.Type == "" || !isName(k.Type) {
		return fmt.Errorf("type: %.40q is not a name; give 1 to %d printable characters", k.Type, maxName)
	}
	if !isName(k.Device) {
		return fmt.Errorf("device: %.40q is not a name; give at most %d printable characters", k.Device, maxName)
	}
	return nil
}

func isName(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(text) && utf8.RuneCountInString(text) <= maxName
}

// Check says whether the numbers are within reason, so that nothing made from them overflows; the error names the field.
func (p *Profile) Check() error {
	for _, f := range []struct {
		name        string
		value       float64
		least, most float64
	}{
		{"batch_size", p.Curve.Samples, 1e-3, 1e12},
		{"seconds", p.Curve.Seconds, 1e-9, 1e9},
		{"fixed share of the time", p.Curve.Share, 0, mostShare},
		{"sigma", p.Curve.Sigma, 0, mostSigma},
		{"fixed_share_sigma", p.Curve.ShareSigma, 0, mostSigma},
		{"spread", p.Spread, 0, mostSigma},
		{"communicate_seconds", p.CommunicateSeconds, 0, 1e9},
		{"memory_per_sample_bytes", p.MemoryPerSample, 0, 1e18},
		{"largest_batch_size", p.LargestBatch, 0, 1e12},
		{"steps", float64(p.Steps), 1, mostSteps},
	} {
		// Written so that NaN fails it too. A number that was written and read again may be off by a rounding.
		const rounding = 1e-9
		if !(f.value >= f.least*(1-rounding) && f.value <= f.most*(1+rounding)) {
			return fmt.Errorf("%s: %v is not between %v and %v", f.name, f.value, f.least, f.most)
		}
	}
	return nil
}

// Sigma is how far the time of a step like those measured may be off the next time: one sigma, relative to it.
func (p *Profile) Sigma() float64 {
	return min(math.Hypot(p.Curve.Sigma, p.Spread), mostSigma)
}

// Rate is how fast the device is at the batch size that it was measured at, in samples per second.
func (p *Profile) Rate() float64 { return p.Curve.Samples / p.Curve.Seconds }

// merge adds what was seen later. Each counts by its steps, the past by no more than memory of them, so that a device
// that changes is followed; the curve is that of the batch size where it was seen last.
func (p Profile) merge(later Profile) Profile {
	before := p.Curve.At(later.Curve.Samples)
	old, now := float64(min(p.Steps, memory)), float64(min(later.Steps, memory))
	w := now / (old + now)
	off := math.Log(later.Curve.Seconds / before.Seconds)
	sure := before.ShareSigma * before.ShareSigma
	unsure := later.Curve.ShareSigma * later.Curve.ShareSigma
	u := w // by how much the later share counts: by its certainty, where there is any doubt
	if sure+unsure > 0 {
		u = sure / (sure + unsure)
	}
	return Profile{
		Curve: speed.Learned{
			Samples:    later.Curve.Samples,
			Seconds:    min(max(before.Seconds*math.Exp(w*off), 1e-9), 1e9),
			Share:      min(before.Share+u*(later.Curve.Share-before.Share), mostShare),
			Sigma:      min(math.Hypot((1-w)*before.Sigma, w*later.Curve.Sigma), mostSigma),
			ShareSigma: max(math.Sqrt(sure*unsure/max(sure+unsure, 1e-12)), leastShareSigma),
		},
		Spread:             min(math.Sqrt((1-w)*p.Spread*p.Spread+w*(later.Spread*later.Spread+(1-w)*off*off)), mostSigma),
		CommunicateSeconds: blend(p.CommunicateSeconds, later.CommunicateSeconds, w),
		MemoryPerSample:    max(p.MemoryPerSample, later.MemoryPerSample),
		LargestBatch:       max(p.LargestBatch, later.LargestBatch),
		Steps:              min(p.Steps+later.Steps, mostSteps),
		LastSeen:           latest(p.LastSeen, later.LastSeen),
	}
}

// leastShareSigma keeps the share of a curve from passing for known beyond doubt; ours.
const leastShareSigma = 0.01

// blend is the mean with weight w for b, of which 0 is not known.
func blend(a, b, w float64) float64 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return a + w*(b-a)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
