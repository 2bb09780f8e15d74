package lifecycle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/golden"
)

// TestTraces replays the scripts of testdata: each command is a move, with the
// time since the start.
func TestTraces(t *testing.T) {
	golden.Run(t, "testdata/*.txt", func(t *testing.T) func(golden.Command) string {
		m := newMachine(t, Config{})
		return func(c golden.Command) string {
			c.Allow("at", "gpus", "attempt", "cause", "code", "saved", "until")
			if c.Name == "ledger" {
				return ledger(m, lockstep.JobID(c.Arg(0)))
			}
			now := at(c.Duration("at", 0))
			e := Event{
				Move: Move(c.Name), Time: now, GPUs: lockstep.WholeGPU.Mul(c.Int64("gpus", 0)), Attempt: lockstep.Attempt(c.Int("attempt", 0)),
				Cause: Cause(c.Get("cause")), Exit: Exit{Code: c.Int("code", 0), Saved: c.Bool("saved", false)},
			}
			if c.Has("until") {
				e.Until = now.Add(c.Duration("until", 0))
			}
			if e.Move != MoveTick {
				e.Job = lockstep.JobID(c.Arg(0))
			}
			steps, err := m.Apply(nil, &e)
			if err != nil {
				return "refused: " + err.Error()
			}
			if len(steps) == 0 {
				return fmt.Sprintf("nothing, %d dropped", m.Dropped())
			}
			return tell(steps)
		}
	})
}

func tell(steps []Step) string {
	var lines []string
	for _, s := range steps {
		line := fmt.Sprintf("%s %s: %s -> %s", s.Time.Sub(t0), s.Job, s.From, s.To)
		for _, part := range []struct{ name, value string }{
			{"cause", string(s.Cause)}, {"budget", s.Budget}, {"freed", s.Freed.String()}, {"quarantined", s.Quarantined.String()},
		} {
			if part.value != "" && part.value != "0" {
				line += " " + part.name + "=" + part.value
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func ledger(m *Machine, id lockstep.JobID) string {
	j, _ := m.Job(id)
	var lines []string
	for p := range Parts {
		lines = append(lines, fmt.Sprintf("%s %s, %g GPU-s", p, j.Ledger.Time[p], j.Ledger.GPU[p].GPUSeconds()))
	}
	return strings.Join(lines, "\n")
}
