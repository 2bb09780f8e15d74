package gang_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// stuck is a random state in which jobs wait, made the same again for a seed.
type stuck struct {
	a     *gang.Admission
	p     cluster
	o     *listed
	quota *ledger
	gangs map[lockstep.JobID]*lockstep.Gang
}

const stuckAt = 20

func newStuck(t *testing.T, seed uint64, build func(racks, nodes, devices int) cluster) *stuck {
	r := rand.New(rand.NewPCG(seed, 131))
	racks, nodes, devices := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(3)
	s := &stuck{p: build(racks, nodes, devices), o: &listed{}, gangs: map[lockstep.JobID]*lockstep.Gang{}}
	s.quota = newLedger(1 + r.IntN(racks*nodes*devices))
	cfg := gang.Config{StartAtOnce: true, Orderer: s.o, Backfill: []gang.Backfill{gang.EASY, gang.Conservative, gang.Strict}[r.IntN(3)]}
	if r.IntN(3) == 0 {
		cfg.Quota = s.quota
	}
	if r.IntN(2) == 0 {
		cfg.Preempt = gang.PreemptOn
	}
	s.a = admission(t, s.p, cfg)
	for n := range 16 {
		g := mixed(r, n, 4)
		g.Tenant = lockstep.TenantID([]string{"x", "y"}[r.IntN(2)])
		g.Required = []lockstep.Level{"", "", placertest.Rack, lockstep.LevelNode}[r.IntN(4)]
		if r.IntN(2) == 0 {
			g.Walltime = 0
		}
		s.gangs[g.ID] = g
		submit(t, s.a, n, g)
		s.propose()
		step(t, s.a, n)
		if n == 8 && r.IntN(2) == 0 {
			node := s.p.Nodes()[r.IntN(racks*nodes)]
			require.NoError(t, s.a.Cordon(at(n), node))
		}
	}
	s.propose()
	settled(t, s.a, stuckAt)
	return s
}

// propose lists the waiting jobs by priority, then name, which stays the same also
// for one that is submitted anew.
func (s *stuck) propose() {
	s.o.list = s.a.AppendJobs(nil, gang.Queued)
	slices.SortStableFunc(s.o.list, func(x, y lockstep.JobID) int { return cmp.Compare(s.gangs[y].Priority, s.gangs[x].Priority) })
}

// apply does what c says, for job; false where this test does not know how.
func (s *stuck) apply(t *testing.T, job lockstep.JobID, c lockstep.Change) bool {
	again := func(change func(g *lockstep.Gang)) {
		g := s.gangs[job].Clone()
		change(g)
		require.NoError(t, s.a.Cancel(at(stuckAt), job))
		submit(t, s.a, stuckAt, g)
	}
	switch c.Kind {
	case lockstep.ChangeWait, lockstep.ChangeFree, lockstep.ChangeEvict:
		list := s.a.AppendJobs(nil, gang.Awaiting)
		for _, id := range append(list, s.a.AppendJobs(nil, gang.Running, gang.Leaving, gang.Resizing, gang.Moving)...) {
			var on []lockstep.NodeID
			if p := s.p.Plan(id); p != nil {
				on = nodesOf(p.Members)
			}
			if c.Kind == lockstep.ChangeWait || slices.Contains(c.Jobs, id) || slices.ContainsFunc(on, func(n lockstep.NodeID) bool { return slices.Contains(c.Nodes, n) }) {
				if phase(s.a, id) == gang.Awaiting {
					require.NoError(t, s.a.Cancel(at(stuckAt), id))
				} else {
					require.NoError(t, s.a.Finish(at(stuckAt), id, 0))
				}
			}
		}
	case lockstep.ChangeOpen:
		for _, n := range c.Nodes {
			require.NoError(t, s.a.Up(at(stuckAt), n))
			require.NoError(t, s.a.Open(at(stuckAt), n))
		}
	case lockstep.ChangeShrink:
		if len(s.gangs[job].Roles) > 1 {
			return false
		}
		again(func(g *lockstep.Gang) { g.Roles[0].Min, g.Roles[0].Max = int(c.Amount), 0 })
	case lockstep.ChangeRelax:
		again(func(g *lockstep.Gang) { g.Required = c.Level })
	case lockstep.ChangeAdd:
		if !strings.HasPrefix(c.Domain, "quota") {
			return false
		}
		s.quota.limit += int(c.Amount / int64(lockstep.WholeGPU))
		require.NoError(t, s.a.Reconsider(at(stuckAt)))
	default:
		return false
	}
	return true
}

