package lease

import (
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Grant gives job a lease of amount, at least 1, for terms that grow to term, and
// returns it with a new token. A term of 0 means Config.Term; see TermFor.
func (t *Table) Grant(now time.Time, job lockstep.JobID, amount lockstep.MilliGPU, term time.Duration) (Lease, error) {
	e, err := t.grant("grant", now, job, amount, term)
	if err != nil {
		return Lease{}, err
	}
	return e.lease(), nil
}

func (t *Table) grant(op string, now time.Time, job lockstep.JobID, amount lockstep.MilliGPU, term time.Duration) (*entry, error) {
	ns, err := t.at(op, now)
	if err != nil {
		return nil, err
	}
	if err := job.Validate(); err != nil {
		return nil, err
	}
	if amount <= 0 {
		return nil, fault(lockstep.ErrInvalid, op, "amount", amount.String(), "must be positive")
	}
	if term < 0 || term > lockstep.MaxWalltime {
		return nil, fault(lockstep.ErrInvalid, op, "term", term.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	if term == 0 {
		term = t.cfg.Term
	}
	if e, ok := t.jobs[job]; ok {
		return nil, fault(lockstep.ErrDuplicate, op, "job", string(job), "holds lease "+e.token.String())
	}
	if err := t.spent(op); err != nil {
		return nil, err
	}
	t.now = ns
	t.last++
	first := t.cfg.first(term)
	e := &entry{
		job: job, token: t.last, state: Held, amount: amount, term: int64(first), longest: int64(term),
		granted: ns, since: ns, renewed: ns, resumed: never, boundary: instant.Add(instant.Add(ns, first), t.cfg.jitter(job, first)),
	}
	t.jobs[job] = e
	t.index(e)
	return e, nil
}

// Resumed records that the holder of token has restored what it needs and works
// from now on: what it held before is the Resume of its charge. It may be
// repeated; the first time counts.
func (t *Table) Resumed(now time.Time, job lockstep.JobID, token Token) (Lease, error) {
	const op = "resumed"
	ns, err := t.at(op, now)
	if err != nil {
		return Lease{}, err
	}
	e, err := t.holder(op, job, token)
	if err != nil {
		return Lease{}, err
	}
	t.now = ns
	e.resumed = min(e.resumed, ns)
	return e.lease(), nil
}

// Renew records that the holder of token lives, and returns its lease as it
// stands, so that the holder learns of a new boundary or a deadline. It does
// not extend. A token that is no longer valid is ErrStale: whoever shows it
// must stop at once.
func (t *Table) Renew(now time.Time, job lockstep.JobID, token Token) (Lease, error) {
	const op = "renew"
	ns, err := t.at(op, now)
	if err != nil {
		return Lease{}, err
	}
	e, err := t.holder(op, job, token)
	if err != nil {
		return Lease{}, err
	}
	t.now = ns
	if t.cfg.Silence > 0 {
		t.unindex(e)
		e.renewed = ns
		t.index(e)
	}
	e.renewed = ns
	return e.lease(), nil
}

// Release ends the lease of job because its holder gives it back: all its
// devices are free again. A token that is no longer valid is ErrStale.
func (t *Table) Release(now time.Time, job lockstep.JobID, token Token) (Charge, error) {
	const op = "release"
	ns, err := t.at(op, now)
	if err != nil {
		return Charge{}, err
	}
	e, err := t.holder(op, job, token)
	if err != nil {
		return Charge{}, err
	}
	return t.end(ns, e, e.reason), nil
}

// Revoke ends the lease of job for reason, whatever its holder does. The charge
// stops here; that the devices are clean is for lifecycle to say.
func (t *Table) Revoke(now time.Time, job lockstep.JobID, reason lockstep.Reason) (Charge, error) {
	const op = "revoke"
	ns, e, err := t.decide(op, now, job)
	if err != nil {
		return Charge{}, err
	}
	if reason == "" {
		return Charge{}, fault(lockstep.ErrInvalid, op, "reason", "", "must not be empty")
	}
	return t.end(ns, e, reason), nil
}

// Extend records the outcome that job keeps its devices for another term, in
// place. It is ErrConflict before the lease is due or once it is giving back.
func (t *Table) Extend(now time.Time, job lockstep.JobID) (Lease, error) {
	const op = "extend"
	ns, e, err := t.decide(op, now, job)
	if err != nil {
		return Lease{}, err
	}
	if e.state.givesBack() {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is "+string(e.state)+" already")
	}
	if at := t.termAt(e); e.state == Held && at > ns {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is not due before "+lockstep.FromNanos(at).String())
	}
	t.now = ns
	t.unindex(e)
	e.state = Held
	t.next(e, ns)
	t.index(e)
	return e.lease(), nil
}

// HoldOver records the outcome that job keeps its devices although its term is
// over, and until somebody else should have them: it is not named as due any more,
// and may be told to yield at any time. Extend begins a new term. It is
// ErrConflict before the lease is due or once it is giving back; one that is held
// over stays so.
func (t *Table) HoldOver(now time.Time, job lockstep.JobID) (Lease, error) {
	const op = "hold over"
	ns, e, err := t.decide(op, now, job)
	if err != nil {
		return Lease{}, err
	}
	if e.state.givesBack() {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is "+string(e.state)+" already")
	}
	if at := t.termAt(e); e.state == Held && at > ns {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is not due before "+lockstep.FromNanos(at).String())
	}
	t.now = ns
	t.unindex(e)
	e.state = HeldOver
	t.index(e)
	return e.lease(), nil
}

// Yield records the outcome that job gives back all its devices by deadline,
// for reason. It may come before the boundary, as when job is preempted, and
// while job is shrinking. It is final.
func (t *Table) Yield(now time.Time, job lockstep.JobID, deadline time.Time, reason lockstep.Reason) (Lease, error) {
	const op = "yield"
	ns, e, end, err := t.giveBack(op, now, job, deadline, reason)
	if err != nil {
		return Lease{}, err
	}
	if e.state == Yielding {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is yielding already")
	}
	t.now = ns
	t.unindex(e)
	if e.state != Shrinking {
		e.told = ns
	}
	e.state, e.target, e.deadline, e.reason = Yielding, 0, end, reason
	t.index(e)
	t.changed(e)
	return e.lease(), nil
}

// Shrink records the outcome that job gives back all but target by deadline,
// for reason. If its term is over it also goes on for another. Resize says that it
// is done.
func (t *Table) Shrink(now time.Time, job lockstep.JobID, target lockstep.MilliGPU, deadline time.Time, reason lockstep.Reason) (Lease, error) {
	const op = "shrink"
	ns, e, end, err := t.giveBack(op, now, job, deadline, reason)
	if err != nil {
		return Lease{}, err
	}
	if e.state.givesBack() {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is "+string(e.state)+" already")
	}
	if target <= 0 || target >= e.amount {
		return Lease{}, fault(lockstep.ErrConflict, op, "target", target.String(), "want more than 0 and less than "+e.amount.String())
	}
	t.now = ns
	t.unindex(e)
	if e.state == HeldOver || t.termAt(e) <= ns {
		t.next(e, ns)
	}
	e.told = ns
	e.state, e.target, e.deadline, e.reason = Shrinking, target, end, reason
	t.index(e)
	t.changed(e)
	return e.lease(), nil
}

// Resize records that job now holds amount, more or less than before, and
// returns the charge for what it held until now. The new token fences off the
// members that left: give it to those that stay. Of a Shrinking lease the amount
// must be at most the target; a Yielding one cannot be resized.
func (t *Table) Resize(now time.Time, job lockstep.JobID, amount lockstep.MilliGPU) (Lease, Charge, error) {
	const op = "resize"
	ns, e, err := t.decide(op, now, job)
	if err != nil {
		return Lease{}, Charge{}, err
	}
	switch {
	case amount <= 0:
		return Lease{}, Charge{}, fault(lockstep.ErrInvalid, op, "amount", amount.String(), "must be positive")
	case e.state == Yielding:
		return Lease{}, Charge{}, fault(lockstep.ErrConflict, op, "job", string(job), "is yielding")
	case e.state == Shrinking && amount > e.target:
		return Lease{}, Charge{}, fault(lockstep.ErrConflict, op, "amount", amount.String(), "want at most "+e.target.String())
	}
	if l := e.loan; l != nil && amount > e.amount && amount-e.amount > l.free() {
		return Lease{}, Charge{}, fault(lockstep.ErrConflict, op, "amount", amount.String(), "only "+l.free().String()+" more is free of loan "+string(l.id))
	}
	if err := t.spent(op); err != nil {
		return Lease{}, Charge{}, err
	}
	t.now = ns
	charge := e.charge(ns, "")
	t.unindex(e)
	if e.loan != nil {
		e.loan.used += amount - e.amount
	}
	t.last++
	e.token, e.amount, e.since, e.renewed, e.resumed, e.told = t.last, amount, ns, ns, never, 0
	if e.state == Shrinking {
		e.state = Held
	}
	e.target, e.deadline, e.reason = 0, 0, ""
	t.index(e)
	t.changed(e)
	return e.lease(), charge, nil
}

// Raise makes every token granted from now on higher than floor; a floor below
// Last changes nothing. It is for a table that was restored from an older state
// than it had: raise it above all tokens that a guard has seen or may have, and
// nobody who was granted one in between is taken for a holder of today.
func (t *Table) Raise(floor Token) { t.last = max(t.last, floor) }

// spent refuses to issue a token when there is none left.
func (t *Table) spent(op string) error {
	if t.last == math.MaxUint64 {
		return fault(lockstep.ErrConflict, op, "token", t.last.String(), "is the highest that there is")
	}
	return nil
}

// at returns now in nanoseconds, refusing times before one already seen.
func (t *Table) at(op string, now time.Time) (int64, error) {
	ns, err := in.Nanos(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, t.now)
}

// decide is the common part of what the scheduler records about a lease.
func (t *Table) decide(op string, now time.Time, job lockstep.JobID) (int64, *entry, error) {
	ns, err := t.at(op, now)
	if err != nil {
		return 0, nil, err
	}
	e, ok := t.jobs[job]
	if !ok {
		return 0, nil, fault(lockstep.ErrUnknown, op, "job", string(job), "holds no lease")
	}
	return ns, e, nil
}

// giveBack is the common part of Yield and Shrink.
func (t *Table) giveBack(op string, now time.Time, job lockstep.JobID, deadline time.Time, reason lockstep.Reason) (ns int64, e *entry, end int64, err error) {
	ns, e, err = t.decide(op, now, job)
	if err != nil {
		return 0, nil, 0, err
	}
	end, err = in.Nanos(op, "deadline", deadline)
	if err != nil {
		return 0, nil, 0, err
	}
	if end < ns {
		return 0, nil, 0, fault(lockstep.ErrInvalid, op, "deadline", deadline.String(), "must not be before now")
	}
	if reason == "" {
		return 0, nil, 0, fault(lockstep.ErrInvalid, op, "reason", "", "must not be empty")
	}
	return ns, e, end, nil
}

// holder returns the lease that token is valid for.
func (t *Table) holder(op string, job lockstep.JobID, token Token) (*entry, error) {
	e, ok := t.jobs[job]
	switch {
	case token == 0 || token > t.last:
		return nil, fault(lockstep.ErrUnknown, op, "token", token.String(), "was never issued")
	case !ok:
		return nil, fault(lockstep.ErrStale, op, "token", token.String(), string(job)+" holds no lease any more")
	case e.token != token:
		return nil, fault(lockstep.ErrStale, op, "token", token.String(), string(job)+" holds lease "+e.token.String())
	}
	return e, nil
}

func (t *Table) end(ns int64, e *entry, reason lockstep.Reason) Charge {
	t.now = ns
	t.unindex(e)
	delete(t.jobs, e.job)
	if l := e.loan; l != nil {
		l.jobs.Delete(e)
		l.used -= e.amount
		t.settleLoan(l)
	}
	return e.charge(ns, reason)
}

// changed looks again at the loan that e is on, if any.
func (t *Table) changed(e *entry) {
	if e.loan != nil {
		t.settleLoan(e.loan)
	}
}

func (e *entry) charge(ns int64, reason lockstep.Reason) Charge {
	c := Charge{
		Job: e.job, Token: e.token, Amount: e.amount,
		From: lockstep.FromNanos(e.since), To: lockstep.FromNanos(ns), Reason: reason,
	}
	if e.loan != nil {
		c.Loan = e.loan.id
	}
	worked := e.since
	if e.resumed != never {
		worked = e.resumed
		c.Resume = length(e.since, worked)
	}
	if e.state.givesBack() {
		c.Save = length(max(e.told, worked), ns)
	}
	return c
}

// length returns the time from a to b, held at the longest that there is.
func length(a, b int64) time.Duration {
	return time.Duration(min(uint64(b)-uint64(a), math.MaxInt64)) // of two int64, the difference fits uint64
}

// next moves the boundary by one term, longer than the one before while terms
// grow, or by as many as it takes to lie behind ns.
func (t *Table) next(e *entry, ns int64) {
	e.extended++
	e.term = t.cfg.grow(e.term, e.longest)
	e.boundary = instant.Add(e.boundary, time.Duration(e.term))
	if ns >= e.boundary {
		// The difference of two int64 fits uint64, and the product is at most the difference.
		late := (uint64(ns) - uint64(e.boundary)) / uint64(e.term)
		e.boundary = instant.Add(e.boundary+int64(late*uint64(e.term)), time.Duration(e.term))
	}
}

// String returns t in decimal.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }
