package gang_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// same holds two Admissions to the same state, whatever their passes left out.
func same(t *testing.T, a, b *gang.Admission, verdicts bool) {
	t.Helper()
	ids := a.AppendJobs(nil)
	require.Equal(t, ids, b.AppendJobs(nil))
	for _, id := range ids {
		x, _ := a.State(id)
		y, _ := b.State(id)
		if verdicts {
			require.Equal(t, why(&x), why(&y), id)
		}
		x.Verdict, y.Verdict = lockstep.Verdict{}, lockstep.Verdict{}
		require.Equal(t, x, y, id)
		s, _ := forecast(a, id)
		u, _ := forecast(b, id)
		require.Equal(t, s, u, id)
	}
}

// why is the reason that a job waits. One that does not fit now, and would delay a
// reservation if it did, may say either.
func why(s *gang.Status) lockstep.Reason {
	switch s.Verdict.Reason {
	case lockstep.ReasonFragmented, lockstep.ReasonReserved:
		return lockstep.ReasonBusy
	}
	return s.Verdict.Reason
}

// Whom a pass leaves out makes no difference to what it decides: the same storm
// against an Admission that walks the whole order.
func TestLeavingOutDecidesWhatAFullWalkDecides(t *testing.T) {
	seeds := 120
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		for _, build := range []func(racks, nodes, devices int) cluster{reference, place} {
			w, all := newStorm(uint64(seed)+5000, 0, build), newStorm(uint64(seed)+5000, 0, build)
			all.a.WalkAll()
			if w.cfg.MaxAttempts > 0 { // a pass that leaves out gets further with so many
				continue
			}
			for range 20 {
				require.NoError(t, w.run(20))
				require.NoError(t, all.run(20))
				require.Equal(t, all.trace, w.trace, "seed %d, %+v", seed, w.cfg)
				same(t, all.a, w.a, false)
			}
			require.NoError(t, w.calm(), "seed %d", seed)
		}
	}
}

// The same where waiting gangs take room: what is known to be in vain is.
func TestLeavingOutDecidesWhatAFullWalkDecidesWhereRoomIsTaken(t *testing.T) {
	seeds := 80
	if testing.Short() {
		seeds = 16
	}
	for seed := range seeds {
		w, all := newTakingStorm(uint64(seed)+7000, 0, reference), newTakingStorm(uint64(seed)+7000, 0, reference)
		all.a.WalkAll()
		if w.cfg.MaxAttempts > 0 {
			continue
		}
		for range 30 {
			require.NoError(t, w.run(20))
			require.NoError(t, all.run(20))
			require.Equal(t, all.trace, w.trace, "seed %d, %+v", seed, w.cfg)
			same(t, all.a, w.a, false)
		}
		require.NoError(t, w.calm(), "seed %d", seed)
	}
}

// crowded drives two Admissions alike, with many jobs of few shapes.
type crowded struct {
	t       *testing.T
	rng     *rand.Rand
	a       [2]*gang.Admission // the second walks the whole order
	asked   [2]*counted
	now     int
	serial  int
	running []lockstep.JobID
	cfg     gang.Config
}

// counted is an orderer by priority, then ID, that counts proposals.
type counted struct {
	a    *gang.Admission
	list []lockstep.JobID
	n    int
}

func (o *counted) Begin(time.Time) {
	o.list = o.a.AppendJobs(o.list[:0], gang.Queued, gang.Running)
	slices.SortStableFunc(o.list, func(x, y lockstep.JobID) int { return cmp.Compare(x[:1], y[:1]) })
}

func (o *counted) Next() (lockstep.JobID, bool) {
	if len(o.list) == 0 {
		return "", false
	}
	id := o.list[0]
	o.list = o.list[1:]
	o.n++
	return id, true
}

func (o *counted) Outcome(lockstep.JobID, lockstep.Outcome) {}

