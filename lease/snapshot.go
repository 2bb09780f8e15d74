package lease

import (
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/lease"
	version = 2
)

// image is the saved form of a Table.
type image struct {
	Config Config   `json:"config"`
	Now    int64    `json:"now"`
	Last   Token    `json:"last"`
	Leases []record `json:"leases"`          // by job
	Loans  []credit `json:"loans,omitempty"` // by ID
}

// credit is the saved form of a loan: what the leases on it do not tell.
type credit struct {
	ID     LoanID            `json:"id"`
	Lender lockstep.TenantID `json:"lender,omitempty"`
	Amount lockstep.MilliGPU `json:"amount"`
	Notice int64             `json:"notice"`
	Calls  []recall          `json:"calls,omitempty"`
	Since  int64             `json:"since"`
}

// recall is the saved form of a call.
type recall struct {
	Amount   lockstep.MilliGPU `json:"amount"`
	Deadline int64             `json:"deadline"`
}

// record is the saved form of an entry: what index cannot work out.
type record struct {
	Job      lockstep.JobID    `json:"job"`
	Token    Token             `json:"token"`
	State    State             `json:"state"`
	Amount   lockstep.MilliGPU `json:"amount"`
	Target   lockstep.MilliGPU `json:"target,omitempty"`
	Term     int64             `json:"term"`
	Longest  int64             `json:"longest"`
	Granted  int64             `json:"granted"`
	Since    int64             `json:"since"`
	Boundary int64             `json:"boundary"`
	Renewed  int64             `json:"renewed"`
	Deadline int64             `json:"deadline,omitempty"`
	Extended int               `json:"extended,omitempty"`
	Reason   lockstep.Reason   `json:"reason,omitempty"`
	Told     int64             `json:"told,omitempty"`
	Resumed  int64             `json:"resumed"`
	Loan     LoanID            `json:"loan,omitempty"`
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
			Extended: e.extended, Reason: e.reason, Longest: e.longest, Told: e.told, Resumed: e.resumed,
		})
		if e.loan != nil {
			img.Leases[len(img.Leases)-1].Loan = e.loan.id
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.loans)) {
		l := t.loans[id]
		c := credit{ID: id, Lender: l.lender, Amount: l.amount, Notice: l.notice, Since: l.since}
		for _, call := range l.calls {
			c.Calls = append(c.Calls, recall{call.amount, call.deadline})
		}
		img.Loans = append(img.Loans, c)
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
	for i := range img.Loans {
		if reason := t.lent(&img.Loans[i]); reason != "" {
			return nil, fault(lockstep.ErrInvalid, "restore", "loans["+strconv.Itoa(i)+"]", "", reason)
		}
	}
	for i := range img.Leases {
		r := &img.Leases[i]
		if reason := t.check(r); reason != "" {
			return nil, broken(i, reason)
		}
		e := &entry{
			job: r.Job, token: r.Token, state: r.State, amount: r.Amount, target: r.Target, term: r.Term,
			granted: r.Granted, since: r.Since, boundary: r.Boundary, renewed: r.Renewed, deadline: r.Deadline,
			extended: r.Extended, reason: r.Reason, longest: r.Longest, told: r.Told, resumed: r.Resumed,
		}
		t.jobs[e.job] = e
		if l := t.loans[r.Loan]; l != nil {
			e.loan = l
			l.used += r.Amount
			l.jobs.ReplaceOrInsert(e)
		}
		t.index(e)
	}
	tokens := make(map[Token]bool, len(t.jobs))
	for i := range img.Leases {
		if tokens[img.Leases[i].Token] {
			return nil, broken(i, "token issued twice")
		}
		tokens[img.Leases[i].Token] = true
	}
	for i := range img.Loans {
		l := t.loans[img.Loans[i].ID]
		l.short = l.shortage()
		switch {
		case len(l.calls) > 0 && l.free() != 0, l.recalled() > l.used, l.amount == 0 && l.used == 0:
			return nil, fault(lockstep.ErrInvalid, "restore", "loans["+strconv.Itoa(i)+"]", "", "recalls do not suit what is held")
		case (l.short > 0) != (l.since != never), l.short > 0 && l.since > t.now:
			return nil, fault(lockstep.ErrInvalid, "restore", "loans["+strconv.Itoa(i)+"]", "", "is short since another time")
		}
	}
	return t, nil
}

// lent takes a loan in, or says what is impossible about it.
func (t *Table) lent(c *credit) string {
	_, twice := t.loans[c.ID]
	switch {
	case c.ID.Validate() != nil || twice:
		return "ID is none or stands twice"
	case c.Lender != "" && c.Lender.Validate() != nil:
		return "lender is no ID"
	case c.Amount < 0 || c.Amount > math.MaxInt64/2:
		return "amount out of range"
	case c.Notice < 0 || c.Notice > int64(lockstep.MaxWalltime):
		return "notice out of range"
	}
	l := newLoan(c.ID)
	l.lender, l.amount, l.notice, l.since = c.Lender, c.Amount, c.Notice, c.Since
	left := c.Amount
	for i, call := range c.Calls {
		if call.Amount <= 0 || call.Amount > left || i > 0 && call.Deadline < c.Calls[i-1].Deadline {
			return "recalls out of order"
		}
		left -= call.Amount
		l.calls = append(l.calls, callOf(call))
	}
	t.loans[c.ID] = l
	return ""
}

func callOf(r recall) call { return call{r.Amount, r.Deadline} }

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
	case r.Term <= 0 || r.Term > r.Longest || r.Longest > int64(lockstep.MaxWalltime) || r.Extended < 0:
		return "term out of range"
	case r.Granted > r.Since || r.Since > r.Renewed || r.Renewed > t.now:
		return "times out of order"
	case r.Boundary != never && (r.Boundary <= r.Granted || uint64(r.Boundary)-uint64(r.Granted) < uint64(r.Term)):
		return "boundary before the first term is over"
	case t.cfg.First == 0 && t.cfg.Jitter == 0 && r.Boundary != never && (uint64(r.Boundary)-uint64(r.Granted))%uint64(r.Term) != 0:
		return "boundary is out of phase"
	case r.Resumed != never && (r.Resumed < r.Since || r.Resumed > t.now):
		return "began to work at another time"
	case r.Loan != "" && (t.loans[r.Loan] == nil || r.Amount > t.loans[r.Loan].free()):
		return "is on a loan that does not have it"
	case r.State.givesBack() && (r.Deadline < r.Told || r.Told < r.Since || r.Told > t.now):
		return "deadline before it was told"
	case !r.State.givesBack() && (r.Target != 0 || r.Deadline != 0 || r.Told != 0 || r.Reason != ""),
		r.State == Yielding && (r.Target != 0 || r.Reason == ""),
		r.State == Shrinking && (r.Target == 0 || r.Reason == ""),
		r.State != Held && r.State != HeldOver && !r.State.givesBack():
		return "state does not suit"
	}
	return ""
}
