package hetero

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// targets are those of every job of a problem under shares.
func targets(p Problem, shares [][]Parts) []Target {
	var ts []Target
	for g := range p.Groups {
		for i := range p.Groups[g].count() {
			ts = append(ts, Target{Job: lockstep.JobID(fmt.Sprint(p.Groups[g].ID, "-", i)), GPUs: p.Groups[g].gpus(), Shares: shares[g]})
		}
	}
	return ts
}

// checkRound says that no class is given more than it has and no job twice.
func checkRound(t *testing.T, classes []Class, ts []Target, grants []Grant) {
	t.Helper()
	gpus := map[lockstep.JobID]int{}
	for _, target := range ts {
		gpus[target.Job] = max(target.GPUs, 1)
	}
	used := make([]int, len(classes))
	for _, g := range grants {
		require.Positive(t, gpus[g.Job])
		used[g.Class] += gpus[g.Job]
		delete(gpus, g.Job) // at most once
	}
	for c := range used {
		require.LessOrEqual(t, used[c], classes[c].Devices)
	}
}

// In the long run the four jobs on a fast and a slow device get the shares of the optimum.
func TestRoundsConvergeToTheShares(t *testing.T) {
	p := fastSlow()
	a, err := WaterFill(p)
	require.NoError(t, err)
	r, err := NewRounds(RoundsConfig{Classes: p.Classes, Idle: true})
	require.NoError(t, err)
	ts := targets(p, a.Shares)
	require.NoError(t, r.Set(ts))
	worst := 0.0
	for range 4400 {
		checkRound(t, p.Classes, ts, r.Next())
		for _, j := range r.State().Jobs {
			for c := range j.Due {
				worst = max(worst, math.Abs(float64(j.Due[c])/1e6-float64(j.Got[c])))
			}
		}
	}
	require.Less(t, worst, 2.0)
}

func TestRoundsStayNearTheSharesOfRandomProblems(t *testing.T) {
	for seed := range rounds(40, 5) {
		rng := rand.New(rand.NewPCG(uint64(seed), 9))
		p := random(rng, 2+rng.IntN(8), 1+rng.IntN(3))
		for g := range p.Groups {
			p.Groups[g].GPUs = 1
		}
		a, err := WaterFill(p)
		require.NoError(t, err)
		r, err := NewRounds(RoundsConfig{Classes: p.Classes, Idle: true})
		require.NoError(t, err)
		ts := targets(p, a.Shares)
		require.NoError(t, r.Set(ts))
		const n = 1000
		for range n {
			checkRound(t, p.Classes, ts, r.Next())
		}
		for _, j := range r.State().Jobs {
			due, got := 0.0, 0.0
			for c := range j.Due {
				due, got = due+float64(j.Due[c])/1e6, got+float64(j.Got[c])
			}
			require.InDelta(t, due, got, 0.02*n, "seed %d job %s", seed, j.Job) // two per cent of the time
		}
	}
}

func TestTiesKeepWhoRuns(t *testing.T) {
	classes := []Class{{ID: "a", Devices: 1}}
	r, err := NewRounds(RoundsConfig{Classes: classes})
	require.NoError(t, err)
	require.NoError(t, r.Set([]Target{{Job: "x", Able: []bool{true}}, {Job: "y", Able: []bool{true}}}))
	g := r.Next()
	require.Equal(t, []Grant{{Job: "x", Class: 0, Why: Spare}}, g)
	require.NoError(t, r.Set([]Target{{Job: "w", Able: []bool{true}}, {Job: "x", Able: []bool{true}}}))
	require.Equal(t, []Grant{{Job: "x", Class: 0, Why: Spare, Kept: true}}, r.Next()) // w comes first by ID, but x is there
	// Due over received is equal: 1/2 each after one round each; the one that runs goes on.
	r, err = NewRounds(RoundsConfig{Classes: classes})
	require.NoError(t, err)
	require.NoError(t, r.Set([]Target{{Job: "x", Shares: []Parts{Whole / 2}}, {Job: "y", Shares: []Parts{Whole / 2}}}))
	var order []lockstep.JobID
	for range 6 {
		order = append(order, r.Next()[0].Job)
	}
	require.Equal(t, []lockstep.JobID{"x", "y", "y", "x", "x", "y"}, order)
}

