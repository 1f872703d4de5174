package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// entry is a job as squeue tells it. Its comment, the one text in which users may write anything, comes last, and each
// field is divided from the next by a mark that is drawn anew each time: no comment can pretend to be another job.
type entry struct {
	id          string // 7, or 7_2 for a task of an array
	state       string
	reason      string
	partition   string
	user        string // numeric
	submitted   time.Time
	begins      time.Time // begin or start time; zero where not known
	features    string
	required    string
	excluded    string
	reservation string
	dependency  string
	licences    string
	perNode     string
	nodes       string // where it runs
	comment     string
}

// fields are squeue's letters in the order of entry.
var fields = []string{"i", "T", "r", "P", "U", "V", "S", "f", "n", "x", "v", "E", "W", "b", "N", "k"}

// format is what to ask squeue for.
func format(mark string) string {
	var f strings.Builder
	for _, letter := range fields {
		f.WriteString(mark + "%" + letter)
	}
	return f.String()
}

// parseQueue reads what squeue -h -r -o prints for that format.
func parseQueue(text, mark string) ([]entry, error) {
	parts := strings.Split(text, mark)
	if strings.TrimSpace(parts[0]) != "" {
		return nil, fmt.Errorf("squeue: %.80q before the first job", parts[0])
	}
	parts = parts[1:]
	if len(parts)%len(fields) != 0 {
		return nil, fmt.Errorf("squeue: %d fields; want a multiple of %d", len(parts), len(fields))
	}
	var entries []entry
	for len(parts) > 0 {
		f := parts[:len(fields)]
		parts = parts[len(fields):]
		for i := range f[:len(f)-1] {
			if f[i] = strings.TrimSpace(f[i]); f[i] == "(null)" || f[i] == "N/A" {
				f[i] = ""
			}
		}
		e := entry{
			id: f[0], state: f[1], reason: f[2], partition: f[3], user: f[4], features: f[7], required: f[8], excluded: f[9],
			reservation: f[10], dependency: f[11], licences: f[12], perNode: f[13], nodes: f[14],
			comment: strings.TrimSuffix(f[15], "\n"),
		}
		e.submitted, e.begins = parseTime(f[5]), parseTime(f[6])
		entries = append(entries, e)
	}
	return entries, nil
}

// parseTime reads a time of Slurm's; the commands are run in UTC. Unknown is the zero time.
func parseTime(text string) time.Time {
	t, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.UTC)
	if err != nil {
		return time.Time{}
	}
	return t
}

// detail is what only scontrol show job tells of a job that waits.
type detail struct {
	eligible           time.Time
	minNodes, maxNodes int
	needs              needs
	odd                string // why it cannot be steered; empty where it can
}

// parseDetail reads scontrol show job -o of one job. Users choose the job's name and paths, which stand among the fields:
// a job in which a field that counts is there twice is left alone.
func parseDetail(text string) (detail, error) {
	text = " " + text
	for _, key := range []string{"NumNodes", "EligibleTime"} {
		if n := strings.Count(text, " "+key+"="); n != 1 {
			return detail{odd: fmt.Sprintf("%s= is there %d times in what scontrol shows of it", key, n)}, nil
		}
	}
	d := detail{eligible: parseTime(field(text, "EligibleTime"))}
	low, high, isRange := strings.Cut(field(text, "NumNodes"), "-")
	if !isRange {
		high = low
	}
	var err, err2 error
	d.minNodes, err = strconv.Atoi(low)
	d.maxNodes, err2 = strconv.Atoi(high)
	if err != nil || err2 != nil || d.minNodes < 1 || d.maxNodes < d.minNodes {
		return d, fmt.Errorf("scontrol show job: NumNodes is %.40q; want MIN or MIN-MAX", field(text, "NumNodes"))
	}
	// Of a range, NumNodes begins with a guess of Slurm's; what was asked for stands in the resources.
	if least := requestedNodes(text); least > 0 {
		d.minNodes = min(d.minNodes, least)
	}
	// A user's name of a job may look like these, so a fault in them is this job's alone.
	if d.needs, err = parseNeeds(text, d.minNodes); err != nil {
		d.odd = err.Error()
	}
	for _, unlike := range []struct{ key, usual, why string }{
		{"TresPerJob", "", "it asks for devices by job; give --gres=gpu:N for each node"},
		{"TresPerSocket", "", "it asks for devices by socket; give --gres=gpu:N for each node"},
		{"TresPerTask", "", "it asks for devices by task; give --gres=gpu:N for each node"},
		{"Contiguous", "0", "it asks for nodes side by side"},
		{"Switches", "", "it asks for a number of switches"},
		{"BurstBuffer", "", "it asks for a burst buffer"},
	} {
		value := field(text, unlike.key)
		// cpu:2 (later cpu=2) by task is no device.
		if unlike.key == "TresPerTask" && !strings.Contains(value, "gres") {
			continue
		}
		if value != "" && value != unlike.usual {
			d.odd = unlike.why
		}
	}
	if shared := field(text, "OverSubscribe"); shared == "NO" || shared == "EXCLUSIVE" {
		d.odd = "it asks for nodes of its own"
	}
	return d, nil
}
