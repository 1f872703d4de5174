package simulate

import (
	"bufio"
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
	read    func() (record []string, line int, err error)
	limited *io.LimitedReader
	most    int64
	columns []string
	record  []string
	line    int
}

// openTable reads the header, in which the columns must be; others are ignored. Fields are parted by commas, and quoted as
// in CSV, or by |, and never quoted, as sacct prints them.
func openTable(r io.Reader, separator rune, mostBytes int64, columns ...string) (*table, error) {
	t := &table{limited: &io.LimitedReader{R: r, N: mostBytes + 1}, most: mostBytes}
	if separator == ',' {
		t.read = commaSeparated(t.limited)
	} else {
		t.read = lineByLine(t.limited, string(separator))
	}
	header, _, err := t.read()
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
		if err := checkOnce(t.columns, name); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// checkOnce refuses a header that has a column twice: either could be meant.
func checkOnce(header []string, name string) error {
	if first := slices.Index(header, name); slices.Contains(header[first+1:], name) {
		return fmt.Errorf("line 1: column %s is twice in the header; give it once", name)
	}
	return nil
}

func commaSeparated(r io.Reader) func() ([]string, int, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord, rows.FieldsPerRecord = true, -1
	return func() ([]string, int, error) {
		record, err := rows.Read()
		var wrong *csv.ParseError
		if errors.As(err, &wrong) {
			return nil, 0, fmt.Errorf("line %d: not CSV: %w", wrong.Line, wrong.Err)
		}
		if err != nil {
			return nil, 0, err
		}
		line, _ := rows.FieldPos(0)
		return record, line, nil
	}
}

func lineByLine(r io.Reader, separator string) func() ([]string, int, error) {
	lines := bufio.NewReader(r)
	line := 0
	return func() ([]string, int, error) {
		for {
			text, err := lines.ReadString('\n')
			line++
			if text = strings.TrimRight(text, "\r\n"); text != "" {
				return strings.Split(text, separator), line, nil
			}
			if err != nil {
				return nil, 0, err
			}
		}
	}
}

// fieldsError is a row that has not as many fields as the header.
type fieldsError struct{ line, fields, want int }

func (e *fieldsError) Error() string {
	return fmt.Sprintf("line %d: %d fields; give %d as in the header", e.line, e.fields, e.want)
}

func (t *table) has(column string) bool { return slices.Contains(t.columns, column) }

// next moves to the next row and is io.EOF after the last.
func (t *table) next() (err error) {
	t.record, t.line, err = t.read()
	if t.limited.N == 0 {
		return fmt.Errorf("larger than %d MiB", t.most>>20)
	}
	if err == nil && len(t.record) != len(t.columns) {
		return &fieldsError{t.line, len(t.record), len(t.columns)}
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
