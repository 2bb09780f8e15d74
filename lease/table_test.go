package lease

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func newTable(t testing.TB, cfg Config) *Table {
	t.Helper()
	table, err := New(cfg)
	require.NoError(t, err)
	return table
}

func grant(t testing.TB, table *Table, now time.Time, job lockstep.JobID, amount lockstep.MilliGPU, term time.Duration) Lease {
	t.Helper()
	l, err := table.Grant(now, job, amount, term)
	require.NoError(t, err)
	return l
}

func TestConfigReportsAllFaults(t *testing.T) {
	_, err := New(Config{Term: -1, Ahead: -1, Silence: lockstep.MaxWalltime + 1, Loss: million + 1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Term", "Ahead", "Silence", "Loss"} {
		require.ErrorContains(t, err, field)
	}
	require.NoError(t, Config{}.Validate())
}

func TestTermFor(t *testing.T) {
	tests := []struct {
		name     string
		cfg      Config
		overhead time.Duration
		want     time.Duration
	}{
		{"25 s at 2 %", Config{Term: time.Minute}, 25 * time.Second, 1250 * time.Second},
		{"term is the floor", Config{Term: time.Hour}, 25 * time.Second, time.Hour},
		{"rounds up", Config{Term: 1, Loss: 3}, 1, 333334},
		{"everything may be lost", Config{Term: 1, Loss: million}, time.Second, time.Second},
		{"no overhead", Config{}, 0, defaultTerm},
		{"negative overhead", Config{}, math.MinInt64, defaultTerm},
		{"bounded", Config{Loss: 1}, math.MaxInt64, lockstep.MaxWalltime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, tt.cfg.TermFor(tt.overhead)) })
	}
}

func TestBoundaryKeepsItsPhase(t *testing.T) {
	for _, tt := range []struct{ late, want time.Duration }{
		{0, 20 * time.Minute},
		{time.Minute, 20 * time.Minute},
		{10*time.Minute - 1, 20 * time.Minute},
		{10 * time.Minute, 30 * time.Minute},
		{95 * time.Minute, 110 * time.Minute},
		{365 * 24 * time.Hour, 365*24*time.Hour + 20*time.Minute}, // the clock jumps a year ahead
	} {
		table := newTable(t, Config{Term: 10 * time.Minute})
		grant(t, table, t0, "a", 1000, 0)
		l, err := table.Extend(at(10*time.Minute+tt.late), "a")
		require.NoError(t, err)
		require.Equal(t, at(tt.want), l.Boundary, "late %s", tt.late)
		require.Equal(t, Token(1), l.Token)
	}
}

func TestDueGoesByBoundaryThenJob(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour, Ahead: time.Minute})
	for _, job := range []lockstep.JobID{"c", "a", "b"} {
		grant(t, table, t0, job, 1000, 0)
	}
	grant(t, table, t0, "z", 1000, time.Minute)
	wake, ok := table.NextWake(t0)
	require.True(t, ok)
	require.Equal(t, t0, wake, "z's term is as short as Ahead")
	require.Equal(t, "z", names(table.AppendDue(nil, at(time.Hour-time.Minute-1))))
	require.Equal(t, "z a b c", names(table.AppendDue(nil, at(time.Hour-time.Minute))))
	_, err := table.Extend(at(time.Hour-time.Minute), "b")
	require.NoError(t, err)
	require.Equal(t, "z a c", names(table.AppendDue(nil, at(time.Hour))))
}

func names(leases []Lease) string {
	var s []string
	for _, l := range leases {
		s = append(s, string(l.Job))
	}
	return strings.Join(s, " ")
}

func TestOverdueNamesSilentAndLate(t *testing.T) {
	table := newTable(t, Config{Silence: time.Minute})
	a := grant(t, table, t0, "a", 1000, 0)
	grant(t, table, t0, "b", 1000, 0)
	_, err := table.Yield(t0, "b", at(30*time.Second), "preempted")
	require.NoError(t, err)
	require.Empty(t, table.AppendOverdue(nil, at(30*time.Second)), "the deadline itself is in time")
	wake, ok := table.NextWake(t0)
	require.True(t, ok)
	require.Equal(t, at(30*time.Second+1), wake)
	require.Equal(t, "b", names(table.AppendOverdue(nil, wake)))
	require.Equal(t, "b a", names(table.AppendOverdue(nil, at(time.Minute+1))))
	_, err = table.Renew(at(50*time.Second), "a", a.Token)
	require.NoError(t, err)
	require.Equal(t, "b", names(table.AppendOverdue(nil, at(time.Minute+1))))
	charge, err := table.Revoke(at(2*time.Minute), "b", "overdue")
	require.NoError(t, err)
	require.Equal(t, Charge{Job: "b", Token: 2, Amount: 1000, From: t0, To: at(2 * time.Minute), Reason: "overdue", Save: 2 * time.Minute}, charge)
}

func TestShrinkThenResizeFencesWhoLeft(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour})
	old := grant(t, table, t0, "a", 8000, 0)
	l, err := table.Shrink(at(time.Hour), "a", 4000, at(time.Hour+time.Minute), "reclaim")
	require.NoError(t, err)
	require.Equal(t, Shrinking, l.State)
	require.Equal(t, at(2*time.Hour), l.Boundary)
	require.Empty(t, table.AppendDue(nil, at(time.Hour)), "the outcome is recorded")
	_, _, err = table.Resize(at(time.Hour), "a", 5000)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	l, charge, err := table.Resize(at(time.Hour+time.Second), "a", 4000)
	require.NoError(t, err)
	require.Equal(t, lockstep.MilliGPU(8000), charge.Amount)
	require.Equal(t, at(time.Hour+time.Second), charge.To)
	require.Equal(t, Held, l.State)
	_, err = table.Renew(at(time.Hour+time.Second), "a", old.Token)
	require.ErrorIs(t, err, lockstep.ErrStale)
	require.False(t, table.Valid("a", old.Token))
	require.True(t, table.Valid("a", l.Token))
	charge, err = table.Release(at(2*time.Hour), "a", l.Token)
	require.NoError(t, err)
	require.Equal(t, at(time.Hour+time.Second), charge.From)
}

func TestBadInputsChangeNothing(t *testing.T) {
	table := newTable(t, Config{Term: time.Hour})
	grant(t, table, t0, "a", 2000, 0)
	b := grant(t, table, at(1), "b", 2000, 0)
	_, err := table.Yield(at(2), "b", at(time.Minute), "x")
	require.NoError(t, err)
	long := lockstep.JobID(strings.Repeat("x", 1<<20))
	now := at(3)
	tests := []struct {
		name string
		kind error
		call func() error
	}{
		{"duplicate", lockstep.ErrDuplicate, func() error { _, err := table.Grant(now, "a", 1, 0); return err }},
		{"amount 0", lockstep.ErrInvalid, func() error { _, err := table.Grant(now, "n", 0, 0); return err }},
		{"amount negative", lockstep.ErrInvalid, func() error { _, err := table.Grant(now, "n", math.MinInt64, 0); return err }},
		{"term negative", lockstep.ErrInvalid, func() error { _, err := table.Grant(now, "n", 1, -1); return err }},
		{"term absurd", lockstep.ErrInvalid, func() error { _, err := table.Grant(now, "n", 1, math.MaxInt64); return err }},
		{"empty job", lockstep.ErrInvalid, func() error { _, err := table.Grant(now, "", 1, 0); return err }},
		{"long job", lockstep.ErrInvalid, func() error { _, err := table.Grant(now, long, 1, 0); return err }},
		{"zero time", lockstep.ErrInvalid, func() error { _, err := table.Grant(time.Time{}, "n", 1, 0); return err }},
		{"past", lockstep.ErrPast, func() error { _, err := table.Grant(t0, "n", 1, 0); return err }},
		{"past renew", lockstep.ErrPast, func() error { _, err := table.Renew(t0, "a", 1); return err }},
		{"past release", lockstep.ErrPast, func() error { _, err := table.Release(t0, "a", 1); return err }},
		{"past revoke", lockstep.ErrPast, func() error { _, err := table.Revoke(t0, "a", "x"); return err }},
		{"token 0", lockstep.ErrUnknown, func() error { _, err := table.Renew(now, "a", 0); return err }},
		{"token of the future", lockstep.ErrUnknown, func() error { _, err := table.Renew(now, "a", 99); return err }},
		{"token of another", lockstep.ErrStale, func() error { _, err := table.Release(now, "a", b.Token); return err }},
		{"job without lease", lockstep.ErrStale, func() error { _, err := table.Release(now, "n", 1); return err }},
		{"revoke unknown", lockstep.ErrUnknown, func() error { _, err := table.Revoke(now, "n", "x"); return err }},
		{"revoke without reason", lockstep.ErrInvalid, func() error { _, err := table.Revoke(now, "a", ""); return err }},
		{"extend early", lockstep.ErrConflict, func() error { _, err := table.Extend(now, "a"); return err }},
		{"extend yielding", lockstep.ErrConflict, func() error { _, err := table.Extend(at(time.Hour+1), "b"); return err }},
		{"extend unknown", lockstep.ErrUnknown, func() error { _, err := table.Extend(now, "n"); return err }},
		{"yield twice", lockstep.ErrConflict, func() error { _, err := table.Yield(now, "b", at(time.Hour), "x"); return err }},
		{"yield into the past", lockstep.ErrInvalid, func() error { _, err := table.Yield(now, "a", at(2), "x"); return err }},
		{"yield without deadline", lockstep.ErrInvalid, func() error { _, err := table.Yield(now, "a", time.Time{}, "x"); return err }},
		{"yield beyond time", lockstep.ErrInvalid, func() error { _, err := table.Yield(now, "a", now.AddDate(1000, 0, 0), "x"); return err }},
		{"shrink without deadline", lockstep.ErrInvalid, func() error { _, err := table.Shrink(now, "a", 1, time.Time{}, "x"); return err }},
		{"yield without reason", lockstep.ErrInvalid, func() error { _, err := table.Yield(now, "a", now, ""); return err }},
		{"yield unknown", lockstep.ErrUnknown, func() error { _, err := table.Yield(now, "n", now, "x"); return err }},
		{"shrink to all", lockstep.ErrConflict, func() error { _, err := table.Shrink(now, "a", 2000, now, "x"); return err }},
		{"shrink to none", lockstep.ErrConflict, func() error { _, err := table.Shrink(now, "a", 0, now, "x"); return err }},
		{"shrink yielding", lockstep.ErrConflict, func() error { _, err := table.Shrink(now, "b", 1, now, "x"); return err }},
		{"shrink unknown", lockstep.ErrUnknown, func() error { _, err := table.Shrink(now, "n", 1, now, "x"); return err }},
		{"resize to none", lockstep.ErrInvalid, func() error { _, _, err := table.Resize(now, "a", 0); return err }},
		{"resize yielding", lockstep.ErrConflict, func() error { _, _, err := table.Resize(now, "b", 1); return err }},
		{"resize unknown", lockstep.ErrUnknown, func() error { _, _, err := table.Resize(now, "n", 1); return err }},
	}
	before := save(t, table)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.call()
			require.ErrorIs(t, err, tt.kind)
			var typed *lockstep.Error
			require.ErrorAs(t, err, &typed)
			require.NotEmpty(t, typed.Field)
			require.Equal(t, strings.Contains(tt.name, "deadline") || strings.Contains(tt.name, "yield into") || strings.Contains(tt.name, "beyond"), typed.Field == "deadline")
			require.Equal(t, before, save(t, table))
		})
	}
}

// TestRaiseOutlivesAStaleSave: a table that was saved before its last grants
// would issue their tokens again, to others or to the same job.
func TestRaiseOutlivesAStaleSave(t *testing.T) {
	table := newTable(t, Config{})
	grant(t, table, t0, "a", 1000, 0)
	stale := save(t, table)
	lost := grant(t, table, at(1), "b", 1000, 0)

	again, err := Restore(strings.NewReader(stale))
	require.NoError(t, err)
	require.Equal(t, lost.Token, grant(t, again, at(2), "b", 2000, 0).Token, "without Raise the old holder is valid again")

	again, err = Restore(strings.NewReader(stale))
	require.NoError(t, err)
	again.Raise(0)
	require.Equal(t, stale, save(t, again), "a lower floor changes nothing")
	again.Raise(lost.Token + 10)
	l := grant(t, again, at(2), "b", 2000, 0)
	require.Equal(t, lost.Token+11, l.Token)
	require.False(t, again.Valid("b", lost.Token))
	_, err = again.Renew(at(2), "b", lost.Token)
	require.ErrorIs(t, err, lockstep.ErrStale)
	_, err = again.Release(at(2), "b", lost.Token)
	require.ErrorIs(t, err, lockstep.ErrStale)

	again.Raise(math.MaxUint64) // there is none above
	before := save(t, again)
	_, err = again.Grant(at(3), "c", 1000, 0)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, _, err = again.Resize(at(3), "b", 1000)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	require.Equal(t, before, save(t, again))
	_, err = Restore(strings.NewReader(before))
	require.NoError(t, err)
}

// TestDueGoesByWhenItIsDue: with terms shorter than Ahead that is not the order of boundaries.
func TestDueGoesByWhenItIsDue(t *testing.T) {
	table := newTable(t, Config{Ahead: 10 * time.Minute})
	grant(t, table, t0, "long", 1000, time.Hour)                    // due at 50 min, boundary at 60
	grant(t, table, at(52*time.Minute), "short", 1000, time.Minute) // due at once, boundary at 53
	require.Equal(t, "long short", names(table.AppendDue(nil, at(52*time.Minute))))
}

func save(t testing.TB, table *Table) string {
	t.Helper()
	return string(snapshottest.Save(t, table.Snapshot))
}

func TestExtremeTimes(t *testing.T) {
	table := newTable(t, Config{Term: lockstep.MaxWalltime, Ahead: time.Hour, Silence: time.Hour})
	first := lockstep.FromNanos(math.MinInt64)
	last := lockstep.FromNanos(math.MaxInt64)
	grant(t, table, first, "a", math.MaxInt64, time.Nanosecond)
	_, err := table.Extend(last, "a")
	require.NoError(t, err)
	grant(t, table, last, "b", 1, 0)
	require.Equal(t, "b a", names(table.AppendDue(nil, last)), "boundaries are held at the last time there is")
	_, err = Restore(strings.NewReader(save(t, table)))
	require.NoError(t, err)
	require.Empty(t, table.AppendDue(nil, time.Time{}))
	require.NotPanics(t, func() { table.NextWake(time.Time{}) })
	wake, ok := table.NextWake(last)
	require.True(t, ok)
	require.Equal(t, last, wake)

	table = newTable(t, Config{Term: lockstep.MaxWalltime}) // a boundary at the last time there is is one
	grant(t, table, last.Add(-1), "a", 1, 0)
	require.Empty(t, table.AppendDue(nil, last.Add(-1)))
	wake, ok = table.NextWake(last.Add(-1))
	require.True(t, ok)
	require.Equal(t, last, wake)
	require.Equal(t, "a", names(table.AppendDue(nil, wake)))
}

// model is a plain reference: a slice, scanned.
type model struct {
	cfg    Config
	leases []Lease
	last   Token
}

func (m *model) find(job lockstep.JobID) int {
	return slices.IndexFunc(m.leases, func(l Lease) bool { return l.Job == job })
}

func (m *model) due(now time.Time) []Lease {
	var out []Lease
	for _, l := range m.leases {
		if l.State == Held && !l.Boundary.Add(-min(m.cfg.Ahead, l.Term)).After(now) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Lease) int {
		return cmp.Or(a.Boundary.Add(-min(m.cfg.Ahead, a.Term)).Compare(b.Boundary.Add(-min(m.cfg.Ahead, b.Term))), cmp.Compare(a.Job, b.Job))
	})
	return out
}

// TestRandomRuns checks the invariants of doc.go against the model, over random
// calls, and that a table restored at a random point goes on bit for bit.
func TestRandomRuns(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		cfg := Config{Term: time.Hour, Ahead: time.Duration(rng.IntN(3)) * time.Minute, Silence: time.Duration(rng.IntN(2)) * 2 * time.Hour}
		table := newTable(t, cfg)
		m := &model{cfg: cfg}
		now := t0
		held := make(map[lockstep.JobID]time.Time) // start of the next charge
		var total, charged time.Duration           // over all jobs: time held, time charged
		settle := func(c Charge) {
			require.Equal(t, held[c.Job], c.From, "no gap, no overlap")
			charged += c.To.Sub(c.From)
			held[c.Job] = c.To
		}
		for step := range 500 {
			was := now
			if rng.IntN(3) > 0 {
				now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Minute))))
			}
			total += now.Sub(was) * time.Duration(len(m.leases))
			job := lockstep.JobID(fmt.Sprint("j", rng.IntN(12)))
			i := m.find(job)
			switch rng.IntN(9) {
			case 0, 1:
				l, err := table.Grant(now, job, lockstep.MilliGPU(1+rng.IntN(8000)), time.Duration(rng.IntN(3))*30*time.Minute)
				require.Equal(t, i >= 0, errors.Is(err, lockstep.ErrDuplicate))
				if i < 0 {
					require.NoError(t, err)
					require.Greater(t, l.Token, m.last)
					m.last = l.Token
					m.leases = append(m.leases, l)
					held[job] = now
				}
			case 2:
				if i < 0 {
					_, err := table.Renew(now, job, max(m.last, 1))
					require.Error(t, err)
					break
				}
				l, err := table.Renew(now, job, m.leases[i].Token)
				require.NoError(t, err)
				m.leases[i].Renewed = now
				require.Equal(t, m.leases[i], l)
			case 3:
				if i >= 0 && rng.IntN(3) == 0 {
					c, err := table.Release(now, job, m.leases[i].Token)
					require.NoError(t, err)
					settle(c)
					m.leases = slices.Delete(m.leases, i, i+1)
				}
			case 4:
				for _, l := range table.AppendOverdue(nil, now) {
					c, err := table.Revoke(now, l.Job, "overdue")
					require.NoError(t, err)
					settle(c)
					m.leases = slices.DeleteFunc(m.leases, func(o Lease) bool { return o.Job == l.Job })
				}
			case 5, 6:
				for _, l := range table.AppendDue(nil, now) {
					i := m.find(l.Job)
					var err error
					switch rng.IntN(3) {
					case 0:
						l, err = table.Extend(now, l.Job)
						require.True(t, l.Boundary.After(now) || l.Boundary.Equal(m.leases[i].Boundary.Add(l.Term)))
					case 1:
						l, err = table.Yield(now, l.Job, now.Add(time.Minute), "share")
					default:
						if l.Amount == 1 {
							continue
						}
						l, err = table.Shrink(now, l.Job, l.Amount/2, now.Add(time.Minute), "share")
					}
					require.NoError(t, err)
					m.leases[i] = l
				}
			case 7:
				if i >= 0 && m.leases[i].State == Shrinking {
					l, c, err := table.Resize(now, job, m.leases[i].Target)
					require.NoError(t, err)
					settle(c)
					require.Greater(t, l.Token, m.last)
					m.last, m.leases[i] = l.Token, l
				}
			case 8:
				if i >= 0 {
					if c, err := table.Revoke(now, job, "test"); rng.IntN(2) == 0 || err == nil {
						require.NoError(t, err)
						settle(c)
						m.leases = slices.Delete(m.leases, i, i+1)
					}
				}
			}
			require.Equal(t, m.due(now), table.AppendDue(nil, now), "seed %d step %d", seed, step)
			require.Equal(t, len(m.leases), table.Len())
			for _, l := range m.leases {
				got, ok := table.Get(l.Job)
				require.True(t, ok)
				require.Equal(t, l, got)
			}
			if rng.IntN(50) == 0 {
				image := save(t, table)
				again, err := Restore(strings.NewReader(image))
				require.NoError(t, err)
				require.Equal(t, image, save(t, again))
				table = again // the rest of the run goes on with the restored one
			}
		}
		for _, l := range m.leases {
			c, err := table.Revoke(now, l.Job, "end")
			require.NoError(t, err)
			settle(c)
		}
		require.Equal(t, total, charged, "the time held is the time charged")
	}
}

// TestReplayIsBitIdentical runs one script twice, with jobs inserted into a
// fresh map each time, and restores at each step.
func TestReplayIsBitIdentical(t *testing.T) {
	run := func(restore bool) string {
		rng := rand.New(rand.NewPCG(7, 7))
		table := newTable(t, Config{Term: time.Minute})
		for i := range 300 {
			now := at(time.Duration(i) * time.Second)
			job := lockstep.JobID(fmt.Sprint(rng.IntN(50)))
			if l, ok := table.Get(job); ok {
				_, err := table.Release(now, job, l.Token)
				require.NoError(t, err)
			} else {
				grant(t, table, now, job, 1000, 0)
			}
			for _, l := range table.AppendDue(nil, now) {
				_, err := table.Extend(now, l.Job)
				require.NoError(t, err)
			}
			if restore {
				again, err := Restore(strings.NewReader(save(t, table)))
				require.NoError(t, err)
				table = again
			}
		}
		return save(t, table)
	}
	require.Equal(t, run(false), run(false))
	require.Equal(t, run(false), run(true))
}

func TestSnapshotRefusesDamage(t *testing.T) {
	table := newTable(t, Config{})
	grant(t, table, t0, "a", 1000, 0)
	_, err := table.Yield(t0, "a", at(time.Minute), "x")
	require.NoError(t, err)
	snapshottest.RefusesDamage(t, []byte(save(t, table)), restored)
}

func TestMemoryStaysFlat(t *testing.T) {
	table := newTable(t, Config{Silence: time.Minute})
	for i := range 100_000 {
		now := at(time.Duration(i) * time.Second)
		l := grant(t, table, now, lockstep.JobID(fmt.Sprint(i)), 1000, 0)
		_, err := table.Release(now, l.Job, l.Token)
		require.NoError(t, err)
	}
	require.Zero(t, table.Len()+table.due.Len()+table.ends.Len())
}

func TestRenewAndExtendAllocateNothing(t *testing.T) {
	table := newTable(t, Config{Term: time.Second, Silence: time.Minute})
	for i := range 1000 {
		grant(t, table, t0, lockstep.JobID(fmt.Sprint(i)), 1000, 0)
	}
	now := t0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Second)
		_, _ = table.Renew(now, "500", 501)
		_, _ = table.Extend(now, "500")
	}))
}

