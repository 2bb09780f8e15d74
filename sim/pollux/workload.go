package pollux

import (
	"io"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Job is one line of a workload.
type Job struct {
	ID     lockstep.JobID // ID names it.
	Submit time.Duration  // Submit is when it comes, in whole seconds from the start.
	App    string         // App is its application, by which it finds its Profile.
	GPUs   int            // GPUs is how many its user would ask for.
	Batch  int64          // Batch is the batch over all GPUs that its user would train with.
}

const (
	maxJobs   = 1 << 16
	maxSubmit = 1 << 25 // seconds, about a year
	maxGPUs   = 1 << 12
)

// ReadJobs reads a workload: columns name, time (in seconds), application, num_replicas and batch_size.
func ReadJobs(r io.Reader) ([]Job, error) {
	t, err := newTable("jobs", r, "name", "time", "application", "num_replicas", "batch_size")
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for t.next() {
		j := Job{ID: lockstep.JobID(t.text(0)), Submit: time.Duration(t.count(1, 0, maxSubmit)) * time.Second, App: t.text(2)}
		j.GPUs, j.Batch = int(t.count(3, 1, maxGPUs)), t.count(4, 1, maxBatch)
		jobs = append(jobs, j)
	}
	if err := t.err(); err != nil {
		return nil, err
	}
	if err := checkJobs(jobs); err != nil {
		return nil, err
	}
	return jobs, nil
}

func checkJobs(jobs []Job) error {
	seen := make(map[lockstep.JobID]bool, len(jobs))
	for i, j := range jobs {
		switch {
		case j.ID == "":
			return fault(lockstep.ErrInvalid, "jobs", at("jobs", i, "ID"), `""`, "want a name")
		case seen[j.ID]:
			return fault(lockstep.ErrDuplicate, "jobs", at("jobs", i, "ID"), errtext.Quote(j.ID), "occurs twice")
		case j.Submit < 0 || j.Submit > maxSubmit*time.Second || j.Submit%time.Second != 0:
			return fault(lockstep.ErrInvalid, "jobs", at("jobs", i, "Submit"), j.Submit.String(), "want whole seconds from 0 to 2^25")
		case j.GPUs < 1 || j.GPUs > maxGPUs:
			return fault(lockstep.ErrInvalid, "jobs", at("jobs", i, "GPUs"), strconv.Itoa(j.GPUs), "want 1 to 4096")
		}
		seen[j.ID] = true
	}
	if len(jobs) > maxJobs {
		return fault(lockstep.ErrInvalid, "jobs", "jobs", "", "want at most 65536")
	}
	return nil
}

// Timings are step times that were looked up elsewhere, which go before what profiles say.
type Timings map[lookup]timing

// lookup is what a timing is asked for.
type lookup struct {
	app   string
	place string // GPUs of the nodes, a digit each
	batch int64
}

// ReadTimings reads columns application, placement (GPUs of each node, joined by +), local_bsz, step_time
// and sync_time (in seconds).
func ReadTimings(r io.Reader) (Timings, error) {
	t, err := newTable("timings", r, "application", "placement", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}
	out := Timings{}
	for t.next() {
		key := lookup{app: t.text(0), batch: t.count(2, 1, maxBatch)}
		for i, c := range t.text(1) {
			switch {
			case i%2 == 0 && c >= '1' && c <= '9':
				key.place += string(c)
			case i%2 == 0 || c != '+':
				t.bad(1, "want digits joined by +")
			}
		}
		if len(t.text(1))%2 == 0 {
			t.bad(1, "want a digit at the end")
		}
		out[key] = t.timing(3)
	}
	if err := t.err(); err != nil {
		return nil, err
	}
	return out, nil
}
