package quota

import (
	"cmp"
	"io"
	"maps"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/quota"
	version = 1
)

// image is the saved form of a Quota: what the rest follows from.
type image struct {
	Capacity         lockstep.Resources `json:"capacity"`
	ByTenant         bool               `json:"byTenant,omitempty"`
	DisableBorrowing bool               `json:"disableBorrowing,omitempty"`
	Queues           []Queue            `json:"queues"` // by name
	Jobs             []jobImage         `json:"jobs"`   // those that are charged in the order of their charges, then by ID
}

// jobImage is the saved form of a job.
type jobImage struct {
	ID          lockstep.JobID     `json:"id"`
	Queue       lockstep.QueueID   `json:"queue"`
	Priority    lockstep.Priority  `json:"priority,omitempty"`
	Preemptible bool               `json:"preemptible,omitempty"`
	Elastic     bool               `json:"elastic,omitempty"`
	Parts       []partImage        `json:"parts,omitempty"`
	Want        lockstep.Resources `json:"want,omitempty"`
	Told        bool               `json:"told,omitempty"` // Want was told, though it may be nothing
}

// partImage is the saved form of a role.
type partImage struct {
	Members int                `json:"members"`
	Spares  int                `json:"spares,omitempty"`
	Least   int                `json:"least"`
	Each    lockstep.Resources `json:"each"`
}

// Snapshot writes all of q: one line with format, version and SHA-256, then JSON.
// Equal states give equal bytes.
func (q *Quota) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "quota: snapshot", format, version, q.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut
// short, changed, of another version or of no possible state are ErrInvalid.
func Restore(r io.Reader) (*Quota, error) {
	const op = "quota: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	q, err := img.quota()
	if err != nil {
		return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", err.Error())
	}
	if err := snapshot.CheckJSON(op, body, q.image()); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Quota) image() *image {
	img := &image{
		Capacity: q.schema.Resources(q.root.nominal), ByTenant: q.byTenant, DisableBorrowing: q.static,
		Queues: make([]Queue, 0, len(q.nodes)), Jobs: make([]jobImage, 0, len(q.jobs)),
	}
	for r := range q.schema.Len() {
		img.Capacity[q.schema.Name(r)] = q.root.nominal[r]
	}
	for _, name := range slices.Sorted(maps.Keys(q.nodes)) {
		img.Queues = append(img.Queues, q.nodes[name].spec)
	}
	jobs := make([]*job, 0, len(q.jobs))
	for _, j := range q.jobs { // in any order: sorted below
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { // those that are not charged have seq 0, and come last
		return cmp.Or(cmp.Compare(a.seq-1, b.seq-1), cmp.Compare(a.id, b.id))
	})
	for _, j := range jobs {
		img.Jobs = append(img.Jobs, q.jobImage(j))
	}
	return img
}

func (q *Quota) jobImage(j *job) jobImage {
	x := jobImage{ID: j.id, Queue: j.queue.spec.Name}
	if j.parts != nil {
		x.Priority, x.Preemptible, x.Elastic = j.priority, j.preemptible, j.elastic
	}
	for i := range j.parts {
		p := &j.parts[i]
		x.Parts = append(x.Parts, partImage{p.members, p.spares, p.least, q.schema.Resources(p.each)})
	}
	if j.want != nil {
		x.Want, x.Told = q.schema.Resources(*j.want), true
	}
	return x
}

// quota returns the Quota that img is of.
func (img *image) quota() (*Quota, error) {
	cfg := Config{Capacity: img.Capacity, ByTenant: img.ByTenant, DisableBorrowing: img.DisableBorrowing}
	for i := range img.Queues {
		if s := &img.Queues[i]; s.Name == "" { // a tenant without a name
			cfg.Tenants = append(cfg.Tenants, Tenant{Weight: s.Weight})
		} else {
			cfg.Queues = append(cfg.Queues, *s)
		}
	}
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	for i := range img.Jobs {
		if err := q.load(&img.Jobs[i]); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// load adds a saved job.
func (q *Quota) load(x *jobImage) error {
	broken := func(reason string) error {
		return fault(lockstep.ErrInvalid, "restore", "job", errtext.Quote(x.ID), reason)
	}
	n := q.nodes[x.Queue]
	switch {
	case x.ID.Validate() != nil:
		return broken("a malformed ID")
	case q.jobs[x.ID] != nil:
		return broken("is there twice")
	case n == nil || len(n.children) != 0:
		return broken("is in no queue")
	case len(x.Parts) == 0 && !x.Told || len(x.Parts) > lockstep.MaxRoles:
		return broken("is neither charged nor told of")
	}
	j := &job{id: x.ID, queue: n, priority: x.Priority, preemptible: x.Preemptible, elastic: x.Elastic}
	for i := range x.Parts {
		p := &x.Parts[i]
		if min(p.Members, p.Spares, p.Least) < 0 || max(p.Members, p.Spares, p.Least) > lockstep.MaxMembers {
			return broken("members out of range")
		}
		each, err := q.amounts("restore", "each", p.Each, 0)
		if err != nil {
			return err
		}
		j.parts = append(j.parts, part{p.Members, p.Spares, p.Least, each})
	}
	amount := j.charged()
	if !adds(&q.root.used, &amount) {
		return broken("the sum of all charges is absurd")
	}
	if x.Told {
		want, err := q.amounts("restore", "want", x.Want, 0)
		if err != nil {
			return err
		}
		if !adds(&q.wanted, &want) {
			return broken("the sum of all demands is absurd")
		}
		j.want = &want
		q.wanted = q.wanted.Add(want)
		n.waiting++
	}
	q.jobs[x.ID] = j
	if j.parts != nil {
		q.enter(j)
		q.charge(n, &amount, 1)
	}
	demand := j.demand()
	q.ask(n, &demand, 1)
	return nil
}
