package sharing

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func lanes(t testing.TB, cfg LaneConfig) *Lanes {
	t.Helper()
	l, err := NewLanes(cfg)
	require.NoError(t, err)
	return l
}

func join(t testing.TB, l *Lanes, s Session) lockstep.Verdict {
	t.Helper()
	v, err := l.Join(s)
	require.NoError(t, err)
	return v
}

func laneOf(t testing.TB, l *Lanes, id lockstep.JobID) int {
	t.Helper()
	n, ok := l.Lane(id)
	require.True(t, ok)
	return n
}

func TestSessionsGetALaneOfTheirOwnWhileThereIsRoom(t *testing.T) {
	l := lanes(t, LaneConfig{Capacity: 100 * mib})
	require.True(t, join(t, l, Session{ID: "a", Persistent: 10 * mib, Ephemeral: 30 * mib}).Feasible)
	require.True(t, join(t, l, Session{ID: "b", Persistent: 5 * mib, Ephemeral: 20 * mib}).Feasible)
	require.Equal(t, 35*mib, l.Free())
	require.True(t, join(t, l, Session{ID: "c", Persistent: 10 * mib, Ephemeral: 26 * mib}).Feasible)
	require.Equal(t, []int{0, 1, 0}, []int{laneOf(t, l, "a"), laneOf(t, l, "b"), laneOf(t, l, "c")}, "the smallest that is large enough")
	require.True(t, join(t, l, Session{ID: "d", Persistent: 5 * mib, Ephemeral: 50 * mib}).Feasible)
	require.Equal(t, 0, laneOf(t, l, "d"), "the largest grows by 20")
	require.Equal(t, lockstep.Bytes(0), l.Free())
	require.Equal(t, lockstep.Verdict{
		Reason: lockstep.ReasonBusy, Want: 1, Resource: lockstep.ResourceGPUMemory, Requested: int64(mib), Available: 0,
	}, join(t, l, Session{ID: "e", Persistent: 1}))
	require.True(t, join(t, l, Session{ID: "e", Ephemeral: 1}).Feasible, "it keeps nothing")
	require.Equal(t, 1, laneOf(t, l, "e"))
	require.Equal(t, lockstep.ReasonCapacity, join(t, l, Session{ID: "f", Persistent: 60 * mib, Ephemeral: 41 * mib}).Reason)

	require.NoError(t, l.Leave(at(0), "d"))
	require.Equal(t, 25*mib, l.Free(), "its lane shrinks to what a and c need")
	require.NoError(t, l.Leave(at(0), "a"))
	require.NoError(t, l.Leave(at(0), "c"))
	require.True(t, join(t, l, Session{ID: "g", Ephemeral: 70 * mib}).Feasible)
	require.Equal(t, 0, laneOf(t, l, "g"), "numbers are used again")
}

func TestLanesMayBeLimited(t *testing.T) {
	l := lanes(t, LaneConfig{Capacity: 100 * mib, Lanes: 1})
	require.True(t, join(t, l, Session{ID: "a", Ephemeral: 10 * mib}).Feasible)
	require.True(t, join(t, l, Session{ID: "b", Ephemeral: 20 * mib}).Feasible)
	require.Equal(t, 0, laneOf(t, l, "b"))
	require.Equal(t, 80*mib, l.Free())
}