func TestUnknownRatesAreExploredWithinTheBudget(t *testing.T) {
	classes := []Class{{ID: "a", Devices: 8}, {ID: "b", Devices: 1}}
	yes := []bool{true, false}
	r, err := NewRounds(RoundsConfig{Classes: classes, Explore: 3})
	require.NoError(t, err)
	require.NoError(t, r.Set([]Target{
		{Job: "due", GPUs: 2, Shares: []Parts{Whole, 0}},
		{Job: "new1", GPUs: 2, Unknown: yes},
		{Job: "new2", GPUs: 2, Unknown: yes},
		{Job: "new3", GPUs: 1, Unknown: yes},
		{Job: "spare", GPUs: 3, Able: yes},
		{Job: "wide", GPUs: 1, Able: []bool{false, true}},
	}))
	require.Equal(t, []Grant{
		{Job: "due", Class: 0, Why: Due},
		{Job: "new1", Class: 0, Why: Explore},
		{Job: "new3", Class: 0, Why: Explore},
		{Job: "spare", Class: 0, Why: Spare},
		{Job: "wide", Class: 1, Why: Spare},
	}, r.Next())
	for _, j := range r.State().Jobs {
		require.Equal(t, j.Job == "due", j.Got[0] == 1) // only what was due counts
	}
	for _, w := range []Why{Due, Explore, Spare} {
		require.NotContains(t, w.String(), "Why(")
	}
	require.Equal(t, "Why(7)", Why(7).String())
}

func TestRevokedRoundsAreNotReceived(t *testing.T) {
	r, err := NewRounds(RoundsConfig{Classes: []Class{{ID: "a", Devices: 1}}})
	require.NoError(t, err)
	require.NoError(t, r.Set([]Target{{Job: "x", Shares: []Parts{Whole / 4}}, {Job: "y", Shares: []Parts{Whole / 2}}}))
	require.Equal(t, lockstep.JobID("y"), r.Next()[0].Job)
	require.NoError(t, r.Revoke("y"))
	require.ErrorIs(t, r.Revoke("y"), lockstep.ErrConflict)
	require.ErrorIs(t, r.Revoke("x"), lockstep.ErrConflict)
	require.ErrorIs(t, r.Revoke("z"), lockstep.ErrUnknown)
	require.Equal(t, []Grant{{Job: "y", Class: 0}}, r.Next()) // as if it had never been; nothing is kept
}

func TestFewerDevices(t *testing.T) {
	r, err := NewRounds(RoundsConfig{Classes: []Class{{ID: "a", Devices: 2}}})
	require.NoError(t, err)
	require.NoError(t, r.Set([]Target{{Job: "x", Shares: []Parts{Whole}}, {Job: "y", Shares: []Parts{Whole}}}))
	require.Len(t, r.Next(), 2)
	require.NoError(t, r.Resize([]int{1}))
	require.Len(t, r.Next(), 1)
	require.NoError(t, r.Resize([]int{0}))
	require.Empty(t, r.Next())
	require.ErrorIs(t, r.Resize([]int{-1}), lockstep.ErrInvalid)
	require.ErrorIs(t, r.Resize(nil), lockstep.ErrInvalid)
}

func TestBadTargetsChangeNothing(t *testing.T) {
	_, err := NewRounds(RoundsConfig{Classes: []Class{{}}, Explore: -1})
	require.ErrorContains(t, err, "Classes[0].ID")
	require.ErrorContains(t, err, "Explore")
	r, err := NewRounds(RoundsConfig{Classes: []Class{{ID: "a", Devices: 1}}})
	require.NoError(t, err)
	require.NoError(t, r.Set([]Target{{Job: "x", Shares: []Parts{5}}}))
	before := r.State()
	for _, bad := range [][]Target{
		{{}},
		{{Job: "y", GPUs: -1}},
		{{Job: "y", Shares: []Parts{1, 2}}},
		{{Job: "y", Shares: []Parts{-1}}},
		{{Job: "y", Shares: []Parts{Whole + 1}}},
		{{Job: "y", Able: []bool{true, true}}},
	} {
		require.ErrorIs(t, r.Set(bad), lockstep.ErrInvalid)
	}
	require.ErrorIs(t, r.Set([]Target{{Job: "y"}, {Job: "y"}}), lockstep.ErrDuplicate)
	for _, bad := range []RoundsState{
		{Count: -1},
		{Jobs: []JobRounds{{}}},
		{Jobs: []JobRounds{{Job: "a", Due: []int64{1}, Got: []int64{0}, On: -1}}},
		{Count: 1, Jobs: []JobRounds{{Job: "a", Due: []int64{1}, Got: []int64{2}}}},
		{Count: 1, Jobs: []JobRounds{{Job: "b", Due: []int64{1}, Got: []int64{1}}, {Job: "a", Due: []int64{1}, Got: []int64{1}}}},
		{Jobs: []JobRounds{{Job: "a", Due: []int64{0}, Got: []int64{0}, On: 1}}},
	} {
		require.ErrorIs(t, r.Restore(bad), lockstep.ErrInvalid)
	}
	require.Equal(t, before, r.State())
}

