package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table reads a CSV with a header row by row, and knows the line.
type table struct {
	csv     *csv.Reader
	limited *io.LimitedReader
	most    int64
	columns []string
	record  []string
	line    int
}

// openTable reads the header, in which the columns must be; others are ignored.
func openTable(r io.Reader, comma rune, mostBytes int64, columns ...string) (*table, error) {
	t := &table{limited: &io.LimitedReader{R: r, N: mostBytes + 1}, most: mostBytes}
	t.csv = csv.NewReader(t.limited)
	t.csv.Comma, t.csv.ReuseRecord, t.csv.LazyQuotes = comma, true, comma != ','
	header, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("empty; give a header with the columns %s", strings.Join(columns, ", "))
	}
	if err != nil {
		return nil, err
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // as spreadsheets write it
	t.columns = slices.Clone(header)
	for i, name := range t.columns {
		t.columns[i] = strings.Clone(name)
	}
	for _, name := range columns {
		if !t.has(name) {
			return nil, fmt.Errorf("line 1: no column %s in the header; give %s", name, strings.Join(columns, ", "))
		}
	}
	return t, nil
}

func (t *table) has(column string) bool { return slices.Contains(t.columns, column) }

// next moves to the next row and is io.EOF after the last.
func (t *table) next() (err error) {
	t.record, err = t.csv.Read()
	if t.limited.N == 0 {
		return fmt.Errorf("larger than %d MiB", t.most>>20)
	}
	if err == nil {
		t.line, _ = t.csv.FieldPos(0)
	}
	return err
}

// text is the field of a column, empty where there is no such column.
func (t *table) text(column string) string {
	if i := slices.Index(t.columns, column); i >= 0 {
		return strings.Clone(t.record[i])
	}
	return ""
}

// wrong is the error about a field of the row.
func (t *table) wrong(column, right string) error {
	return fmt.Errorf("line %d: %s: %.40q is not %s", t.line, column, t.text(column), right)
}

// whole reads a whole number from 1 to most.
func (t *table) whole(column string, most int) (int, error) {
	x, err := strconv.ParseFloat(t.text(column), 64)
	if err != nil || x != math.Trunc(x) || x < 1 || x > float64(most) {
		return 0, t.wrong(column, fmt.Sprintf("a whole number from 1 to %d", most))
	}
	return int(x), nil
}

// amount reads a number from 0 to most.
func (t *table) amount(column string, most float64) (float64, error) {
	x, err := strconv.ParseFloat(t.text(column), 64)
	if err != nil || !(x >= 0 && x <= most) {
		return 0, t.wrong(column, fmt.Sprintf("a number from 0 to %g", most))
	}
	return x, nil
}
