package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

func admission(t *testing.T, p gang.Placer, cfg gang.Config) *gang.Admission {
	t.Helper()
	cfg.Placer = p
	a, err := gang.New(cfg)
	require.NoError(t, err)
	return a
}

func step(t *testing.T, a *gang.Admission, second int) []lockstep.Action {
	t.Helper()
	actions, err := a.Step(at(second))
	require.NoError(t, err)
	return actions
}

// summary is what a test compares of actions.
func summary(actions []lockstep.Action) []string {
	var out []string
	for _, x := range actions {
		s := string(x.Kind) + " " + string(x.Job)
		if x.Reason != "" {
			s += " " + string(x.Reason)
		}
		out = append(out, s)
	}
	return out
}

// forecast returns the start that job is promised, if one is known.
func forecast(a *gang.Admission, job lockstep.JobID) (time.Time, bool) {
	f, ok := a.Forecast(job)
	return f.Start, ok && !f.Start.IsZero()
}

func phase(a *gang.Admission, job lockstep.JobID) gang.Phase {
	s, _ := a.State(job)
	return s.Phase
}

func TestSymptomH1H5PartOfAGangNeverStarts(t *testing.T) { // H1, H5
	p := placertest.NewReference(1, 2, 4, 0)
	a := admission(t, p, gang.Config{})
	require.NoError(t, a.Submit(at(0), plain("twenty", 20, 0)))
	require.Empty(t, step(t, a, 0))
	require.Empty(t, p.Jobs())
	e, ok := a.Explain("twenty")
	require.True(t, ok)
	require.Equal(t, lockstep.ReasonCapacity, e.Verdict.Reason)

	p = placertest.NewReference(1, 2, 1, 0)
	a = admission(t, p, gang.Config{})
	require.NoError(t, a.Submit(at(0), plain("busy", 1, 0)))
	step(t, a, 0)
	require.NoError(t, a.Submit(at(1), plain("pair", 2, 0)))
	require.Empty(t, step(t, a, 1))
	require.Equal(t, []lockstep.JobID{"busy"}, p.Jobs())
}

func TestSymptomH2TwoGangsNeverHoldHalves(t *testing.T) { // H2
	p := placertest.NewReference(1, 100, 1, 0)
	a := admission(t, p, gang.Config{})
	require.NoError(t, a.Submit(at(0), plain("a", 100, 0)))
	require.NoError(t, a.Submit(at(0), plain("b", 100, 0)))
	require.Equal(t, []string{"reserve a"}, summary(step(t, a, 0)))
	require.Len(t, p.Plan("a").Members, 100)
	require.Nil(t, p.Plan("b"))
}

func TestSymptomH3NobodyHoldsForAPartnerThatCannotCome(t *testing.T) { // H3: one job, whose roles are the group's gangs
	p := placertest.NewReference(1, 4, 1, 0)
	a := admission(t, p, gang.Config{})
	ab := plain("ab", 2, 0)
	ab.Roles[0].Name = "a"
	ab.Roles = append(ab.Roles, lockstep.Role{Name: "b", Min: 3, Demand: lockstep.Demand{GPUs: 1}})
	cd := plain("cd", 2, 0)
	cd.Roles[0].Name = "c"
	cd.Roles = append(cd.Roles, lockstep.Role{Name: "d", Min: 2, Demand: lockstep.Demand{GPUs: 1}})
	require.NoError(t, a.Submit(at(0), ab))
	require.NoError(t, a.Submit(at(0), cd))
	require.Equal(t, []string{"reserve cd"}, summary(step(t, a, 0)))
}

func TestSymptomH4AHoldEndsAtItsDeadline(t *testing.T) { // H4
	p := placertest.NewReference(1, 10, 1, 0)
	a := admission(t, p, gang.Config{Hold: 30 * time.Second, Backoff: 10 * time.Second})
	require.NoError(t, a.Submit(at(0), plain("ten", 10, 0)))
	hold := step(t, a, 0)
	require.Equal(t, []string{"reserve ten"}, summary(hold))
	require.Equal(t, at(30), hold[0].Deadline)
	require.NoError(t, a.Submit(at(1), plain("zother", 9, 0)))
	require.Empty(t, step(t, a, 1))
	for rank := range 9 {
		require.NoError(t, a.Confirm(at(2), "ten", hold[0].Attempt, rank))
		require.NoError(t, a.Confirm(at(2), "ten", hold[0].Attempt, rank), "again")
	}
	wake, ok := a.NextWake(at(2))
	require.True(t, ok)
	require.Equal(t, at(30), wake)
	require.Empty(t, step(t, a, 29))

	require.ErrorIs(t, a.Confirm(at(30), "ten", hold[0].Attempt, 9), lockstep.ErrStale, "too late")
	require.Equal(t, []string{"release ten lapsed", "reserve zother"}, summary(step(t, a, 30)))
	require.Equal(t, []lockstep.JobID{"zother"}, p.Jobs())
	require.ErrorIs(t, a.Confirm(at(31), "ten", hold[0].Attempt, 9), lockstep.ErrConflict, "a late one brings nothing back")
	require.Equal(t, gang.Queued, phase(a, "ten"))
	for rank := range 9 {
		require.NoError(t, a.Confirm(at(31), "zother", 0, rank))
	}
	require.Equal(t, []string{"start zother"}, summary(step(t, a, 31)))
	require.NoError(t, a.Finish(at(35), "zother", 0))
	require.Empty(t, step(t, a, 35), "ten waits out its backoff")
	again := step(t, a, 40)
	require.Equal(t, []string{"reserve ten"}, summary(again))
	require.ErrorIs(t, a.Confirm(at(41), "ten", hold[0].Attempt, 9), lockstep.ErrStale, "of the first hold")
	require.NotEqual(t, hold[0].Attempt, again[0].Attempt)
}

