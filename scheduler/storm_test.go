package scheduler_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// storm is a host to which anything happens.
type storm struct {
	t   *testing.T
	s   *scheduler.Scheduler
	rng *rand.Rand
	now time.Time
	n   int

	alive map[lockstep.JobID]*stormJob
	used  map[lockstep.NodeID]lockstep.DeviceSet
	log   []scheduler.Entry
	out   map[uint64][]byte
	kinds map[string]int
}

type stormJob struct {
	attempt lockstep.Attempt
	plan    *lockstep.Plan // devices it has; nil for none
	ranks   []int          // not confirmed
	running bool
	leaving bool
}

func newStorm(t *testing.T, seed uint64, cfg scheduler.Config) *storm {
	w := &storm{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: epoch, alive: make(map[lockstep.JobID]*stormJob),
		used: make(map[lockstep.NodeID]lockstep.DeviceSet), out: make(map[uint64][]byte), kinds: make(map[string]int),
	}
	cfg.Log = func(e scheduler.Entry) { w.log = append(w.log, e) }
	w.s = newScheduler(t, cfg)
	return w
}

func (w *storm) some(want func(*stormJob) bool) (lockstep.JobID, *stormJob) {
	ids := slices.Sorted(maps.Keys(w.alive))
	ids = slices.DeleteFunc(ids, func(id lockstep.JobID) bool { return !want(w.alive[id]) })
	if len(ids) == 0 {
		return "", nil
	}
	id := ids[w.rng.IntN(len(ids))]
	return id, w.alive[id]
}

func (w *storm) apply(e lockstep.Event) error {
	e.Time = w.now
	err := w.s.Apply(e)
	w.kinds[string(e.Kind)]++
	return err
}

// happen lets something happen.
func (w *storm) happen() {
	holds := func(j *stormJob) bool { return j.plan != nil && !j.running && !j.leaving }
	running := func(j *stormJob) bool { return j.running && !j.leaving }
	node := lockstep.NodeID(fmt.Sprintf("n%d", w.rng.IntN(4)))
	switch w.rng.IntN(16) {
	case 0, 1, 2:
		w.submit()
	case 3, 4, 5, 6:
		if id, j := w.some(holds); j != nil {
			w.confirm(id, j)
		}
	case 7, 8:
		if id, j := w.some(running); j != nil {
			require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventFinish, Job: id, Attempt: j.attempt}))
			w.free(j)
			delete(w.alive, id)
		}
	case 9:
		if id, j := w.some(running); j != nil {
			reason := []lockstep.Reason{"", "memory", "infra", "unhealthy"}[w.rng.IntN(4)]
			require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventFail, Job: id, Attempt: j.attempt, Reason: reason}))
			w.free(j)
			*j = stormJob{} // it may come again
		}
	case 10, 11:
		if id, j := w.some(func(j *stormJob) bool { return j.leaving }); j != nil {
			w.free(j)
			*j = stormJob{attempt: j.attempt}
			require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventEvicted, Job: id, Attempt: j.attempt}))
		}
	case 12:
		if id, j := w.some(func(*stormJob) bool { return true }); j != nil && w.rng.IntN(3) == 0 {
			require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventCancel, Job: id}))
		}
	case 13:
		if id, j := w.some(holds); j != nil {
			require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventRefuse, Job: id, Attempt: j.attempt, Node: j.plan.Members[0].Node}))
		}
	case 14:
		kind := []lockstep.EventKind{lockstep.EventDown, lockstep.EventCordon}[w.rng.IntN(2)]
		require.NoError(w.t, w.apply(lockstep.Event{Kind: kind, Node: node}))
		fallthrough
	case 15:
		node = lockstep.NodeID(fmt.Sprintf("n%d", w.rng.IntN(4)))
		require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventUp, Node: node}))
		require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventOpen, Node: node}))
		if id, j := w.some(running); j != nil {
			require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventDue, Job: id}))
		}
	}
}

func (w *storm) submit() {
	w.n++
	id := lockstep.JobID(fmt.Sprintf("j%d", w.n))
	g := gangOf(id, lockstep.TenantID(fmt.Sprintf("t%d", w.rng.IntN(3))), 1+w.rng.IntN(8), time.Duration(w.rng.IntN(4))*time.Hour)
	if w.rng.IntN(12) == 0 {
		g.Roles[0].Demand = lockstep.Demand{CPU: 1000}
	} else if w.rng.IntN(4) == 0 {
		g.Roles[0].Min = 2
		if w.rng.IntN(2) == 0 {
			g.Roles[0].Max, g.Capabilities.Resizable = 3, true
		}
	}
	g.Capabilities.Preemptible = w.rng.IntN(5) > 0
	require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventSubmit, Gang: g}))
	w.alive[id] = &stormJob{}
}

// confirm confirms ranks of a hold, which may be over by now.
func (w *storm) confirm(id lockstep.JobID, j *stormJob) {
	for len(j.ranks) > 0 && w.rng.IntN(8) > 0 {
		err := w.apply(lockstep.Event{Kind: lockstep.EventConfirm, Job: id, Attempt: j.attempt, Rank: j.ranks[0]})
		if err != nil {
			require.True(w.t, errors.Is(err, lockstep.ErrStale) || errors.Is(err, lockstep.ErrConflict), err)
			return
		}
		j.ranks = j.ranks[1:]
	}
}

func (w *storm) free(j *stormJob) {
	if j.plan == nil {
		return
	}
	for _, m := range j.plan.Members {
		w.used[m.Node] &^= m.Devices
	}
	j.plan = nil
}

