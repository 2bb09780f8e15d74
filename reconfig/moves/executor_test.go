package moves_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/moves/movestest"
	"github.com/lockstep-gpu/lockstep/reconfig/resize"
)

// host acts on a driver's behalf, in any order, with accidents.
type host struct {
	t        require.TestingT
	rng      *rand.Rand
	x        *transition
	fake     *movestest.Fake
	driver   *moves.Driver
	odds     int // one accident in so many actions; 0 for none
	prepared map[lockstep.DeviceID]bool
	commits  bool
}

// report tells the driver, which sometimes dies and is restored in between.
func (h *host) report(r moves.Report) []moves.Action {
	out, err := h.driver.Step(r)
	require.NoError(h.t, err)
	if h.rng.IntN(10) == 0 {
		var b bytes.Buffer
		require.NoError(h.t, h.driver.Snapshot(&b))
		h.driver, err = moves.RestoreDriver(&b, h.x.moves, h.x.to)
		require.NoError(h.t, err)
		out, err = h.driver.Step(moves.Report{})
		require.NoError(h.t, err)
	}
	return out
}

// accident does something bad, and returns what the driver says to it.
func (h *host) accident(a moves.Action) []moves.Action {
	kind := h.rng.IntN(4)
	if len(h.driver.Members()) < 6 {
		kind = 0 // losing one would leave too few for a plan
	}
	switch kind {
	case 0:
		if h.rng.IntN(2) == 0 { // it was done, but nobody heard of it
			_ = h.fake.Do(a)
		}
		return h.report(moves.Report{Kind: moves.ReportFailed, Device: a.Device, Action: a})
	case 1:
		return h.report(moves.Report{Kind: moves.ReportGiveUp})
	}
	members := h.driver.Members()
	id := members[h.rng.IntN(len(members))]
	h.lose(id)
	return h.report(moves.Report{Kind: moves.ReportLost, Device: id})
}

func (h *host) lose(id lockstep.DeviceID) {
	h.fake.Lose(id)
	for i := range h.x.devs {
		if h.x.devs[i].ID == id {
			h.x.devs[i].State, h.x.devs[i].Speed = reconfig.Down, 0
		}
	}
}

// run goes on until nothing is outstanding.
func (h *host) run() moves.DriverState {
	queue := h.report(moves.Report{})
	for len(queue) > 0 {
		i := h.rng.IntN(len(queue))
		a := queue[i]
		queue = slices.Delete(queue, i, i+1)
		if !h.driver.Expects(a) {
			continue
		}
		if h.odds > 0 && h.rng.IntN(h.odds) == 0 {
			queue = append(queue, h.accident(a)...)
			if h.driver.Expects(a) {
				queue = append(queue, a)
			}
			continue
		}
		queue = append(queue, h.act(a)...)
	}
	return h.driver.State()
}

// act does an action, sometimes twice.
func (h *host) act(a moves.Action) []moves.Action {
	if a.Kind == moves.DoCommit && !h.commits {
		h.commits = true
		for _, id := range h.driver.Members() {
			require.True(h.t, h.prepared[id], "a commit goes out when all have prepared")
		}
	}
	err := h.fake.Do(a)
	if h.rng.IntN(5) == 0 {
		again := h.fake.Do(a)
		require.Equal(h.t, err == nil, again == nil, "%v twice", a)
	}
	r := moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a}
	switch {
	case errors.Is(err, moves.ErrGone):
		r.Kind = moves.ReportLost
	case err != nil:
		require.Positive(h.t, h.odds, "%v: %v", a, err)
		r.Kind = moves.ReportFailed
	case a.Kind == moves.DoPrepare:
		h.prepared[a.Device] = true
	}
	return h.report(r)
}

func newHost(t require.TestingT, rng *rand.Rand, x *transition, f *movestest.Fake, odds int) *host {
	d, err := moves.NewDriver(x.moves, x.to)
	require.NoError(t, err)
	return &host{t: t, rng: rng, x: x, fake: f, driver: d, odds: odds, prepared: map[lockstep.DeviceID]bool{}}
}