func TestBackoffDoubles(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{Hold: time.Second, Backoff: 10 * time.Second})
	require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
	var reserved []int
	for now := 0; now < 100; {
		for _, x := range step(t, a, now) {
			if x.Kind == lockstep.ActionReserve {
				reserved = append(reserved, now)
			}
		}
		wake, ok := a.NextWake(at(now))
		require.True(t, ok)
		now = seconds(wake)
	}
	require.Equal(t, []int{0, 11, 32, 73}, reserved)
}

func TestAFailedPreflightMovesTheHold(t *testing.T) {
	p := placertest.NewReference(1, 3, 1, 0)
	a := admission(t, p, gang.Config{Hold: 30 * time.Second, Exclude: 100 * time.Second})
	require.NoError(t, a.Submit(at(0), plain("pair", 2, 0)))
	first := step(t, a, 0)[0]
	require.NoError(t, a.Confirm(at(1), "pair", first.Attempt, 0))
	require.NoError(t, a.Refuse(at(5), "pair", first.Attempt, "n1"))
	require.ErrorIs(t, a.Confirm(at(5), "pair", first.Attempt, 1), lockstep.ErrStale, "about to move")
	moved := step(t, a, 5)
	require.Equal(t, []string{"reserve pair"}, summary(moved))
	require.Equal(t, at(30), moved[0].Deadline, "within the same hold")
	require.Equal(t, "n0", string(moved[0].Plan.Members[0].Node), "who can stay stays")
	require.Equal(t, "n2", string(moved[0].Plan.Members[1].Node))
	require.ErrorIs(t, a.Confirm(at(6), "pair", first.Attempt, 1), lockstep.ErrStale)

	require.NoError(t, a.Refuse(at(6), "pair", 0, "n2"))
	require.Equal(t, []string{"release pair refused"}, summary(step(t, a, 6)))
	require.Empty(t, p.Jobs())
	e, _ := a.Explain("pair")
	require.Contains(t, e.String(), "kept off n2")
	require.NoError(t, a.Open(at(50), "n2"), "repaired")
	require.Equal(t, []string{"reserve pair"}, summary(step(t, a, 50)))
	step(t, a, 80) // lapses
	require.Equal(t, gang.Queued, phase(a, "pair"))
	require.Equal(t, []string{"reserve pair"}, summary(step(t, a, 140)))
	s, _ := a.State("pair")
	require.Equal(t, "n1", string(s.Plan.Members[1].Node), "n1 was refused long enough ago")
}

func TestALostNodeTakesItsGangs(t *testing.T) {
	p := placertest.NewReference(1, 4, 1, 0)
	a := admission(t, p, gang.Config{Hold: 30 * time.Second})
	require.NoError(t, a.Submit(at(0), plain("a", 2, 0)))
	require.NoError(t, a.Submit(at(0), plain("b", 1, 0)))
	step(t, a, 0)
	require.NoError(t, a.Confirm(at(0), "a", 0, 0))
	require.NoError(t, a.Confirm(at(0), "a", 0, 1))
	step(t, a, 0)
	require.NoError(t, a.Down(at(1), "n0"))
	require.NoError(t, a.Down(at(1), "n2"))
	require.Equal(t, []string{"evict a lost", "reserve b"}, summary(step(t, a, 1)))
	s, _ := a.State("b")
	require.Equal(t, "n3", string(s.Plan.Members[0].Node))
	require.Equal(t, gang.Leaving, phase(a, "a"))
	require.NoError(t, a.Due(at(2), "a", 0), "means nothing now")
	require.NoError(t, a.Evicted(at(3), "a", 0))
	require.Empty(t, step(t, a, 3), "only n1 is left")
	require.NoError(t, a.Up(at(4), "n2"))
	require.Equal(t, []string{"reserve a"}, summary(step(t, a, 4)))
}

