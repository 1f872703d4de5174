package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ClusterJob is one job of a trace.
type ClusterJob struct {
	ID             string
	Workload       string
	Devices        int     // that it needs, exactly
	Steps          int     // at least 1
	Weight         float64 // above 0
	ArrivalSeconds float64 // at least 0
	Line           int     // of the file that it came from
}

const (
	mostSteps   = 1e15
	mostArrival = 1e12 // seconds
	mostJobs    = 1_000_000
)

// ReadJobs reads a trace: a CSV with a header, in which the columns job_id, job_type, scale_factor, total_steps and
// arrival_s count, and priority_weight where it is there. The jobs come out by arrival, those of one time in the order
// of the file. Errors name the line and the field.
func ReadJobs(r io.Reader) ([]ClusterJob, error) {
	t, err := openTable(r, ',', mostTraceBytes, "job_id", "job_type", "scale_factor", "total_steps", "arrival_s")
	if err != nil {
		return nil, err
	}
	var jobs []ClusterJob
	lines := map[string]int{}
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		j, err := readJob(t)
		if err != nil {
			return nil, err
		}
		switch first, twice := lines[j.ID]; {
		case twice:
			return nil, fmt.Errorf("line %d: job_id: %.40q is that of line %d already", t.line, j.ID, first)
		case len(jobs) == mostJobs:
			return nil, fmt.Errorf("line %d: more than %d jobs", t.line, mostJobs)
		}
		lines[j.ID] = t.line
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil, errors.New("no rows; give one for each job")
	}
	sortByArrival(jobs)
	return jobs, nil
}

func sortByArrival(jobs []ClusterJob) {
	slices.SortStableFunc(jobs, func(a, b ClusterJob) int { return cmp.Compare(a.ArrivalSeconds, b.ArrivalSeconds) })
}

func readJob(t *table) (j ClusterJob, err error) {
	j = ClusterJob{ID: t.text("job_id"), Workload: t.text("job_type"), Weight: 1, Line: t.line}
	if j.ID == "" {
		return j, t.wrong("job_id", "a name")
	}
	if j.Workload == "" {
		return j, t.wrong("job_type", "the name of a workload")
	}
	if j.Devices, err = t.whole("scale_factor", mostPerJob); err != nil {
		return j, err
	}
	if j.Steps, err = t.whole("total_steps", mostSteps); err != nil {
		return j, err
	}
	if j.ArrivalSeconds, err = t.amount("arrival_s", mostArrival); err != nil {
		return j, err
	}
	if t.text("priority_weight") != "" {
		if j.Weight, err = t.amount("priority_weight", 1e9); err == nil && j.Weight == 0 {
			err = t.wrong("priority_weight", "above 0")
		}
	}
	return j, err
}
