package liveness

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func silence(j *job, from, to int) {
	for n := from; n < to; n++ {
		j.mute[n] = true
	}
}

// TestARackThatFallsSilentIsAPartition, and is over when it returns.
func TestARackThatFallsSilentIsAPartition(t *testing.T) {
	j := newJob(t, Config{Domain: racks}, 30, 1)
	require.Contains(t, j.run(10*sec), "node n29: unknown -> alive")
	silence(j, 10, 20)
	told := j.run(minute)
	require.Equal(t, 1, strings.Count(told, "partition"))
	require.Contains(t, told, "partition suspected: rack-1: 10 of 10 silent (cohort)")
	require.Equal(t, 10, strings.Count(told, "node n"), "suspect, and nobody dead")
	require.NotContains(t, told, "dead")
	require.Equal(t, 30, j.c.Faults().Participants)
	j.mute = map[int]bool{15: true}
	told = j.run(5 * sec)
	require.Contains(t, told, "partition resolved: rack-1: 1 of 10 silent (beating)")
	told += j.run(20 * sec)
	for n := 10; n < 20; n++ {
		require.Equal(t, n != 15, strings.Contains(told, fmt.Sprintf("node n%d: suspect -> alive (beating)", n)))
	}
	require.Contains(t, told, "node n15: suspect -> dead (silent)", "who stays away dies soon after")
}

func TestAPartitionEndsAfterItsHold(t *testing.T) {
	j := newJob(t, Config{Domain: racks, Hold: 2 * minute}, 20, 1)
	j.run(10 * sec)
	silence(j, 10, 15) // half of the rack is not enough
	require.NotContains(t, j.run(20*sec), "partition")
	require.Equal(t, 15, j.c.Faults().Participants)
	j = newJob(t, Config{Domain: racks, Hold: 2 * minute}, 20, 1)
	j.run(10 * sec)
	silence(j, 10, 20)
	told := j.run(2*minute + 10*sec)
	require.Contains(t, told, "partition suspected: rack-1: 10 of 10 silent (cohort)")
	require.Contains(t, told, "partition resolved: rack-1: ")
	require.Contains(t, told, "(expired)")
	require.Equal(t, 10, j.c.Faults().Participants)
	require.Equal(t, 1, strings.Count(told, "partition suspected"))
}

// TestAWitnessConfirms: what is evidence needs no hold, either way.
func TestAWitnessConfirms(t *testing.T) {
	j := newJob(t, Config{Domain: racks}, 20, 1)
	j.run(10 * sec)
	silence(j, 10, 20)
	j.run(10 * sec)
	for n := 10; n < 20; n++ {
		_, err := j.c.Evidence(at(j.now), nodeID(n), 1, Exited)
		require.NoError(t, err)
	}
	told := say(t, j.c.Check, j.now)
	require.Contains(t, told, "partition resolved: rack-1: 0 of 0 silent (confirmed)")
	require.Equal(t, 10, strings.Count(told, "-> dead (exited)"))
	// The other way: a lone node that a witness sees does not die of silence.
	j.mute[3] = true
	_, err := j.c.Evidence(at(j.now), "n03", 1, Seen)
	require.NoError(t, err)
	require.Equal(t, "node n03: alive -> suspect (silent); rank 3: alive -> suspect (node)", j.run(9*minute))
	require.Equal(t, "node n03: suspect -> dead (silent); rank 3: suspect -> dead (node)", j.run(2*minute))
}

// TestTheWholeComesBeforeItsDomains: when most nodes are silent it is the observer.
func TestTheWholeComesBeforeItsDomains(t *testing.T) {
	j := newJob(t, Config{Domain: racks}, 30, 1)
	j.run(10 * sec)
	silence(j, 0, 20)
	told := j.run(30 * sec)
	require.Contains(t, told, "partition suspected: all nodes: 20 of 30 silent (cohort)")
	require.Equal(t, 1, strings.Count(told, "partition"))
	require.NotContains(t, told, "dead")
}

// TestNobodyDiesBeforeAPartitionIsSeen: beats come at any time within the interval, so
// that the first is dead while the last is hardly late.
func TestNobodyDiesBeforeAPartitionIsSeen(t *testing.T) {
	for seed := range 40 {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		cfg := Config{Domain: racks, Pause: []time.Duration{0, NoPause}[seed%2]}
		c, err := NewCoordinator(cfg)
		require.NoError(t, err)
		type due struct {
			at   time.Duration
			node int
		}
		var reports []due
		cut := 20*sec + time.Duration(rng.Int64N(int64(sec)))
		for n := range 20 {
			require.NoError(t, c.Join(t0, nodeID(n), 1, []Member{{Rank: n, Incarnation: 1}}))
			for d := time.Duration(rng.Int64N(int64(sec))); d < 40*sec; d += sec + time.Duration(rng.NormFloat64()*float64(20*time.Millisecond)) {
				if n < 10 || d < cut {
					reports = append(reports, due{d, n})
				}
			}
		}
		slices.SortFunc(reports, func(a, b due) int { return cmp.Compare(a.at, b.at) })
		told := ""
		for i, r := range reports {
			_, err := c.Report(at(r.at), Report{Node: nodeID(r.node), Incarnation: 1, Sequence: uint64(i), Members: []Member{{Rank: r.node, Incarnation: 1, State: Alive, Reason: reasonBeating, Since: t0}}})
			require.NoError(t, err)
			told += say(t, c.Check, r.at)
		}
		require.Contains(t, told, "partition suspected: rack-1", "seed %d", seed)
		require.NotContains(t, told, "dead", "seed %d", seed)
	}
}

func TestNodesThatDieOneByOneAreNoPartition(t *testing.T) {
	j := newJob(t, Config{Domain: racks}, 20, 1)
	j.run(10 * sec)
	told := ""
	for n := range 15 {
		j.mute[n] = true
		told += j.run(20 * sec)
	}
	require.NotContains(t, told, "partition")
	require.Equal(t, 5, j.c.Faults().Participants)
}

// TestComplaint3WhatTheMonitorDoesNotNameIsUnknown: a monitor that lost its ranks does not make
// them healthy (k8s-device-plugin #111, #1641).
func TestComplaint3WhatTheMonitorDoesNotNameIsUnknown(t *testing.T) {
	j := newJob(t, Config{}, 2, 2)
	j.run(10 * sec)
	out, err := j.c.Report(at(j.now), Report{Node: "n00", Incarnation: 1, Sequence: 1 << 63, Members: []Member{
		{Rank: 0, Incarnation: 7, State: Alive, Reason: reasonBeating, Since: t0},
	}})
	require.NoError(t, err)
	require.Equal(t, Accepted, out)
	require.Equal(t, "rank 0: alive -> unknown (unreported); rank 1: alive -> unknown (unreported)", say(t, j.c.Check, j.now))
	require.Equal(t, []int{2, 3}, j.c.AppendParticipants(nil))
}

// TestTheRanksOfANodeThatJoinedAnewAreUnknown until its monitor speaks of them: what
// the one before said of them says nothing.
func TestTheRanksOfANodeThatJoinedAnewAreUnknown(t *testing.T) {
	j := newJob(t, Config{}, 4, 2)
	j.run(10 * sec)
	require.NoError(t, j.c.Join(at(j.now), "n01", 2, nil))
	require.Equal(t, "node n01: alive -> unknown (joined); rank 2: alive -> unknown (unreported); rank 3: alive -> unknown (unreported)", say(t, j.c.Check, j.now))
	require.Equal(t, 6, j.c.Faults().Participants)
	r := j.mons[1].Report()
	r.Incarnation = 2
	_, err := j.c.Report(at(j.now), r)
	require.NoError(t, err)
	require.Equal(t, "node n01: unknown -> alive (beating); rank 2: unknown -> alive (beating); rank 3: unknown -> alive (beating)", say(t, j.c.Check, j.now))
}

