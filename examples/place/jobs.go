package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// job is one row of a trace.
type job struct {
	ID       lockstep.JobID
	Tenant   lockstep.TenantID
	Submit   time.Duration // since the trace's zero
	Duration time.Duration // how long it runs once started, at least 1 ns
	GPUs     int           // how many devices, at least 1
}

// maxJobGPUs bounds the devices of one job, far above any cluster.
const maxJobGPUs = 1 << 20

// readJobsFile reads the trace in the named file; see readJobs.
func readJobsFile(path string, limit int) ([]job, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	jobs, err := readJobs(file, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return jobs, nil
}

// readJobs reads a CSV trace, plain or gzip, and returns its jobs by submit
// time, those of one time in the order of their lines. A limit above 0 keeps the
// first so many lines only. Errors name the line.
func readJobs(r io.Reader, limit int) ([]job, error) {
	text, err := plain(r)
	if err != nil {
		return nil, err
	}
	rows := csv.NewReader(text)
	rows.ReuseRecord = true
	columns, err := readHeader(rows)
	if err != nil {
		return nil, err
	}
	var jobs []job
	lines := make(map[lockstep.JobID]int)
	for limit <= 0 || len(jobs) < limit {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err // csv.ParseError names the line; so does a broken gzip the cause
		}
		line, _ := rows.FieldPos(0)
		j, err := columns.job(row)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if first, ok := lines[j.ID]; ok {
			return nil, fmt.Errorf("line %d: job_id %q is already on line %d", line, j.ID, first)
		}
		lines[j.ID] = line
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil, errors.New("no jobs: the file has a header and nothing else")
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return int(min(max(a.Submit-b.Submit, -1), 1)) })
	return jobs, nil
}

// plain unpacks r when it is gzip and drops a byte order mark.
func plain(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		buffered = bufio.NewReader(unpacked)
	}
	if mark, _ := buffered.Peek(3); bytes.Equal(mark, []byte("\ufeff")) {
		_, _ = buffered.Discard(3)
	}
	return buffered, nil
}

// columns are the places of the fields in a row.
type columns struct{ id, tenant, submit, duration, gpus int }

func readHeader(rows *csv.Reader) (columns, error) {
	head, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return columns{}, errors.New("line 1: want a header: job_id,tenant,submit_s,duration_s,gpus,state")
	}
	if err != nil {
		return columns{}, err
	}
	var c columns
	for _, want := range []struct {
		name string
		at   *int
	}{{"job_id", &c.id}, {"tenant", &c.tenant}, {"submit_s", &c.submit}, {"duration_s", &c.duration}, {"gpus", &c.gpus}} {
		*want.at = slices.IndexFunc(head, func(s string) bool { return strings.TrimSpace(s) == want.name })
		if *want.at < 0 {
			return columns{}, fmt.Errorf("line 1: the header lacks %s: want job_id,tenant,submit_s,duration_s,gpus,state", want.name)
		}
	}
	return c, nil
}

// job reads one row. The strings it keeps are copies.
func (c columns) job(row []string) (job, error) {
	j := job{ID: lockstep.JobID(strings.Clone(row[c.id])), Tenant: lockstep.TenantID(strings.Clone(row[c.tenant]))}
	if err := j.ID.Validate(); err != nil {
		return job{}, err
	}
	var err error
	if j.Submit, err = parseSeconds(row[c.submit]); err != nil {
		return job{}, fmt.Errorf("submit_s %q: %w", row[c.submit], err)
	}
	if j.Duration, err = parseSeconds(row[c.duration]); err != nil {
		return job{}, fmt.Errorf("duration_s %q: %w", row[c.duration], err)
	}
	if j.Duration == 0 {
		return job{}, fmt.Errorf("duration_s %q: must be above 0", row[c.duration])
	}
	if j.GPUs, err = strconv.Atoi(row[c.gpus]); err != nil || j.GPUs < 1 || j.GPUs > maxJobGPUs {
		return job{}, fmt.Errorf("gpus %q: want 1 to %d", row[c.gpus], maxJobGPUs)
	}
	return j, nil
}

// parseSeconds reads "116" or "116.25" exactly.
func parseSeconds(s string) (time.Duration, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, errors.New("want a number of seconds, 0 or more")
	}
	d, err := time.ParseDuration(s + "s")
	if err != nil || d > lockstep.MaxWalltime {
		return 0, fmt.Errorf("want a number of seconds, at most %.0f", lockstep.MaxWalltime.Seconds())
	}
	return d, nil
}
