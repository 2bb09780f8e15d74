package placement

import (
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// TestJobsInTheWayAreNamed applies the changes that name jobs: what is stopped is of
// lower priority and may be stopped, and with it gone, or moved, the gang fits.
func TestJobsInTheWayAreNamed(t *testing.T) {
	cases := 2_000
	if testing.Short() {
		cases = 200
	}
	shapes := someShapes(t)
	evicted, moved := 0, 0
	for seed := range cases {
		w := newWorld(t, uint64(seed), shapes)
		for range 24 {
			r := &lockstep.Request{Gang: w.gang()}
			w.ease(r)
			r.Gang.Priority = lockstep.Priority(w.rng.IntN(3))
			r.Gang.Capabilities.Preemptible = w.rng.IntN(4) > 0
			v, err := w.s.Fit(r, &w.plan)
			require.NoError(t, err)
			if v.Feasible {
				require.NoError(t, w.s.Apply(&w.plan))
			}
			if ids := w.s.Jobs(); len(ids) > 1 && w.rng.IntN(6) == 0 {
				require.NoError(t, w.s.Release(ids[w.rng.IntN(len(ids))]))
			}
		}
		r := w.request()
		if w.rng.IntN(6) > 0 {
			w.ease(r)
		}
		r.Gang.Priority = lockstep.Priority(1 + w.rng.IntN(3))
		before := bytesOf(t, w.s)
		e, err := w.s.Explain(r)
		require.NoError(t, err)
		require.Equal(t, before, bytesOf(t, w.s))
		require.NoError(t, w.s.verify())
		for i := range e.Changes {
			c := &e.Changes[i]
			mark := w.s.Mark()
			switch c.Kind {
			case lockstep.ChangeEvict:
				evicted++
				for _, id := range c.Jobs {
					g := w.s.jobs[w.s.byID[id]].gang
					require.Less(t, g.Priority, r.Gang.Priority)
					require.True(t, g.Capabilities.Preemptible)
					require.NoError(t, w.s.Release(id))
				}
			case lockstep.ChangeMove:
				moved++
				goal := &Goal{Request: r}
				for _, id := range c.Jobs {
					require.LessOrEqual(t, w.s.jobs[w.s.byID[id]].gang.Priority, r.Gang.Priority)
					goal.Jobs = append(goal.Jobs, Movable{Job: id})
				}
				var out Moves
				v, err := w.s.Repack(goal, &out)
				require.NoError(t, err)
				require.True(t, v.Feasible, "seed %d", seed)
				for i := range out.Moves {
					require.NoError(t, w.s.Exchange(&out.Moves[i].To))
				}
			default:
				require.Empty(t, c.Jobs)
				require.NoError(t, w.s.Rollback(mark))
				continue
			}
			require.True(t, slices.IsSorted(c.Jobs))
			v, err := w.s.Fit(r, &w.plan)
			require.NoError(t, err)
			require.True(t, v.Feasible, "seed %d: %v", seed, c)
			require.NoError(t, w.s.Rollback(mark))
		}
	}
	t.Logf("%d evict, %d move", evicted, moved)
	require.Greater(t, evicted, cases/40)
	require.Greater(t, moved, cases/400)
}
