package gang_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
	"github.com/lockstep-gpu/lockstep/internal/golden"
)

func TestGoldenTraces(t *testing.T) {
	golden.Run(t, "testdata/*.txt", func(t *testing.T) func(golden.Command) string {
		return (&script{t: t}).do
	})
}

// script executes the commands of a trace; times are seconds.
type script struct {
	t   *testing.T
	a   *gang.Admission
	now int
}

func (s *script) do(c golden.Command) string {
	switch c.Name {
	case "cluster":
		c.Allow("racks", "nodes", "devices", "backfill", "once")
		cfg := gang.Config{Hold: 30 * time.Second, Backoff: 10 * time.Second, Backfill: gang.Backfill(c.Int("backfill", 0)), StartAtOnce: c.Bool("once", false)}
		s.a = admission(s.t, placertest.NewReference(c.Int("racks", 1), c.Int("nodes", 1), c.Int("devices", 1), 0), cfg)
		return ""
	case "at":
		_, err := fmt.Sscan(c.Arg(0), &s.now)
		return s.answer(err)
	case "submit":
		return s.answer(s.a.Submit(at(s.now), s.gang(c)))
	case "window":
		c.Allow("node", "from", "to")
		w := gang.Window{Name: c.Arg(0), From: at(c.Int("from", 0)), To: at(c.Int("to", 0))}
		for _, n := range c.List("node") {
			w.Nodes = append(w.Nodes, lockstep.NodeID(n))
		}
		return s.answer(s.a.Reserve(at(s.now), w))
	case "step":
		return s.step()
	case "jobs":
		return s.jobs()
	case "explain":
		e, _ := s.a.Explain(lockstep.JobID(c.Arg(0)))
		return e.String()
	case "wake":
		if wake, ok := s.a.NextWake(at(s.now)); ok {
			return fmt.Sprint(seconds(wake))
		}
		return "never"
	}
	return s.event(c)
}

func (s *script) gang(c golden.Command) *lockstep.Gang {
	c.Allow("members", "least", "wall", "priority", "required", "bears")
	g := plain(lockstep.JobID(c.Arg(0)), c.Int("members", 1), c.Int("wall", 0))
	g.Priority = lockstep.Priority(c.Int("priority", 0))
	g.Required = lockstep.Level(c.Get("required"))
	if c.Has("least") {
		g.Roles[0].Max, g.Roles[0].Min = g.Roles[0].Min, c.Int("least", 1)
	}
	bears := c.Get("bears")
	g.Capabilities.Preemptible = strings.Contains(bears, "stop")
	g.Capabilities.Resizable = strings.Contains(bears, "shrink")
	return g
}

func (s *script) event(c golden.Command) string {
	e := lockstep.Event{Time: at(s.now), Job: lockstep.JobID(c.Arg(0))}
	switch c.Name {
	case "confirm":
		c.Allow("rank", "attempt")
		e.Kind, e.Attempt = lockstep.EventConfirm, lockstep.Attempt(c.Int("attempt", 0))
		if c.Has("rank") {
			e.Rank = c.Int("rank", 0)
			return s.answer(s.a.Apply(e))
		}
		st, _ := s.a.State(e.Job)
		for e.Rank = range st.Plan.Members {
			if err := s.a.Apply(e); err != nil {
				return s.answer(err)
			}
		}
		return ""
	case "refuse":
		e.Kind, e.Node = lockstep.EventRefuse, lockstep.NodeID(c.Arg(1))
	case "finish", "cancel", "evicted", "due", "fail":
		e.Kind = lockstep.EventKind(c.Name)
	case "down", "up", "cordon", "open":
		e.Kind, e.Job, e.Node = lockstep.EventKind(c.Name), "", lockstep.NodeID(c.Arg(0))
	default:
		return c.Unknown()
	}
	return s.answer(s.a.Apply(e))
}

func (s *script) answer(err error) string {
	var e *lockstep.Error
	if errors.As(err, &e) {
		return e.Kind.Error() + ": " + e.Reason
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (s *script) step() string {
	actions, err := s.a.Step(at(s.now))
	if err != nil {
		return s.answer(err)
	}
	var lines []string
	for _, x := range actions {
		line := fmt.Sprintf("%s %s", x.Kind, x.Job)
		if x.Plan != nil {
			line += " on" + places(x.Plan.Members)
		}
		if !x.Deadline.IsZero() {
			line += fmt.Sprintf(" until %d", seconds(x.Deadline))
		}
		if x.Attempt != 0 {
			line += fmt.Sprintf(" attempt %d", x.Attempt)
		}
		if e := x.Eviction; e != nil {
			if e.Ranks != nil {
				line += fmt.Sprintf(" without ranks %v", e.Ranks)
			}
			if e.For != "" {
				line += " for " + string(e.For)
			}
		}
		if x.Reason != "" {
			line += ": " + string(x.Reason)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func places(members []lockstep.Member) string {
	out := ""
	for i := range members {
		out += fmt.Sprintf(" %s[%s]", members[i].Node, members[i].Devices)
	}
	return out
}

func (s *script) jobs() string {
	var lines []string
	for _, id := range s.a.AppendJobs(nil) {
		st, _ := s.a.State(id)
		line := fmt.Sprintf("%s %s", id, st.Phase)
		if st.Plan != nil {
			line += " on" + places(st.Plan.Members)
		}
		if len(st.Waits) > 0 {
			line += fmt.Sprintf(" waits for %v", st.Waits)
		}
		if start, ok := s.a.Forecast(id); ok {
			line += fmt.Sprintf(" to start at %d", seconds(start))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
