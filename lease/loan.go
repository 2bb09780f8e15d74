package lease

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// ReasonRecalled ends a lease on a loan that was not given back in time.
const ReasonRecalled lockstep.Reason = "recalled"

// LoanID names capacity that is lent.
type LoanID string

// Validate reports whether id is a usable name; the rule is that of lockstep.JobID.
func (id LoanID) Validate() error { return lockstep.JobID(id).Validate() }

// Loan is a copy of one loan as it stood when it was returned: capacity that its
// lender does not use for now, such as idle inference servers, and may recall.
// Invariant: Amount = Free + what leases on it hold, and Recalled <= Amount - Free.
type Loan struct {
	ID       LoanID            `json:"id"`                 // ID is its name.
	Lender   lockstep.TenantID `json:"lender,omitempty"`   // Lender is whose capacity it is.
	Amount   lockstep.MilliGPU `json:"amount"`             // Amount is how much is still lent.
	Free     lockstep.MilliGPU `json:"free"`               // Free is how much of it no lease holds; 0 while something is recalled.
	Notice   time.Duration     `json:"notice"`             // Notice is how long before its deadline a recall comes at the latest.
	Recalled lockstep.MilliGPU `json:"recalled,omitempty"` // Recalled is how much was recalled and is not back.
	Short    lockstep.MilliGPU `json:"short,omitempty"`    // Short is how much of that no lease has been told to give back in time.
	Deadline time.Time         `json:"deadline,omitzero"`  // Deadline is when the first of it has to be back; zero where nothing is recalled.
}

// call is a recall that is not met yet.
type call struct {
	amount   lockstep.MilliGPU // more than 0
	deadline int64
}

// loan is the state of one Loan.
// Invariant: calls are by deadline, and none is there while something is free.
type loan struct {
	id     LoanID
	lender lockstep.TenantID
	amount lockstep.MilliGPU
	used   lockstep.MilliGPU
	notice int64
	calls  []call
	short  lockstep.MilliGPU
	since  int64 // when it became short; never where it is not
	jobs   *btree.BTreeG[*entry]
}

func newLoan(id LoanID) *loan {
	return &loan{id: id, since: never, jobs: btree.NewG(degree, func(a, b *entry) bool { return a.job < b.job })}
}

// Loanable returns how much of what an owner has it can lend, when it expects to
// need forecast for as long as a recall takes and wants headroom above that, in
// millionths of it. It is never negative. (Li et al., Lyra, EuroSys 2023, lends
// idle inference servers to training by such a rule.)
func Loanable(owned, forecast lockstep.MilliGPU, headroom int) lockstep.MilliGPU {
	need := forecast.Add(scaleUp(max(forecast, 0), max(headroom, 0)))
	return max(owned.Sub(max(need, 0)), 0)
}