// run lets each session compute for its time and then load for its time, starts what Next says, and returns for how long
// each computed and for how long nobody did.
func run(t *testing.T, l *Lanes, work map[lockstep.JobID][2]int, end int) (busy map[lockstep.JobID]int, idle int) {
	t.Helper()
	busy = map[lockstep.JobID]int{}
	due := map[lockstep.JobID]int{} // when a session's computing or loading is over
	computes := map[lockstep.JobID]bool{}
	ids := make([]lockstep.JobID, 0, len(work))
	for id := range work { // in any order: sorted below
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for now := range end {
		for _, id := range ids {
			if due[id] != now {
				continue
			}
			if computes[id] {
				computes[id] = false
				require.NoError(t, l.Pause(at(now), id))
				due[id] = now + work[id][1]
			}
			if due[id] == now {
				require.NoError(t, l.Ready(at(now), id))
				due[id] = -1
			}
		}
		starts, err := l.Next(at(now), nil)
		require.NoError(t, err)
		for _, id := range starts {
			computes[id] = true
			due[id] = now + work[id][0]
		}
		running := false
		for _, id := range ids {
			if computes[id] {
				busy[id]++
				running = true
			}
		}
		if !running {
			idle++
		}
	}
	return busy, idle
}

func TestOthersFillTheStallsOfDataLoading(t *testing.T) {
	l := lanes(t, LaneConfig{Capacity: 100 * mib, Lanes: 1})
	join(t, l, Session{ID: "a", Persistent: 10 * mib, Ephemeral: 50 * mib})
	busy, idle := run(t, l, map[lockstep.JobID][2]int{"a": {3, 3}}, 600)
	require.Equal(t, 300, busy["a"])
	require.Equal(t, 300, idle)

	l = lanes(t, LaneConfig{Capacity: 100 * mib, Lanes: 1})
	join(t, l, Session{ID: "a", Persistent: 10 * mib, Ephemeral: 50 * mib})
	join(t, l, Session{ID: "b", Persistent: 10 * mib, Ephemeral: 50 * mib})
	busy, idle = run(t, l, map[lockstep.JobID][2]int{"a": {3, 3}, "b": {3, 3}}, 600)
	require.Zero(t, idle)
	require.Equal(t, 300, busy["a"])
	require.Equal(t, 300, busy["b"])
}

func TestSessionsOfALaneShareItsTime(t *testing.T) {
	l := lanes(t, LaneConfig{Capacity: 100 * mib, Lanes: 1})
	for _, id := range []lockstep.JobID{"a", "b", "c"} {
		join(t, l, Session{ID: id, Ephemeral: mib})
	}
	busy, idle := run(t, l, map[lockstep.JobID][2]int{"a": {1, 0}, "b": {2, 0}, "c": {7, 0}}, 2100)
	require.Zero(t, idle)
	for id, n := range busy { // in any order: each by itself
		require.InDelta(t, 700, n, 8, id)
	}
}

func TestWhoComesBackDoesNotMakeUpForItsPause(t *testing.T) {
	l := lanes(t, LaneConfig{Capacity: 100 * mib, Lanes: 1})
	join(t, l, Session{ID: "a", Ephemeral: mib})
	join(t, l, Session{ID: "b", Ephemeral: mib})
	_, _ = run(t, l, map[lockstep.JobID][2]int{"b": {1, 0}}, 1000) // a has nothing to do
	busy := map[lockstep.JobID]int{}
	require.NoError(t, l.Ready(at(1000), "a"))
	for now := 1000; now < 1100; now++ {
		for _, id := range []lockstep.JobID{"a", "b"} {
			if l.sessions[id].phase == running {
				require.NoError(t, l.Pause(at(now), id))
				require.NoError(t, l.Ready(at(now), id))
			}
		}
		ids, err := l.Next(at(now), nil)
		require.NoError(t, err)
		require.Len(t, ids, 1)
		busy[ids[0]]++
	}
	require.InDelta(t, 50, busy["a"], 1)
	require.InDelta(t, 50, busy["b"], 1)
}

func TestTurnsGoByClassPriorityTimeAndName(t *testing.T) {
	l := lanes(t, LaneConfig{Capacity: 100 * mib, Lanes: 1})
	for _, s := range []Session{
		{ID: "a", Opportunistic: true, Priority: 9}, {ID: "b"}, {ID: "c", Priority: 1}, {ID: "d", Priority: 1}, {ID: "e", Priority: 1},
	} {
		require.True(t, join(t, l, s).Feasible)
		require.NoError(t, l.Ready(at(0), s.ID))
	}
	var order []lockstep.JobID
	for now := range 5 {
		ids, err := l.Next(at(now), nil)
		require.NoError(t, err)
		require.Len(t, ids, 1)
		again, err := l.Next(at(now), nil)
		require.NoError(t, err)
		require.Empty(t, again, "one at a time")
		order = append(order, ids[0])
		require.ErrorIs(t, l.Ready(at(now), ids[0]), lockstep.ErrConflict)
		require.NoError(t, l.Pause(at(now+1), ids[0]))
		require.ErrorIs(t, l.Pause(at(now+1), ids[0]), lockstep.ErrConflict)
	}
	require.Equal(t, []lockstep.JobID{"c", "d", "e", "b", "a"}, order)
}

func TestLanesRefuseBadInput(t *testing.T) {
	_, err := NewLanes(LaneConfig{Capacity: -1, Lanes: -1})
	requireFields(t, err, "Capacity", "Lanes")
	_, err = NewLanes(LaneConfig{Capacity: 1<<50 + 1, Lanes: 4097})
	requireFields(t, err, "Capacity", "Lanes")
	l := lanes(t, LaneConfig{Capacity: 100 * mib})
	_, err = l.Join(Session{Persistent: -1, Ephemeral: -1})
	requireFields(t, err, "ID", "Persistent", "Ephemeral")
	_, err = l.Join(Session{ID: "a", Persistent: 1<<50 + 1, Ephemeral: 1<<50 + 1})
	requireFields(t, err, "Persistent", "Ephemeral")
	require.True(t, join(t, l, Session{ID: "a"}).Feasible)
	_, err = l.Join(Session{ID: "a"})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.NoError(t, l.Ready(at(5), "a"))
	before := l.image()
	for _, err := range []error{l.Ready(at(5), "b"), l.Pause(at(5), "b"), l.Leave(at(5), "b")} {
		require.ErrorIs(t, err, lockstep.ErrUnknown)
	}
	for _, err := range []error{l.Ready(at(4), "a"), l.Pause(at(4), "a"), l.Leave(at(4), "a")} {
		require.ErrorIs(t, err, lockstep.ErrPast)
	}
	_, err = l.Next(at(4), nil)
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = l.Next(time.Time{}, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, before, l.image())
	_, ok := l.Lane("b")
	require.False(t, ok)
	for i := range 4095 {
		require.True(t, join(t, l, Session{ID: lockstep.JobID(strconv.Itoa(i))}).Feasible)
	}
	_, err = l.Join(Session{ID: "x"})
	require.ErrorIs(t, err, lockstep.ErrConflict)
}

// checkLanes recomputes what lanes promise.
func checkLanes(t testing.TB, l *Lanes) {
	t.Helper()
	var persistent, ephemeral lockstep.Bytes
	members, open := 0, 0
	for i := range l.lanes {
		n := &l.lanes[i]
		var size lockstep.Bytes
		runs := 0
		for _, s := range n.sessions {
			require.Equal(t, i, s.lane)
			require.Same(t, s, l.sessions[s.ID])
			persistent += s.Persistent
			size = max(size, s.Ephemeral)
			if s.phase == running {
				runs++
				require.Same(t, s, n.running)
			}
		}
		require.LessOrEqual(t, runs, 1)
		require.Equal(t, runs == 1, n.running != nil)
		require.Equal(t, size, n.size)
		ephemeral += size
		members += len(n.sessions)
		if len(n.sessions) > 0 {
			open++
		}
		require.True(t, slices.IsSortedFunc(n.sessions, func(a, b *session) int { return bytes.Compare([]byte(a.ID), []byte(b.ID)) }))
	}
	require.Len(t, l.sessions, members)
	require.Equal(t, l.capacity-persistent-ephemeral, l.Free())
	require.GreaterOrEqual(t, l.Free(), lockstep.Bytes(0), "the safety condition")
	if l.cfg.Lanes > 0 {
		require.LessOrEqual(t, open, l.cfg.Lanes)
	}
}

// couldJoin tries every lane there is, and a new one, by the safety condition.
func couldJoin(l *Lanes, s Session) bool {
	sizes, open := []lockstep.Bytes{}, 0
	left := l.capacity - up(s.Persistent)
	for i := range l.lanes {
		sizes = append(sizes, l.lanes[i].size)
		if len(l.lanes[i].sessions) > 0 {
			open++
		}
		for _, t := range l.lanes[i].sessions {
			left -= t.Persistent
		}
	}
	if l.cfg.Lanes == 0 || open < l.cfg.Lanes {
		sizes = append(sizes, 0)
	}
	for j := range sizes {
		if j < len(l.lanes) && len(l.lanes[j].sessions) == 0 && l.cfg.Lanes != 0 && open >= l.cfg.Lanes {
			continue // closed, and none may be opened
		}
		total := lockstep.Bytes(0)
		for i, size := range sizes {
			if i == j {
				size = max(size, up(s.Ephemeral))
			}
			total += size
		}
		if total <= left {
			return true
		}
	}
	return false
}

func TestLanesKeepTheirPromisesUnderRandomUse(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 14))
		l := lanes(t, LaneConfig{Capacity: lockstep.Bytes(20+rng.IntN(100)) * mib, Lanes: rng.IntN(4)})
		now := 0
		for range 200 {
			now += rng.IntN(3)
			id := lockstep.JobID(strconv.Itoa(rng.IntN(8)))
			switch rng.IntN(6) {
			case 0, 1:
				s := Session{ID: id, Persistent: lockstep.Bytes(rng.Int64N(int64(20 * mib))), Ephemeral: lockstep.Bytes(rng.Int64N(int64(60 * mib))), Opportunistic: rng.IntN(3) == 0, Priority: lockstep.Priority(rng.IntN(2))}
				want := couldJoin(l, s)
				if v, err := l.Join(s); err == nil {
					require.Equal(t, want, v.Feasible)
				}
			case 2:
				_ = l.Leave(at(now), id)
			case 3:
				_ = l.Ready(at(now), id)
			case 4:
				_ = l.Pause(at(now), id)
			default:
				_, err := l.Next(at(now), nil)
				require.NoError(t, err)
				for i := range l.lanes {
					waits := slices.ContainsFunc(l.lanes[i].sessions, func(s *session) bool { return s.phase == ready })
					require.True(t, !waits || l.lanes[i].running != nil, "a lane stands idle while someone waits")
				}
			}
			checkLanes(t, l)
			if rng.IntN(8) == 0 {
				l = reloadLanes(t, l)
			}
		}
	}
}

func reloadLanes(t testing.TB, l *Lanes) *Lanes {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, l.Snapshot(&b))
	saved := slices.Clone(b.Bytes())
	again, err := RestoreLanes(&b)
	require.NoError(t, err)
	require.Equal(t, l.image(), again.image())
	checkLanes(t, again)
	var c bytes.Buffer
	require.NoError(t, again.Snapshot(&c))
	require.Equal(t, saved, c.Bytes())
	return again
}
