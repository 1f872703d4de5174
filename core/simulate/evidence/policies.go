package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/sizing"
)

// recorded is the table of the recorded traces. auto must capture at least what the best naive policy does.
func recorded(out io.Writer, traces []trace) (missed []string, err error) {
	var best, which []string
	auto, _ := sizing.Named("auto")
	for _, t := range traces {
		for _, lag := range lags {
			name, bar, err := bestNaive(t.Trace, lag)
			if err != nil {
				return nil, err
			}
			got, err := captured(t.Trace, lag, auto.New)
			if err != nil {
				return nil, err
			}
			if got < bar {
				missed = append(missed, fmt.Sprintf("%s at lag %d: auto captures %.4f, %s in hindsight %.4f", t.name,
					lag, got, name, bar))
			}
			best, which = append(best, fmt.Sprintf("%.3f", bar)), append(which, name)
		}
	}
	if err := table(out, traces); err != nil {
		return nil, err
	}
	row(out, "best naive in hindsight", best)
	row(out, "which is", which)
	return missed, nil
}

// synthetic is the table of the generators. Nothing is required of it.
func synthetic(out io.Writer) (missed []string, err error) {
	traces, err := generated()
	if err != nil {
		return nil, err
	}
	return nil, table(out, traces)
}

// table writes what every policy captures of every trace at every lag.
func table(out io.Writer, traces []trace) error {
	var columns []string
	for _, t := range traces {
		for _, lag := range lags {
			columns = append(columns, fmt.Sprintf("%s, lag %d", t.name, lag))
		}
	}
	header(out, "policy", columns)
	for _, k := range sizing.Kinds() {
		var cells []string
		for _, t := range traces {
			for _, lag := range lags {
				share, err := captured(t.Trace, lag, k.New)
				if err != nil {
					return err
				}
				cells = append(cells, fmt.Sprintf("%.3f", share))
			}
		}
		row(out, k.Name, cells)
	}
	return nil
}

// againstEqual is how many seconds a trace takes with equal sizes and under a policy.
func againstEqual(t *simulate.Trace, lag int, policy sizing.Constructor) (equal, took float64, err error) {
	even, _ := sizing.Named("equal")
	if equal, err = seconds(t, lag, even.New); err != nil {
		return 0, 0, err
	}
	took, err = seconds(t, lag, policy)
	return equal, took, err
}

// captured is what a policy captures of a trace, with real-valued shares and the defaults of `simulate steps`.
func captured(t *simulate.Trace, lag int, policy sizing.Constructor) (float64, error) {
	equal, took, err := againstEqual(t, lag, policy)
	if err != nil {
		return 0, err
	}
	share, ok := simulate.Captured(equal, took, simulate.Clairvoyant(t))
	if !ok {
		return 0, errors.New("a trace with nothing to save")
	}
	return share, nil
}

func seconds(t *simulate.Trace, lag int, policy sizing.Constructor) (float64, error) {
	r, err := simulate.Job{Quantum: 1, Lag: lag, Warmup: 5}.Run(t, policy, func() {})
	if err != nil {
		return 0, err
	}
	return r.Seconds, nil
}
