package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/golden"
)

// TestTraces replays the scripts of testdata: each command names its call and
// the time since the start.
func TestTraces(t *testing.T) {
	golden.Run(t, "testdata/*.txt", func(t *testing.T) func(golden.Command) string {
		table := newTable(t, Config{Term: time.Hour, Ahead: time.Minute, Silence: 2 * time.Hour})
		return func(c golden.Command) string {
			c.Allow("at", "gpus", "term", "token", "deadline", "reason")
			now, job := at(c.Duration("at", 0)), lockstep.JobID("")
			if c.Name != "due" && c.Name != "overdue" && c.Name != "wake" {
				job = lockstep.JobID(c.Arg(0))
			}
			gpus := lockstep.WholeGPU.Mul(c.Int64("gpus", 0))
			token, reason := Token(c.Int("token", 0)), lockstep.Reason(c.Get("reason"))
			deadline := now.Add(c.Duration("deadline", 0))
			switch c.Name {
			case "grant":
				return say(table.Grant(now, job, gpus, c.Duration("term", 0)))
			case "renew":
				return say(table.Renew(now, job, token))
			case "extend":
				return say(table.Extend(now, job))
			case "yield":
				return say(table.Yield(now, job, deadline, reason))
			case "shrink":
				return say(table.Shrink(now, job, gpus, deadline, reason))
			case "resize":
				l, charge, err := table.Resize(now, job, gpus)
				if err != nil {
					return say(l, err)
				}
				return say(l, nil) + "\n" + bill(charge, nil)
			case "release":
				return bill(table.Release(now, job, token))
			case "revoke":
				return bill(table.Revoke(now, job, reason))
			case "due":
				return all(table.AppendDue(nil, now))
			case "overdue":
				return all(table.AppendOverdue(nil, now))
			case "wake":
				wake, ok := table.NextWake(now)
				require.True(t, ok)
				return wake.Sub(t0).String()
			}
			return c.Unknown()
		}
	})
}

func say(l Lease, err error) string {
	if err != nil {
		return refuse(err)
	}
	s := fmt.Sprintf("%s token %s %s %s until %s", l.Job, l.Token, l.State, l.Amount, l.Boundary.Sub(t0))
	if l.State != Held {
		s += fmt.Sprintf(", back by %s for %s", l.Deadline.Sub(t0), l.Reason)
	}
	if l.State == Shrinking {
		s += fmt.Sprintf(", keeps %s", l.Target)
	}
	return s
}

func bill(c Charge, err error) string {
	if err != nil {
		return refuse(err)
	}
	return strings.TrimSpace(fmt.Sprintf("charge %s token %s %s from %s to %s %s", c.Job, c.Token, c.Amount, c.From.Sub(t0), c.To.Sub(t0), c.Reason))
}

func all(leases []Lease) string {
	var lines []string
	for _, l := range leases {
		lines = append(lines, say(l, nil))
	}
	return strings.Join(lines, "\n")
}

func refuse(err error) string {
	for kind, name := range map[error]string{ // any order: an error has one kind
		lockstep.ErrInvalid: "invalid", lockstep.ErrDuplicate: "duplicate", lockstep.ErrUnknown: "unknown",
		lockstep.ErrStale: "stale", lockstep.ErrPast: "past", lockstep.ErrConflict: "conflict",
	} {
		if errors.Is(err, kind) {
			return "refused: " + name
		}
	}
	return err.Error()
}
