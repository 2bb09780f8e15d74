package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// phillyJob is what cluster_job_log keeps of a job, as far as it is used.
type phillyJob struct {
	Status    string          `json:"status"`
	VC        string          `json:"vc"`
	ID        string          `json:"jobid"`
	Submitted string          `json:"submitted_time"`
	Attempts  []phillyAttempt `json:"attempts"`
}

type phillyAttempt struct {
	Start  *string `json:"start_time"`
	End    *string `json:"end_time"`
	Detail []struct {
		IP   string   `json:"ip"`
		GPUs []string `json:"gpus"`
	} `json:"detail"`
}

// ReadPhilly reads cluster_job_log of the Philly traces: a JSON array of jobs
// with their attempts. Times are read as UTC, which keeps differences right
// whatever zone the source used. An attempt without a start or an end counts
// for nothing, as in the source's own analysis. Errors about a job name the line
// on which its record ends.
func ReadPhilly(r io.Reader) (*Trace, error) {
	const op = "trace: philly"
	lines := &lineCounter{r: bufio.NewReader(r)}
	dec := json.NewDecoder(lines)
	wrap := func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fault(op, lines.at(lines.offset), "json", "", "the file ends early")
		}
		return fault(op, lines.at(dec.InputOffset()), "json", "", err.Error())
	}
	if tok, err := dec.Token(); err != nil {
		return nil, wrap(err)
	} else if tok != json.Delim('[') {
		return nil, fault(op, 1, "json", "", "want an array of jobs")
	}
	t := &Trace{}
	var dates dated
	for dec.More() {
		var p phillyJob
		if err := dec.Decode(&p); err != nil {
			return nil, wrap(err)
		}
		line := lines.at(dec.InputOffset())
		submit, err := time.Parse(time.DateTime, p.Submitted)
		if err != nil {
			return nil, fault(op, line, "submitted_time", p.Submitted, "want a time such as 2017-10-09 07:11:00")
		}
		j := Job{ID: lockstep.JobID(p.ID), Tenant: lockstep.TenantID(p.VC), State: p.Status}
		for i := range p.Attempts {
			if err := p.Attempts[i].count(op, line, i, &j); err != nil {
				return nil, err
			}
		}
		if err := check(op, line, &j); err != nil {
			return nil, err
		}
		if t.add(line, j) {
			dates.at = append(dates.at, submit)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, wrap(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fault(op, lines.at(dec.InputOffset()), "json", "", "something follows the array of jobs")
	}
	return dates.finish(op, t)
}

// count adds an attempt's time to j and widens it to the attempt's devices.
func (a *phillyAttempt) count(op string, line, i int, j *Job) error {
	if a.Start == nil || a.End == nil || *a.Start == "" || *a.End == "" || *a.Start == "None" || *a.End == "None" {
		return nil
	}
	field := "attempts[" + strconv.Itoa(i) + "]"
	start, err := time.Parse(time.DateTime, *a.Start)
	if err != nil {
		return fault(op, line, field+".start_time", *a.Start, "want a time such as 2017-10-09 07:11:00")
	}
	end, err := time.Parse(time.DateTime, *a.End)
	if err != nil {
		return fault(op, line, field+".end_time", *a.End, "want a time such as 2017-10-09 07:11:00")
	}
	if end.Before(start) {
		return fault(op, line, field+".end_time", *a.End, "before start_time")
	}
	gpus := 0
	for _, d := range a.Detail {
		gpus += len(d.GPUs)
	}
	if gpus > 0 {
		j.Duration += end.Sub(start)
		j.GPUs = max(j.GPUs, gpus)
	}
	return nil
}

// lineCounter remembers where lines begin in what it has passed on, so that a
// decoder's offset can be told as a line. Offsets are asked for in increasing
// order, so that what lies behind can be forgotten.
type lineCounter struct {
	r      io.Reader
	offset int64
	line   int     // lines that began at or before the last offset asked for, less one
	starts []int64 // offsets of the line beginnings after it
}

// Read passes on what the underlying reader has.
func (l *lineCounter) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.starts = append(l.starts, l.offset+int64(i)+1)
		}
	}
	l.offset += int64(n)
	return n, err
}

// at returns the line, from 1, of the byte at offset.
func (l *lineCounter) at(offset int64) int {
	passed := 0
	for passed < len(l.starts) && l.starts[passed] <= offset {
		passed++
	}
	l.line += passed
	l.starts = slices.Delete(l.starts, 0, passed)
	return l.line + 1
}
