package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// job is one row of a trace.
type job = trace.Job

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
// time, then ID. A limit above 0 keeps the first so many only.
func readJobs(r io.Reader, limit int) ([]job, error) {
	text, err := plain(r)
	if err != nil {
		return nil, err
	}
	t, err := trace.ReadCSV(text)
	if err != nil {
		return nil, err
	}
	if len(t.Jobs) == 0 {
		return nil, errors.New("there are no jobs")
	}
	if limit > 0 && limit < len(t.Jobs) {
		t.Jobs = t.Jobs[:limit]
	}
	return t.Jobs, nil
}

// plain unpacks r when it is gzip.
func plain(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(buffered)
	}
	return buffered, nil
}
