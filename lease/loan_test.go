package lease

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func lend(t testing.TB, table *Table, now time.Time, id LoanID, amount lockstep.MilliGPU, notice time.Duration) Loan {
	t.Helper()
	l, err := table.Lend(now, id, "inference", amount, notice)
	require.NoError(t, err)
	return l
}

func TestLoanable(t *testing.T) {
	require.Equal(t, 8*lockstep.WholeGPU, Loanable(20_000, 10_000, 200_000))
	require.Equal(t, lockstep.MilliGPU(0), Loanable(10_000, 10_000, 0))
	require.Equal(t, lockstep.MilliGPU(0), Loanable(10_000, math.MaxInt64, math.MaxInt))
	require.Equal(t, lockstep.MilliGPU(999), Loanable(1002, 2, 1), "what is needed is rounded up")
	require.Equal(t, lockstep.MilliGPU(5), Loanable(5, -3, -1), "a negative forecast is none")
}

func TestARecallTakesWhatIsFreeAtOnceAndMakesTheRestDue(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour})
	lend(t, table, t0, "night", 8000, time.Minute)
	a, err := table.Borrow(t0, "a", "night", 4000, 0, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, LoanID("night"), a.Loan)
	_, err = table.Borrow(t0, "b", "night", 2000, 0, time.Minute)
	require.NoError(t, err)
	grant(t, table, t0, "own", 1000, 0)
	require.Empty(t, table.AppendDue(nil, at(time.Minute)))

	l, err := table.Recall(at(time.Minute), "night", 5000, at(2*time.Minute))
	require.NoError(t, err)
	require.Equal(t, Loan{ID: "night", Lender: "inference", Amount: 6000, Notice: time.Minute, Recalled: 3000, Short: 3000, Deadline: at(2 * time.Minute)}, l)
	require.Equal(t, "a b", names(table.AppendDue(nil, at(time.Minute))), "not who borrowed nothing")
	_, err = table.Extend(at(time.Minute), "a")
	require.ErrorIs(t, err, lockstep.ErrConflict, "its own term is not over")

	_, err = table.Shrink(at(time.Minute), "a", 1000, at(2*time.Minute), ReasonRecalled)
	require.NoError(t, err)
	require.Empty(t, table.AppendDue(nil, at(time.Minute)), "enough is told to come back in time")
	_, charge, err := table.Resize(at(90*time.Second), "a", 1000)
	require.NoError(t, err)
	require.Equal(t, LoanID("night"), charge.Loan)
	l, ok := table.Loan("night")
	require.True(t, ok)
	require.Equal(t, Loan{ID: "night", Lender: "inference", Amount: 3000, Notice: time.Minute}, l)
	charges, err := table.AppendSettled(nil, at(2*time.Minute))
	require.NoError(t, err)
	require.Empty(t, charges)
}

func TestARecallThatNobodyHeedsIsSettledAtItsDeadline(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour})
	lend(t, table, t0, "night", 8000, time.Minute)
	for i, job := range []lockstep.JobID{"a", "b", "c", "d"} {
		_, err := table.Borrow(at(time.Duration(i)*time.Second), job, "night", 2000, 0, 0)
		require.NoError(t, err)
	}
	_, err := table.Recall(at(time.Minute), "night", 3000, at(3*time.Minute))
	require.NoError(t, err)
	_, err = table.Yield(at(time.Minute), "a", at(4*time.Minute), "late") // too late to count
	require.NoError(t, err)
	l, _ := table.Loan("night")
	require.Equal(t, lockstep.MilliGPU(3000), l.Short)
	require.Equal(t, "b c d", names(table.AppendDue(nil, at(time.Minute))))
	wake, ok := table.NextWake(at(time.Minute + 1))
	require.True(t, ok)
	require.Equal(t, at(time.Minute+1), wake, "there are due leases")
	charges, err := table.AppendSettled(nil, at(3*time.Minute))
	require.NoError(t, err)
	require.Len(t, charges, 2)
	require.Equal(t, []lockstep.JobID{"a", "d"}, []lockstep.JobID{charges[0].Job, charges[1].Job}, "who is leaving anyway, then the latest")
	require.Equal(t, ReasonRecalled, charges[0].Reason)
	l, _ = table.Loan("night")
	require.Equal(t, Loan{ID: "night", Lender: "inference", Amount: 5000, Free: 1000, Notice: time.Minute}, l)
	_, err = table.Recall(at(3*time.Minute), "night", 1000, at(3*time.Minute))
	require.NoError(t, err, "what is free needs no notice")
	for _, job := range []lockstep.JobID{"b", "c"} {
		_, err = table.Revoke(at(4*time.Minute), job, "done")
		require.NoError(t, err)
	}
	_, err = table.Recall(at(5*time.Minute), "night", 4000, at(5*time.Minute))
	require.NoError(t, err)
	_, ok = table.Loan("night")
	require.False(t, ok, "nothing of it is left")
}

func TestBadLoansChangeNothing(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour})
	lend(t, table, at(time.Second), "night", 8000, time.Minute)
	_, err := table.Borrow(at(time.Second), "a", "night", 6000, 0, time.Minute)
	require.NoError(t, err)
	before := save(t, table)
	now := at(2 * time.Second)
	for name, c := range map[string]struct { // the order does not matter: each changes nothing
		kind error
		call func() error
	}{
		"lend no ID":      {lockstep.ErrInvalid, func() error { _, err := table.Lend(now, "", "x", 1, 0); return err }},
		"lend bad lender": {lockstep.ErrInvalid, func() error { _, err := table.Lend(now, "n", "a b", 1, 0); return err }},
		"lend nothing":    {lockstep.ErrInvalid, func() error { _, err := table.Lend(now, "n", "x", 0, 0); return err }},
		"lend too much":   {lockstep.ErrInvalid, func() error { _, err := table.Lend(now, "n", "x", math.MaxInt64, 0); return err }},
		"lend sum": {lockstep.ErrInvalid, func() error {
			_, err := table.Lend(now, "night", "inference", math.MaxInt64/2, time.Minute)
			return err
		}},
		"lend notice":      {lockstep.ErrInvalid, func() error { _, err := table.Lend(now, "n", "x", 1, -1); return err }},
		"lend in the past": {lockstep.ErrPast, func() error { _, err := table.Lend(t0, "n", "x", 1, 0); return err }},
		"lend by another":  {lockstep.ErrConflict, func() error { _, err := table.Lend(now, "night", "other", 1, time.Minute); return err }},
		"lend otherwise":   {lockstep.ErrConflict, func() error { _, err := table.Lend(now, "night", "inference", 1, 0); return err }},
		"borrow unknown":   {lockstep.ErrUnknown, func() error { _, err := table.Borrow(now, "b", "day", 1, 0, 0); return err }},
		"borrow slow":      {lockstep.ErrConflict, func() error { _, err := table.Borrow(now, "b", "night", 1, 0, time.Minute+1); return err }},
		"borrow negative":  {lockstep.ErrInvalid, func() error { _, err := table.Borrow(now, "b", "night", 1, 0, -1); return err }},
		"borrow too much":  {lockstep.ErrConflict, func() error { _, err := table.Borrow(now, "b", "night", 2001, 0, 0); return err }},
		"borrow nothing":   {lockstep.ErrInvalid, func() error { _, err := table.Borrow(now, "b", "night", 0, 0, 0); return err }},
		"borrow twice":     {lockstep.ErrDuplicate, func() error { _, err := table.Borrow(now, "a", "night", 1, 0, 0); return err }},
		"borrow no job":    {lockstep.ErrInvalid, func() error { _, err := table.Borrow(now, "", "night", 1, 0, 0); return err }},
		"recall unknown":   {lockstep.ErrUnknown, func() error { _, err := table.Recall(now, "day", 1, now); return err }},
		"recall nothing":   {lockstep.ErrInvalid, func() error { _, err := table.Recall(now, "night", 0, now); return err }},
		"recall too much":  {lockstep.ErrInvalid, func() error { _, err := table.Recall(now, "night", 8001, at(time.Hour)); return err }},
		"recall too soon":  {lockstep.ErrConflict, func() error { _, err := table.Recall(now, "night", 2001, now.Add(time.Minute-1)); return err }},
		"recall no time":   {lockstep.ErrInvalid, func() error { _, err := table.Recall(now, "night", 1, time.Time{}); return err }},
		"grow":             {lockstep.ErrConflict, func() error { _, _, err := table.Resize(now, "a", 8001); return err }},
		"settle the past":  {lockstep.ErrPast, func() error { _, err := table.AppendSettled(nil, t0); return err }},
	} {
		require.ErrorIs(t, c.call(), c.kind, name)
		require.Equal(t, before, save(t, table), name)
	}
	_, err = table.Recall(now, "night", 8000, at(time.Hour))
	require.NoError(t, err)
	_, err = table.Lend(now, "night", "inference", 1, time.Minute)
	require.ErrorIs(t, err, lockstep.ErrConflict, "not while it is recalled")
	_, err = table.Recall(now, "night", 1, at(2*time.Hour))
	require.ErrorIs(t, err, lockstep.ErrInvalid, "all of it is recalled")
}

// owed is a recall as the lender remembers it.
type owed struct {
	amount   lockstep.MilliGPU
	deadline time.Time
}

// TestARecallIsNeverLate lends, borrows, recalls and gives back at random, with
// holders that heed a recall, heed it late or do not, and a host that only calls
// AppendSettled when NextWake says so. At every deadline the lender has back what
// it asked for, and saved bytes go on as the table does.
func TestARecallIsNeverLate(t *testing.T) {
	runs := 120
	if testing.Short() {
		runs = 20
	}
	recalls, forced := 0, 0
	for seed := range runs {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		table := newTable(t, Config{Term: time.Minute, First: 10 * time.Second, Jitter: 100_000, Ahead: time.Second})
		now := t0
		lent := lockstep.MilliGPU(0) // in all
		var asked []owed
		back := func() lockstep.MilliGPU { // what the lender has got back in all
			l, _ := table.Loan("l")
			return lent - l.Amount
		}
		settle := func(until time.Time) {
			for {
				l, _ := table.Loan("l")
				if l.Recalled == 0 || l.Deadline.After(until) {
					return
				}
				now = l.Deadline
				charges, err := table.AppendSettled(nil, now)
				require.NoError(t, err)
				forced += len(charges)
			}
		}
		for step := range 150 {
			next := now.Add(time.Duration(r.IntN(20)) * time.Second)
			settle(next)
			now = next
			need := lockstep.MilliGPU(0)
			for _, o := range asked {
				if !o.deadline.After(now) {
					need += o.amount
				}
			}
			require.GreaterOrEqual(t, back(), need, "seed %d step %d", seed, step)

			job := lockstep.JobID(fmt.Sprintf("j%d", r.IntN(12)))
			switch r.IntN(7) {
			case 0:
				amount := lockstep.MilliGPU(1 + r.IntN(8000))
				if _, err := table.Lend(now, "l", "o", amount, 30*time.Second); err == nil {
					lent += amount
				}
			case 1, 2:
				_, _ = table.Borrow(now, job, "l", lockstep.MilliGPU(1+r.IntN(3000)), 0, time.Duration(r.IntN(31))*time.Second)
			case 3:
				amount, deadline := lockstep.MilliGPU(1+r.IntN(6000)), now.Add(30*time.Second+time.Duration(r.IntN(60))*time.Second)
				if _, err := table.Recall(now, "l", amount, deadline); err == nil {
					asked = append(asked, owed{amount, deadline})
					recalls++
				}
			case 4:
				_, _ = table.Yield(now, job, now.Add(time.Duration(r.IntN(90))*time.Second), ReasonRecalled)
			case 5:
				_, _ = table.Shrink(now, job, lockstep.MilliGPU(1+r.IntN(1000)), now.Add(time.Duration(r.IntN(90))*time.Second), ReasonRecalled)
			case 6:
				if l, ok := table.Get(job); ok && r.IntN(2) == 0 {
					_, err := table.Release(now, job, l.Token)
					require.NoError(t, err)
				} else if ok {
					_, _, _ = table.Resize(now, job, lockstep.MilliGPU(1+r.IntN(3000)))
				}
			}
			checkLoan(t, table)
			saved := save(t, table)
			again, err := Restore(bytes.NewReader([]byte(saved)))
			require.NoError(t, err, "%s", saved)
			require.Equal(t, saved, save(t, again))
			require.Equal(t, table.AppendDue(nil, now), again.AppendDue(nil, now))
			table = again
		}
	}
	require.Positive(t, forced)
	t.Logf("%d recalls, %d leases ended at a deadline", recalls, forced)
}

// checkLoan works out anew what a loan says of itself, from the leases alone.
func checkLoan(t *testing.T, table *Table) {
	t.Helper()
	l, ok := table.Loan("l")
	if !ok {
		return
	}
	used := lockstep.MilliGPU(0)
	for i := range 12 {
		if held, ok := table.Get(lockstep.JobID(fmt.Sprintf("j%d", i))); ok {
			require.Equal(t, LoanID("l"), held.Loan)
			used += held.Amount
		}
	}
	require.Equal(t, l.Amount, l.Free+used)
	require.GreaterOrEqual(t, l.Free, lockstep.MilliGPU(0))
	require.LessOrEqual(t, l.Recalled, used)
	require.LessOrEqual(t, l.Short, l.Recalled)
	if l.Recalled > 0 {
		require.Zero(t, l.Free)
	}
	require.Equal(t, []Loan{l}, table.AppendLoans(nil))
}

func TestReclaimOrderOfTheServerCostRule(t *testing.T) {
	servers := func(elastic bool) []Server {
		s3 := Server{Node: "s3", Jobs: []lockstep.JobID{"j2"}}
		if elastic {
			s3 = Server{Node: "s3", Elastic: []lockstep.JobID{"j2"}}
		}
		return []Server{s3, {Node: "s2", Jobs: []lockstep.JobID{"j4", "j1"}}, {Node: "s1", Jobs: []lockstep.JobID{"j1"}}}
	}
	require.Equal(t, []Reclaimed{
		{Node: "s1", Preempted: []lockstep.JobID{"j1"}},
		{Node: "s2", Preempted: []lockstep.JobID{"j4"}},
	}, AppendReclaim(nil, servers(false), 2), "costs .5, 1.5 and 1; then s2 is down to 1 and ties with s3")
	require.Equal(t, []Reclaimed{
		{Node: "s3", Preempted: []lockstep.JobID{}, Shrunk: []lockstep.JobID{"j2"}},
		{Node: "s1", Preempted: []lockstep.JobID{"j1"}},
	}, emptied(AppendReclaim(nil, servers(true), 2)), "shrinking costs nothing")
	require.Len(t, AppendReclaim(nil, append(servers(false), Server{Node: "idle"}, Server{Node: "idle"}), 9), 4)
	require.Equal(t, lockstep.NodeID("idle"), AppendReclaim(nil, append(servers(true), Server{Node: "idle"}), 1)[0].Node)
	require.Empty(t, AppendReclaim(nil, nil, 3))
	require.Empty(t, AppendReclaim(nil, servers(false), -1))
}

// emptied makes nil and empty lists of preempted jobs one thing.
func emptied(list []Reclaimed) []Reclaimed {
	for i := range list {
		list[i].Preempted = append([]lockstep.JobID{}, list[i].Preempted...)
	}
	return list
}

// TestReclaimIsGreedyByTheRule holds AppendReclaim against the rule worked out
// with fractions anew at each step.
func TestReclaimIsGreedyByTheRule(t *testing.T) {
	for seed := range 500 {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		servers := make([]Server, 1+r.IntN(6))
		for i := range servers {
			servers[i].Node = lockstep.NodeID(fmt.Sprintf("n%d", i))
			for j := range 4 {
				switch r.IntN(4) {
				case 0:
					servers[i].Jobs = append(servers[i].Jobs, lockstep.JobID(fmt.Sprintf("j%d", j)))
				case 1:
					servers[i].Elastic = append(servers[i].Elastic, lockstep.JobID(fmt.Sprintf("e%d", j)))
				}
			}
		}
		stopped := map[lockstep.JobID]bool{}
		var left []Server
		left = append(left, servers...)
		for _, got := range AppendReclaim(nil, servers, len(servers)) {
			best, bestCost := lockstep.NodeID(""), 1e9
			for _, s := range left {
				cost := -1.0 // idle
				if len(s.Elastic) > 0 {
					cost = 0
				}
				sum := 0.0
				for _, job := range s.Jobs {
					on := 0
					for _, o := range servers {
						if slices.Contains(o.Jobs, job) {
							on++
						}
					}
					if !stopped[job] {
						sum += 1 / float64(on)
					}
				}
				if sum > 0 {
					cost = sum
				}
				if cost < bestCost-1e-9 {
					best, bestCost = s.Node, cost
				}
			}
			require.Equal(t, best, got.Node, "seed %d: %+v", seed, servers)
			for _, job := range got.Preempted {
				require.False(t, stopped[job])
				stopped[job] = true
			}
			left = slices.DeleteFunc(left, func(s Server) bool { return s.Node == got.Node })
		}
	}
}
