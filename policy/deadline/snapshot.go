package deadline

import (
	"cmp"
	"io"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/policy/deadline"
	version = 1
)

// image is the saved form of a Table. What is booked by slot follows from the jobs.
type image struct {
	Config Config     `json:"config"`
	Now    int64      `json:"now"`
	Index  int64      `json:"index"`
	Given  bool       `json:"given,omitempty"`
	Missed int64      `json:"missed,omitempty"`
	Jobs   []jobImage `json:"jobs,omitempty"` // by ID
}

type jobImage struct {
	ID       lockstep.JobID `json:"id"`
	GPUs     int            `json:"gpus"`
	Left     int64          `json:"left"`
	At       int64          `json:"at"`
	Deadline int64          `json:"deadline"`
	Slots    []int          `json:"slots,omitempty"`
	Running  bool           `json:"running,omitempty"`
	AtRisk   bool           `json:"atRisk,omitempty"`
}

func (t *Table) image() image {
	img := image{Config: t.cfg, Now: t.now, Index: t.index, Given: t.given, Missed: t.missed}
	for _, j := range t.jobs { // sorted below, so order cannot matter
		img.Jobs = append(img.Jobs, jobImage{j.id, j.gpus, j.left, j.at, j.deadline, j.slots, j.running, j.atRisk})
	}
	slices.SortFunc(img.Jobs, func(a, b jobImage) int { return cmp.Compare(a.ID, b.ID) })
	return img
}

// Snapshot writes the whole table: one line with format, version and SHA-256, then JSON. Equal tables give equal bytes.
func (t *Table) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "deadline: snapshot", format, version, t.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that Snapshot did not write, and tables that cannot
// be, are ErrInvalid.
func Restore(r io.Reader) (*Table, error) {
	const op = "deadline: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	t, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	bad := func(field, reason string) (*Table, error) {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: field, Reason: reason}
	}
	t.now, t.index, t.given, t.missed = img.Now, img.Index, img.Given, img.Missed
	if t.missed < 0 || len(img.Jobs) > 0 && (t.now < 0 || int128.FloorDiv(t.now-t.origin(), int64(t.cfg.Lease)) != t.index) {
		return bad("now", "does not fit the rest")
	}
	for i, j := range img.Jobs {
		n := &job{j.ID, j.GPUs, j.Left, j.At, j.Deadline, j.Slots, j.Running, j.AtRisk}
		if reason := t.impossibleJob(n); reason != "" {
			return bad("jobs["+strconv.Itoa(i)+"]", reason)
		}
		t.jobs[j.ID] = n
		t.plan(n, n.slots)
	}
	return t, snapshot.CheckJSON(op, body, t.image())
}

// impossibleJob returns why a saved job cannot be, or "".
func (t *Table) impossibleJob(j *job) string {
	_, twice := t.jobs[j.id]
	switch {
	case j.id.Validate() != nil || twice:
		return "is no ID, or stands twice"
	case j.gpus < 1 || j.gpus > maxGPUs:
		return "devices out of range"
	case j.left < 1 || j.left > int64(lockstep.MaxWalltime) || j.at < 0 || j.at > t.now || j.deadline < 0:
		return "times out of range"
	case j.running && !t.given, j.running && j.at < t.start(t.index), j.atRisk && j.deadline == never:
		return "cannot be in that state"
	case len(j.slots) > 0 && j.deadline == never:
		return "is planned without a deadline"
	}
	for i, s := range j.slots {
		if s < 0 || s >= maxSlots || i > 0 && s <= j.slots[i-1] || s == 0 && t.given {
			return "has slots that cannot be"
		}
	}
	return ""
}
