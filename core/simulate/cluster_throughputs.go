package simulate

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Throughputs are measured speeds: steps per second of a workload on so many devices of one type.
type Throughputs struct {
	Table string // its name; empty where the file has no such column
	rates map[configuration]float64
	types []string // in the order of the file
	// What the file had: rows used, rows of other tables, rows measured on devices spread over nodes.
	Rows, OtherTables, Spread int
}

// configuration is what was measured.
type configuration struct {
	workload string
	devices  int
	typ      string
}

const (
	mostTableBytes = 64 << 20
	mostStepRate   = 1e9 // steps per second; more is a mistake
	mostPerJob     = 4096
	// preferredTable is taken where the file has several tables and none is named: the one of Gavel's two that was
	// measured on its physical cluster.
	preferredTable = "physical_cluster"
)

// ReadThroughputs reads a CSV with a header, in which the columns job_type, scale_factor, worker_type and steps_per_s
// count, and table and consolidated where they are there. Of several tables the named one is used; without a name the
// only one, or physical_cluster. Rows with consolidated 0 are left out. A speed of 0 says that the workload cannot run
// like that. Errors name the line and the field.
func ReadThroughputs(r io.Reader, name string) (*Throughputs, error) {
	t, err := openTable(r, ',', mostTableBytes, "job_type", "scale_factor", "worker_type", "steps_per_s")
	if err != nil {
		return nil, err
	}
	tables := map[string]*Throughputs{}
	var names []string // in the order of the file
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		of := t.text("table")
		if tables[of] == nil {
			tables[of] = &Throughputs{Table: of, rates: map[configuration]float64{}}
			names = append(names, of)
		}
		if err := tables[of].add(t); err != nil {
			return nil, err
		}
	}
	named := name != ""
	switch {
	case !named && len(names) == 1:
		name = names[0]
	case !named:
		name = preferredTable
	}
	chosen := tables[name]
	switch {
	case len(names) == 0:
		return nil, errors.New("no rows; give one for each workload, number of devices and type")
	case chosen == nil && named:
		return nil, fmt.Errorf("no rows of table %q; the file has %q", name, names)
	case chosen == nil:
		return nil, fmt.Errorf("several tables; name one of %q", names)
	}
	for _, other := range names {
		if other != name {
			chosen.OtherTables += tables[other].Rows + tables[other].Spread
		}
	}
	return chosen, nil
}

// add takes the row that the table is at.
func (t *Throughputs) add(row *table) error {
	devices, err := row.whole("scale_factor", mostPerJob)
	if err != nil {
		return err
	}
	rate, err := row.amount("steps_per_s", mostStepRate)
	if err != nil {
		return err
	}
	c := configuration{row.text("job_type"), devices, row.text("worker_type")}
	switch consolidated := row.text("consolidated"); {
	case c.workload == "":
		return row.wrong("job_type", "the name of a workload")
	case c.typ == "":
		return row.wrong("worker_type", "a device type")
	case !row.has("consolidated") || isOne(consolidated):
	case consolidated == "0" || consolidated == "0.0" || strings.EqualFold(consolidated, "false"):
		t.Spread++
		return nil
	default:
		return row.wrong("consolidated", "0 or 1")
	}
	if _, twice := t.rates[c]; twice {
		return fmt.Errorf("line %d: %s on %d %s is in table %q already; give it once", row.line, c.workload, devices,
			c.typ, t.Table)
	}
	if !slices.Contains(t.types, c.typ) {
		t.types = append(t.types, c.typ)
	}
	t.rates[c] = rate
	t.Rows++
	return nil
}

func isOne(s string) bool { return s == "1" || s == "1.0" || strings.EqualFold(s, "true") }

// rate is in steps per second, 0 where it was not measured.
func (t *Throughputs) rate(workload string, devices int, typ string) float64 {
	return t.rates[configuration{workload, devices, typ}]
}

// knows says whether a workload was measured at all.
func (t *Throughputs) knows(workload string) bool {
	for c := range t.rates {
		if c.workload == workload {
			return true
		}
	}
	return false
}

// typeNamed is the type as the throughputs spell it: Slurm's names often differ in case.
func (t *Throughputs) typeNamed(name string) string {
	if !slices.Contains(t.types, name) {
		for _, typ := range t.types {
			if strings.EqualFold(typ, name) {
				return typ
			}
		}
	}
	return name
}