func TestAllActOnOneDigestOrNoneAndHaltsRollForward(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 100
	}
	ends := map[moves.DriverState]int{}
	stuck, forward, hosted := 0, 0, 0
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 4))
		x := newTransition(t, rng, tinyFleet(4, 4, 2), seed%4 == 0)
		f := x.fake()
		h := newHost(t, rng, &x, f, 10+rng.IntN(60))
		state := h.run()
		ends[state]++
		switch state {
		case moves.Done:
			x.requireHeld(t, f, x.want, x.restored, "done")
		case moves.Aborted:
			require.False(t, h.commits, "nobody has committed")
			x.requireHeld(t, f, x.live(x.have), x.step, "aborted")
		case moves.Halted:
			ok, host := x.rollForward(t, rng, h)
			if ok {
				forward++
			} else {
				stuck++
			}
			if host {
				hosted++
			}
		case moves.Aborting, moves.Halting:
			// The last one to answer has failed in it; a host would ask again.
		default:
			require.Fail(t, "ends nowhere", "seed %d: %s", seed, state)
		}
	}
	t.Logf("ends %v; %d halts went on with other moves, %d of them also from host copies; for %d the next plan did not fit", ends, forward, hosted, stuck)
	require.NotZero(t, forward)
	require.NotZero(t, ends[moves.Aborted])
}

// live returns the holdings of devices that are not down.
func (x *transition) live(list []moves.Holding) []moves.Holding {
	return slices.DeleteFunc(slices.Clone(list), func(h moves.Holding) bool {
		return slices.ContainsFunc(x.devs, func(d reconfig.Device) bool { return d.ID == h.Device && d.State == reconfig.Down })
	})
}

// rollForward goes on from a halt to another plan on the devices that are left, unless
// that does not fit them, and says whether copies in host memory were of use.
func (x *transition) rollForward(t require.TestingT, rng *rand.Rand, h *host) (ok, hosted bool) {
	done, begun := h.driver.Progress()
	now, err := x.moves.After(x.have, done, begun)
	require.NoError(t, err)
	step := x.step
	if x.moves.Restore && begun > 0 {
		step = x.restored
	}
	x.requireHeld(t, h.fake, x.live(now), step, "halted")
	next := *x
	next.have, next.step = now, step
	next.to = x.to // if nobody in it was lost
	for _, d := range x.devs {
		if d.State != reconfig.Up && slices.ContainsFunc(x.want, func(h moves.Holding) bool { return h.Device == d.ID }) {
			next.to = randomPlan(rng, x.job, x.devs)
			break
		}
	}
	next.want, err = moves.Held(x.job, next.to)
	require.NoError(t, err)
	next.moves, err = moves.Between(x.job, x.devs, now, next.to, moves.Options{CheckpointCurrent: x.current})
	if errors.Is(err, reconfig.ErrInfeasible) {
		return false, false
	}
	require.NoError(t, err)
	for _, holding := range now {
		hosted = hosted || len(holding.Host) > 0 && !next.moves.Restore
	}
	// The checkpoint is that of before: of this step, or of an earlier one.
	if next.restored = step; next.moves.Restore {
		next.restored = x.restored
		if !x.moves.Restore {
			next.restored = x.step
		}
	}
	for _, d := range x.devs {
		h.fake.Derive(d.ID, next.moves)
	}
	after := newHost(t, rng, &next, h.fake, 0)
	require.Equal(t, moves.Done, after.run())
	next.requireHeld(t, h.fake, next.want, next.restored, "rolled forward")
	return true, hosted
}

func TestOneMemberWithOtherMovesStopsAll(t *testing.T) {
	x := newTransition(t, rand.New(rand.NewPCG(5, 5)), tinyFleet(4, 4, 2), true)
	f := x.fake()
	d, err := moves.NewDriver(x.moves, x.to)
	require.NoError(t, err)
	devs := slices.Clone(x.devs) // one member has not yet heard of a fault
	other, err := moves.Between(x.job, devs, x.have, x.old, moves.Options{})
	if err != nil {
		other = &moves.Sequence{}
		other.Digest = other.Sum()
	}
	members := d.Members()
	f.Derive(members[len(members)-1], other)
	state, err := moves.Drive(d, f)
	require.NoError(t, err)
	require.Equal(t, moves.Aborted, state)
	x.requireHeld(t, f, x.live(x.have), x.step, "aborted")
}

