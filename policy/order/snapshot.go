package order

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/order"
	version = 1
)

// image is the saved form of a Queue between two passes.
type image struct {
	Order string   `json:"order"`
	Now   int64    `json:"now"`
	Pass  int64    `json:"pass"`
	Lets  int64    `json:"lets"`
	Jobs  []record `json:"jobs"` // by ID
}

// record is the saved form of a Job.
type record struct {
	ID       lockstep.JobID    `json:"id"`
	Priority lockstep.Priority `json:"priority,omitempty"`
	GPUs     lockstep.MilliGPU `json:"gpus"`
	Duration time.Duration     `json:"duration,omitempty"`
	Deadline *int64            `json:"deadline,omitempty"`
	Phase    phase             `json:"phase"`
	Submit   int64             `json:"submit"`
	Since    int64             `json:"since"`
	At       int64             `json:"at,omitempty"`
	Executed int64             `json:"executed,omitempty"`
	Service  lockstep.GPUTime  `json:"service,omitzero"`
	Level    int               `json:"level,omitempty"`
	Gauge    lockstep.GPUTime  `json:"gauge,omitzero"`
	Spent    int64             `json:"spent,omitempty"`
	Class    class             `json:"class,omitempty"`
	Major    int64             `json:"major"`
	Minor    int64             `json:"minor,omitempty"`
}

// Snapshot writes the whole queue but for the place of a pass that is under
// way: one line with format, version and SHA-256, then JSON. Equal queues give
// equal bytes.
func (q *Queue) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "order: snapshot", format, version, q.image())
}

// Restore reads what Snapshot wrote, for a queue with the same order. Bytes
// that are cut short, changed, of another version, of another order or of no
// possible queue are ErrInvalid. Orders of your own are known by their type
// alone, so their fields must be the same as before.
func Restore(cfg Config, r io.Reader) (*Queue, error) {
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	const op = "order: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	if err := q.load(&img); err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, q.image()); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Queue) image() *image {
	img := &image{Order: q.name, Now: q.now, Pass: q.pass, Lets: q.lets, Jobs: make([]record, 0, len(q.jobs))}
	for _, id := range slices.Sorted(maps.Keys(q.jobs)) {
		j := q.jobs[id]
		var deadline *int64
		if j.deadline != never {
			deadline = &j.deadline
		}
		img.Jobs = append(img.Jobs, record{
			ID: j.ID, Priority: j.Priority, GPUs: j.GPUs, Duration: j.Duration, Deadline: deadline, Phase: j.phase, Submit: j.submit, Since: j.since,
			At: j.at, Executed: j.executed, Service: j.service, Level: j.level, Gauge: j.gauge, Spent: j.spent,
			Class: j.place.class, Major: j.place.major, Minor: j.place.minor,
		})
	}
	return img
}

// load fills q, which is new.
func (q *Queue) load(img *image) error {
	broken := func(field, reason string) error { return fault(lockstep.ErrInvalid, "restore", field, "", reason) }
	if img.Order != q.name {
		return broken("order", "is "+strconv.Quote(img.Order)+", want "+strconv.Quote(q.name))
	}
	q.now, q.pass, q.lets = img.Now, img.Pass, img.Lets
	places := make(map[place]bool)
	for i := range img.Jobs {
		r := &img.Jobs[i]
		j := &Job{
			ID: r.ID, Priority: r.Priority, GPUs: r.GPUs, Duration: r.Duration, phase: r.Phase, submit: r.Submit, since: r.Since,
			at: r.At, executed: r.Executed, service: r.Service, level: r.Level, gauge: r.Gauge, spent: r.Spent,
			place: place{r.Class, r.Major, r.Minor}, timer: never, deadline: never,
			First: lockstep.FromNanos(r.Submit),
		}
		if r.Deadline != nil {
			j.deadline, j.Deadline = *r.Deadline, lockstep.FromNanos(*r.Deadline)
		}
		reason := q.check(j)
		if places[j.place] && j.place.class != arrived {
			reason = "stands in the place of another"
		}
		if reason != "" {
			return broken("jobs["+strconv.Itoa(i)+"]", reason)
		}
		places[j.place] = true
		q.jobs[j.ID] = j
		q.putIn(j)
	}
	return nil
}

// check says what is impossible about j.
func (q *Queue) check(j *Job) string {
	_, twice := q.jobs[j.ID]
	switch {
	case j.ID.Validate() != nil || twice:
		return "is no ID or stands twice"
	case j.GPUs < 0 || j.Duration < 0 || j.Duration > lockstep.MaxWalltime || j.deadline < 0:
		return "demand out of range"
	case j.phase < waiting || j.phase > competing:
		return "phase is unknown"
	case j.submit < 0 || j.submit > j.since || j.since > q.now || j.at > q.now || j.executed < 0 || j.spent < 0 || j.spent > j.executed:
		return "times out of order"
	case (j.phase == running || j.phase == competing) && j.at < j.submit, j.executed > 0 && uint64(j.executed) > uint64(q.now)-uint64(j.submit):
		return "ran before it was submitted"
	case j.level < 0 || j.level > len(q.limits) || j.gauge.Sign() < 0 || j.gauge.Cmp(j.service) > 0:
		return "level out of range"
	}
	p := j.place
	switch {
	case p.class == let && p.major > 0 && p.major <= q.lets && p.minor == 0,
		p.class == stopped && p.major <= 0 && p.major >= -q.pass && p.minor > 0 && p.minor <= q.lets,
		p.class == arrived && p.major >= j.submit && p.major <= q.now && p.minor == 0:
		return ""
	}
	return "place out of range"
}
