package deadline

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

var t0 = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func newTable(t testing.TB, cfg Config) *Table {
	t.Helper()
	table, err := New(cfg)
	require.NoError(t, err)
	return table
}

func TestNeedAndHaveAreInWholeSlots(t *testing.T) {
	table := newTable(t, Config{GPUs: 1, Lease: 20 * time.Minute})
	d, err := table.Admit(t0, Job{ID: "a", GPUs: 1, Remaining: 50 * time.Minute, Deadline: t0.Add(110 * time.Minute)})
	require.NoError(t, err)
	require.Equal(t, 3, d.Need)
	require.Equal(t, 5, d.Have)
}

// feasible tries every set of jobs in every slot.
func feasible(wants []want, at, capacity int) bool {
	done := true
	for _, w := range wants {
		if w.need > 0 {
			done = false
			if w.have-at < w.need {
				return false
			}
		}
	}
	if done {
		return true
	}
	for set := range 1 << len(wants) {
		next := slices.Clone(wants)
		free, ok := capacity, true
		for i := range wants {
			if set>>i&1 == 1 {
				free -= wants[i].gpus
				next[i].need--
				ok = ok && wants[i].need > 0 && wants[i].have > at
			}
		}
		if ok && free >= 0 && feasible(next, at+1, capacity) {
			return true
		}
	}
	return false
}

func TestAdmissionIsExactOnSmallTables(t *testing.T) {
	runs := 1500
	if testing.Short() {
		runs = 200
	}
	refused, searched := 0, 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		table := newTable(t, Config{GPUs: 4 + r.IntN(5), Lease: time.Hour, Origin: t0})
		var in []want
		for i := range 2 + r.IntN(4) {
			w := want{1 + r.IntN(table.cfg.GPUs), 1 + r.IntN(3), 1 + r.IntN(5)}
			d, err := table.Admit(t0, Job{
				ID: lockstep.JobID(fmt.Sprint("j", i)), GPUs: w.gpus, Remaining: time.Duration(w.need) * time.Hour, Deadline: t0.Add(time.Duration(w.have) * time.Hour),
			})
			require.NoError(t, err)
			want := feasible(append(slices.Clone(in), w), 0, table.cfg.GPUs)
			require.Equal(t, want, d.Feasible, "seed %d job %d %+v beside %+v", seed, i, w, in)
			if d.Feasible {
				in = append(in, w)
				continue
			}
			refused++
			require.True(t, d.Exact, "a search of this size ends")
			if !impossible(append(slices.Clone(in), w), 0, table.cfg.GPUs) {
				searched++
			}
			if !d.Earliest.IsZero() { // the smallest change really is enough
				again, err := table.Admit(t0, Job{ID: "again", GPUs: w.gpus, Remaining: time.Duration(w.need) * time.Hour, Deadline: d.Earliest})
				require.NoError(t, err)
				require.True(t, again.Feasible)
				require.NoError(t, table.Finish(t0, "again"))
			}
		}
	}
	require.Greater(t, refused, runs/10)
	require.Greater(t, searched, 0, "sums alone do not decide")
}

// follow runs a table with exact estimates: jobs come, run when told to, and end when their work is done.
func follow(t *testing.T, r *rand.Rand, cfg Config, arrivals int, late bool) (admitted int) {
	t.Helper()
	table := newTable(t, cfg)
	left := map[lockstep.JobID]time.Duration{}
	deadline := map[lockstep.JobID]time.Time{}
	gpus := map[lockstep.JobID]int{}
	var run []lockstep.JobID
	now, wake := t0, t0
	step := func() {
		slot, err := table.Step(now)
		require.NoError(t, err)
		require.Empty(t, slot.AtRisk)
		require.Empty(t, slot.Missed)
		run, wake = slot.Run, slot.Until
		used := 0
		for _, id := range run {
			used += gpus[id]
		}
		require.LessOrEqual(t, used, cfg.GPUs)
	}
	for events := 0; arrivals > 0 || len(left) > 0; events++ {
		require.Less(t, events, 100_000, "everything ends")
		next := wake
		for _, id := range run {
			if end := now.Add(left[id]); end.Before(next) {
				next = end
			}
		}
		arrives := false
		if arrivals > 0 {
			if at := now.Add(time.Duration(r.Int64N(int64(40 * time.Minute)))); at.Before(next) {
				next, arrives = at, true
			}
		}
		for _, id := range run {
			left[id] -= next.Sub(now)
		}
		now = next
		for _, id := range run {
			if left[id] <= 0 {
				require.False(t, deadline[id].Before(now), "%s misses its deadline", id)
				require.NoError(t, table.Finish(now, id))
				delete(left, id)
			}
		}
		run = slices.DeleteFunc(run, func(id lockstep.JobID) bool { _, ok := left[id]; return !ok })
		if r.IntN(10) == 0 {
			data := snapshottest.Save(t, table.Snapshot)
			again, err := Restore(bytes.NewReader(data))
			require.NoError(t, err)
			require.Equal(t, data, snapshottest.Save(t, again.Snapshot))
			table = again
		}
		if arrives {
			arrivals--
			j := Job{ID: lockstep.JobID(fmt.Sprint("j", arrivals)), GPUs: 1 + r.IntN(cfg.GPUs), Remaining: time.Duration(1 + r.Int64N(int64(3*time.Hour)))}
			if r.IntN(3) > 0 {
				j.Deadline = now.Add(j.Remaining + time.Duration(r.Int64N(int64(8*time.Hour))))
			}
			d, err := table.Admit(now, j)
			require.NoError(t, err)
			if d.Feasible {
				left[j.ID], gpus[j.ID] = j.Remaining, j.GPUs
				deadline[j.ID] = j.Deadline
				if j.Deadline.IsZero() {
					deadline[j.ID] = now.Add(lockstep.MaxWalltime)
				} else {
					admitted++
				}
			}
		}
		if !now.Before(wake) || r.IntN(3) == 0 && !late {
			step()
		}
	}
	require.Zero(t, table.Missed())
	return admitted
}

