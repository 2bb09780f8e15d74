package liveness

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/golden"
)

// TestTraces replays the scripts of testdata on one monitor: each command names its
// call, and the time since the start.
func TestTraces(t *testing.T) {
	golden.Run(t, "testdata/*.txt", func(t *testing.T) func(golden.Command) string {
		cfg := Config{Method: Deadline, SuspectAfter: 5 * sec, DeadAfter: 20 * sec, Reconnect: 3 * sec, Rules: []Rule{{Phase: PhaseStep, Gap: 30 * sec, Fixed: true}}}
		m := newMonitor(t, cfg)
		evidence := map[string]Evidence{"exited": Exited, "broken": Broken, "disconnected": Disconnected, "seen": Seen}
		phases := map[string]Phase{"": PhaseStep, "checkpoint": PhaseCheckpoint, "teardown": PhaseTeardown}
		return func(c golden.Command) string {
			c.Allow("at", "inc", "progress", "phase", "pause", "until")
			d := c.Duration("at", 0)
			rank, inc := c.Int("rank", 0), uint64(c.Int64("inc", 1))
			if c.Name != "check" && c.Name != "wake" && c.Name != "pause" {
				rank = int(c.Arg(0)[0] - '0')
			}
			switch c.Name {
			case "join":
				return answer(Accepted, m.Join(at(d), rank, inc))
			case "leave":
				return answer(m.Leave(at(d), rank, inc))
			case "beat":
				return answer(m.Beat(at(d), rank, Beat{
					Incarnation: inc, Progress: uint64(c.Int64("progress", 0)), Phase: phases[c.Get("phase")], Pause: c.Duration("pause", 0),
				}))
			case "evidence":
				return answer(m.Evidence(at(d), rank, inc, evidence[c.Arg(1)]))
			case "pause":
				return answer(Accepted, m.Pause(at(d), at(c.Duration("until", 0))))
			case "check":
				return strings.ReplaceAll(say(t, m.Check, d), "; ", "\n")
			case "wake":
				wake, ok := m.NextWake(at(d))
				require.True(t, ok)
				return wake.Sub(t0).String()
			}
			return c.Unknown()
		}
	})
}

func answer(out Outcome, err error) string {
	switch {
	case errors.Is(err, lockstep.ErrPast):
		return "refused: past"
	case err != nil:
		return "refused: " + err.Error()
	case out == Accepted:
		return ""
	}
	return out.String()
}
