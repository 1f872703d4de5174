package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/core/reconcile"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// ratesTimeout bounds the wait for a core that says how fast workloads run; a controller holds jobs meanwhile.
const ratesTimeout = 5 * time.Second

// ratesFlags say where a controller learns how fast workloads run.
type ratesFlags struct {
	profiles string
	coreFlags
}

func (f *ratesFlags) add(cmd *cobra.Command) {
	f.coreFlags.add(cmd)
	cmd.Flags().StringVar(&f.profiles, "profiles", "",
		"`FILE` of profiles that says how fast workloads run, in place of a core that holds one; where it ends in .json, a "+
			"table of samples per second of one device, by workload and type: {\"resnet50-amp\":{\"a100\":900}}")
}

func (f *ratesFlags) check() error {
	switch {
	case f.profiles == "" && f.core == "":
		return errors.New("--profiles: missing; give the file that says how fast workloads run on which type of device, or " +
			"--core for a core that knows")
	case f.profiles != "" && f.core != "":
		return errors.New("--profiles: contradicts --core; give one or the other")
	case f.profiles != "" && f.tls.Given():
		return errors.New("--tls-cert, --tls-key, --tls-ca: they are for --core; leave them out")
	}
	return nil
}

// open gives the rates, and what ends the connection that they may need. An error is of the flags.
func (f *ratesFlags) open() (rates reconcile.Profiles, done func(), err error) {
	switch {
	case f.core != "":
		a, err := f.address()
		if err != nil {
			return nil, nil, err
		}
		conn, err := f.dial(a)
		if err != nil {
			return nil, nil, err
		}
		return &coreRates{conn: conn, at: a}, func() { conn.Close() }, nil
	case strings.HasSuffix(f.profiles, ".json"):
		// Without speeds all jobs would be let go, for a slip of the pen.
		if _, err := os.Stat(f.profiles); err != nil {
			return nil, nil, fmt.Errorf("--profiles: %w", err)
		}
		return &ratesFile{f.profiles}, func() {}, nil
	}
	return &measuredRates{f.profiles}, func() {}, nil
}

// coreRates asks a core, or a node's agent that leads to it, anew each time. One that restarts is waited for; one that does
// not answer is left alone for as long, so that the jobs of a round do not wait for it one after the other.
type coreRates struct {
	conn   *grpc.ClientConn
	at     address
	failed error
	until  time.Time // when the core is asked again
}

// Rates is samples per second of one device, by type.
func (c *coreRates) Rates(workload string, types []string) (map[string]reconcile.Rate, error) {
	if time.Now().Before(c.until) {
		return nil, c.failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), ratesTimeout)
	defer cancel()
	r, err := evenstepv1.NewProfilesClient(c.conn).Rates(ctx,
		&evenstepv1.RatesRequest{Workload: workload, Types: types}, grpc.WaitForReady(true))
	if err != nil {
		c.failed, c.until = fmt.Errorf("%s: %w", c.at, asked(err)), time.Now().Add(ratesTimeout)
		return nil, c.failed
	}
	rates := map[string]reconcile.Rate{}
	for _, rate := range r.GetRates() {
		if per := rate.GetSamplesPerSecond(); per > 0 && per <= maxWhole && slices.Contains(types, rate.GetType()) {
			rates[rate.GetType()] = reconcile.Rate{SamplesPerSecond: per, Source: rate.GetSource()}
		}
	}
	return rates, nil
}

// measuredRates reads the file of profiles anew each time, since jobs go on to show more.
type measuredRates struct{ path string }

// Rates is samples per second of one device, by type.
func (m *measuredRates) Rates(workload string, types []string) (map[string]reconcile.Rate, error) {
	book, err := (&profilesFlags{file: m.path}).read()
	if err != nil {
		return nil, err
	}
	rates := map[string]reconcile.Rate{}
	for _, r := range book.Rates(workload, types) {
		if r.Source != "" {
			rates[r.Type] = reconcile.Rate{SamplesPerSecond: r.SamplesPerSecond, Source: string(r.Source)}
		}
	}
	return rates, nil
}

// ratesFile reads how fast workloads run from a JSON file, anew each time, so that it may be edited at any moment.
type ratesFile struct{ path string }

// Rates is samples per second of one device, by type.
func (f *ratesFile) Rates(workload string, types []string) (map[string]reconcile.Rate, error) {
	var table map[string]map[string]amount
	if err := readInput([]string{f.path}, nil, &table); err != nil {
		return nil, err
	}
	rates := map[string]reconcile.Rate{}
	for _, t := range slices.Sorted(maps.Keys(table[workload])) {
		rate := float64(table[workload][t])
		if rate > maxWhole {
			return nil, fmt.Errorf("%s.%s: %v is beyond 2^53 samples per second", workload, t, rate)
		}
		if slices.Contains(types, t) && rate > 0 {
			rates[t] = reconcile.Rate{SamplesPerSecond: rate, Source: "profile"}
		}
	}
	return rates, nil
}
