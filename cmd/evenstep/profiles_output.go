package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/evenstep/evenstep/core/profile"
)

// profilesList is the JSON that profiles list writes.
type profilesList struct {
	Profiles []profileListed `json:"profiles"`
}

// profileListed is one workload on one device type.
type profileListed struct {
	Workload string `json:"workload"`
	rateShown
	Devices  int       `json:"devices"` // with a profile of their own
	Steps    int       `json:"steps"`
	LastSeen time.Time `json:"last_seen"`
}

// rateShown is how fast a workload is on a device type; nine of ten times it is from low to high.
type rateShown struct {
	Type   string         `json:"type"`
	Source profile.Source `json:"source"`
	Rate   float64        `json:"samples_per_second"`
	Low    float64        `json:"low_samples_per_second"`
	High   float64        `json:"high_samples_per_second"`
}

func newRateShown(r profile.Rate) rateShown {
	return rateShown{r.Type, r.Source, r.SamplesPerSecond, r.Low, r.High}
}

func (r rateShown) bar() string { return fmt.Sprintf("%.4g to %.4g", r.Low, r.High) }

func newProfilesList(book *profile.Book) *profilesList {
	list := &profilesList{Profiles: []profileListed{}}
	for _, e := range book.Profiles() {
		last := len(list.Profiles) - 1
		if last < 0 || list.Profiles[last].Workload != e.Workload || list.Profiles[last].Type != e.Type {
			rate := book.Rates(e.Workload, []string{e.Type})[0]
			list.Profiles = append(list.Profiles, profileListed{Workload: e.Workload, rateShown: newRateShown(rate)})
			last++
		}
		p := &list.Profiles[last]
		p.Steps += e.Steps
		if e.Device != "" {
			p.Devices++
		}
		if e.LastSeen.After(p.LastSeen) {
			p.LastSeen = e.LastSeen
		}
	}
	return list
}

func (l *profilesList) writeText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "workload\ttype\tsamples/s\t9 of 10 times\tdevices\tsteps\tlast seen")
	for _, p := range l.Profiles {
		fmt.Fprintf(w, "%s\t%s\t%.4g\t%s\t%d\t%d\t%s\n", p.Workload, p.Type, p.Rate, p.bar(), p.Devices, p.Steps,
			p.LastSeen.Format(time.DateTime))
	}
	return w.Flush()
}

// profilesShown is the JSON that profiles show writes.
type profilesShown struct {
	Workload string           `json:"workload"`
	Types    []rateShown      `json:"types"`
	Profiles []profile.Record `json:"profiles"` // what was measured
}

// newProfilesShown says how fast a workload is on the type given, or else on all that the book knows.
func newProfilesShown(book *profile.Book, workload string, only []string) (*profilesShown, error) {
	shown := &profilesShown{Workload: workload, Types: []rateShown{}, Profiles: []profile.Record{}}
	var types []string
	seen := map[string]bool{}
	for _, e := range book.Profiles() {
		if len(only) == 0 && !seen[e.Type] {
			types = append(types, e.Type)
			seen[e.Type] = true
		}
		if e.Workload == workload && (len(only) == 0 || e.Type == only[0]) {
			shown.Profiles = append(shown.Profiles, e.Record())
		}
	}
	for _, r := range book.Rates(workload, append(types, only...)) {
		if r.Source != "" {
			shown.Types = append(shown.Types, newRateShown(r))
		}
	}
	if len(shown.Types) == 0 {
		return nil, unknownProfile(workload, only)
	}
	return shown, nil
}

func (s *profilesShown) writeText(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n", s.Workload)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "type\tsamples/s\t9 of 10 times\tsource")
	for _, t := range s.Types {
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\n", t.Type, t.Rate, t.bar(), t.Source)
	}
	if len(s.Profiles) > 0 {
		fmt.Fprintln(w, "\ntype\tdevice\tseconds a step\tat batch size\toff by\tcommunicate\tsteps\tlast seen")
	}
	for _, p := range s.Profiles {
		device, communicate := "-", "-"
		if p.Device != "" {
			device = p.Device
		}
		if p.CommunicateSeconds > 0 {
			communicate = fmt.Sprintf("%.3g s", p.CommunicateSeconds)
		}
		fmt.Fprintf(w, "%s\t%s\t%.3g + %.3g n\t%.4g\t%.1f %%\t%s\t%d\t%s\n", p.Type, device, p.Curve.FixedSeconds,
			p.Curve.SecondsPerSample, p.BatchSize, 100*max(p.Sigma, p.Spread), communicate, p.Steps,
			p.LastSeen.Format(time.DateTime))
	}
	return w.Flush()
}

// profilesCount is the JSON that profiles import and forget write.
type profilesCount struct {
	Imported  int `json:"imported,omitzero"`
	Forgotten int `json:"forgotten,omitzero"`
}

func (c profilesCount) writeText(out io.Writer) error {
	text, n := "imported", c.Imported
	if c.Forgotten > 0 {
		text, n = "forgot", c.Forgotten
	}
	_, err := fmt.Fprintf(out, "%s %d profiles\n", text, n)
	return err
}
