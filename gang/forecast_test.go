package gang_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

func TestAForecastNamesTheRoom(t *testing.T) {
	bothPlacers(t, 4, 1, func(t *testing.T, p cluster) {
		a := admission(t, p, gang.Config{StartAtOnce: true})
		submit(t, a, 0, plain("a", 2, 100), plain("b", 1, 50))
		step(t, a, 0)
		g := plain("w", 2, 10)
		g.Roles[0].Spares = 1
		submit(t, a, 1, g)
		require.Empty(t, step(t, a, 1))
		f, ok := a.Forecast("w")
		require.True(t, ok)
		require.Equal(t, at(100), f.Start, "b's node and the free one are one too few")
		require.Len(t, f.Members, 2)
		require.Len(t, f.Spares, 1)
		require.Len(t, f.Nodes(), 2)
		f.Members[0].Node = "mine"
		again, _ := a.Forecast("w")
		require.NotEqual(t, f.Members[0], again.Members[0], "it is the caller's")
		require.NoError(t, a.Finish(at(50), "b", 0))
		require.NoError(t, a.Finish(at(100), "a", 0))
		got := step(t, a, 100)
		require.Equal(t, []string{"start w"}, summary(got))
		require.Equal(t, again.Members, got[0].Plan.Members, "where it was said")
		_, ok = a.Forecast("w")
		require.False(t, ok)
	})
}

func TestAForecastWithoutATimeHasARoom(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	submit(t, a, 0, plain("a", 2, 0))
	step(t, a, 0)
	submit(t, a, 1, plain("w", 1, 0))
	step(t, a, 1)
	f, ok := a.Forecast("w")
	require.True(t, ok)
	require.True(t, f.Start.IsZero())
	require.Len(t, f.Nodes(), 1)
}

func TestIdleNodesAreThoseThatNobodyNeeds(t *testing.T) {
	p := placertest.NewReference(1, 8, 1, 0)
	a := admission(t, p, gang.Config{StartAtOnce: true})
	all := p.Nodes()
	require.Equal(t, all, a.AppendIdle(nil, all, at(0)))
	submit(t, a, 0, plain("a", 2, 100))
	step(t, a, 0)
	submit(t, a, 1, plain("w", 6, 10)) // n2 to n7
	step(t, a, 1)
	require.NoError(t, a.Finish(at(2), "w", 0))
	require.NoError(t, a.Cancel(at(2), "a"))
	step(t, a, 2)
	require.Equal(t, names{"n2", "n3", "n4", "n5", "n6", "n7"}, a.AppendIdle(nil, all, at(1000)), "a is still leaving")
	require.NoError(t, a.Reserve(at(2), gang.Window{Name: "m", Nodes: names{"n7"}, From: at(500), To: at(600)}))
	require.NoError(t, a.Down(at(2), "n6"))
	require.NoError(t, a.Cordon(at(2), "n5"))
	require.Equal(t, names{"n5", "n4", "n3", "n2"}, a.AppendIdle(nil, names{"n7", "n6", "n5", "n4", "n3", "n2", "n1"}, at(1000)))
	require.Equal(t, names{"n7"}, a.AppendIdle(nil, names{"n7"}, at(500)))
	submit(t, a, 3, plain("x", 1, 100), plain("y", 5, 10))
	step(t, a, 3) // x on n2; y waits for it, or for a
	f, ok := a.Forecast("y")
	require.True(t, ok)
	require.Empty(t, a.AppendIdle(nil, f.Nodes(), f.Start.Add(1)))
	require.NotEmpty(t, a.AppendIdle(nil, f.Nodes(), f.Start))
}

// Idle nodes that are powered down until then delay nobody who was promised a start
// before.
func TestPoweringDownIdleNodesDelaysNobody(t *testing.T) {
	down, kept := 0, 0
	for seed := range many(200) {
		r := rand.New(rand.NewPCG(uint64(seed), 141))
		p := placertest.NewReference(1+r.IntN(2), 2+r.IntN(4), 1+r.IntN(2), 0)
		cfg := gang.Config{StartAtOnce: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			cfg.Backfill = gang.Conservative
		}
		w := newWorld(t, p, cfg)
		for n := range 14 {
			g := randomPlain(r, n, len(p.Nodes()))
			if g.Walltime == 0 {
				g.Walltime = 5e9
			}
			w.submit(r.IntN(30), g)
		}
		now := 10 + r.IntN(25)
		w.run(now)
		w.events = dropSubmissions(w.events)
		until := now + r.IntN(40)
		promised := map[lockstep.JobID]int{}
		for _, id := range w.a.AppendJobs(nil, gang.Queued) {
			if start, ok := forecast(w.a, id); ok && start.Before(at(until)) {
				promised[id] = seconds(start)
			}
		}
		for _, n := range w.a.AppendIdle(nil, p.Nodes(), at(until)) {
			down++
			w.at(now, lockstep.Event{Kind: lockstep.EventCordon, Node: n})
			w.at(until, lockstep.Event{Kind: lockstep.EventOpen, Node: n})
		}
		w.run(1 << 20)
		for id, s := range promised {
			require.Len(t, w.starts[id], 1, fmt.Sprint("seed ", seed))
			require.LessOrEqual(t, w.starts[id][0], s, "seed %d: %s", seed, id)
			kept++
		}
	}
	t.Logf("%d nodes down, %d promises kept", down, kept)
	require.NotZero(t, down)
	require.NotZero(t, kept)
}

func dropSubmissions(events []happening) []happening {
	var out []happening
	for _, e := range events {
		if e.event.Kind != lockstep.EventSubmit {
			out = append(out, e)
		}
	}
	return out
}