// TestACrashLoopIsToldEachTime: a rank that joins anew and dies again before anybody
// looked is news, and what was told of the one before is not said of it.
func TestACrashLoopIsToldEachTime(t *testing.T) {
	j := newJob(t, Config{}, 4, 1)
	j.run(10 * sec)
	m := j.mons[1]
	for inc := uint64(1); inc < 4; inc++ {
		if inc > 1 {
			require.NoError(t, m.Join(at(j.now), 1, inc))
			require.NoError(t, j.c.Join(at(j.now), "n01", 1, []Member{{Rank: 1, Incarnation: inc}}))
			require.Equal(t, inc-1, m.Report().Members[0].Incarnation, "nothing was told of the new one")
			_, err := j.c.Report(at(j.now), m.Report())
			require.NoError(t, err)
		}
		_, err := m.Evidence(at(j.now), 1, inc, Exited)
		require.NoError(t, err)
		require.Contains(t, say(t, m.Check, j.now), "-> dead (exited)")
		_, err = j.c.Report(at(j.now), m.Report())
		require.NoError(t, err)
		before := j.c.Faults()
		require.Contains(t, say(t, j.c.Check, j.now), "rank 1: ")
		require.Equal(t, before.Epoch+1, j.c.Faults().Epoch)
		require.Equal(t, inc, j.c.Faults().Faults[0].Incarnation)
		require.Equal(t, 3, j.c.Faults().Participants)
	}
	// A node that does so as well.
	for inc := uint64(1); inc < 3; inc++ {
		_, err := j.c.Evidence(at(j.now), "n02", inc, Exited)
		require.NoError(t, err)
		require.Contains(t, say(t, j.c.Check, j.now), "-> dead (exited)")
		require.NoError(t, j.c.Join(at(j.now), "n02", inc+1, nil))
	}
}

// TestEpochsDoNotOverflow, whatever somebody says was told.
func TestEpochsDoNotOverflow(t *testing.T) {
	j := newJob(t, Config{}, 4, 1)
	j.run(10 * sec)
	j.c.Raise(math.MaxUint64)
	j.c.Raise(1)
	for n := range 2 {
		before := j.c.Faults().Epoch
		_, err := j.c.Evidence(at(j.now), nodeID(n), 1, Exited)
		require.NoError(t, err)
		say(t, j.c.Check, j.now)
		require.Greater(t, j.c.Faults().Epoch, before)
	}
	back, err := RestoreCoordinator(strings.NewReader(save(t, j.c)), nil)
	require.NoError(t, err)
	require.Equal(t, j.c.Faults(), back.Faults())
}

