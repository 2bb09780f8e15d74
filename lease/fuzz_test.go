package lease

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// This file plays calls that come as bytes on a table with loans, and holds what it
// says of loans, of who is due or overdue and of the next wake against a plain model,
// which works all of that out anew from the leases after each call.

// lent is the plain model of a loan.
type lent struct {
	amount lockstep.MilliGPU
	calls  []owed
	since  time.Time // since is when it became short; zero where it is not.
}

// script is a list of calls on its way.
type script struct {
	t     *testing.T
	data  []byte
	cfg   Config
	table *Table
	now   time.Time
	loans map[LoanID]*lent
	since map[lockstep.JobID]time.Time // since is when the charge that runs began.
	token Token
	calls int
	taken int // taken is how many leases a recall ended.
}

func (s *script) next() int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

func of[T any](s *script, from ...T) T { return from[s.next()%len(from)] }

const notice = 30 * time.Second

func newScript(t *testing.T, data []byte) *script {
	s := &script{t: t, data: data, now: t0, loans: map[LoanID]*lent{}, since: map[lockstep.JobID]time.Time{}}
	s.cfg = Config{
		Term: time.Minute, First: of(s, 0, 10*time.Second, 1), Growth: of(s, 0, 1000, 1001, 3000), Jitter: of(s, 0, 0, 100_000),
		Ahead: of(s, 0, time.Second, time.Hour), Silence: of(s, 0, time.Minute),
	}
	s.table = newTable(t, s.cfg)
	return s
}

func (s *script) play() {
	for len(s.data) > 0 && s.calls < 300 {
		s.now = s.now.Add(of(s, 0, 0, 1, time.Duration(s.next())*time.Second, time.Duration(s.next())*time.Second/8))
		if s.next()%4 == 0 {
			if wake, ok := s.table.NextWake(s.now); ok && wake.Before(s.now.Add(time.Hour)) {
				s.now = wake
			}
		}
		s.calls++
		s.settle()
		s.call()
		s.check()
		if s.next()%4 == 0 {
			s.table = again(s.t, s.table)
		}
	}
}

// again is the table saved and restored.
func again(t *testing.T, table *Table) *Table {
	saved := save(t, table)
	back, err := Restore(bytes.NewReader([]byte(saved)))
	require.NoError(t, err, "%s", saved)
	require.Equal(t, saved, save(t, back))
	return back
}

// settle takes what is recalled and was not given back in time.
func (s *script) settle() {
	charges, err := s.table.AppendSettled(nil, s.now)
	require.NoError(s.t, err)
	for _, c := range charges {
		require.Equal(s.t, ReasonRecalled, c.Reason)
		s.charged(c)
		s.taken++
	}
	s.pay()
	for id, l := range s.loans { // the order does not matter: each is checked
		for _, c := range l.calls {
			require.True(s.t, c.deadline.After(s.now), "%s is late with %v", id, c)
		}
	}
}

// charged follows the charges of a job: each begins where the one before ended.
func (s *script) charged(c Charge) {
	require.Equal(s.t, s.since[c.Job], c.From)
	require.Equal(s.t, s.now, c.To)
	require.GreaterOrEqual(s.t, c.Resume, time.Duration(0))
	require.GreaterOrEqual(s.t, c.Save, time.Duration(0))
	require.LessOrEqual(s.t, c.Resume+c.Save, c.To.Sub(c.From))
	s.since[c.Job] = s.now
}

// granted follows a new token.
func (s *script) granted(l Lease) {
	require.Greater(s.t, l.Token, s.token)
	s.token = l.Token
}

func (s *script) call() {
	job, id := lockstep.JobID(fmt.Sprint("j", s.next()%6)), LoanID(fmt.Sprint("l", s.next()%2))
	amount, after := of[lockstep.MilliGPU](s, 1, 1000, 2500, 4000, 8000), of(s, 0, notice, notice+time.Second, time.Minute, time.Duration(s.next())*time.Second)
	held, holds := s.table.Get(job)
	switch s.next() % 14 {
	case 0:
		if _, err := s.table.Lend(s.now, id, "lender", amount, notice); err == nil {
			if s.loans[id] == nil {
				s.loans[id] = &lent{}
			}
			s.loans[id].amount += amount
		}
	case 1, 2, 3:
		free := s.free(id)
		l, err := s.table.Borrow(s.now, job, id, amount, of(s, 0, time.Second, time.Hour), of(s, 0, notice))
		if holds || s.loans[id] == nil || free < amount {
			require.Error(s.t, err)
		} else {
			require.NoError(s.t, err)
			require.Equal(s.t, id, l.Loan)
			s.granted(l)
			s.since[job] = s.now
		}
	case 4:
		if l, err := s.table.Grant(s.now, job, amount, 0); err == nil {
			s.granted(l)
			s.since[job] = s.now
		}
	case 5, 6:
		free, left := s.free(id), lockstep.MilliGPU(0)
		if l := s.loans[id]; l != nil {
			left = l.amount
			for _, c := range l.calls {
				left -= c.amount
			}
		}
		_, err := s.table.Recall(s.now, id, amount, s.now.Add(after))
		if amount > left || amount > free && after < notice {
			require.Error(s.t, err)
			break
		}
		require.NoError(s.t, err)
		l := s.loans[id]
		l.amount -= min(amount, free)
		if amount > free {
			l.calls = append(l.calls, owed{amount - free, s.now.Add(after)})
			slices.SortStableFunc(l.calls, func(a, b owed) int { return a.deadline.Compare(b.deadline) })
		}
	case 7:
		_, err := s.table.Yield(s.now, job, s.now.Add(after), "served")
		require.Equal(s.t, holds && held.State != Yielding, err == nil)
	case 8:
		_, err := s.table.Shrink(s.now, job, amount, s.now.Add(after), "served")
		require.Equal(s.t, holds && !held.State.givesBack() && amount < held.Amount, err == nil)
	case 9:
		if l, c, err := s.table.Resize(s.now, job, amount); err == nil {
			s.granted(l)
			s.charged(c)
		}
	case 10:
		if holds {
			c, err := s.table.Release(s.now, job, held.Token)
			require.NoError(s.t, err)
			s.charged(c)
		}
	case 11:
		l, err := s.table.Extend(s.now, job)
		over := holds && (held.State == HeldOver || held.State == Held && !s.termAt(held).After(s.now))
		require.Equal(s.t, over, err == nil)
		if err == nil {
			require.True(s.t, l.Boundary.After(s.now))
			require.True(s.t, l.Boundary.After(held.Boundary))
			require.Zero(s.t, l.Boundary.Sub(held.Boundary)%l.Term, "the phase is kept")
			require.LessOrEqual(s.t, l.Term, l.Longest)
			require.True(s.t, l.Term == l.Longest || s.cfg.Growth == 1000 || l.Term > held.Term, "terms grow")
		}
	case 12:
		_, err := s.table.HoldOver(s.now, job)
		require.Equal(s.t, holds && (held.State == HeldOver || held.State == Held && !s.termAt(held).After(s.now)), err == nil)
	case 13:
		if holds && s.next()%2 == 0 {
			_, err := s.table.Renew(s.now, job, held.Token)
			require.NoError(s.t, err)
		} else if holds {
			_, err := s.table.Resumed(s.now, job, held.Token)
			require.NoError(s.t, err)
		}
	}
	s.pay()
}

// leases returns who is there, by job.
func (s *script) leases() (all []Lease) {
	for i := range 6 {
		if l, ok := s.table.Get(lockstep.JobID(fmt.Sprint("j", i))); ok {
			all = append(all, l)
		}
	}
	require.Len(s.t, all, s.table.Len())
	return all
}

// free returns what of a loan no lease holds.
func (s *script) free(id LoanID) lockstep.MilliGPU {
	l := s.loans[id]
	if l == nil {
		return 0
	}
	free := l.amount
	for _, held := range s.leases() {
		if held.Loan == id {
			free -= held.Amount
		}
	}
	return free
}

// short returns how much no lease was told to give back in time, at worst.
func (s *script) short(id LoanID) (most lockstep.MilliGPU) {
	need := lockstep.MilliGPU(0)
	for _, c := range s.loans[id].calls {
		need += c.amount
		back := lockstep.MilliGPU(0)
		for _, held := range s.leases() {
			if held.Loan == id && held.State.givesBack() && !held.Deadline.After(c.deadline) {
				back += held.Amount - held.Target
			}
		}
		most = max(most, need-back)
	}
	return most
}

// pay gives what is free to the recalls, the first first, and drops what is back.
func (s *script) pay() {
	for id, l := range s.loans { // the order does not matter: each on its own
		for free := s.free(id); len(l.calls) > 0 && free > 0; {
			back := min(free, l.calls[0].amount)
			free, l.amount, l.calls[0].amount = free-back, l.amount-back, l.calls[0].amount-back
			if l.calls[0].amount == 0 {
				l.calls = l.calls[1:]
			}
		}
		if l.amount == 0 {
			delete(s.loans, id)
			continue
		}
		switch short := s.short(id); {
		case short == 0:
			l.since = time.Time{}
		case l.since.IsZero():
			l.since = s.now
		}
	}
}

// termAt returns the time from which a lease is due by its term.
func (s *script) termAt(l Lease) time.Time { return l.Boundary.Add(-min(s.cfg.Ahead, l.Term)) }

// wakes returns when who is due, and when who is overdue.
func (s *script) wakes() (due, overdue map[lockstep.JobID]time.Time) {
	due, overdue = map[lockstep.JobID]time.Time{}, map[lockstep.JobID]time.Time{}
	first := func(of map[lockstep.JobID]time.Time, job lockstep.JobID, at time.Time) {
		if old, ok := of[job]; !ok || at.Before(old) {
			of[job] = at
		}
	}
	for _, l := range s.leases() {
		if l.State == Held {
			first(due, l.Job, s.termAt(l))
		}
		if l.Loan != "" && !l.State.givesBack() && s.short(l.Loan) > 0 {
			first(due, l.Job, s.loans[l.Loan].since)
		}
		if l.State.givesBack() {
			first(overdue, l.Job, l.Deadline.Add(1))
		}
		if s.cfg.Silence > 0 {
			first(overdue, l.Job, l.Renewed.Add(s.cfg.Silence+1))
		}
	}
	return due, overdue
}

// named lists whom the time of wakes names by now, in their order.
func named(wakes map[lockstep.JobID]time.Time, now time.Time) (jobs []lockstep.JobID) {
	for job, at := range wakes { // in any order: sorted below
		if !at.After(now) {
			jobs = append(jobs, job)
		}
	}
	slices.SortFunc(jobs, func(a, b lockstep.JobID) int { return cmp.Or(wakes[a].Compare(wakes[b]), cmp.Compare(a, b)) })
	return jobs
}

func jobsOf(leases []Lease) (jobs []lockstep.JobID) {
	for _, l := range leases {
		jobs = append(jobs, l.Job)
	}
	return jobs
}

func (s *script) check() {
	var want []Loan
	for _, id := range []LoanID{"l0", "l1"} {
		l := s.loans[id]
		if l == nil {
			continue
		}
		v := Loan{ID: id, Lender: "lender", Amount: l.amount, Free: s.free(id), Notice: notice, Short: s.short(id)}
		for i, c := range l.calls {
			v.Recalled += c.amount
			if i == 0 {
				v.Deadline = c.deadline
			}
		}
		want = append(want, v)
	}
	require.Equal(s.t, want, s.table.AppendLoans(nil))

	due, overdue := s.wakes()
	require.Equal(s.t, named(due, s.now), jobsOf(s.table.AppendDue(nil, s.now)))
	require.Equal(s.t, named(overdue, s.now), jobsOf(s.table.AppendOverdue(nil, s.now)))
	soon := s.now.Add(1000 * time.Hour)
	wake := soon
	for _, at := range due { // the least is the same in any order
		wake = least(wake, at)
	}
	for _, at := range overdue { // the least is the same in any order
		wake = least(wake, at)
	}
	for _, l := range s.loans { // the least is the same in any order
		for _, c := range l.calls {
			wake = least(wake, c.deadline)
		}
	}
	got, ok := s.table.NextWake(s.now)
	require.Equal(s.t, wake != soon, ok)
	if !ok {
		return
	}
	if wake.Before(s.now) {
		wake = s.now
	}
	require.Equal(s.t, wake, got)
	require.True(s.t, s.names(got), "nothing to do at %s", got)
	require.True(s.t, got.Equal(s.now) || !s.names(got.Add(-1)), "woken too late for %s", got)
}

// names says whether the table names anything at now.
func (s *script) names(now time.Time) bool {
	if len(s.table.AppendDue(nil, now))+len(s.table.AppendOverdue(nil, now)) > 0 {
		return true
	}
	charges, err := again(s.t, s.table).AppendSettled(nil, now)
	require.NoError(s.t, err)
	return len(charges) > 0
}

func least(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// randomCalls returns n random bytes.
func randomCalls(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 5))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// TestScriptsAgreeWithThePlainModel is FuzzLoans with random bytes.
func TestScriptsAgreeWithThePlainModel(t *testing.T) {
	runs, calls, recalled := 150, 0, 0
	if testing.Short() {
		runs = 30
	}
	for seed := range runs {
		s := newScript(t, randomCalls(uint64(seed), 2000))
		s.play()
		calls, recalled = calls+s.calls, recalled+s.taken
	}
	require.Positive(t, recalled)
	t.Log(calls, "calls,", recalled, "leases taken at the deadline of a recall")
}

// FuzzLoans reads a configuration and calls from bytes.
func FuzzLoans(f *testing.F) {
	for seed := range 20 {
		f.Add(randomCalls(uint64(seed), 400))
	}
	f.Fuzz(func(t *testing.T, data []byte) { newScript(t, data).play() })
}