func TestMembersThatStandElsewhereInTheDataHaveOtherMoves(t *testing.T) {
	x := newTransition(t, rand.New(rand.NewPCG(6, 5)), tinyFleet(4, 4, 2), true)
	at := func(c resize.Cursor) reconfig.Digest {
		m, err := moves.Between(x.job, x.devs, x.have, x.to, moves.Options{CheckpointCurrent: x.current, Cursor: c})
		require.NoError(t, err)
		return m.Digest
	}
	require.Equal(t, x.moves.Digest, at(resize.Cursor{}))
	require.NotEqual(t, at(resize.Cursor{Step: 1}), at(resize.Cursor{Step: 2}))
}

func TestDriverRefusesWhatDoesNotFit(t *testing.T) {
	x := newTransition(t, rand.New(rand.NewPCG(7, 5)), tinyFleet(4, 4, 2), true)
	_, err := moves.NewDriver(x.moves, x.old)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	changed := *x.moves
	changed.Kept++
	_, err = moves.NewDriver(&changed, x.to)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "the digest is of other moves")
	_, err = moves.NewDriver(nil, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)

	d, err := moves.NewDriver(x.moves, x.to)
	require.NoError(t, err)
	asked, err := d.Step(moves.Report{})
	require.NoError(t, err)
	require.Len(t, asked, len(d.Members()))
	_, err = d.Step(moves.Report{Kind: moves.ReportDone, Device: "nobody"})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = d.Step(moves.Report{Kind: "rumour", Device: asked[0].Device})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	early := asked[0]
	early.Kind = moves.DoCommit
	_, err = d.Step(moves.Report{Kind: moves.ReportDone, Device: early.Device, Action: early})
	require.ErrorIs(t, err, lockstep.ErrStale)
	done := moves.Report{Kind: moves.ReportDone, Device: asked[0].Device, Action: asked[0]}
	_, err = d.Step(done)
	require.NoError(t, err)
	_, err = d.Step(done)
	require.ErrorIs(t, err, lockstep.ErrStale, "an answer counts once")
	require.Equal(t, moves.Preparing, d.State())
}

func TestLostDonorThatIsDoneStopsNothing(t *testing.T) {
	for seed := range uint64(60) {
		x := newTransition(t, rand.New(rand.NewPCG(seed, 6)), tinyFleet(4, 4, 2), true)
		donor := lockstep.DeviceID("")
		roles := map[lockstep.DeviceID]bool{}
		for _, h := range x.want {
			roles[h.Device] = true
		}
		d, err := moves.NewDriver(x.moves, x.to)
		require.NoError(t, err)
		for _, id := range d.Members() {
			if !roles[id] {
				donor = id
			}
		}
		if donor == "" {
			continue
		}
		f := x.fake()
		queue, err := d.Step(moves.Report{})
		require.NoError(t, err)
		for len(queue) > 0 {
			a := queue[0]
			if a.Kind == moves.DoFinish && a.Device == donor {
				f.Lose(donor)
			}
			queue = queue[1:]
			r := moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a}
			if f.Do(a) != nil {
				r.Kind = moves.ReportLost
			}
			more, err := d.Step(r)
			require.NoError(t, err)
			queue = append(queue, more...)
		}
		require.Equal(t, moves.Done, d.State())
	}
}

func FuzzRestoreDriver(f *testing.F) {
	x := newTransition(f, rand.New(rand.NewPCG(8, 5)), tinyFleet(4, 4, 2), true)
	d, err := moves.NewDriver(x.moves, x.to)
	require.NoError(f, err)
	var b bytes.Buffer
	require.NoError(f, d.Snapshot(&b))
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()/2])
	f.Add([]byte("lockstep/reconfig/moves 1 00\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := moves.RestoreDriver(bytes.NewReader(data), x.moves, x.to)
		if err != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, d.Snapshot(&again))
		require.Equal(t, data, again.Bytes())
		_, err = d.Step(moves.Report{})
		require.NoError(t, err)
	})
}