func TestReportsAreRefusedOrRepeatedAsTheyAre(t *testing.T) {
	j := newJob(t, Config{}, 2, 1)
	j.run(5 * sec)
	before := save(t, j.c)
	fine := Member{Rank: 0, Incarnation: 1, State: Alive, Reason: reasonBeating, Since: t0}
	for field, spoil := range map[string]func(*Report){ // in any order: each alone
		"rank":              func(r *Report) { r.Members[0].Rank = -1 },
		"Members[1].Rank":   func(r *Report) { r.Members = append(r.Members, fine) },
		"Members[0].State":  func(r *Report) { r.Members[0].State = 9 },
		"Members[0].Reason": func(r *Report) { r.Members[0].Reason = "\xff" },
		"64 bytes":          func(r *Report) { r.Members[0].Reason = lockstep.Reason(strings.Repeat("x", 65)) },
		"Members[0].Since":  func(r *Report) { r.Members[0].Since = time.Time{} },
	} {
		r := Report{Node: "n00", Incarnation: 1, Sequence: 99, Members: []Member{fine}}
		spoil(&r)
		_, err := j.c.Report(at(6*sec), r)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.ErrorContains(t, err, field)
	}
	_, err := j.c.Report(at(sec), Report{Node: "n00"})
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = j.c.Check(nil, at(sec))
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = j.c.Evidence(at(6*sec), "n00", 1, 4)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, a := range []Accusation{{0, 0, 2}, {0, -1, 2}, {-1, 0, 2}, {0, 1, 1}, {0, 1, lockstep.MaxMembers + 1}} {
		_, err = j.c.Accuse(at(6*sec), a)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err = j.c.Accuse(at(sec), Accusation{0, 1, 2})
	require.ErrorIs(t, err, lockstep.ErrPast)
	for _, kind := range []struct {
		err   error
		node  lockstep.NodeID
		inc   uint64
		ranks []Member
	}{
		{lockstep.ErrInvalid, "a b", 1, nil},
		{lockstep.ErrStale, "n00", 0, nil},
		{lockstep.ErrInvalid, "n00", 1, []Member{{Rank: -1}}},
		{lockstep.ErrDuplicate, "n00", 1, []Member{{Rank: 5}, {Rank: 5}}},
		{lockstep.ErrDuplicate, "n00", 1, []Member{{Rank: 1, Incarnation: 1}}},
		{lockstep.ErrStale, "n00", 1, []Member{{Rank: 0}}},
	} {
		require.ErrorIs(t, j.c.Join(at(6*sec), kind.node, kind.inc, kind.ranks), kind.err)
	}
	require.ErrorIs(t, j.c.Join(at(sec), "n00", 2, nil), lockstep.ErrPast)
	require.ErrorIs(t, j.c.Forget("n00"), lockstep.ErrConflict)
	require.ErrorIs(t, j.c.Forget("n09"), lockstep.ErrUnknown)
	require.ErrorIs(t, j.c.Pause(at(6*sec), at(sec)), lockstep.ErrInvalid)
	require.ErrorIs(t, j.c.Tune(at(sec), Config{}), lockstep.ErrPast)
	require.ErrorIs(t, j.c.Tune(at(6*sec), Config{Window: 3, Domain: racks}), lockstep.ErrInvalid)
	require.Equal(t, before, save(t, j.c))

	for _, r := range []struct {
		want Outcome
		r    Report
	}{
		{Stranger, Report{Node: "n09"}},
		{Stale, Report{Node: "n00"}},
		{Early, Report{Node: "n00", Incarnation: 2}},
		{Repeated, Report{Node: "n00", Incarnation: 1, Sequence: 5}},
	} {
		out, err := j.c.Report(at(6*sec), r.r)
		require.NoError(t, err)
		require.Equal(t, r.want, out)
	}
	last, _ := j.c.Node(at(6*sec), "n00")
	require.Equal(t, at(5*sec), last.Last)
	_, ok := j.c.Node(at(6*sec), "n09")
	require.False(t, ok)
	_, ok = j.c.Rank(9)
	require.False(t, ok)
}

func TestNodesComeAndGo(t *testing.T) {
	j := newJob(t, Config{}, 3, 2)
	require.NoError(t, j.c.Tune(t0, Config{Domain: racks}))
	j.run(5 * sec)
	out, err := j.c.Leave(at(j.now), "n01", 1)
	require.NoError(t, err)
	require.Equal(t, Accepted, out)
	out, _ = j.c.Leave(at(j.now), "n01", 1)
	require.Equal(t, Retired, out)
	require.ErrorIs(t, j.c.Forget("n01"), lockstep.ErrConflict, "Check has not told")
	require.Equal(t, "node n01: alive -> left (left); rank 2: alive -> left (node); rank 3: alive -> left (node)", say(t, j.c.Check, j.now))
	require.Empty(t, j.c.Faults().Faults, "to leave is no fault")
	require.Equal(t, 4, j.c.Faults().Participants)
	// Rank 3 goes on elsewhere.
	require.NoError(t, j.c.Join(at(j.now), "n02", 1, []Member{{Rank: 3, Incarnation: 2}, {Rank: 4, Incarnation: 1}}))
	require.NoError(t, j.mons[2].Join(at(j.now), 3, 2))
	j.mute[1] = true
	_, err = j.mons[2].Beat(at(j.now), 3, Beat{Incarnation: 2})
	require.NoError(t, err)
	require.Contains(t, j.run(sec), "rank 3: left -> alive (beating)")
	require.NoError(t, j.c.Forget("n01"))
	_, ok := j.c.Rank(2)
	require.False(t, ok)
	m, ok := j.c.Rank(3)
	require.True(t, ok)
	require.Equal(t, lockstep.NodeID("n02"), m.Node)
	j.dead[0] = true
	j.run(20 * sec)
	require.Len(t, j.c.Faults().Faults, 2, "rank 0, and rank 3, which does not beat any more")
	_, err = j.c.Evidence(at(j.now), "n00", 1, Broken)
	require.NoError(t, err)
	say(t, j.c.Check, j.now)
	epoch := j.c.Faults().Epoch
	require.NoError(t, j.c.Forget("n00"))
	require.Equal(t, epoch+1, j.c.Faults().Epoch, "what is forgotten is on the list no more")
	require.Len(t, j.c.Faults().Faults, 1)
}

func TestAccusationsAreBounded(t *testing.T) {
	j := newJob(t, Config{}, 1, 20)
	j.run(5 * sec)
	outcome := func(by, of int) Outcome {
		out, err := j.c.Accuse(at(j.now), Accusation{by, of, 20})
		require.NoError(t, err)
		return out
	}
	for of := 1; of <= maxAccuse; of++ {
		require.Equal(t, Accepted, outcome(0, of))
	}
	require.Equal(t, Dropped, outcome(0, 19))
	require.Equal(t, Repeated, outcome(0, 1))
	require.Equal(t, Stranger, outcome(0, 30))
	j.dead[7] = true
	j.run(10 * sec)
	require.Equal(t, Fenced, outcome(7, 1))
	require.Equal(t, Repeated, outcome(1, 7), "it is known to be dead")
	wake, ok := j.c.NextWake(at(j.now))
	require.True(t, ok)
	require.Equal(t, at(j.now), wake)
	j.run(2 * minute)
	require.Empty(t, j.c.open)
}

// TestTheOrderWithinAnInstantDoesNotMatter, nor do duplicates, for ranks and nodes.
func TestTheOrderWithinAnInstantDoesNotMatter(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		a, b := newJob(t, Config{Domain: racks, Reconnect: 2 * sec}, 12, 2), newJob(t, Config{Domain: racks, Reconnect: 2 * sec}, 12, 2)
		for d := sec; d < 40*sec; d += 500 * time.Millisecond {
			var calls []func(j *job)
			for n := range 12 {
				for r := 2 * n; r < 2*n+2; r++ {
					if rng.IntN(8) == 0 {
						continue
					}
					for k := range 1 + rng.IntN(2) {
						bt := Beat{Incarnation: 1, Progress: uint64(d/sec)*3 + uint64(k), Phase: Phase(rng.IntN(2) * 3)}
						calls = append(calls, func(j *job) { call(j.mons[n].Beat(at(d), r, bt)) })
					}
				}
				switch e := Evidence(rng.IntN(40)); {
				case e <= Seen:
					calls = append(calls, func(j *job) { call(j.c.Evidence(at(d), nodeID(n), 1, e)) })
				case e == 30:
					by, of := rng.IntN(24), rng.IntN(24)
					calls = append(calls, func(j *job) { call(j.c.Accuse(at(d), Accusation{by, of, 3})) })
				}
			}
			twice := append(slices.Clone(calls), calls[:len(calls)/2]...)
			rng.Shuffle(len(twice), func(i, k int) { twice[i], twice[k] = twice[k], twice[i] })
			for _, f := range calls {
				f(a)
			}
			for _, f := range twice {
				f(b)
			}
			skip := rng.IntN(24)
			order := rng.Perm(12)
			for i := range 12 {
				if i != skip {
					report(t, a, i, d)
				}
				if order[i] != skip {
					report(t, b, order[i], d)
				}
			}
			require.Equal(t, say(t, a.c.Check, d), say(t, b.c.Check, d), "seed %d at %s", seed, d)
			for n := range 12 {
				require.Equal(t, save(t, a.mons[n]), save(t, b.mons[n]), "seed %d at %s", seed, d)
			}
			require.Equal(t, save(t, a.c), save(t, b.c), "seed %d at %s", seed, d)
		}
	}
}

