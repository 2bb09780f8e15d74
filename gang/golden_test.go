package gang_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
	"github.com/lockstep-gpu/lockstep/internal/golden"
)

func TestGoldenTraces(t *testing.T) {
	golden.Run(t, "testdata/golden/*.txt", func(t *testing.T) func(golden.Command) string {
		return (&script{t: t}).do
	})
}

// script executes the commands of a trace; times are seconds.
type script struct {
	t     *testing.T
	a     *gang.Admission
	nodes []lockstep.NodeID
	quota *shares
	now   int
}

func (s *script) do(c golden.Command) string {
	switch c.Name {
	case "cluster":
		return s.cluster(c)
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
	case "forecast":
		f, ok := s.a.Forecast(lockstep.JobID(c.Arg(0)))
		if !ok {
			return "no reservation"
		}
		when := "when who is there leaves"
		if !f.Start.IsZero() {
			when = fmt.Sprintf("at %d", seconds(f.Start))
		}
		return fmt.Sprintf("%s on%s", when, places(f.Members))
	case "idle":
		return fmt.Sprint(s.a.AppendIdle(nil, s.nodes, at(c.Int("until", s.now))))
	case "reconsider":
		return s.answer(s.a.Reconsider(at(s.now)))
	case "used":
		return fmt.Sprint(s.quota.used)
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
	c.Allow("members", "least", "wall", "priority", "required", "bears", "tenant", "canary", "spares", "preempt")
	g := plain(lockstep.JobID(c.Arg(0)), c.Int("members", 1), c.Int("wall", 0))
	g.Priority = lockstep.Priority(c.Int("priority", 0))
	g.Required = lockstep.Level(c.Get("required"))
	if c.Has("least") {
		g.Roles[0].Max, g.Roles[0].Min = g.Roles[0].Min, c.Int("least", 1)
	}
	bears := c.Get("bears")
	g.Capabilities.Preemptible = strings.Contains(bears, "stop")
	g.Capabilities.Resizable = strings.Contains(bears, "shrink")
	g.Capabilities.Replaceable = strings.Contains(bears, "replace")
	g.Tenant, g.Canary, g.Roles[0].Spares = lockstep.TenantID(c.Get("tenant")), c.Int("canary", 0), c.Int("spares", 0)
	g.Preemption = lockstep.Preemption(c.Get("preempt"))
	return g
}

// cluster begins anew. With quota, tenants deserve what it says and lend what they
// do not use.
func (s *script) cluster(c golden.Command) string {
	c.Allow("racks", "nodes", "devices", "backfill", "once", "preempt", "victims", "quota")
	cfg := gang.Config{
		Hold: 30 * time.Second, Backoff: 10 * time.Second, Backfill: gang.Backfill(c.Int("backfill", 0)), StartAtOnce: c.Bool("once", false),
		Preempt: gang.Preempt(c.Get("preempt")), MaxVictims: c.Int("victims", 0),
	}
	if c.Has("quota") {
		deserved, total := map[lockstep.TenantID]int{}, 0
		for _, part := range c.List("quota") {
			name, n, _ := strings.Cut(part, ":")
			k, err := strconv.Atoi(n)
			require.NoError(s.t, err)
			deserved[lockstep.TenantID(name)] = k
			total += k
		}
		s.quota = newShares(total, deserved)
		cfg.Quota = s.quota
	}
	p := placertest.NewReference(c.Int("racks", 1), c.Int("nodes", 1), c.Int("devices", 1), 0)
	s.nodes = p.Nodes()
	s.a = admission(s.t, p, cfg)
	return ""
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
		for e.Rank = range len(st.Plan.Members) {
			if st.Trial > 0 && e.Rank == st.Trial {
				return ""
			}
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
			if len(x.Plan.Spares) > 0 {
				line += " and" + places(x.Plan.Spares) + " to spare"
			}
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
			if e.Cost.Lost > 0 {
				line += fmt.Sprintf(" losing %v on %v", e.Cost.Lost, e.Cost.Devices)
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
		if st.Trial > 0 {
			line += fmt.Sprintf(" tries %d", st.Trial)
		}
		if len(st.Waits) > 0 {
			line += fmt.Sprintf(" waits for %v", st.Waits)
		}
		if start, ok := forecast(s.a, id); ok {
			line += fmt.Sprintf(" to start at %d", seconds(start))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
