package deadline

import (
	"errors"
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// elasticFormat and elasticVersion of the saved form; others are refused.
const (
	elasticFormat  = "lockstep/policy/deadline-elastic"
	elasticVersion = 1
)

// elasticImage is the saved form of an Elastic. What is free follows from the plans.
type elasticImage struct {
	GPUs   int               `json:"gpus"`
	Now    int64             `json:"now"`
	Stale  bool              `json:"stale,omitempty"`
	Filled bool              `json:"filled,omitempty"`
	Jobs   []elasticJobImage `json:"jobs,omitempty"` // by deadline, then ID
}

type elasticJobImage struct {
	ID       lockstep.JobID `json:"id"`
	Points   []Point        `json:"points"`
	Left     string         `json:"left"` // in units × nanoseconds a second
	Deadline int64          `json:"deadline"`
	Plan     []planImage    `json:"plan,omitempty"`
}

type planImage struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	GPUs int   `json:"gpus"`
}

func (e *Elastic) image() elasticImage {
	img := elasticImage{GPUs: e.gpus, Now: e.now, Stale: e.stale, Filled: e.filled}
	for _, j := range e.jobs {
		saved := elasticJobImage{ID: j.id, Points: j.points, Left: j.left.String(), Deadline: j.deadline}
		for _, s := range j.plan {
			saved.Plan = append(saved.Plan, planImage{s.from, s.to, s.gpus})
		}
		img.Jobs = append(img.Jobs, saved)
	}
	return img
}

// Snapshot writes all jobs and their plans: one line with format, version and SHA-256, then JSON. Equal states give equal
// bytes.
func (e *Elastic) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "deadline: snapshot", elasticFormat, elasticVersion, e.image())
}

// RestoreElastic reads what Elastic.Snapshot wrote. What comes of it decides as the one that was saved would have. Bytes that
// Snapshot did not write, and states that cannot be, are ErrInvalid.
func RestoreElastic(r io.Reader) (*Elastic, error) {
	const op = "deadline: restore"
	var img elasticImage
	body, err := snapshot.ReadJSON(r, op, elasticFormat, elasticVersion, &img)
	if err != nil {
		return nil, err
	}
	e, err := NewElastic(img.GPUs)
	if err != nil {
		return nil, err
	}
	bad := func(field, reason string) (*Elastic, error) {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: field, Reason: reason}
	}
	if img.Now < 0 || img.Stale && img.Filled {
		return bad("now", "does not fit the rest")
	}
	e.now, e.stale, e.filled = img.Now, img.Stale, img.Filled
	e.free.empty(e.now, e.gpus)
	for i := range img.Jobs {
		j, reason := e.restored(&img.Jobs[i])
		if reason != "" {
			return bad("jobs["+strconv.Itoa(i)+"]", reason)
		}
		e.jobs = append(e.jobs, j)
		e.byID[j.id] = j
		if !e.stale { // until then the devices may have become fewer
			e.free.reserve(j.plan)
		}
	}
	return e, snapshot.CheckJSON(op, body, e.image())
}

// restored returns a saved job, or why it cannot be.
func (e *Elastic) restored(img *elasticJobImage) (*elastic, string) {
	j := &elastic{id: img.ID, points: img.Points, deadline: img.Deadline}
	left, ok := int128.Parse(img.Left)
	j.left = left
	most := workOf(never)
	switch {
	case j.id.Validate() != nil || e.byID[j.id] != nil:
		return nil, "is no ID, or stands twice"
	case len(e.jobs) > 0 && byDeadline(e.jobs[len(e.jobs)-1], j) >= 0:
		return nil, "is out of order"
	case errors.Join(checkPoints("restore", j.points)...) != nil:
		return nil, "has points that cannot be"
	case !ok || left.Cmp(most) > 0 || left.Cmp(most.Neg()) < 0 || j.deadline < 0:
		return nil, "work or deadline out of range"
	}
	last := e.now
	for _, s := range img.Plan {
		on, ok := within(j.points, s.GPUs)
		if !ok || on.GPUs != s.GPUs || s.From < last || s.To <= s.From {
			return nil, "has a plan that cannot be"
		}
		j.plan = append(j.plan, stretch{s.From, s.To, s.GPUs, on.Rate})
		last = s.To
	}
	if !e.stale && !e.free.has(j.plan) {
		return nil, "has devices that there are not"
	}
	return j, ""
}