func TestNoAdmittedJobMissesItsDeadline(t *testing.T) {
	runs := 150
	if testing.Short() {
		runs = 20
	}
	admitted := 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 2))
		cfg := Config{GPUs: 1 + r.IntN(16), Lease: time.Duration(5+r.IntN(30)) * time.Minute, Eager: r.IntN(2) == 0, Noise: r.IntN(2) * 100, Search: []int{0, None}[r.IntN(2)]}
		admitted += follow(t, r, cfg, 60, seed%2 == 0)
	}
	require.Greater(t, admitted, runs*10)
}

func TestLostDevicesAndLongerJobsAreTold(t *testing.T) {
	table := newTable(t, Config{GPUs: 8, Lease: time.Hour, Origin: t0})
	for _, id := range []lockstep.JobID{"a", "b"} {
		d, err := table.Admit(t0, Job{ID: id, GPUs: 4, Remaining: 2 * time.Hour, Deadline: t0.Add(2 * time.Hour)})
		require.NoError(t, err)
		require.True(t, d.Feasible)
	}
	require.NoError(t, table.SetGPUs(t0, 4))
	slot, err := table.Step(t0)
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"a"}, slot.Run)
	require.Equal(t, []lockstep.JobID{"b"}, slot.AtRisk)
	require.NoError(t, table.SetGPUs(t0, 8))
	require.NoError(t, table.Report(t0.Add(30*time.Minute), "a", 2*time.Hour))
	slot, err = table.Step(t0.Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"a", "b"}, slot.Run)
	require.Equal(t, []lockstep.JobID{"a", "b"}, slot.AtRisk)
	slot, err = table.Step(t0.Add(2 * time.Hour))
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"a", "b"}, slot.Missed)
	require.Equal(t, []lockstep.JobID{"a", "b"}, slot.Run, "they go on")
	require.Equal(t, int64(2), table.Missed())
}

func TestLateStepsAndSkippedSlots(t *testing.T) {
	table := newTable(t, Config{GPUs: 4, Lease: time.Hour, Origin: t0})
	d, err := table.Admit(t0, Job{ID: "a", GPUs: 4, Remaining: time.Hour, Deadline: t0.Add(3 * time.Hour)})
	require.NoError(t, err)
	require.True(t, d.Feasible)
	slots, ok := table.Planned("a")
	require.True(t, ok)
	require.Equal(t, []time.Time{t0.Add(2 * time.Hour)}, slots, "the latest")
	// Five minutes into its slot it cannot do a whole hour any more, and is told to be at risk when it has not ended.
	slot, err := table.Step(t0.Add(2*time.Hour + 5*time.Minute))
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"a"}, slot.Run)
	slot, err = table.Step(t0.Add(3 * time.Hour))
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"a"}, slot.Missed)
	// A newcomer in the middle of a slot cannot have the rest of it.
	d, err = table.Admit(t0.Add(3*time.Hour+time.Minute), Job{ID: "b", GPUs: 1, Remaining: time.Hour, Deadline: t0.Add(4*time.Hour + 30*time.Minute)})
	require.NoError(t, err)
	require.False(t, d.Feasible)
	require.Equal(t, TooLate, d.Reason)
	require.Equal(t, 0, d.Have)
	require.Equal(t, t0.Add(5*time.Hour), d.Earliest)
}

func TestJobsWithoutADeadlineTakeWhatIsIdle(t *testing.T) {
	for _, eager := range []bool{false, true} {
		table := newTable(t, Config{GPUs: 4, Lease: time.Hour, Origin: t0, Eager: eager})
		for _, j := range []Job{
			{ID: "long", GPUs: 4, Remaining: 9 * time.Hour},
			{ID: "short", GPUs: 4, Remaining: time.Hour},
			{ID: "slo", GPUs: 4, Remaining: time.Hour, Deadline: t0.Add(9 * time.Hour)},
		} {
			d, err := table.Admit(t0, j)
			require.NoError(t, err)
			require.True(t, d.Feasible)
		}
		slot, err := table.Step(t0)
		require.NoError(t, err)
		require.Equal(t, map[bool][]lockstep.JobID{false: {"short"}, true: {"slo"}}[eager], slot.Run)
	}
}