// Each change that an explanation names lets the gang in, at its turn, when it is made:
// unless somebody ahead of it takes what it brings, or is promised it.
func TestTheChangesOfAnExplanationDo(t *testing.T) {
	for name, build := range map[string]func(racks, nodes, devices int) cluster{"reference": reference, "placement": place} { // the order does not matter
		t.Run(name, func(t *testing.T) {
			done, ahead := map[lockstep.ChangeKind]int{}, 0
			for seed := range uint64(many(150)) {
				s := newStuck(t, seed, build)
				for _, job := range s.a.AppendJobs(nil, gang.Queued) {
					e, ok := s.a.Explain(job)
					require.True(t, ok)
					for i, c := range e.Changes {
						again := newStuck(t, seed, build)
						if !again.apply(t, job, c) {
							continue
						}
						again.propose()
						k := slices.Index(again.o.list, job)
						again.o.list = again.o.list[:k+1]
						settled(t, again.a, stuckAt)
						if phase(again.a, job) == gang.Queued {
							took := slices.ContainsFunc(again.o.list[:k], func(id lockstep.JobID) bool {
								before, _ := s.a.Forecast(id)
								after, _ := again.a.Forecast(id)
								return phase(again.a, id) != gang.Queued || !reflect.DeepEqual(before, after)
							})
							if took {
								ahead++
								continue
							}
							f, _ := again.a.Explain(job)
							require.Fail(t, "it is not let in", "seed %d: %s: change %d, %s, of %s; then %s", seed, job, i, c, e, f)
						}
						done[c.Kind]++
					}
				}
			}
			t.Logf("%v; %d went to others ahead", done, ahead)
			for _, k := range []lockstep.ChangeKind{lockstep.ChangeWait, lockstep.ChangeEvict, lockstep.ChangeShrink, lockstep.ChangeOpen, lockstep.ChangeAdd} {
				require.NotZero(t, done[k], k)
			}
		})
	}
}

// The stages say what each of them finds, with counts.
func TestAnExplanationGoesStageByStage(t *testing.T) {
	quota := newLedger(5)
	p := placertest.NewReference(1, 4, 2, 0)
	a := admission(t, p, gang.Config{StartAtOnce: true, Quota: quota, Preempt: gang.PreemptOn, MaxVictims: 1})
	submit(t, a, 0, of("x", low("a", 3, 0, 0)), of("x", low("b", 2, 1, 0)))
	step(t, a, 0)
	require.NoError(t, a.Cordon(at(1), "n3"))
	w := of("x", high("w", 4, 5))
	w.Capabilities.Preemptible = true
	submit(t, a, 1, w)
	got := step(t, a, 1)
	require.Empty(t, got, "two would have to go")
	e, _ := a.Explain("w")
	for _, line := range []string{
		"w: does not fit: quota, 0 of 4 members, gpu asked 4 free 0\n",
		"quota: quota (asks for gpu=4, may have gpu=0)",
		"gang: unhealthy (1 node is cordoned)",
		"preemption: busy (none of 2 jobs that could make room would make enough)",
	} {
		require.Contains(t, e.String(), line)
	}
	v := of("y", high("v", 6, 5))
	v.Preemption = lockstep.PreemptNever
	submit(t, a, 2, v)
	step(t, a, 2)
	e, _ = a.Explain("v")
	require.Contains(t, e.String(), "quota: quota")
	require.Contains(t, e.String(), "preemption: busy (it takes room from nobody)")
}

func TestAnExplanationNamesWhoWouldGo(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 4, 1, 0), gang.Config{StartAtOnce: true})
	submit(t, a, 0, low("a", 3, 2, 0), low("b", 1, 0, 1))
	step(t, a, 0)
	submit(t, a, 1, high("w", 2, 5))
	require.Empty(t, step(t, a, 1))
	var before, after strings.Builder
	require.NoError(t, a.Snapshot(&before))
	e, _ := a.Explain("w")
	require.NoError(t, a.Snapshot(&after))
	require.Equal(t, before.String(), after.String())
	text := e.String()
	require.Contains(t, text, "preemption: preempted (off, but a would leave)")
	require.NotContains(t, text, "b would", fmt.Sprint("a alone is enough: ", text))
	require.Equal(t, []lockstep.Change{{Kind: lockstep.ChangeWait}, {Kind: lockstep.ChangeEvict, Jobs: ids{"a"}}}, e.Changes[:2])
}
