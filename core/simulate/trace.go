// Package simulate says what would have happened: it replays the step times of a job's workers, recorded or synthetic,
// under any policy of core/sizing, and compares with equal batch sizes and with a clairvoyant.
//
// The package is pure: it reads from a reader that it is handed, and its chance comes from a seed.
package simulate

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Trace holds how long each worker took in each step, at equal batch sizes.
type Trace struct {
	Workers []string    // their names, in the order in which they first appear
	Steps   []string    // their names, in rising order
	Seconds [][]float64 // by step, then by worker; positive and finite. Any unit will do, it comes out as it went in
	Dropped int         // steps left out, since some worker was not measured
}

const (
	mostTraceBytes = 256 << 20
	// Times outside these bounds come from a broken clock. The policies do not learn from them.
	leastSeconds, mostSeconds = 1e-9, 1e9
)

// ReadTrace reads a CSV with a header, in which the columns `worker`, `step` (or else `time`) and `seconds` (or else
// `batch_time_norm`) count and others are ignored. A step is a number. Rows may come in any order; of rows for the same
// worker and step the last one counts. A time that is empty or 0 was not measured. Only steps that have all workers of
// the trace are kept. Errors name the line. More
// than 256 MiB are an error.
func ReadTrace(r io.Reader) (*Trace, error) { return readTrace(r, mostTraceBytes) }

func readTrace(r io.Reader, mostBytes int64) (*Trace, error) {
	limited := &io.LimitedReader{R: r, N: mostBytes + 1}
	table := csv.NewReader(limited)
	table.ReuseRecord = true
	columns, err := readHeader(table)
	if err != nil {
		return nil, err
	}
	c := collected{workers: map[string]int{}, steps: map[float64]int{}}
	for {
		record, err := table.Read()
		if limited.N == 0 {
			return nil, fmt.Errorf("larger than %d MiB", mostBytes>>20)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := table.FieldPos(0)
		if err := c.add(record[columns.worker], record[columns.step], record[columns.seconds]); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	return c.trace()
}

// header says where the columns are.
type header struct{ worker, step, seconds int }

func readHeader(table *csv.Reader) (header, error) {
	record, err := table.Read()
	if errors.Is(err, io.EOF) {
		return header{}, errors.New("empty; give a header and a row for each worker and step")
	}
	if err != nil {
		return header{}, err
	}
	record[0] = strings.TrimPrefix(record[0], "\ufeff") // as spreadsheets write it
	find := func(names ...string) int {
		for _, name := range names {
			if i := slices.Index(record, name); i >= 0 {
				err = cmp.Or(err, checkOnce(record, name))
				return i
			}
		}
		err = cmp.Or(err, fmt.Errorf("line 1: no column %s in the header", strings.Join(names, " or ")))
		return -1
	}
	h := header{find("worker"), find("step", "time"), find("seconds", "batch_time_norm")}
	return h, err
}

// collected is what the rows said.
type collected struct {
	workers map[string]int // name to index
	steps   map[float64]int
	names   []string // of workers
	labels  []string // of steps, as they were written
	rows    []row
}

type row struct {
	step, worker int32 // the file's bound bounds them
	seconds      float64
}

func (c *collected) add(worker, step, seconds string) error {
	at, err := strconv.ParseFloat(step, 64)
	if err != nil || math.IsNaN(at) || math.IsInf(at, 0) {
		return fmt.Errorf("step: %.40q is not a finite number", step)
	}
	t := 0.0
	if seconds != "" {
		t, err = strconv.ParseFloat(seconds, 64)
		if err != nil || t != 0 && !(t >= leastSeconds && t <= mostSeconds) {
			return fmt.Errorf("seconds: %.40q is not a number from %g to %g; give 0 or nothing where there is none",
				seconds, leastSeconds, mostSeconds)
		}
	}
	s, known := c.steps[at]
	if !known {
		s = len(c.labels)
		c.steps[at] = s
		c.labels = append(c.labels, strings.Clone(step))
	}
	w, known := c.workers[worker]
	if !known {
		w = len(c.names)
		worker = strings.Clone(worker)
		c.workers[worker] = w
		c.names = append(c.names, worker)
	}
	c.rows = append(c.rows, row{int32(s), int32(w), t})
	return nil
}

// trace keeps the steps that have all workers.
func (c *collected) trace() (*Trace, error) {
	if len(c.rows) == 0 {
		return nil, errors.New("no rows; give one for each worker and step")
	}
	t := &Trace{Workers: c.names}
	steps := make([]float64, len(c.labels))
	for at, s := range c.steps {
		steps[s] = at
	}
	// The order of the file among rows of one step makes the last of duplicates come last.
	slices.SortStableFunc(c.rows, func(a, b row) int { return cmp.Compare(steps[a.step], steps[b.step]) })
	for len(c.rows) > 0 {
		step, n := c.rows[0].step, 0
		for n < len(c.rows) && c.rows[n].step == step {
			n++
		}
		if times := complete(c.rows[:n], len(c.names)); times != nil {
			t.Steps = append(t.Steps, c.labels[step])
			t.Seconds = append(t.Seconds, times)
		} else {
			t.Dropped++
		}
		c.rows = c.rows[n:]
	}
	if len(t.Steps) == 0 {
		return nil, fmt.Errorf("none of the %d steps has all %d workers", t.Dropped, len(c.names))
	}
	return t, nil
}

// complete are the times of one step by worker, nil where one is missing.
func complete(rows []row, workers int) []float64 {
	if len(rows) < workers {
		return nil
	}
	times := make([]float64, workers)
	for _, r := range rows {
		times[r.worker] = r.seconds
	}
	if slices.Contains(times, 0) {
		return nil
	}
	return times
}