// Rounds restored from JSON, with targets in another order, go on as the others do.
func TestRoundsReplay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 10))
	p := random(rng, 6, 3)
	a, err := WaterFill(p)
	require.NoError(t, err)
	ts := targets(p, a.Shares)
	for i := range ts {
		ts[i].Able = []bool{rng.IntN(2) == 0, true, rng.IntN(2) == 0}
	}
	cfg := RoundsConfig{Classes: p.Classes}
	r, err := NewRounds(cfg)
	require.NoError(t, err)
	require.NoError(t, r.Set(ts))
	for range 50 {
		text, err := json.Marshal(r.State())
		require.NoError(t, err)
		var s RoundsState
		require.NoError(t, json.Unmarshal(text, &s))
		other, err := NewRounds(cfg)
		require.NoError(t, err)
		require.NoError(t, other.Restore(s))
		rng.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
		require.NoError(t, other.Set(ts))
		require.Equal(t, r.Next(), other.Next())
		require.Equal(t, r.State(), other.State())
	}
}

// FuzzRounds drives rounds with any targets: no class above its devices, no job twice.
func FuzzRounds(f *testing.F) {
	f.Add([]byte{3, 2, 4, 1, 200, 100, 2, 50, 250, 1, 0, 0, 7, 7, 7})
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) < 3 || len(text) > 300 {
			return
		}
		classes := []Class{{ID: "a", Devices: int(text[0] % 16)}, {ID: "b", Devices: int(text[1] % 16)}}
		r, err := NewRounds(RoundsConfig{Classes: classes, Explore: int(text[2] % 4)})
		require.NoError(t, err)
		var ts []Target
		for i := 3; i+3 <= len(text); i += 3 {
			b := text[i]
			ts = append(ts, Target{Job: lockstep.JobID(fmt.Sprint("j", i)), GPUs: int(b % 8), Shares: []Parts{Parts(text[i+1]) * 1960, Parts(text[i+2]) * 1960}, Able: []bool{b&8 != 0, b&16 != 0}, Unknown: []bool{b&32 != 0, b&64 != 0}})
			if len(ts)%5 == 0 {
				require.NoError(t, r.Set(ts))
				checkRound(t, classes, ts, r.Next())
			}
		}
		require.NoError(t, r.Set(ts))
		for range 5 {
			checkRound(t, classes, ts, r.Next())
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, jobs := range []int{500, 5000, 50_000} {
		b.Run(fmt.Sprintf("jobs=%d/classes=4/devices=10000", jobs), func(b *testing.B) {
			classes := make([]Class, 4)
			for c := range classes {
				classes[c] = Class{ID: lockstep.DeviceClass(fmt.Sprint("c", c)), Devices: 2500}
			}
			r, err := NewRounds(RoundsConfig{Classes: classes})
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			var ts []Target
			for j := range jobs {
				target := Target{Job: lockstep.JobID(fmt.Sprint("j", j)), GPUs: 1 << rng.IntN(4), Shares: make([]Parts, 4), Able: []bool{true, true, true, true}}
				for c := range target.Shares {
					target.Shares[c] = Parts(rng.IntN(250_000))
				}
				ts = append(ts, target)
			}
			if err := r.Set(ts); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Next()
			}
		})
	}
}