// recalled is a table with a loan that is short, and leases on it in every state.
func recalled(t testing.TB) *Table {
	table := newTable(t, Config{Term: time.Hour, First: time.Minute, Growth: 1500, Jitter: 1000, Ahead: time.Second, Silence: 3 * time.Hour})
	lend(t, table, t0, "night", 16_000, time.Minute)
	for _, job := range []lockstep.JobID{"a", "b", "c", "d"} {
		_, err := table.Borrow(t0, job, "night", 4000, 0, 0)
		require.NoError(t, err)
	}
	now := at(2 * time.Minute)
	_, err := table.HoldOver(now, "b")
	require.NoError(t, err)
	_, err = table.Shrink(now, "c", 1000, now.Add(time.Minute), "served")
	require.NoError(t, err)
	_, err = table.Yield(now, "d", now.Add(2*time.Minute), "served")
	require.NoError(t, err)
	_, err = table.Recall(now, "night", 9000, now.Add(3*time.Minute))
	require.NoError(t, err)
	_, err = table.Recall(now, "night", 4000, now.Add(time.Minute))
	require.NoError(t, err)
	return table
}

func FuzzRestore(f *testing.F) {
	table := newTable(f, Config{Ahead: time.Second, Silence: time.Minute})
	grant(f, table, t0, "a", 4000, 0)
	grant(f, table, t0, "b", 4000, 0)
	_, _ = table.Yield(t0, "a", at(time.Minute), "x")
	_, _ = table.Shrink(t0, "b", 2000, at(time.Minute), "x")
	f.Add(snapshottest.Body(f, []byte(save(f, table))))
	f.Add(snapshottest.Body(f, []byte(save(f, recalled(f)))))
	f.Add([]byte(`{"config":{},"now":0,"last":0,"leases":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		image := string(snapshottest.Frame(t, format, version, body)) // so that the fuzzer gets past the checksum
		table, err := Restore(strings.NewReader(image))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.Equal(t, image, save(t, table))
		now := lockstep.FromNanos(max(table.now, 0))
		for i, l := range table.AppendDue(nil, now) {
			own := l.State == HeldOver || !l.Boundary.Add(-min(table.cfg.Ahead, l.Term)).After(now)
			if i%2 == 0 {
				_, err = table.Extend(now, l.Job)
			} else {
				_, err = table.HoldOver(now, l.Job)
			}
			require.Equal(t, own, err == nil, "%+v", l)
		}
		for _, l := range table.AppendOverdue(nil, now) {
			_, err := table.Revoke(now, l.Job, "x")
			require.NoError(t, err)
		}
		for _, l := range table.AppendLoans(nil) {
			require.Equal(t, l.Recalled > 0, !l.Deadline.IsZero())
			_, _ = table.Recall(now, l.ID, l.Amount-l.Recalled, now.Add(l.Notice))
		}
		_, err = Restore(strings.NewReader(save(t, table)))
		require.NoError(t, err)
		_, err = table.AppendSettled(nil, lockstep.FromNanos(never))
		require.NoError(t, err)
		for _, l := range table.AppendLoans(nil) {
			require.Zero(t, l.Recalled)
		}
		table.NextWake(now)
	})
}

func BenchmarkTable(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		table := newTable(b, Config{Term: time.Hour, Silence: time.Hour})
		ids := make([]lockstep.JobID, n)
		tokens := make([]Token, n)
		for i := range ids {
			ids[i] = lockstep.JobID(fmt.Sprintf("job-%07d", i))
			tokens[i] = grant(b, table, at(time.Duration(i)), ids[i], 1000, 0).Token
		}
		now := at(time.Second)
		i := 0
		b.Run(fmt.Sprintf("renew/leases=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				i = (i + 7919) % n
				now = now.Add(1)
				if _, err := table.Renew(now, ids[i], tokens[i]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("cycle/leases=%d", n), func(b *testing.B) { // release, grant, next wake
			b.ReportAllocs()
			for b.Loop() {
				i = (i + 7919) % n
				now = now.Add(1)
				if _, err := table.Release(now, ids[i], tokens[i]); err != nil {
					b.Fatal(err)
				}
				l, err := table.Grant(now, ids[i], 1000, 0)
				if err != nil {
					b.Fatal(err)
				}
				tokens[i] = l.Token
				table.NextWake(now)
			}
		})
	}
}