func call(Outcome, error) {}

func report(t *testing.T, j *job, n int, d time.Duration) {
	_, err := j.mons[n].Check(nil, at(d))
	require.NoError(t, err)
	_, err = j.c.Report(at(d), j.mons[n].Report())
	require.NoError(t, err)
}

// play runs calls that come as bytes on a coordinator, a second one that is saved and
// restored all the time, and checks what always holds.
func play(t *testing.T, data []byte) (events int) {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	cfg := Config{Domain: racks, Window: 4, Settle: sec, Hold: 20 * sec, Accuse: 5 * sec, History: 3, PartitionNodes: 2, Reconnect: time.Duration(next()%2) * sec}
	c, err := NewCoordinator(cfg)
	require.NoError(t, err)
	now, seq, epoch := time.Duration(0), uint64(0), uint64(0)
	died := map[string]uint64{}
	incs := map[lockstep.NodeID]uint64{}
	for len(data) > 0 {
		now += time.Duration(next()%4) * 500 * time.Millisecond
		before := save(t, c)
		twin, err := RestoreCoordinator(strings.NewReader(before), racks)
		require.NoError(t, err, "%s", before)
		id, arg := nodeID(next()%12), next()
		var told [2][]Event
		for i, c := range []*Coordinator{c, twin} {
			data := data
			next := func() int {
				if len(data) == 0 {
					return 0
				}
				b := data[0]
				data = data[1:]
				return int(b)
			}
			switch arg % 16 {
			case 0:
				if c.Join(at(now), id, incs[id]+uint64(next()%2), []Member{{Rank: next() % 30, Incarnation: uint64(next() % 4)}}) == nil && i == 1 {
					incs[id] = c.t.slots[c.t.index[id]].inc
				}
			case 1:
				call(c.Leave(at(now), id, incs[id]))
			case 2:
				_ = c.Forget(id)
			case 3:
				call(c.Evidence(at(now), id, incs[id], Evidence(next()%4)))
			case 4, 5:
				call(c.Accuse(at(now), Accusation{next() % 30, next() % 30, 2 + next()%4}))
			case 6:
				_ = c.Pause(at(now), at(now+time.Duration(next())*100*time.Millisecond))
			case 7, 8, 9, 10:
				told[i], err = c.Check(nil, at(now))
				require.NoError(t, err)
			default:
				r := Report{Node: id, Incarnation: incs[id], Sequence: seq}
				for rank := range 30 {
					if k := next(); k%4 > 0 {
						r.Members = append(r.Members, Member{Rank: rank, Incarnation: uint64(k / 4 % 4), State: []State{Alive, Alive, Alive, State(k / 16 % 6)}[k/16%4], Reason: "x", Since: t0})
					}
				}
				call(c.Report(at(now), r))
			}
		}
		seq++
		require.Equal(t, told[0], told[1])
		require.Equal(t, save(t, c), save(t, twin))
		w1, ok1 := c.NextWake(at(now))
		w2, ok2 := twin.NextWake(at(now))
		require.Equal(t, fmt.Sprint(w1, ok1), fmt.Sprint(w2, ok2))
		for _, e := range told[0] {
			key := fmt.Sprint(e.Kind, e.Rank)
			if e.Kind == NodeChanged {
				key = string(e.Node)
			}
			if e.From == Dead && e.Kind <= NodeChanged {
				require.Greater(t, e.Incarnation, died[key], "%s lives again: %s", key, e)
			}
			if e.To == Dead {
				died[key] = e.Incarnation
			}
		}
		events += len(told[0])
		list := c.Faults()
		require.LessOrEqual(t, list.Epoch, epoch+1)
		epoch = list.Epoch
		require.Equal(t, "", c.check(), "the list is that of the ranks")
		require.LessOrEqual(t, len(c.lists), 3)
		if arg%16 == 7 && ok1 && w1.After(at(now)) { // nothing is told before the next wake
			early, err := twin.Check(nil, w1.Add(-1))
			require.NoError(t, err)
			require.Empty(t, early)
		}
		if arg%32 == 8 {
			c = twin
		}
	}
	return events
}

func TestCoordinatorGoesOnAsItWas(t *testing.T) {
	rounds, events := 24, 0
	if testing.Short() {
		rounds = 6
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		data := make([]byte, 1000)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		events += play(t, data)
	}
	require.Greater(t, events, rounds*20)
}

func FuzzCoordinator(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 1))
	for range 8 {
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { play(t, data[:min(len(data), 2000)]) })
}
