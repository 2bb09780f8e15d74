package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

func TestRestoredSchedulerIsCompared(t *testing.T) {
	w := small(t)
	s, err := w.stopAt(ltgf, 4, 12*time.Hour, 300)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(s.log), 300)
	require.Equal(t, s.scheduler.Seq()+1, s.log[0].Seq, "the log begins where the image ends")
	require.Positive(t, s.holding)
	require.GreaterOrEqual(t, s.kept, s.holding+s.waiting)

	restored := func() *scheduler.Scheduler {
		r, err := scheduler.Restore(s.cfg, bytes.NewReader(s.image))
		require.NoError(t, err)
		return r
	}
	require.NoError(t, s.compare(restored(), s.inputs()))
	require.NoError(t, s.compare(restored(), s.inputs()), "inputs can be taken again")
	require.ErrorContains(t, s.compare(restored(), s.inputs()[:250]), "decides otherwise")
	require.ErrorIs(t, s.compare(restored(), s.inputs()[1:]), lockstep.ErrConflict)
}

func TestInputsShareNoGangs(t *testing.T) {
	w := small(t)
	s, err := w.stopAt(fifo, 4, 6*time.Hour, 200)
	require.NoError(t, err)
	a, b, gangs := s.inputs(), s.inputs(), 0
	for i := range a {
		if a[i].Event != nil && a[i].Event.Gang != nil {
			gangs++
			require.NotSame(t, a[i].Event.Gang, b[i].Event.Gang)
			require.Equal(t, a[i].Event.Gang, b[i].Event.Gang)
		}
	}
	require.Positive(t, gangs)
}

func TestStoppingTooLateIsAFault(t *testing.T) {
	w := small(t)
	_, err := w.stopAt(ltgf, 4, 1000*time.Hour, 10)
	require.ErrorContains(t, err, "is over before")
}

func TestLogMayBeShorterThanWanted(t *testing.T) {
	w := small(t)
	s, err := w.stopAt(ltgf, 4, 20*time.Hour, 1<<30)
	require.NoError(t, err)
	require.NotEmpty(t, s.log)
	require.NoError(t, s.compare(s.scheduler, s.inputs()))
}
