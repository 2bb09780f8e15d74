package lease

import (
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/lease"
	version = 1
)

// image is the saved form of a Table.
type image struct {
	Config Config   `json:"config"`
	Now    int64    `json:"now"`
	Last   Token    `json:"last"`
	Leases []record `json:"leases"` // by job
}

// record is the saved form of an entry: what index cannot work out.
type record struct {
	Job      lockstep.JobID    `json:"job"`
	Token    Token             `json:"token"`
	State    State             `json:"state"`
	Amount   lockstep.MilliGPU `json:"amount"`
	Target   lockstep.MilliGPU `json:"target,omitempty"`
	Term     int64             `json:"term"`
	Granted  int64             `json:"granted"`
	Since    int64             `json:"since"`
	Boundary int64             `json:"boundary"`
	Renewed  int64             `json:"renewed"`
	Deadline int64             `json:"deadline,omitempty"`
	Extended int               `json:"extended,omitempty"`
	Reason   lockstep.Reason   `json:"reason,omitempty"`
}

// Snapshot writes the whole table: one line with format, version and SHA-256,
// then JSON. Equal tables give equal bytes.
func (t *Table) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "lease: snapshot", format, version, t.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut
// short, changed, of another version or of no possible table are ErrInvalid.
// Tokens granted after the snapshot would be issued again: see Raise.
func Restore(r io.Reader) (*Table, error) {
	const op = "lease: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	t, err := table(&img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, t.image()); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Table) image() *image {
	img := &image{Config: t.cfg, Now: t.now, Last: t.last, Leases: make([]record, 0, len(t.jobs))}
	for _, job := range slices.Sorted(maps.Keys(t.jobs)) {
		e := t.jobs[job]
		img.Leases = append(img.Leases, record{
			Job: e.job, Token: e.token, State: e.state, Amount: e.amount, Target: e.target, Term: e.term,
			Granted: e.granted, Since: e.since, Boundary: e.boundary, Renewed: e.renewed, Deadline: e.deadline,
			Extended: e.extended, Reason: e.reason,
		})
	}
	return img
}

// table returns the table that img is of.
func table(img *image) (*Table, error) {
	broken := func(i int, reason string) error {
		return fault(lockstep.ErrInvalid, "restore", "leases["+strconv.Itoa(i)+"]", "", reason)
	}
	t, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	t.now, t.last = img.Now, img.Last
	for i := range img.Leases {
		r := &img.Leases[i]
		if reason := t.check(r); reason != "" {
			return nil, broken(i, reason)
		}
		e := &entry{
			job: r.Job, token: r.Token, state: r.State, amount: r.Amount, target: r.Target, term: r.Term,
			granted: r.Granted, since: r.Since, boundary: r.Boundary, renewed: r.Renewed, deadline: r.Deadline,
			extended: r.Extended, reason: r.Reason,
		}
		t.jobs[e.job] = e
		t.index(e)
	}
	tokens := make(map[Token]bool, len(t.jobs))
	for i := range img.Leases {
		if tokens[img.Leases[i].Token] {
			return nil, broken(i, "token issued twice")
		}
		tokens[img.Leases[i].Token] = true
	}
	return t, nil
}

// check says what is impossible about r.
func (t *Table) check(r *record) string {
	_, twice := t.jobs[r.Job]
	switch {
	case r.Job.Validate() != nil || twice:
		return "job is no ID or stands twice"
	case r.Token == 0 || r.Token > t.last:
		return "token was never issued"
	case r.Amount <= 0 || r.Target < 0 || r.Target >= r.Amount:
		return "amount out of range"
	case r.Term <= 0 || r.Term > int64(lockstep.MaxWalltime) || r.Extended < 0:
		return "term out of range"
	case r.Granted > r.Since || r.Since > r.Renewed || r.Renewed > t.now:
		return "times out of order"
	case r.Boundary != never && (r.Boundary <= r.Granted || uint64(r.Boundary)-uint64(r.Granted) < uint64(r.Term)):
		return "boundary before the first term is over"
	case r.Boundary != never && (uint64(r.Boundary)-uint64(r.Granted))%uint64(r.Term) != 0:
		return "boundary is out of phase"
	case r.State != Held && r.Deadline < r.Since:
		return "deadline before the charge began"
	case r.State == Held && (r.Target != 0 || r.Deadline != 0 || r.Reason != ""),
		r.State == Yielding && (r.Target != 0 || r.Reason == ""),
		r.State == Shrinking && (r.Target == 0 || r.Reason == ""),
		r.State != Held && r.State != Yielding && r.State != Shrinking:
		return "state does not suit"
	}
	return ""
}
