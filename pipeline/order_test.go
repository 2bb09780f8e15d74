package pipeline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The orders of some schedules, written down by hand from their published rules.
func TestOrdersThatAreKnownExactly(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want []string // by stage
	}{
		{Config{Schedule: GPipe, Stages: 2, Micros: 2}, []string{"[F0 F1 B0 B1]", "[F0 F1 B0 B1]"}},
		{Config{Stages: 3, Micros: 3}, []string{"[F0 F1 F2 B0 B1 B2]", "[F0 F1 B0 F2 B1 B2]", "[F0 B0 F1 B1 F2 B2]"}},
		{Config{Stages: 3, Micros: 1}, []string{"[F0 B0]", "[F0 B0]", "[F0 B0]"}},
		{Config{Schedule: Interleaved, Stages: 2, Micros: 4, Chunks: 2}, []string{
			"[F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3]",
			"[F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3]",
		}},
		{Config{Schedule: Interleaved, Stages: 2, Micros: 2, Chunks: 2}, []string{
			"[F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1]", "[F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1]",
		}},
		{Config{Schedule: Interleaved, Stages: 2, Micros: 3}, []string{"[F0 F1 B0 F2 B1 B2]", "[F0 B0 F1 B1 F2 B2]"}},
		{Config{Schedule: ZBH1, Stages: 3, Micros: 4}, []string{
			"[F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3]",
			"[F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3]",
			"[F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3]",
		}},
		// Fewer micro-batches than stages: no weight waits once there is no forward left.
		{Config{Schedule: ZBH1, Stages: 4, Micros: 2}, []string{
			"[F0 F1 B0 W0 B1 W1]", "[F0 F1 B0 W0 B1 W1]", "[F0 F1 B0 W0 B1 W1]", "[F0 B0 F1 B1 W0 W1]",
		}},
		{Config{Schedule: ZBH2, Stages: 2, Micros: 4}, []string{
			"[F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3]",
			"[F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3]",
		}},
	} {
		l, err := New(c.cfg)
		require.NoError(t, err)
		for s, want := range c.want {
			require.Equal(t, want, fmt.Sprint(l.Order(s)), "%+v stage %d", c.cfg, s)
		}
	}
}

// ruled is the order of a stage with its weights split off, by the words of the rule: warm forwards; then for each micro-batch one
// forward while any is left, one backward, and one weight op if more than delay are pending or no forward is left; then the rest.
func ruled(micros, warm, delay int) (out []string) {
	f, b, w := 0, 0, 0
	emit := func(kind string, n *int) { out, *n = append(out, fmt.Sprint(kind, *n)), *n+1 }
	for f < min(warm, micros) {
		emit("F", &f)
	}
	for b < micros {
		if f < micros {
			emit("F", &f)
		}
		emit("B", &b)
		if b-w > delay || f == micros {
			emit("W", &w)
		}
	}
	for w < micros {
		emit("W", &w)
	}
	return out
}

func TestZeroBubbleKeepsItsRule(t *testing.T) {
	for p := 1; p <= 5; p++ {
		for m := 1; m <= 12; m++ {
			for _, times := range []int{1, 2} {
				l, err := New(Config{Schedule: []Schedule{ZBH1, ZBH2}[times-1], Stages: p, Micros: m})
				require.NoError(t, err)
				for s := range p {
					var got []string
					for _, op := range l.Order(s) {
						got = append(got, op.String())
					}
					require.True(t, slices.Equal(ruled(m, times*(p-1-s), times*s), got), "p%d m%d s%d: %v", p, m, s, got)
				}
			}
		}
	}
}
