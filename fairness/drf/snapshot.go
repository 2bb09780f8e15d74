package drf

import (
	"io"
	"maps"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/drf"
	version = 1
)

// image is the saved form of a Queue.
type image struct {
	Capacity      lockstep.Resources `json:"capacity"`
	DefaultWeight int64              `json:"defaultWeight,omitempty"`
	OnBlocked     OnBlocked          `json:"onBlocked,omitempty"`
	Prices        Prices             `json:"prices,omitzero"`
	Tenants       []Tenant           `json:"tenants"` // by ID
	Jobs          []jobImage         `json:"jobs"`    // in the order of their submission
}

// jobImage is the saved form of a job.
type jobImage struct {
	ID       lockstep.JobID                 `json:"id"`
	Tenant   lockstep.TenantID              `json:"tenant"`
	Priority lockstep.Priority              `json:"priority,omitempty"`
	SpeedUps map[lockstep.DeviceClass]int64 `json:"speedUps,omitempty"`
	Demand   amountImage                    `json:"demand"`
	Used     *amountImage                   `json:"used,omitempty"` // nil while it waits
}

// amountImage is the saved form of an amount.
type amountImage struct {
	Raw    lockstep.Resources `json:"raw"`
	Priced int64              `json:"priced,omitempty"`
}

// Snapshot writes all of q but its passes: one line with format, version and SHA-256,
// then JSON. Equal states give equal bytes.
func (q *Queue) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "drf: snapshot", format, version, q.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut
// short, changed, of another version or of no possible state are ErrInvalid.
func Restore(r io.Reader) (*Queue, error) {
	const op = "drf: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	q, err := img.queue()
	if err != nil {
		return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", err.Error())
	}
	if err := snapshot.CheckJSON(op, body, q.image()); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Queue) image() *image {
	img := &image{
		Capacity: make(lockstep.Resources), DefaultWeight: q.weight, OnBlocked: q.onBlocked, Prices: q.prices,
		Tenants: make([]Tenant, 0, len(q.tenants)), Jobs: make([]jobImage, 0, len(q.jobs)),
	}
	for r := range q.schema.Len() {
		img.Capacity[q.schema.Name(r)] = q.raw[r]
	}
	for _, id := range slices.Sorted(maps.Keys(q.tenants)) {
		img.Tenants = append(img.Tenants, q.tenants[id].spec)
	}
	jobs := make([]*job, 0, len(q.jobs))
	for _, j := range q.jobs { // in any order: sorted below
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { // each seq is another's
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	for _, j := range jobs {
		x := jobImage{ID: j.id, Tenant: j.tenant.spec.ID, Priority: j.priority, SpeedUps: j.speedUps, Demand: *q.amountImage(j.demand)}
		if j.running {
			x.Used = q.amountImage(j.used)
		}
		img.Jobs = append(img.Jobs, x)
	}
	return img
}

func (q *Queue) amountImage(a amount) *amountImage {
	return &amountImage{q.schema.Resources(a.raw), a.priced}
}

// queue returns the Queue that img is of.
func (img *image) queue() (*Queue, error) {
	q, err := New(Config{Capacity: img.Capacity, DefaultWeight: img.DefaultWeight, OnBlocked: img.OnBlocked, Prices: img.Prices, Tenants: img.Tenants})
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
func (q *Queue) load(x *jobImage) error {
	broken := func(reason string) error {
		return fault(lockstep.ErrInvalid, "restore", "job", errtext.Quote(x.ID), reason)
	}
	t := q.tenants[x.Tenant]
	switch {
	case x.ID.Validate() != nil:
		return broken("a malformed ID")
	case q.jobs[x.ID] != nil:
		return broken("is there twice")
	case t == nil || len(t.children) > 0:
		return broken("has no tenant")
	}
	q.seq++
	j := &job{id: x.ID, tenant: t, priority: x.Priority, seq: q.seq, speedUps: x.SpeedUps}
	var ok bool
	if j.demand, ok = q.loadAmount(&x.Demand); !ok || !q.adds(q.demand, j.demand.raw) {
		return broken("asks for what cannot be")
	}
	q.demand = q.demand.Add(j.demand.raw)
	t.jobs++
	q.jobs[x.ID] = j
	if x.Used == nil {
		t.enqueue(j)
		return nil
	}
	if j.used, ok = q.loadAmount(x.Used); !ok || !q.adds(q.held, j.used.raw) {
		return broken("uses what cannot be")
	}
	j.running = true
	q.held = q.held.Add(j.used.raw)
	q.hold(t, &j.used, 1)
	q.weigh(t, &j.used, 1)
	return nil
}

// loadAmount returns the amount that x is of; its price must be one that its
// devices can have.
func (q *Queue) loadAmount(x *amountImage) (amount, bool) {
	raw, err := q.schema.Vector(x.Raw)
	if err != nil || x.Priced < 0 {
		return amount{}, false
	}
	for r := range q.schema.Len() {
		if raw[r] < 0 {
			return amount{}, false
		}
	}
	if q.gpu >= 0 && x.Priced > int64(min(lockstep.MilliGPU(raw[q.gpu]), MaxDevices))*MaxPrice {
		return amount{}, false
	}
	return amount{raw, x.Priced}, true
}
