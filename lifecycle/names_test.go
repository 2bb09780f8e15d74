package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryStateHasAWordInEverySystem(t *testing.T) {
	for _, system := range []System{Kubernetes, Volcano, Kueue, Slurm} {
		for _, s := range States() {
			name, ok := s.In(system)
			require.True(t, ok, "%s %s", system, s)
			back, ok := StateIn(system, name)
			require.True(t, ok)
			again, _ := back.In(system)
			require.Equal(t, name, again, "the word of the state that it is read as is the same word")
			// What is over must not be taken for what is not, except where the other system has one word for both.
			if s.Terminal() && !(system == Kueue && s == Cancelled) {
				require.True(t, back.Terminal(), "%s %s", system, s)
			}
		}
	}
	for _, x := range []struct {
		system System
		name   string
		want   State
	}{
		{Slurm, "OUT_OF_MEMORY", Failed},
		{Slurm, "NODE_FAIL", Lost},
		{Volcano, "Restarting", Backoff},
		{Kueue, "Inadmissible", Held},
		{Kubernetes, "FailureTarget", Cleaning},
	} {
		s, ok := StateIn(x.system, x.name)
		require.True(t, ok)
		require.Equal(t, x.want, s)
	}
	_, ok := StateIn(Slurm, "running")
	require.False(t, ok, "case matters")
	_, ok = StateIn("pbs", "Q")
	require.False(t, ok)
	_, ok = Running.In("pbs")
	require.False(t, ok)
	_, ok = State("asleep").In(Slurm)
	require.False(t, ok)
}