func newCrowded(t *testing.T, seed uint64) *crowded {
	c := &crowded{t: t, rng: rand.New(rand.NewPCG(seed, 11))}
	own := c.rng.IntN(2) == 0
	cfg := gang.Config{
		StartAtOnce: true,
		Backfill:    []gang.Backfill{gang.EASY, gang.EASY, gang.EASY, gang.Strict, 3, gang.Conservative}[c.rng.IntN(6)],
	}
	onPlacement := c.rng.IntN(2) == 0
	limit := 24 + c.rng.IntN(40)
	limited := c.rng.IntN(3) == 0
	for i := range c.a {
		cfg.Placer = placertest.NewReference(2, 4, 4, 0)
		if onPlacement {
			cfg.Placer = place(2, 4, 4)
		}
		if cfg.Orderer, cfg.Quota = nil, nil; limited {
			cfg.Quota = newLedger(limit)
		}
		if own {
			c.asked[i] = &counted{}
			cfg.Orderer = c.asked[i]
		}
		a, err := gang.New(cfg)
		require.NoError(t, err)
		c.a[i] = a
		if own {
			c.asked[i].a = a
		}
	}
	c.a[1].WalkAll()
	c.cfg = cfg
	return c
}

func (c *crowded) apply(e lockstep.Event) {
	e.Time = at(c.now)
	require.Equal(c.t, fmt.Sprint(c.a[1].Apply(e)), fmt.Sprint(c.a[0].Apply(e)))
}

func (c *crowded) turn() {
	r := c.rng
	c.now += r.IntN(3)
	for range r.IntN(4) {
		c.serial++
		g := plain(lockstep.JobID(fmt.Sprintf("%d-%05d", r.IntN(3), c.serial)), []int{1, 1, 2, 4, 8, 20}[r.IntN(6)], []int{0, 5, 20, 60, 200}[r.IntN(5)])
		g.Roles[0].Demand.GPUs = 1 + r.IntN(2)
		g.Priority = lockstep.Priority(r.IntN(2))
		g.Capabilities = lockstep.Capabilities{Preemptible: r.IntN(3) > 0, Resizable: r.IntN(4) == 0}
		if r.IntN(4) == 0 {
			g.Roles[0].Max = g.Roles[0].Min + r.IntN(3)
		}
		if r.IntN(8) == 0 {
			g.Required = placertest.Rack
		}
		if r.IntN(40) == 0 {
			g.Required = "nowhere"
		}
		c.apply(lockstep.Event{Kind: lockstep.EventSubmit, Gang: g})
	}
	for _, id := range c.running {
		switch r.IntN(12) {
		case 0, 1:
			c.apply(lockstep.Event{Kind: lockstep.EventFinish, Job: id})
		case 2:
			c.apply(lockstep.Event{Kind: lockstep.EventDue, Job: id})
		case 3:
			c.apply(lockstep.Event{Kind: lockstep.EventEvicted, Job: id})
		}
	}
	x, err := c.a[0].Step(at(c.now))
	require.NoError(c.t, err)
	y, err := c.a[1].Step(at(c.now))
	require.NoError(c.t, err)
	require.Equal(c.t, len(y), len(x))
	for i := range x {
		if x[i].Plan != nil {
			require.Equal(c.t, y[i].Plan.Members, x[i].Plan.Members)
			x[i].Plan, y[i].Plan = nil, nil
		}
		require.Equal(c.t, y[i], x[i])
	}
	c.running = c.a[0].AppendJobs(c.running[:0], gang.Running, gang.Leaving, gang.Moving, gang.Resizing)
}

func TestLeavingOutDecidesTheSameWithManyOfAShape(t *testing.T) {
	seeds, turns := uint64(20), 160
	if testing.Short() {
		seeds, turns = 12, 120
	}
	var asked, all int
	for seed := range seeds {
		c := newCrowded(t, seed)
		for n := range turns {
			c.turn()
			if n%10 == 0 {
				// Strict tries nobody behind one that is blocked, and quota is looked
				// at when a verdict is asked for.
				same(t, c.a[1], c.a[0], c.cfg.Backfill != gang.Strict && c.cfg.Quota == nil)
			}
		}
		if c.asked[0] != nil {
			asked += c.asked[0].n
			all += c.asked[1].n
		}
	}
	t.Logf("%d proposals in place of %d", asked, all)
	require.Less(t, asked, all)
}
