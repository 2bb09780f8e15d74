package lease

import (
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Grant gives job a lease of amount, at least 1, for term, and returns it with a
// new token. A term of 0 means Config.Term; see TermFor.
func (t *Table) Grant(now time.Time, job lockstep.JobID, amount lockstep.MilliGPU, term time.Duration) (Lease, error) {
	const op = "grant"
	ns, err := t.at(op, now)
	if err != nil {
		return Lease{}, err
	}
	if err := job.Validate(); err != nil {
		return Lease{}, err
	}
	if amount <= 0 {
		return Lease{}, fault(lockstep.ErrInvalid, op, "amount", amount.String(), "must be positive")
	}
	if term < 0 || term > lockstep.MaxWalltime {
		return Lease{}, fault(lockstep.ErrInvalid, op, "term", term.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	if term == 0 {
		term = t.cfg.Term
	}
	if e, ok := t.jobs[job]; ok {
		return Lease{}, fault(lockstep.ErrDuplicate, op, "job", string(job), "holds lease "+e.token.String())
	}
	if err := t.spent(op); err != nil {
		return Lease{}, err
	}
	t.now = ns
	t.last++
	e := &entry{
		job: job, token: t.last, state: Held, amount: amount, term: int64(term),
		granted: ns, since: ns, renewed: ns, boundary: instant.Add(ns, term),
	}
	t.jobs[job] = e
	t.index(e)
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
	if e.state != Held {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is "+string(e.state)+" already")
	}
	if e.dueAt > ns {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is not due before "+lockstep.FromNanos(e.dueAt).String())
	}
	t.now = ns
	t.unindex(e)
	e.next(ns)
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
	e.state, e.target, e.deadline, e.reason = Yielding, 0, end, reason
	t.index(e)
	return e.lease(), nil
}

// Shrink records the outcome that job gives back all but target by deadline,
// for reason. If the lease is due it also goes on for another term. Resize says
// that it is done.
func (t *Table) Shrink(now time.Time, job lockstep.JobID, target lockstep.MilliGPU, deadline time.Time, reason lockstep.Reason) (Lease, error) {
	const op = "shrink"
	ns, e, end, err := t.giveBack(op, now, job, deadline, reason)
	if err != nil {
		return Lease{}, err
	}
	if e.state != Held {
		return Lease{}, fault(lockstep.ErrConflict, op, "job", string(job), "is "+string(e.state)+" already")
	}
	if target <= 0 || target >= e.amount {
		return Lease{}, fault(lockstep.ErrConflict, op, "target", target.String(), "want more than 0 and less than "+e.amount.String())
	}
	t.now = ns
	t.unindex(e)
	if e.dueAt <= ns {
		e.next(ns)
	}
	e.state, e.target, e.deadline, e.reason = Shrinking, target, end, reason
	t.index(e)
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
	if err := t.spent(op); err != nil {
		return Lease{}, Charge{}, err
	}
	t.now = ns
	charge := e.charge(ns, "")
	t.unindex(e)
	t.last++
	e.token, e.amount, e.since, e.renewed = t.last, amount, ns, ns
	e.state, e.target, e.deadline, e.reason = Held, 0, 0, ""
	t.index(e)
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
	return e.charge(ns, reason)
}

func (e *entry) charge(ns int64, reason lockstep.Reason) Charge {
	return Charge{
		Job: e.job, Token: e.token, Amount: e.amount,
		From: lockstep.FromNanos(e.since), To: lockstep.FromNanos(ns), Reason: reason,
	}
}

// next moves the boundary by one term, or by as many as it takes to lie behind ns.
func (e *entry) next(ns int64) {
	e.extended++
	e.boundary = instant.Add(e.boundary, time.Duration(e.term))
	if ns >= e.boundary {
		// The difference of two int64 fits uint64, and the product is at most the difference.
		late := (uint64(ns) - uint64(e.boundary)) / uint64(e.term)
		e.boundary = instant.Add(e.boundary+int64(late*uint64(e.term)), time.Duration(e.term))
	}
}

// String returns t in decimal.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }
