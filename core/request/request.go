// Package request is the one grammar in which users ask for Evenstep: what they write into a job's comment, its meta key
// or its environment.
//
// A comment is `evenstep( key=value)*`; a meta key named evenstep holds the same without the first word. The keys are
// workload, global_batch, samples, workers and policy. The words come from whoever may submit a job, and reach programs
// that run as root: they are parsed strictly, their length is bounded, and only what was understood is ever passed on.
package request

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Request is what the user asked for.
type Request struct {
	Workload    string  // the key under which throughput is profiled: 1 to 128 of A-Za-z0-9._:/@+-
	GlobalBatch int     // samples of one step, 1 to 2^31 - 1
	Samples     float64 // that are left to train on, above 0, at most 1e18
	// MinWorkers and MaxWorkers bound the workers, where the user did; both are 0 where not.
	MinWorkers, MaxWorkers int
	Policy                 string // of batch sizing; empty for the default
}

const (
	// maxText bounds the bytes of a request; Slurm's comments hold no more.
	maxText = 1024
	// maxWorkers bounds the workers of one job.
	maxWorkers = 1 << 16
	maxSamples = 1e18
)

var (
	workloadForm = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]{1,128}$`)
	policyForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	countForm    = regexp.MustCompile(`^[0-9]{1,10}$`)
	numberForm   = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,20})?([eE]\+?[0-9]{1,2})?$`)
)

// FromComment parses a job's comment. Where its first word is not evenstep, the job is none of ours and the answer is
// nil, nil. An error names the key that is wrong and says what would be right.
func FromComment(comment string) (*Request, error) {
	words, ours := strings.CutPrefix(comment, "evenstep")
	if !ours || words != "" && !strings.ContainsAny(words[:1], " \t\r\n\v\f") {
		return nil, nil
	}
	return Parse(words)
}

// Parse parses `( key=value)*`. The words stand in any order, each key once; workload, global_batch and samples are
// needed.
func Parse(words string) (*Request, error) {
	if len(words) > maxText {
		return nil, fmt.Errorf("request: %d bytes; give at most %d", len(words), maxText)
	}
	var r Request
	seen := map[string]bool{}
	for _, word := range strings.Fields(words) {
		key, value, isPair := strings.Cut(word, "=")
		switch {
		case !isPair:
			return nil, fmt.Errorf("request: %.40q is not key=value", word)
		case seen[key]:
			return nil, fmt.Errorf("%.40s: given twice", printable(key))
		}
		seen[key] = true
		if err := r.set(key, value); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Workload == "":
		return nil, errors.New("workload: missing; give the name under which its speed is profiled")
	case r.GlobalBatch == 0:
		return nil, errors.New("global_batch: missing; give the samples of one step")
	case r.Samples == 0:
		return nil, errors.New("samples: missing; give how many samples are left to train on")
	case r.MinWorkers > r.GlobalBatch:
		return nil, fmt.Errorf("workers: %d is above global_batch %d; give each at least one sample", r.MinWorkers,
			r.GlobalBatch)
	}
	return &r, nil
}

// set takes one value.
func (r *Request) set(key, value string) (err error) {
	switch key {
	case "workload":
		if !workloadForm.MatchString(value) {
			return fmt.Errorf("workload: %.40q; give 1 to 128 of A-Z a-z 0-9 . _ : / @ + -", value)
		}
		r.Workload = value
	case "global_batch":
		r.GlobalBatch, err = count(key, value, math.MaxInt32)
	case "samples":
		r.Samples, err = samples(value)
	case "workers":
		low, high, isRange := strings.Cut(value, "-")
		if !isRange {
			high = low
		}
		if r.MinWorkers, err = count(key, low, maxWorkers); err == nil {
			r.MaxWorkers, err = count(key, high, maxWorkers)
		}
		if err == nil && r.MaxWorkers < r.MinWorkers {
			err = fmt.Errorf("workers: %d is below %d; give MIN-MAX", r.MaxWorkers, r.MinWorkers)
		}
	case "policy":
		if !policyForm.MatchString(value) {
			return fmt.Errorf("policy: %.40q is no policy's name", value)
		}
		r.Policy = value
	default:
		return fmt.Errorf("%.40s: unknown key; give workload, global_batch, samples, workers or policy", printable(key))
	}
	return err
}

func count(key, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || !countForm.MatchString(value) || n < 1 || n > most {
		return 0, fmt.Errorf("%s: %.40q is not a whole number in 1 ... %d", key, value, most)
	}
	return n, nil
}

func samples(value string) (float64, error) {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil || !numberForm.MatchString(value) || !(x > 0 && x <= maxSamples) {
		return 0, fmt.Errorf("samples: %.40q is not a number > 0 and <= %g", value, maxSamples)
	}
	return x, nil
}

// printable is a key as an error may show it.
func printable(key string) string {
	quoted := strconv.Quote(key)
	return quoted[1 : len(quoted)-1]
}

// String is the request as Parse takes it, without a space before it.
func (r *Request) String() string {
	text := fmt.Sprintf("workload=%s global_batch=%d samples=%s", r.Workload, r.GlobalBatch,
		strconv.FormatFloat(r.Samples, 'g', -1, 64))
	if r.MaxWorkers > 0 {
		text += fmt.Sprintf(" workers=%d-%d", r.MinWorkers, r.MaxWorkers)
	}
	if r.Policy != "" {
		text += " policy=" + r.Policy
	}
	return text
}