func (w *storm) hold(id lockstep.JobID, j *stormJob, p *lockstep.Plan) {
	j.plan = p
	for _, m := range p.Members {
		require.Zero(w.t, w.used[m.Node]&m.Devices, "%s: devices of %s are not free", id, m.Node)
		w.used[m.Node] |= m.Devices
	}
}

// step takes a step and does as it says.
func (w *storm) step() {
	actions := step(w.t, w.s, w.now)
	if len(actions) > 0 {
		data, err := json.Marshal(actions)
		require.NoError(w.t, err)
		w.out[w.s.Seq()] = data
	}
	for i := range actions {
		a := &actions[i]
		w.kinds[string(a.Kind)]++
		j := w.alive[a.Job]
		require.NotNil(w.t, j, "%s %s", a.Kind, a.Job)
		switch a.Kind {
		case lockstep.ActionReserve:
			w.free(j)
			*j = stormJob{attempt: a.Attempt}
			for rank := range a.Plan.Members {
				j.ranks = append(j.ranks, rank)
			}
			w.hold(a.Job, j, a.Plan)
		case lockstep.ActionStart:
			if j.plan == nil {
				w.hold(a.Job, j, a.Plan)
			}
			j.running, j.attempt = true, a.Attempt
		case lockstep.ActionRelease:
			w.free(j)
			*j = stormJob{}
		case lockstep.ActionEvict, lockstep.ActionMove:
			j.leaving = true
		case lockstep.ActionResize:
			j.leaving = a.Eviction != nil
			if j.leaving { // the room that it keeps is its own already; what leaves is dirty until it is gone
				w.shrink(a.Job, j, a.Plan)
				defer w.step() // somebody may have waited for it
			} else {
				w.free(j)
				w.hold(a.Job, j, a.Plan)
			}
		}
	}
}

// shrink lets members go at once.
func (w *storm) shrink(id lockstep.JobID, j *stormJob, p *lockstep.Plan) {
	require.NoError(w.t, w.apply(lockstep.Event{Kind: lockstep.EventEvicted, Job: id, Attempt: j.attempt}))
	w.free(j)
	w.hold(id, j, p)
	j.leaving = false
}

// check compares what the parts say about each job.
func (w *storm) check() {
	for id, j := range w.alive { // the order does not matter: each stands alone
		st, ok := w.s.Status(id)
		require.True(w.t, ok, id)
		if st.Gang.Phase == gang.Gone && (st.Life.State.Terminal() || !j.running) && st.Life.State != lifecycle.Backoff && st.Life.State != lifecycle.Held {
			require.True(w.t, st.Life.State.Terminal(), "%s is %s", id, st.Life.State)
			require.Nil(w.t, j.plan, id)
			delete(w.alive, id)
			continue
		}
		require.True(w.t, agree(st.Gang.Phase, st.Life.State), "%s: gang says %s, lifecycle %s", id, st.Gang.Phase, st.Life.State)
		require.Equal(w.t, j.running, st.Lease.Job != "" && st.Gang.Phase != gang.Held, "%s: lease of a %s job", id, st.Gang.Phase)
	}
}

// agree says whether a job may be in both states at once.
func agree(p gang.Phase, s lifecycle.State) bool {
	switch p {
	case gang.Queued, gang.Awaiting:
		return s == lifecycle.Queued || s == lifecycle.Backoff
	case gang.Held:
		return s == lifecycle.Reserving
	case gang.Running, gang.Resizing:
		return s == lifecycle.Running
	case gang.Leaving, gang.Moving:
		return s == lifecycle.Draining || s == lifecycle.Lost || s == lifecycle.Cleaning
	}
	return s.Terminal() || s == lifecycle.Backoff || s == lifecycle.Held
}

// TestPartsAgreeInAStorm lets anything happen and checks that no device is held
// twice and that all parts say the same about every job; and that a restart in
// the middle of it decides the same.
func TestPartsAgreeInAStorm(t *testing.T) {
	seeds, steps := 100, 600
	if testing.Short() {
		seeds, steps = 5, 300
	}
	kinds := make(map[string]int)
	for seed := range seeds {
		cfg := scheduler.Config{
			Rule: scheduler.Rules()[seed%5], Inside: []scheduler.Inside{scheduler.Shortest, scheduler.First, scheduler.MostOwed}[seed%3],
			Tree: cluster(t, 4), Term: 10 * time.Minute, Round: time.Minute, Retain: 8, MaxAttempts: []int{0, 0, 0, 2}[seed%4],
		}
		if seed%3 == 0 && seed%2 == 1 {
			cfg.Rule, cfg.Floor = scheduler.LTGF, 200_000*(1+seed%7)
		}
		w := newStorm(t, uint64(seed), cfg)
		var saved []byte
		var from uint64
		for i := range steps {
			w.now = w.now.Add(time.Duration(w.rng.IntN(40)) * time.Second)
			w.happen()
			w.step()
			w.check()
			if i == steps/2 {
				var b bytes.Buffer
				require.NoError(t, w.s.Snapshot(&b))
				saved, from = b.Bytes(), w.s.Seq()
			}
		}
		s, err := scheduler.Restore(cfg, bytes.NewReader(saved))
		require.NoError(t, err)
		for _, e := range w.log[from:] {
			a, err := s.Replay(e)
			require.NoError(t, err)
			if len(a) > 0 {
				got, err := json.Marshal(a)
				require.NoError(t, err)
				require.Equal(t, string(w.out[e.Seq]), string(got), "seed %d entry %d", seed, e.Seq)
			}
		}
		for k, n := range w.kinds { // a sum, so the order does not matter
			kinds[k] += n
		}
	}
	for _, k := range []string{"reserve", "start", "release", "extend", "evict", "submit", "fail", "refuse", "down", "move", "resize"} {
		require.True(t, testing.Short() || kinds[k] > 0, k)
	}
	t.Logf("%v", kinds)
}