// Lend opens a loan of amount, at least 1, which is recalled with at least the
// given notice, or adds amount to one of that name, lender and notice.
func (t *Table) Lend(now time.Time, id LoanID, lender lockstep.TenantID, amount lockstep.MilliGPU, notice time.Duration) (Loan, error) {
	const op = "lend"
	ns, err := t.at(op, now)
	if err != nil {
		return Loan{}, err
	}
	if err := id.Validate(); err != nil {
		return Loan{}, fault(lockstep.ErrInvalid, op, "id", strconv.Quote(string(id)), "is no usable name")
	}
	if lender != "" {
		if err := lender.Validate(); err != nil {
			return Loan{}, err
		}
	}
	if amount <= 0 || amount > math.MaxInt64/2 {
		return Loan{}, fault(lockstep.ErrInvalid, op, "amount", amount.String(), "must be positive and below half of int64")
	}
	if notice < 0 || notice > lockstep.MaxWalltime {
		return Loan{}, fault(lockstep.ErrInvalid, op, "notice", notice.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	l, ok := t.loans[id]
	switch {
	case !ok:
		l = newLoan(id)
		l.lender, l.notice = lender, int64(notice)
	case l.lender != lender || l.notice != int64(notice):
		return Loan{}, fault(lockstep.ErrConflict, op, "id", string(id), "is a loan of "+string(l.lender)+" with notice "+time.Duration(l.notice).String())
	case len(l.calls) > 0:
		return Loan{}, fault(lockstep.ErrConflict, op, "id", string(id), "is being recalled")
	case l.amount > math.MaxInt64/2-amount:
		return Loan{}, fault(lockstep.ErrInvalid, op, "amount", amount.String(), "makes the loan too large")
	}
	t.now = ns
	if !ok {
		t.loans[id] = l
	}
	l.amount += amount
	return l.loan(), nil
}

// Borrow is Grant of capacity that is lent. The job says how long it needs to
// give back, its save and its grace together: that is at most the loan's notice,
// else a recall could come too late. More than is free is ErrConflict.
func (t *Table) Borrow(now time.Time, job lockstep.JobID, id LoanID, amount lockstep.MilliGPU, term, giveBack time.Duration) (Lease, error) {
	const op = "borrow"
	l, ok := t.loans[id]
	switch {
	case !ok:
		return Lease{}, fault(lockstep.ErrUnknown, op, "loan", string(id), "is not lent")
	case giveBack < 0:
		return Lease{}, fault(lockstep.ErrInvalid, op, "giveBack", giveBack.String(), "must not be negative")
	case int64(giveBack) > l.notice:
		return Lease{}, fault(lockstep.ErrConflict, op, "giveBack", giveBack.String(), "is more than the notice "+time.Duration(l.notice).String())
	case amount > l.free():
		return Lease{}, fault(lockstep.ErrConflict, op, "amount", amount.String(), "only "+l.free().String()+" is free")
	}
	e, err := t.grant(op, now, job, amount, term)
	if err != nil {
		return Lease{}, err
	}
	e.loan = l
	l.used += amount
	l.jobs.ReplaceOrInsert(e)
	return e.lease(), nil
}

// Recall asks for amount, at most what is lent and not recalled, back by
// deadline. What is free returns at once, whatever the deadline; for the rest the
// deadline must give the notice. Until enough leases on the loan have been told to
// give back in time, by Yield or Shrink, all that are not are due: the boundary
// pass decides who goes. What nobody gave back by the deadline Settle takes, so a
// recall is never late. A loan of which nothing is left is gone.
func (t *Table) Recall(now time.Time, id LoanID, amount lockstep.MilliGPU, deadline time.Time) (Loan, error) {
	const op = "recall"
	ns, err := t.at(op, now)
	if err != nil {
		return Loan{}, err
	}
	end, err := in.Nanos(op, "deadline", deadline)
	if err != nil {
		return Loan{}, err
	}
	l, ok := t.loans[id]
	if !ok {
		return Loan{}, fault(lockstep.ErrUnknown, op, "loan", string(id), "is not lent")
	}
	if left := l.amount - l.recalled(); amount <= 0 || amount > left {
		return Loan{}, fault(lockstep.ErrInvalid, op, "amount", amount.String(), "want more than 0 and at most the "+left.String()+" that is lent")
	}
	idle := min(amount, l.free())
	if amount > idle && end < instant.Add(ns, time.Duration(l.notice)) {
		return Loan{}, fault(lockstep.ErrConflict, op, "deadline", deadline.String(), "gives less notice than "+time.Duration(l.notice).String())
	}
	t.now = ns
	l.amount -= idle
	if rest := amount - idle; rest > 0 {
		at, _ := slices.BinarySearchFunc(l.calls, end, func(c call, end int64) int {
			if c.deadline <= end {
				return -1
			}
			return 1
		})
		l.calls = slices.Insert(l.calls, at, call{rest, end})
	}
	t.settleLoan(l)
	return l.loan(), nil
}

// Loan returns the loan of that name.
func (t *Table) Loan(id LoanID) (Loan, bool) {
	l, ok := t.loans[id]
	if !ok {
		return Loan{}, false
	}
	return l.loan(), true
}

// AppendLoans appends all loans, by ID, and returns dst. O(loans log loans).
func (t *Table) AppendLoans(dst []Loan) []Loan {
	for _, id := range slices.Sorted(maps.Keys(t.loans)) {
		dst = append(dst, t.loans[id].loan())
	}
	return dst
}

// AppendSettled ends the leases that must go for the recalls whose deadline has
// come, for ReasonRecalled, and appends their charges: those that are giving back
// first, by deadline, then by latest grant, then by greatest job ID, as many as it
// takes. NextWake names these deadlines.
func (t *Table) AppendSettled(dst []Charge, now time.Time) ([]Charge, error) {
	ns, err := t.at("settle", now)
	if err != nil {
		return dst, err
	}
	t.now = ns
	for _, id := range slices.Sorted(maps.Keys(t.loans)) {
		l := t.loans[id]
		for len(l.calls) > 0 && l.calls[0].deadline <= ns {
			dst = append(dst, t.end(ns, l.last(), ReasonRecalled))
		}
	}
	return dst, nil
}

// last returns the lease on l that a settlement takes first. A call that is open
// means that there is one: what is recalled is held.
func (l *loan) last() *entry {
	var pick *entry
	l.jobs.Ascend(func(e *entry) bool {
		if pick == nil || settlesBefore(e, pick) {
			pick = e
		}
		return true
	})
	return pick
}

func settlesBefore(a, b *entry) bool {
	if giving := a.state.givesBack(); giving != b.state.givesBack() {
		return giving
	} else if giving && a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	if a.granted != b.granted {
		return a.granted > b.granted
	}
	return a.job > b.job
}

func (l *loan) free() lockstep.MilliGPU { return l.amount - l.used }

func (l *loan) recalled() lockstep.MilliGPU {
	sum := lockstep.MilliGPU(0)
	for _, c := range l.calls {
		sum += c.amount // held by leases, so no more than amount
	}
	return sum
}

func (l *loan) loan() Loan {
	v := Loan{
		ID: l.id, Lender: l.lender, Amount: l.amount, Free: l.free(), Notice: time.Duration(l.notice),
		Recalled: l.recalled(), Short: l.short,
	}
	if len(l.calls) > 0 {
		v.Deadline = lockstep.FromNanos(l.calls[0].deadline)
	}
	return v
}

// settleLoan gives what is free to the calls, by deadline, and looks again at what
// the rest is short of. It runs after every change of l or of a lease on it.
func (t *Table) settleLoan(l *loan) {
	for len(l.calls) > 0 && l.free() > 0 {
		back := min(l.calls[0].amount, l.free())
		l.amount -= back
		l.calls[0].amount -= back
		if l.calls[0].amount == 0 {
			l.calls = slices.Delete(l.calls, 0, 1)
		}
	}
	if l.amount == 0 {
		delete(t.loans, l.id)
	}
	l.short = l.shortage()
	since := l.since
	switch {
	case l.short == 0:
		l.since = never
	case l.since == never:
		l.since = t.now
	}
	if l.since == since {
		return
	}
	l.jobs.Ascend(func(e *entry) bool { // since decides when they are due
		if !e.state.givesBack() {
			t.unindex(e)
			t.index(e)
		}
		return true
	})
}

// shortage returns how much of what is recalled nobody was told to give back in
// time: the most by which, up to some deadline, calls exceed what comes back.
func (l *loan) shortage() lockstep.MilliGPU {
	most, need := lockstep.MilliGPU(0), lockstep.MilliGPU(0)
	for _, c := range l.calls {
		need += c.amount
		back := lockstep.MilliGPU(0)
		l.jobs.Ascend(func(e *entry) bool {
			if e.state.givesBack() && e.deadline <= c.deadline {
				back += e.amount - e.target
			}
			return true
		})
		most = max(most, need-back)
	}
	return most
}