func TestCancelInEveryPhase(t *testing.T) {
	p := placertest.NewReference(1, 2, 1, 0)
	a := admission(t, p, gang.Config{})
	for _, id := range []lockstep.JobID{"held", "running", "waiting"} {
		require.NoError(t, a.Submit(at(0), plain(id, 1, 0)))
	}
	step(t, a, 0)
	require.NoError(t, a.Confirm(at(0), "running", 0, 0))
	require.Equal(t, []string{"start running"}, summary(step(t, a, 0)))
	require.NoError(t, a.Cancel(at(1), "waiting"))
	require.NoError(t, a.Cancel(at(1), "held"))
	require.NoError(t, a.Cancel(at(1), "running"))
	require.NoError(t, a.Cancel(at(1), "running"), "again")
	require.Equal(t, []string{"release held cancelled", "evict running cancelled"}, summary(step(t, a, 1)))
	require.Equal(t, []lockstep.JobID{"running"}, p.Jobs(), "its room is its own until it has left")
	require.NoError(t, a.Submit(at(2), plain("next", 2, 0)))
	require.Empty(t, step(t, a, 2))
	require.NoError(t, a.Evicted(at(3), "running", 0))
	require.NoError(t, a.Evicted(at(3), "running", 0), "again")
	require.Equal(t, []string{"reserve next"}, summary(step(t, a, 3)))
	for _, id := range []lockstep.JobID{"held", "running", "waiting"} {
		require.Equal(t, gang.Gone, phase(a, id))
		require.NoError(t, a.Cancel(at(4), id))
	}
}

func TestErrorsChangeNothing(t *testing.T) {
	p := placertest.NewReference(1, 2, 1, 0)
	a := admission(t, p, gang.Config{})
	require.NoError(t, a.Submit(at(5), plain("a", 1, 0)))
	require.ErrorIs(t, a.Submit(at(4), plain("b", 1, 0)), lockstep.ErrPast)
	require.ErrorIs(t, a.Submit(at(6), plain("a", 1, 0)), lockstep.ErrDuplicate)
	require.ErrorIs(t, a.Submit(at(6), plain("b", 0, 0)), lockstep.ErrInvalid)
	require.ErrorIs(t, a.Submit(at(6), nil), lockstep.ErrInvalid)
	require.ErrorIs(t, a.Submit(time.Time{}, plain("b", 1, 0)), lockstep.ErrInvalid)
	require.ErrorIs(t, a.Confirm(at(6), "nobody", 0, 0), lockstep.ErrUnknown)
	require.ErrorIs(t, a.Finish(at(6), "a", 0), lockstep.ErrConflict)
	require.ErrorIs(t, a.Evicted(at(6), "a", 0), lockstep.ErrConflict)
	require.ErrorIs(t, a.Refuse(at(6), "a", 0, "n0"), lockstep.ErrConflict)
	require.ErrorIs(t, a.Due(at(6), "a", 0), lockstep.ErrConflict)
	require.ErrorIs(t, a.Finish(at(6), "a", 9), lockstep.ErrStale)
	require.ErrorIs(t, a.Down(at(6), ""), lockstep.ErrInvalid)
	require.ErrorIs(t, a.Apply(lockstep.Event{Kind: "odd", Time: at(6)}), lockstep.ErrInvalid)
	require.ErrorIs(t, a.Forget("a"), lockstep.ErrConflict)
	require.ErrorIs(t, a.Unreserve(at(6), "w"), lockstep.ErrUnknown)
	require.ErrorIs(t, a.Reserve(at(6), gang.Window{Name: "w", From: at(9), To: at(8)}), lockstep.ErrInvalid)
	_, err := a.Step(at(4))
	require.ErrorIs(t, err, lockstep.ErrPast)
	require.Equal(t, []string{"reserve a"}, summary(step(t, a, 5)), "the errors did not move the time either")
	require.ErrorIs(t, a.Confirm(at(6), "a", 0, 7), lockstep.ErrInvalid)
	_, err = gang.New(gang.Config{Hold: -1, Backfill: -2, MaxAttempts: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 4, "all faults at once")
}

func TestAnUnplaceableGangIsRejected(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{})
	g := plain("a", 1, 0)
	g.Required = "galaxy"
	require.NoError(t, a.Submit(at(0), g))
	require.NoError(t, a.Submit(at(0), plain("b", 1, 0)))
	require.Equal(t, []string{"reject a invalid", "reserve b"}, summary(step(t, a, 0)))
	require.Equal(t, gang.Gone, phase(a, "a"))
}

func TestAdoptedGangsCountAndEnd(t *testing.T) {
	p := placertest.NewReference(1, 2, 1, 0)
	quota := newLedger(4)
	a := admission(t, p, gang.Config{Quota: quota})
	g := plain("old", 1, 100)
	var plan lockstep.Plan
	v, err := p.Fit(&lockstep.Request{Gang: g}, &plan)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.NoError(t, p.Apply(&plan))
	require.NoError(t, a.Adopt(at(50), &plan, at(0)))
	require.ErrorIs(t, a.Adopt(at(50), &plan, at(0)), lockstep.ErrDuplicate)
	require.Equal(t, 1, quota.used[""])
	require.NoError(t, a.Submit(at(50), plain("pair", 2, 10)))
	require.Empty(t, step(t, a, 50))
	start, ok := forecast(a, "pair")
	require.True(t, ok)
	require.Equal(t, 100, seconds(start))
	require.NoError(t, a.Finish(at(60), "old", 0))
	require.Equal(t, []string{"reserve pair"}, summary(step(t, a, 60)))
}
