package simulate

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
)

// WorkloadRule says what a job trains, by its name.
type WorkloadRule struct {
	Pattern  string // of the job's name, as in a shell: resnet50-*
	Workload string
	Type     string // of the devices that it ran on, where Slurm does not say; empty where it does
}

// ReadWorkloads reads rules: a CSV with a header, in which the columns pattern and workload count, and type where it is
// there. The first rule that matches a job's name holds.
func ReadWorkloads(r io.Reader) ([]WorkloadRule, error) {
	t, err := openTable(r, ',', mostTableBytes, "pattern", "workload")
	if err != nil {
		return nil, err
	}
	var rules []WorkloadRule
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		rule := WorkloadRule{t.text("pattern"), t.text("workload"), t.text("type")}
		if _, err := path.Match(rule.Pattern, ""); err != nil || rule.Pattern == "" {
			return nil, t.wrong("pattern", "a pattern as of a shell: resnet50-*")
		}
		if rule.Workload == "" {
			return nil, t.wrong("workload", "the name of a workload")
		}
		rules = append(rules, rule)
	}
	if len(rules) == 0 {
		return nil, errors.New("no rows; give at least one rule")
	}
	return rules, nil
}

// ReadSacct reads what `sacct -P` prints: fields parted by |, with a header, in which JobID, JobName, Submit, Elapsed
// and AllocTRES count, and State where it is there. A job's steps are what it would have done in the time that it ran,
// at the speed in the throughputs of its workload on the devices that it had. Jobs of which that cannot be said are
// dropped; a field that is not what sacct writes is an error, which names the line.
func ReadSacct(r io.Reader, rules []WorkloadRule, speeds *Throughputs) ([]ClusterJob, []DroppedJob, error) {
	t, err := openTable(r, '|', mostTraceBytes, "JobID", "JobName", "Submit", "Elapsed", "AllocTRES")
	if err != nil {
		return nil, nil, err
	}
	var jobs []ClusterJob
	var dropped []DroppedJob
	known := map[string]bool{}
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		var torn *fieldsError
		if errors.As(err, &torn) { // a | in a job's name, which sacct does not quote
			reason := fmt.Sprintf("its row has %d fields, the header %d", torn.fields, torn.want)
			dropped = append(dropped, DroppedJob{"", torn.line, reason})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		j, reason, err := readAccount(t, rules, speeds)
		if err != nil {
			return nil, nil, err
		}
		if reason == "" && known[j.ID] {
			reason = "the same JobID came before: it was requeued"
		}
		if reason != "" {
			dropped = append(dropped, DroppedJob{j.ID, j.Line, reason})
			continue
		}
		if len(jobs) == mostJobs {
			return nil, nil, fmt.Errorf("line %d: more than %d jobs", t.line, mostJobs)
		}
		known[j.ID] = true
		jobs = append(jobs, j)
	}
	sortByArrival(jobs)
	for i := len(jobs) - 1; i >= 0; i-- {
		jobs[i].ArrivalSeconds -= jobs[0].ArrivalSeconds
	}
	return jobs, dropped, nil
}

// readAccount reads one row, or says why it is no job to simulate.
func readAccount(t *table, rules []WorkloadRule, speeds *Throughputs) (j ClusterJob, reason string, err error) {
	j = ClusterJob{ID: t.text("JobID"), Weight: 1, Line: t.line}
	if j.ID == "" {
		return j, "", t.wrong("JobID", "a job id")
	}
	if strings.Contains(j.ID, ".") {
		return j, "a step of a job, not a job", nil
	}
	switch state, _, _ := strings.Cut(t.text("State"), " "); state {
	case "PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "CONFIGURING", "RESIZING", "COMPLETING":
		return j, "it has not ended: " + state, nil
	}
	submit := t.text("Submit")
	if submit == "Unknown" || submit == "None" {
		return j, "its time of submission is not known", nil
	}
	at, err := time.Parse("2006-01-02T15:04:05", submit)
	if err != nil {
		return j, "", t.wrong("Submit", "a time like 2026-01-31T23:59:59")
	}
	j.ArrivalSeconds = float64(at.Unix())
	elapsed, err := parseElapsed(t.text("Elapsed"))
	if err != nil {
		return j, "", t.wrong("Elapsed", "a time like 1-23:59:59")
	}
	types, err := devicesOf(t)
	if err != nil {
		return j, "", err
	}
	rule, matched := ruleFor(t.text("JobName"), rules)
	if !matched {
		return j, "no rule matches its name", nil
	}
	j.Workload = rule.Workload
	switch {
	case elapsed == 0:
		return j, "it never ran", nil
	case len(types) == 0:
		return j, "it had no GPU", nil
	case len(types) > 1:
		return j, "it had GPUs of several types, whose speed together was not measured", nil
	}
	j.Devices = types[0].count
	typ := types[0].name
	if typ == "" {
		typ = rule.Type
	}
	rate := speeds.rate(j.Workload, j.Devices, speeds.typeNamed(typ))
	j.Steps = int(min(elapsed*rate, mostSteps))
	switch {
	case typ == "":
		return j, "neither AllocTRES nor its rule names the type of its GPUs", nil
	case rate == 0:
		return j, "the throughputs have no speed above 0 for its workload on what it had", nil
	case j.Steps < 1:
		return j, "it ran for less than a step", nil
	}
	return j, "", nil
}

func ruleFor(name string, rules []WorkloadRule) (WorkloadRule, bool) {
	for _, rule := range rules {
		if ok, _ := path.Match(rule.Pattern, name); ok {
			return rule, true
		}
	}
	return WorkloadRule{}, false
}

// gpus are so many of a type, which is empty where Slurm does not know it.
type gpus struct {
	name  string
	count int
}

// devicesOf reads AllocTRES: billing=8,cpu=8,gres/gpu=4,gres/gpu:v100=4. Where types are there the untyped sum is not
// counted again.
func devicesOf(t *table) (types []gpus, err error) {
	all := gpus{}
	for _, part := range strings.Split(t.text("AllocTRES"), ",") {
		key, number, _ := strings.Cut(part, "=")
		name, isGPU := strings.CutPrefix(key, "gres/gpu")
		if !isGPU || name != "" && name[0] != ':' { // gres/gpuutil and the like are none
			continue
		}
		count, err := strconv.Atoi(number)
		if err != nil || count < 0 || count > mostPerJob {
			return nil, t.wrong("AllocTRES", fmt.Sprintf("like gres/gpu:v100=4 with a count from 0 to %d", mostPerJob))
		}
		switch {
		case count == 0:
		case name == "":
			all.count = count
		default:
			types = append(types, gpus{name[1:], count})
		}
	}
	if len(types) == 0 && all.count > 0 {
		types = append(types, all)
	}
	return types, nil
}

// parseElapsed reads [days-]hours:minutes:seconds, as sacct writes it.
func parseElapsed(s string) (seconds float64, err error) {
	days, clock, withDays := strings.Cut(s, "-")
	if !withDays {
		days, clock = "0", s
	}
	parts := strings.Split(clock, ":")
	if len(parts) != 3 {
		return 0, errors.New("not three parts")
	}
	for i, part := range append([]string{days}, parts...) {
		n, err := strconv.ParseUint(part, 10, 20)
		if err != nil {
			return 0, err
		}
		seconds += float64(n) * []float64{86400, 3600, 60, 1}[i]
	}
	return seconds, nil
}
