package pollux

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// table reads the columns that it is asked for, by name, from comma-separated text with a header.
type table struct {
	op   string
	rows *csv.Reader
	at   []int // of each wanted column
	row  []string
	line int
	name []string
	errs []error
}

func newTable(op string, r io.Reader, columns ...string) (*table, error) {
	t := &table{op: op, rows: csv.NewReader(r), name: columns}
	t.rows.ReuseRecord = true
	header, err := t.rows.Read()
	if err != nil {
		return nil, fmt.Errorf("pollux: %s: header: %w", op, err)
	}
	for _, c := range columns {
		i := slices.Index(header, c)
		if i < 0 {
			return nil, fault(lockstep.ErrInvalid, op, "header", errtext.Quote(c), "is not among the columns")
		}
		t.at = append(t.at, i)
	}
	return t, nil
}

// next reads a row; false at the end or where the text is no table, which err then tells.
func (t *table) next() bool {
	var err error
	if t.row, err = t.rows.Read(); err == nil {
		t.line++
		return len(t.errs) == 0 // one bad row is enough
	}
	if !errors.Is(err, io.EOF) {
		t.errs = append(t.errs, fmt.Errorf("pollux: %s: %w", t.op, err))
	}
	return false
}

func (t *table) err() error { return errors.Join(t.errs...) }

func (t *table) text(col int) string { return t.row[t.at[col]] }

func (t *table) bad(col int, want string) {
	t.errs = append(t.errs, fault(lockstep.ErrInvalid, t.op, at("rows", t.line, t.name[col]), errtext.Quote(t.text(col)), want))
}

func (t *table) count(col int, least, most int64) int64 {
	n, err := strconv.ParseInt(t.text(col), 10, 64)
	if err != nil || n < least || n > most {
		t.bad(col, fmt.Sprintf("want %d to %d", least, most))
	}
	return n
}

// figure reads a number from least to most.
func (t *table) figure(col int, least, most float64) float64 {
	v, err := strconv.ParseFloat(t.text(col), 64)
	if err != nil || math.IsNaN(v) || v < least || v > most {
		t.bad(col, fmt.Sprintf("want %g to %g", least, most))
	}
	return v
}
