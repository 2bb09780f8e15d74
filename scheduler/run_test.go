package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// notes is what a driver was seen to do.
type notes struct {
	mu      sync.Mutex
	seen    []string
	refused error
}

func (n *notes) take() ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen), n.refused
}

// hand carries out actions: it confirms what is reserved at once.
func (n *notes) hand(events chan<- lockstep.Event) func(context.Context, []lockstep.Action) error {
	return func(_ context.Context, actions []lockstep.Action) error {
		n.mu.Lock()
		n.seen = append(n.seen, kinds(actions)...)
		n.mu.Unlock()
		for _, a := range actions {
			if a.Kind == lockstep.ActionReserve {
				for rank := range a.Plan.Members {
					events <- lockstep.Event{Kind: lockstep.EventConfirm, Job: a.Job, Attempt: a.Attempt, Rank: rank}
				}
			}
		}
		return nil
	}
}

func (n *notes) fault(_ lockstep.Event, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = err
}

func TestRunDecidesAsEventsComeAndTermsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
		core, logs := observer.New(zap.InfoLevel)
		events := make(chan lockstep.Event, 100)
		var n notes
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- s.Run(ctx, scheduler.RunConfig{Events: events, Do: n.hand(events), Logger: zap.New(core), Fault: n.fault})
		}()
		events <- lockstep.Event{Kind: lockstep.EventSubmit, Gang: gangOf("a", "t", 8, time.Hour)}
		events <- lockstep.Event{Kind: lockstep.EventCancel, Job: "nobody"}
		synctest.Wait()
		seen, refused := n.take()
		require.Equal(t, []string{"reserve a", "start a"}, seen)
		require.ErrorIs(t, refused, lockstep.ErrUnknown)

		time.Sleep(30 * time.Minute) // simulated
		synctest.Wait()
		seen, _ = n.take()
		require.Contains(t, seen, "extend a")

		events <- lockstep.Event{Kind: lockstep.EventFinish, Job: "a"}
		synctest.Wait()
		require.Equal(t, 3, logs.FilterMessage("event").Len())
		require.Equal(t, 1, logs.FilterMessage("event refused").Len())
		cancel()
		require.NoError(t, <-done)
	}) // which fails if a goroutine is left
}

func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
		require.ErrorIs(t, s.Run(t.Context(), scheduler.RunConfig{}), lockstep.ErrInvalid)

		events := make(chan lockstep.Event, 1)
		events <- lockstep.Event{Kind: lockstep.EventSubmit, Gang: gangOf("a", "t", 8, time.Hour)}
		close(events)
		var seen []string
		require.NoError(t, s.Run(t.Context(), scheduler.RunConfig{Events: events, Do: func(_ context.Context, a []lockstep.Action) error {
			seen = append(seen, kinds(a)...)
			return nil
		}}))
		require.Equal(t, []string{"reserve a"}, seen, "what had come was decided")

		broken := errors.New("broken")
		events = make(chan lockstep.Event, 1)
		events <- lockstep.Event{Kind: lockstep.EventCancel, Job: "a"}
		err := s.Run(t.Context(), scheduler.RunConfig{Events: events, Do: func(context.Context, []lockstep.Action) error { return broken }})
		require.ErrorIs(t, err, broken)
	})
}

func TestRunTakesNewsThatWasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
		events := make(chan lockstep.Event)
		var refused []error
		var seen []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- s.Run(ctx, scheduler.RunConfig{
				Events: events, Fault: func(_ lockstep.Event, err error) { refused = append(refused, err) },
				Do: func(_ context.Context, a []lockstep.Action) error { seen = append(seen, kinds(a)...); return nil },
			})
		}()
		before := time.Now()
		events <- lockstep.Event{Kind: lockstep.EventSubmit, Gang: gangOf("a", "t", 8, time.Hour)}
		time.Sleep(time.Minute) // simulated
		events <- lockstep.Event{Kind: lockstep.EventSubmit, Time: before.Add(-time.Second), Gang: gangOf("b", "t", 8, time.Hour)}
		events <- lockstep.Event{Kind: lockstep.EventFinish, Time: before, Job: "a"}
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.Empty(t, refused)
		require.Equal(t, []string{"start a", "start b"}, seen)
	})
}

// TestRunDecidesThoughEventsNeverPause has each event at hand before the last one
// was looked at.
func TestRunDecidesThoughEventsNeverPause(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	events := make(chan lockstep.Event, 4096)
	noise := lockstep.Event{Kind: lockstep.EventCancel, Job: "nobody"}
	events <- lockstep.Event{Kind: lockstep.EventSubmit, Gang: gangOf("a", "t", 8, time.Hour)}
	for range 2000 {
		events <- noise
	}
	refused := 0
	done := errors.New("done")
	err := s.Run(t.Context(), scheduler.RunConfig{
		Events: events, Do: func(context.Context, []lockstep.Action) error { return done },
		Fault: func(lockstep.Event, error) {
			events <- noise // so that there always is one more
			refused++
		},
	})
	require.ErrorIs(t, err, done)
	require.Less(t, refused, 2000)

	err = s.Run(t.Context(), scheduler.RunConfig{})
	require.ErrorContains(t, err, "Events = nil")
	require.ErrorContains(t, err, "Do = nil")
}
