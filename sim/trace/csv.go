package trace

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// extractColumns of the extract form, in the order in which they are written. Immutable.
var extractColumns = [...]string{"job_id", "tenant", "submit_s", "duration_s", "gpus", "state"}

// ReadCSV reads rows with the header job_id,tenant,submit_s,duration_s,gpus
// and optionally state, in any order of columns; other columns are passed
// over. Seconds may have decimals, down to the nanosecond.
func ReadCSV(r io.Reader) (*Trace, error) {
	const op = "trace: csv"
	rows, err := newTable(op, r, extractColumns[:5], extractColumns[5:])
	if err != nil {
		return nil, err
	}
	t := &Trace{}
	for {
		row, line, err := rows.next()
		if err == io.EOF {
			return finish(op, t)
		}
		if err != nil {
			return nil, err
		}
		j := Job{ID: lockstep.JobID(row[0]), Tenant: lockstep.TenantID(row[1]), State: row[5]}
		var reason string
		if j.Submit, reason = parseSeconds(row[2]); reason != "" {
			return nil, fault(op, line, "submit_s", row[2], reason)
		}
		if j.Duration, reason = parseSeconds(row[3]); reason != "" {
			return nil, fault(op, line, "duration_s", row[3], reason)
		}
		if j.GPUs, err = strconv.Atoi(row[4]); err != nil {
			return nil, fault(op, line, "gpus", row[4], "want a whole number")
		}
		if err := check(op, line, &j); err != nil {
			return nil, err
		}
		t.add(line, j)
	}
}

// WriteCSV writes t in the form that ReadCSV reads.
func WriteCSV(w io.Writer, t *Trace) error {
	out := csv.NewWriter(w)
	if err := out.Write(extractColumns[:]); err != nil {
		return err
	}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		row := []string{string(j.ID), string(j.Tenant), formatSeconds(j.Submit), formatSeconds(j.Duration), strconv.Itoa(j.GPUs), j.State}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// ReadHelios reads cluster_log.csv of the Helios traces: columns job_id, vc,
// gpu_num, state, submit_time and duration are used (times as "2020-04-01
// 00:00:03", duration in seconds); the others are passed over.
func ReadHelios(r io.Reader) (*Trace, error) {
	const op = "trace: helios"
	rows, err := newTable(op, r, []string{"job_id", "vc", "gpu_num", "submit_time", "duration"}, []string{"state"})
	if err != nil {
		return nil, err
	}
	t := &Trace{}
	var dates dated
	for {
		row, line, err := rows.next()
		if err == io.EOF {
			return dates.finish(op, t)
		}
		if err != nil {
			return nil, err
		}
		j := Job{ID: lockstep.JobID(row[0]), Tenant: lockstep.TenantID(row[1]), State: row[5]}
		// Some published files count devices as "8.0".
		if j.GPUs, err = strconv.Atoi(strings.TrimSuffix(row[2], ".0")); err != nil {
			return nil, fault(op, line, "gpu_num", row[2], "want a whole number")
		}
		submit, err := time.Parse(time.DateTime, row[3])
		if err != nil {
			return nil, fault(op, line, "submit_time", row[3], "want a time such as 2020-04-01 00:00:03")
		}
		var reason string
		if j.Duration, reason = parseSeconds(row[4]); reason != "" {
			return nil, fault(op, line, "duration", row[4], reason)
		}
		if err := check(op, line, &j); err != nil {
			return nil, err
		}
		if t.add(line, j) {
			dates.at = append(dates.at, submit)
		}
	}
}

// add appends j, or counts it where it used nothing.
func (t *Trace) add(line int, j Job) bool {
	if j.GPUs == 0 || j.Duration == 0 {
		t.Skipped++
		return false
	}
	t.Jobs = append(t.Jobs, j)
	t.lines = append(t.lines, line)
	return true
}

// dated keeps the submit dates of a trace's jobs until the first is known.
type dated struct{ at []time.Time }

// finish turns dates into offsets from the midnight before the first.
func (d *dated) finish(op string, t *Trace) (*Trace, error) {
	if len(d.at) > 0 {
		zero := slices.MinFunc(d.at, time.Time.Compare).Truncate(24 * time.Hour)
		for i := range t.Jobs {
			t.Jobs[i].Submit = d.at[i].Sub(zero)
			if t.Jobs[i].Submit > MaxDuration {
				return nil, fault(op, t.lines[i], "submit", d.at[i].Format(time.DateTime), "too long after the first job")
			}
		}
	}
	return finish(op, t)
}

// table reads the wanted columns of a CSV file by the names in its header.
type table struct {
	op    string
	rows  *csv.Reader
	index []int // of each wanted column in the file; -1 where an optional one is absent
	row   []string
}

func newTable(op string, r io.Reader, required, optional []string) (*table, error) {
	t := &table{op: op, rows: csv.NewReader(r)}
	t.rows.ReuseRecord = true
	header, err := t.rows.Read()
	if err != nil {
		return nil, t.wrap(err)
	}
	header = slices.Clone(header)
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	for i, name := range slices.Concat(required, optional) {
		at := slices.Index(header, name)
		if at < 0 && i < len(required) {
			return nil, fault(op, 1, name, strings.Join(header, ","), "the header lacks this column")
		}
		t.index = append(t.index, at)
	}
	t.row = make([]string, len(t.index))
	return t, nil
}

// next returns the wanted columns of the next row, valid until the next call,
// and the line it begins on.
func (t *table) next() (row []string, line int, err error) {
	record, err := t.rows.Read()
	if err == io.EOF {
		return nil, 0, err
	}
	if err != nil {
		return nil, 0, t.wrap(err)
	}
	line, _ = t.rows.FieldPos(0)
	for i, at := range t.index {
		t.row[i] = ""
		if at >= 0 {
			t.row[i] = strings.Clone(record[at])
		}
	}
	return t.row, line, nil
}

// wrap names the line of what encoding/csv refused.
func (t *table) wrap(err error) error {
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse):
		return fault(t.op, parse.Line, "row", "", parse.Err.Error())
	case err == io.EOF:
		return fault(t.op, 1, "header", "", "the file is empty")
	}
	return err
}

// parseSeconds reads a non-negative decimal number of seconds.
func parseSeconds(s string) (time.Duration, string) {
	const want = "want a number of seconds, 0 or more"
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, want
	}
	d, err := time.ParseDuration(s + "s")
	if err != nil || d < 0 {
		return 0, want
	}
	return d, ""
}

func formatSeconds(d time.Duration) string {
	s := strconv.FormatInt(int64(d/time.Second), 10)
	if rest := d % time.Second; rest != 0 {
		digits := strconv.FormatInt(int64(time.Second+rest), 10)[1:]
		s += "." + strings.TrimRight(digits, "0")
	}
	return s
}
