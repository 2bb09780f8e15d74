package gang_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is so many seconds after the epoch.
func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// seconds is the reverse of at.
func seconds(t time.Time) int { return int(t.Sub(epoch) / time.Second) }

// plain is a gang of members of one device each; wall is in seconds, 0 unknown.
func plain(id lockstep.JobID, members, wall int) *lockstep.Gang {
	return &lockstep.Gang{
		ID: id, Walltime: time.Duration(wall) * time.Second,
		Roles: []lockstep.Role{{Min: members, Demand: lockstep.Demand{GPUs: 1}}},
	}
}

// world is a host: it starts what it is told to start, lets it run for as long
// as it truly does, and stops what it is told to stop.
type world struct {
	t      *testing.T
	a      *gang.Admission
	p      *placertest.Reference
	now    int
	true   map[lockstep.JobID]int // how long jobs really run; absent means their estimate, or for ever
	linger int                    // seconds from an eviction to its report
	starts map[lockstep.JobID][]int
	events []happening
	log    []lockstep.Action
	order  int
	on     map[lockstep.JobID][]lockstep.Member // where processes truly are
	share  bool                                 // members may share devices, so that these may meet
}

type happening struct {
	at, seq int
	event   lockstep.Event
}

func newWorld(t *testing.T, p *placertest.Reference, cfg gang.Config) *world {
	t.Helper()
	cfg.Placer = p
	a, err := gang.New(cfg)
	require.NoError(t, err)
	return &world{t: t, a: a, p: p, true: map[lockstep.JobID]int{}, starts: map[lockstep.JobID][]int{}}
}

func (w *world) at(second int, e lockstep.Event) {
	w.order++
	w.events = append(w.events, happening{at: second, seq: w.order, event: e})
	slices.SortStableFunc(w.events, func(a, b happening) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
}

func (w *world) submit(second int, gangs ...*lockstep.Gang) {
	for _, g := range gangs {
		w.at(second, lockstep.Event{Kind: lockstep.EventSubmit, Gang: g})
	}
}

// run lets the world go on until second, or until nothing is left to happen.
func (w *world) run(until int) {
	w.t.Helper()
	for steps := 0; steps < 10000; steps++ {
		next, any := until+1, false
		if len(w.events) > 0 {
			next, any = w.events[0].at, true
		}
		if wake, ok := w.a.NextWake(at(w.now)); ok {
			s := seconds(wake)
			if wake.After(at(s)) {
				s++
			}
			next, any = min(next, max(s, w.now)), true
		}
		if !any || next > until {
			w.now = until
			return
		}
		w.now = next
		for len(w.events) > 0 && w.events[0].at <= w.now {
			e := w.events[0].event
			w.events = w.events[1:]
			e.Time = at(w.now)
			before, _ := w.a.State(e.Job)
			if err := w.a.Apply(e); err != nil {
				require.True(w.t, e.Kind == lockstep.EventFinish || e.Kind == lockstep.EventConfirm, "%v at %d: %v", e.Kind, w.now, err)
				continue
			}
			switch e.Kind {
			case lockstep.EventFinish, lockstep.EventEvicted:
				delete(w.on, e.Job)
				if e.Kind == lockstep.EventEvicted && before.Phase == gang.Resizing {
					w.on[e.Job] = before.Plan.Members
				}
			}
		}
		actions, err := w.a.Step(at(w.now))
		require.NoError(w.t, err)
		for _, x := range actions {
			w.do(x)
		}
	}
	w.t.Fatal("the world does not come to rest")
}

func (w *world) do(x lockstep.Action) {
	w.log = append(w.log, x)
	switch x.Kind {
	case lockstep.ActionReserve:
		for rank := range x.Plan.Members {
			w.at(w.now, lockstep.Event{Kind: lockstep.EventConfirm, Job: x.Job, Attempt: x.Attempt, Rank: rank})
		}
	case lockstep.ActionStart:
		w.occupy(x.Job, x.Plan.Members)
		w.starts[x.Job] = append(w.starts[x.Job], w.now)
		d, ok := w.true[x.Job]
		if !ok {
			d = int(x.Plan.Gang.Walltime / time.Second)
		}
		if d > 0 {
			w.at(w.now+d, lockstep.Event{Kind: lockstep.EventFinish, Job: x.Job, Attempt: x.Attempt})
		}
	case lockstep.ActionEvict, lockstep.ActionMove:
		w.at(w.now+w.linger, lockstep.Event{Kind: lockstep.EventEvicted, Job: x.Job, Attempt: x.Attempt})
	case lockstep.ActionResize:
		if x.Eviction != nil {
			w.at(w.now+w.linger, lockstep.Event{Kind: lockstep.EventEvicted, Job: x.Job, Attempt: x.Attempt})
		}
	}
}

// occupy starts processes, which must meet no others.
func (w *world) occupy(job lockstep.JobID, members []lockstep.Member) {
	if w.on == nil {
		w.on = map[lockstep.JobID][]lockstep.Member{}
	}
	for id, others := range w.on { // the order does not matter
		for _, o := range others {
			for _, m := range members {
				if id != job && o.Node == m.Node && o.Devices&m.Devices != 0 && !w.share {
					require.Fail(w.t, "two jobs meet", "%s starts on %s[%s], where %s still is", job, m.Node, m.Devices, id)
				}
			}
		}
	}
	w.on[job] = members
}

// phase returns where job stands.
func (w *world) phase(job lockstep.JobID) gang.Phase {
	s, _ := w.a.State(job)
	return s.Phase
}