func TestBadInputChangesNothing(t *testing.T) {
	table := newTable(t, Config{GPUs: 4, Lease: time.Hour})
	_, err := table.Admit(t0, Job{ID: "a", GPUs: 1, Remaining: time.Hour})
	require.NoError(t, err)
	before := snapshottest.Save(t, table.Snapshot)
	admit := func(j Job) func() error { return func() error { _, err := table.Admit(t0, j); return err } }
	for name, c := range map[string]struct { // each by itself
		call func() error
		kind error
		want string
	}{
		"no ID":      {admit(Job{GPUs: 1, Remaining: 1}), lockstep.ErrInvalid, "ID"},
		"no devices": {admit(Job{ID: "b", Remaining: 1}), lockstep.ErrInvalid, "GPUs = 0"},
		"nothing":    {admit(Job{ID: "b", GPUs: 1}), lockstep.ErrInvalid, "Remaining = 0s"},
		"too long":   {admit(Job{ID: "b", GPUs: 1, Remaining: math.MaxInt64}), lockstep.ErrInvalid, "Remaining"},
		"twice":      {admit(Job{ID: "a", GPUs: 1, Remaining: 1}), lockstep.ErrDuplicate, `ID = "a"`},
		"far":        {admit(Job{ID: "b", GPUs: 1, Remaining: 1, Deadline: t0.Add(200 * 365 * 24 * time.Hour)}), lockstep.ErrInvalid, "Deadline"},
		"no time":    {admit(Job{ID: "b", GPUs: 1, Remaining: 1, Deadline: time.Unix(1<<60, 0)}), lockstep.ErrInvalid, "Deadline"},
		"past":       {func() error { _, err := table.Step(t0.Add(-1)); return err }, lockstep.ErrPast, "now"},
		"unknown":    {func() error { return table.Finish(t0, "x") }, lockstep.ErrUnknown, `id = "x"`},
		"report":     {func() error { return table.Report(t0, "a", -1) }, lockstep.ErrInvalid, "remaining = -1ns"},
		"report who": {func() error { return table.Report(t0, "x", 1) }, lockstep.ErrUnknown, "id"},
		"GPUs":       {func() error { return table.SetGPUs(t0, 0) }, lockstep.ErrInvalid, "gpus = 0"},
	} {
		err := c.call()
		require.ErrorIs(t, err, c.kind, name)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, before, snapshottest.Save(t, table.Snapshot), name)
	}
	for _, cfg := range []Config{{}, {GPUs: -1}, {GPUs: 1, Lease: -1}, {GPUs: 1, Lease: 1}, {GPUs: 1, Noise: -1}, {GPUs: 1, Search: -2}, {GPUs: 1, Origin: time.Unix(1<<60, 0)}} {
		_, err := New(cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	d, err := table.Admit(t0, Job{ID: "wide", GPUs: 5, Remaining: 1, Deadline: t0.Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, TooWide, d.Reason)
	require.Equal(t, before, snapshottest.Save(t, table.Snapshot), "nor does a refusal")
}

func TestSnapshotRefusesDamage(t *testing.T) {
	table := newTable(t, Config{GPUs: 4, Lease: time.Hour})
	_, err := table.Admit(t0, Job{ID: "a", GPUs: 1, Remaining: time.Hour, Deadline: t0.Add(5 * time.Hour)})
	require.NoError(t, err)
	restore := func(r io.Reader) error { _, err := Restore(r); return err }
	data := snapshottest.Save(t, table.Snapshot)
	snapshottest.RefusesDamage(t, data, restore)
	snapshottest.RefusesForgeries(t, format, version, data, restore, [][2]string{
		{`"id":"a"`, `"id":""`},
		{`"gpus":1`, `"gpus":0`},
		{`"left":3`, `"left":-3`},
		{`"slots":[4]`, `"slots":[-4]`},
		{`"slots":[4]`, `"slots":[4,4]`},
		{`"slots":[4]`, `"slots":[4],"running":true`},
		{`"deadline":17`, `"deadline":-17`},
		{`"index":4`, `"index":5`},
		{`"config":{"gpus":4`, `"config":{"gpus":-4`},
	})
}

func TestExtremes(t *testing.T) {
	table := newTable(t, Config{GPUs: maxGPUs, Lease: time.Millisecond, Noise: 10_000})
	d, err := table.Admit(t0, Job{ID: "a", GPUs: maxGPUs, Remaining: lockstep.MaxWalltime, Deadline: t0.Add(time.Minute)})
	require.NoError(t, err)
	require.Equal(t, TooLate, d.Reason)
	end := time.Unix(0, math.MaxInt64)
	table = newTable(t, Config{GPUs: 1, Lease: lockstep.MaxWalltime})
	_, err = table.Admit(end, Job{ID: "a", GPUs: 1, Remaining: lockstep.MaxWalltime, Deadline: end})
	require.NoError(t, err)
	_, err = table.Admit(end, Job{ID: "b", GPUs: 1, Remaining: lockstep.MaxWalltime})
	require.NoError(t, err)
	_, err = table.Step(end)
	require.NoError(t, err)
}
