package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// known is a case whose windows are known exactly; times are in seconds.
type known struct {
	name    string
	cfg     Config
	f, b, w time.Duration // of a chunk of a stage
	c       time.Duration // of each transfer
	windows string        // by stage, "-" for none
	span    time.Duration
	// idle is the part of span that every stage is idle, as a fraction.
	idle, of time.Duration
}

var knowns = []known{
	{"GPipe p4 m4", Config{Schedule: GPipe, Stages: 4, Micros: 4}, 1, 2, 0, 0, "[4,13) · [0,1)[5,11)[19,21) · [0,2)[6,9)[17,21) · [0,3)[15,21)", 21, 3, 7},
	{"1F1B p4 m4", Config{Stages: 4, Micros: 4}, 1, 2, 0, 0, "[4,10)[12,13)[15,16)[18,19) · [0,1)[4,8)[13,14)[16,17)[19,21) · [0,2)[4,6)[14,15)[17,21) · [0,3)[15,21)", 21, 3, 7},
	{"GPipe p4 m8", Config{Schedule: GPipe, Stages: 4, Micros: 8}, 1, 2, 0, 0, "[8,17) · [0,1)[9,15)[31,33) · [0,2)[10,13)[29,33) · [0,3)[27,33)", 33, 3, 11},
	{"1F1B p4 m8", Config{Stages: 4, Micros: 8}, 1, 2, 0, 0, "[4,10)[24,25)[27,28)[30,31) · [0,1)[4,8)[25,26)[28,29)[31,33) · [0,2)[4,6)[26,27)[29,33) · [0,3)[27,33)", 33, 3, 11},
	{"1F1B p3 m2", Config{Stages: 3, Micros: 2}, 1, 2, 0, 0, "[2,7)[9,10) · [0,1)[3,5)[7,8)[10,12) · [0,2)[8,12)", 12, 1, 2},
	{"1F1B p2 m3", Config{Stages: 2, Micros: 3}, 1, 2, 0, 0, "[2,4)[9,10) · [0,1)[10,12)", 12, 1, 4},
	{"1F1B p2 m3 with transfers", Config{Stages: 2, Micros: 3}, 2, 4, 0, 1, "[4,10)[20,24) · [0,3)[15,17)[23,28)", 28, 10, 28},
	{"interleaved p2 m4 v2", Config{Schedule: Interleaved, Stages: 2, Micros: 4, Chunks: 2}, 1, 2, 0, 0, "[5,6)[17,18)[20,21) · [0,1)[25,27)", 27, 1, 9},
	{"interleaved p4 m8 v2", Config{Schedule: Interleaved, Stages: 4, Micros: 8, Chunks: 2}, 1, 2, 0, 0, "[11,14)[19,20)[34,35)[37,38)[40,41)[43,44)[46,47) · " +
		"[0,1)[10,12)[35,36)[38,39)[41,42)[44,45)[55,57) · [0,2)[9,10)[39,40)[42,43)[53,57) · [0,3)[51,57)", 57, 3, 19},
	{"ZB-H1 p4 m8", Config{Schedule: ZBH1, Stages: 4, Micros: 8}, 1, 1, 1, 0, "[4,7) · [0,1)[4,6) · [0,2)[4,5) · [0,3)", 27, 1, 9},
	{"ZB-H1 p3 m6", Config{Schedule: ZBH1, Stages: 3, Micros: 6}, 1, 1, 1, 0, "[3,5) · [0,1)[3,4) · [0,2)", 20, 1, 10},
	{"ZB-H1 p4 m8 W small", Config{Schedule: ZBH1, Stages: 4, Micros: 8}, 2, 2, 1, 0, "[8,14)[37,38)[41,42)[45,46) · [0,2)[8,12)[39,40)[43,44)[48,49) · [0,4)[8,10)[41,42)[47,49) · [0,6)[46,49)", 49, 9, 49},
	{"ZB-H2 p4 m8", Config{Schedule: ZBH2, Stages: 4, Micros: 8}, 1, 1, 1, 0, "[24,27) · [0,1)[25,27) · [0,2)[26,27) · [0,3)", 27, 1, 9},
	{"one stage", Config{Stages: 1, Micros: 5}, 1, 2, 0, 0, "-", 15, 0, 1},
}

func TestWindowsThatAreKnownExactly(t *testing.T) {
	for _, k := range knowns {
		t.Run(k.name, func(t *testing.T) {
			l, err := New(k.cfg)
			require.NoError(t, err)
			c := l.Uniform(k.f*time.Second, k.b*time.Second, k.w*time.Second)
			n := len(c.Forward)
			c.Send, c.Return = fill(n, k.c*time.Second), fill(n, k.c*time.Second)
			var r Result
			require.NoError(t, l.Run(&c, &r))
			require.Equal(t, k.span*time.Second, r.Makespan)
			require.Equal(t, k.windows, windowText(l, &r))
			for s := range l.Stages() {
				require.Equal(t, k.idle*r.Makespan, k.of*r.Idle(s))
			}
		})
	}
}

func windowText(l *Line, r *Result) string {
	var rows []string
	for s := range l.Stages() {
		row := ""
		for _, w := range r.AppendWindows(nil, s) {
			row += fmt.Sprintf("[%d,%d)", w.Start/time.Second, w.End/time.Second)
		}
		if row == "" {
			row = "-"
		}
		rows = append(rows, row)
	}
	return strings.Join(rows, " · ")
}

func TestGPipeHasTheSameWindowsWithBackwardsInReverse(t *testing.T) {
	for p := 1; p <= 4; p++ {
		for m := 1; m <= 6; m++ {
			cfg := Config{Schedule: GPipe, Stages: p, Micros: m}
			l, r := equal(t, cfg, 3, 5, 0, 0)
			reversed := orders(l)
			for s := range reversed {
				reversed[s] = slices.Clone(reversed[s])
				slices.Reverse(reversed[s][m:])
			}
			back, b := equal(t, Config{Orders: reversed, Micros: m}, 3, 5, 0, 0)
			for s := range p {
				require.Equal(t, r.AppendWindows(nil, s), b.AppendWindows(nil, s))
				require.Equal(t, l.Peak(s), back.Peak(s))
			}
		}
	}
}
