package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// TestSharesStartWhereNoDeviceIsFree fills a node with halves of devices. One that
// ends makes room for the next although every device still has somebody on it, also
// behind a restart, and a job of a whole device waits for both halves of one.
func TestSharesStartWhereNoDeviceIsFree(t *testing.T) {
	for _, rule := range scheduler.Rules() {
		s := newScheduler(t, scheduler.Config{Rule: rule, Tree: cluster(t, 1), StartAtOnce: true, Weights: map[lockstep.TenantID]int64{"a": 1}})
		for i := range 18 {
			g := gangOf(lockstep.JobID(fmt.Sprintf("half-%02d", i)), "a", 1, time.Hour)
			g.Roles[0].Demand.Share = 500
			submit(t, s, at(0), g)
		}
		started := map[lockstep.JobID]bool{}
		take := func(actions []lockstep.Action) (n int) {
			for i := range actions {
				if actions[i].Kind == lockstep.ActionStart {
					started[actions[i].Job] = true
					n++
				}
			}
			return n
		}
		require.Equal(t, 16, take(step(t, s, at(0))), rule)
		require.Zero(t, take(step(t, s, at(1))), rule)
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(2), Job: "half-03"}))
		require.Equal(t, 1, take(step(t, s, at(2))), rule)

		s = restored(t, s, scheduler.Config{Rule: rule, Tree: cluster(t, 1), StartAtOnce: true, Weights: map[lockstep.TenantID]int64{"a": 1}})
		submit(t, s, at(3), gangOf("whole", "a", 1, time.Minute))
		require.Zero(t, take(step(t, s, at(3))), rule)
		require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(4), Job: "half-05"}))
		take(step(t, s, at(4)))
		for i := range 18 {
			id := lockstep.JobID(fmt.Sprintf("half-%02d", i))
			if started[id] && i != 3 && i != 5 {
				require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(5 + i), Job: id}))
				take(step(t, s, at(5+i)))
			}
		}
		require.True(t, started["whole"], rule)
		require.Len(t, started, 19, rule)
	}
}

// restored is s as its own snapshot has it.
func restored(t *testing.T, s *scheduler.Scheduler, cfg scheduler.Config) *scheduler.Scheduler {
	t.Helper()
	again, err := scheduler.Restore(cfg, strings.NewReader(saved(t, s)))
	require.NoError(t, err)
	return again
}
