package liveness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// This file replays what users of other systems complained of, each by the kind of
// complaint.

// job is a coordinator with monitors under it: per ranks on each of its nodes.
type job struct {
	t    testing.TB
	c    *Coordinator
	mons []*Monitor
	per  int
	mute map[int]bool // nodes that do not report
	dead map[int]bool // ranks that do not beat
	now  time.Duration
}

func nodeID(i int) lockstep.NodeID { return lockstep.NodeID(fmt.Sprintf("n%02d", i)) }

func newJob(t testing.TB, cfg Config, nodes, per int) *job {
	t.Helper()
	j := &job{t: t, per: per, mute: map[int]bool{}, dead: map[int]bool{}}
	var err error
	j.c, err = NewCoordinator(cfg)
	require.NoError(t, err)
	for n := range nodes {
		m, err := NewMonitor(cfg, nodeID(n), 1)
		require.NoError(t, err)
		var ranks []Member
		for r := n * per; r < (n+1)*per; r++ {
			require.NoError(t, m.Join(t0, r, 1))
			ranks = append(ranks, Member{Rank: r, Incarnation: 1})
		}
		require.NoError(t, j.c.Join(t0, nodeID(n), 1, ranks))
		j.mons = append(j.mons, m)
	}
	return j
}

// run lets a time pass, in which all beat each second that are not mute or dead, and
// returns what the coordinator told.
func (j *job) run(d time.Duration) string {
	j.t.Helper()
	var told []string
	for end := j.now + d; j.now < end; {
		j.now += sec
		for n, m := range j.mons {
			for r := n * j.per; r < (n+1)*j.per; r++ {
				if !j.dead[r] {
					_, err := m.Beat(at(j.now), r, Beat{Incarnation: 1, Progress: uint64(j.now / sec)})
					require.NoError(j.t, err)
				}
			}
			_, err := m.Check(nil, at(j.now))
			require.NoError(j.t, err)
			if !j.mute[n] {
				_, err = j.c.Report(at(j.now), m.Report())
				require.NoError(j.t, err)
			}
		}
		if s := say(j.t, j.c.Check, j.now); s != "" {
			told = append(told, s)
		}
	}
	return strings.Join(told, "\n")
}

func (j *job) state(rank int) State {
	m, ok := j.c.Rank(rank)
	require.True(j.t, ok)
	return m.State
}

func racks(id lockstep.NodeID) string { return "rack-" + string(id[1:2]) }

// TestComplaint2ReloadOfTheObserverKillsNobody: k8s-device-plugin #426, a daemon reload makes
// all devices unhealthy. Here a coordinator is restored after two minutes.
func TestComplaint2ReloadOfTheObserverKillsNobody(t *testing.T) {
	j := newJob(t, Config{}, 4, 2)
	j.run(30 * sec)
	back, err := RestoreCoordinator(strings.NewReader(save(t, j.c)), nil)
	require.NoError(t, err)
	j.c, j.now = back, j.now+2*minute
	require.Equal(t, "observer late since 2026-01-01T00:00:30Z", say(t, j.c.Check, j.now))
	require.Equal(t, "", j.run(30*sec))
	require.Equal(t, 8, j.c.Faults().Participants)
	// But whoever does not come back is found, although the caller was late once.
	back, err = RestoreCoordinator(strings.NewReader(save(t, j.c)), nil)
	require.NoError(t, err)
	j.c, j.now = back, j.now+2*minute
	j.mute[2] = true
	require.Equal(t, strings.Join([]string{
		"observer late since 2026-01-01T00:03:00Z",
		"node n02: alive -> suspect (silent); rank 4: alive -> suspect (node); rank 5: alive -> suspect (node)",
		"node n02: suspect -> dead (silent); rank 4: suspect -> dead (node); rank 5: suspect -> dead (node)",
	}, "\n"), j.run(30*sec))
}

// TestComplaint2OneObserverLosingAllSuspectsItself is #426 seen by a coordinator that goes on:
// all connections break at once.
func TestComplaint2OneObserverLosingAllSuspectsItself(t *testing.T) {
	for _, reconnect := range []time.Duration{0, 5 * sec} {
		j := newJob(t, Config{Reconnect: reconnect}, 4, 1)
		j.run(10 * sec)
		for n := range 4 {
			out, err := j.c.Evidence(at(j.now), nodeID(n), 1, Disconnected)
			require.NoError(t, err)
			require.Equal(t, Accepted, out)
		}
		require.Contains(t, say(t, j.c.Check, j.now), "partition suspected: all nodes: 4 of 4 silent (cohort)")
		told := j.run(20 * sec)
		require.NotContains(t, told, "dead")
		require.Contains(t, told, "partition resolved: all nodes: 0 of 4 silent (beating)")
		require.Equal(t, 4, j.c.Faults().Participants)
	}
}

// TestACallerThatIsAlwaysLateFindsTheDead: being late excuses silence, but not twice in
// a row.
func TestACallerThatIsAlwaysLateFindsTheDead(t *testing.T) {
	m := newMonitor(t, Config{}, 0, 1)
	keep(t, m, 10*sec, 0, 1)
	told := ""
	for d := 30 * sec; d <= 2*minute; d += 30 * sec {
		_, err := m.Beat(at(d), 1, Beat{Incarnation: 1, Progress: uint64(d)})
		require.NoError(t, err)
		if s := say(t, m.Check, d); strings.Contains(s, "dead") {
			told += d.String() + " " + s
		}
	}
	require.Equal(t, "1m0s rank 0: alive -> dead (silent)", told)
	// The same after a restore: the monitor's daemon was away.
	m = newMonitor(t, Config{}, 0, 1)
	keep(t, m, 10*sec, 0, 1)
	m = again(t, m)
	require.Equal(t, "observer late since 2026-01-01T00:00:09Z", say(t, m.Check, 10*minute))
	require.Equal(t, "rank 0: alive -> suspect (silent); rank 1: alive -> suspect (silent)", say(t, m.Check, 10*minute+4700*time.Millisecond))
}

// TestComplaint9NoFalseHangWhileCheckpointing: FlagScale #1267 and #1268, pytorch/xla #1728: a
// checkpoint is neither silence nor a hang.
func TestComplaint9NoFalseHangWhileCheckpointing(t *testing.T) {
	m := newMonitor(t, Config{}, 0, 1)
	keep(t, m, 200*sec, 0, 1) // enough for the gap of a step to be learned
	s, _ := m.Status(at(199*sec), 0)
	require.Equal(t, at(199*sec+30*sec), s.HungAt, "tight: Rule.Least")
	beat(t, m, 200*sec, 0, 199, PhaseCheckpoint)
	out, err := m.Beat(at(200*sec), 1, Beat{Incarnation: 1, Progress: 199, Phase: PhaseCheckpoint, Pause: 4 * minute})
	require.NoError(t, err)
	require.Equal(t, Accepted, out)
	// Rank 0 beats every 50 s now, which the phase allows; rank 1 not at all, as it said.
	for d := 250 * sec; d <= 400*sec; d += 50 * sec {
		require.Equal(t, "", say(t, m.Check, d))
		beat(t, m, d, 0, 199, PhaseCheckpoint)
	}
	beat(t, m, 410*sec, 0, 200, PhaseStep)
	beat(t, m, 414*sec, 1, 200, PhaseStep)
	require.Equal(t, "rank 0: alive -> suspect (silent)", say(t, m.Check, 414700*time.Millisecond), "after it, silence counts again")
	s, _ = m.Status(at(414700*time.Millisecond), 1)
	require.Less(t, s.Mean, 1100*time.Millisecond, "the long intervals are not taken for its habit")
}

// TestComplaint9ASecondStallIsToldAgain: FlagScale #1243: the key by which a rank was reported
// once was never cleared, so that its second stall was silent.
func TestComplaint9ASecondStallIsToldAgain(t *testing.T) {
	m := newMonitor(t, Config{Method: Deadline, SuspectAfter: 3 * sec, DeadAfter: minute}, 0)
	var told []string
	for d := sec; d < 200*sec; d += sec {
		if d < 20*sec || d > 25*sec && d < 100*sec || d > 104*sec {
			beat(t, m, d, 0, uint64(d/sec), PhaseStep)
		}
		if s := say(t, m.Check, d); s != "" {
			told = append(told, s)
		}
	}
	require.Equal(t, []string{
		"rank 0: unknown -> alive (beating)",
		"rank 0: alive -> suspect (silent)", "rank 0: suspect -> alive (beating)",
		"rank 0: alive -> suspect (silent)", "rank 0: suspect -> alive (beating)",
	}, told)
}

// TestComplaint10AnUnmodelledLongStepIsLearned: dlrover #1727: an inspection that nobody had
// told of lengthened the gap, and "hang" was reported each time.
func TestComplaint10AnUnmodelledLongStepIsLearned(t *testing.T) {
	m := newMonitor(t, Config{}, 0)
	keep(t, m, 100*sec, 0)
	step, now := uint64(100), 100*sec
	round := func() (told string) { // 60 steps of 1 s, and one of 70 s
		for range 60 {
			step, now = step+1, now+sec
			beat(t, m, now, 0, step, PhaseStep)
			told += say(t, m.Check, now)
		}
		for range 70 {
			now += sec
			beat(t, m, now, 0, step, PhaseStep)
			told += say(t, m.Check, now)
		}
		return told
	}
	require.Equal(t, "rank 0: alive -> hung (no-progress)", round(), "it is 14 times the longest gap before")
	require.Equal(t, "rank 0: hung -> alive (progress)", round())
	require.Equal(t, "", round())
	s, _ := m.Status(at(now), 0)
	require.Equal(t, 5*71*sec, s.HungAt.Sub(at(now-70*sec)), "five times the longest gap seen")
}

// TestComplaint10AHangTimeoutMayBeLong: dlrover #1685: a user needs more than 10 minutes.
func TestComplaint10AHangTimeoutMayBeLong(t *testing.T) {
	m := newMonitor(t, Config{Rules: []Rule{{Phase: PhaseStep, Gap: 45 * minute, Fixed: true}}}, 0)
	keep(t, m, 100*sec, 0)
	for d := 100 * sec; d < 40*minute; d += sec {
		beat(t, m, d, 0, 99, PhaseStep)
		require.Equal(t, "", say(t, m.Check, d))
	}
}

// TestComplaint10MembersReadOneList: dlrover #1399: members read the fault list at different
// times and act on different ones.
func TestComplaint10MembersReadOneList(t *testing.T) {
	j := newJob(t, Config{}, 8, 1)
	j.run(10 * sec)
	epoch := j.c.Faults().Epoch
	j.mute[3] = true
	j.run(10 * sec)
	first := j.c.Faults()
	require.Equal(t, epoch+1, first.Epoch)
	require.Equal(t, 7, first.Participants)
	require.Len(t, first.Faults, 1)
	require.Equal(t, 3, first.Faults[0].Rank)
	j.mute[5], j.mute[6] = true, true
	j.run(10 * sec)
	second := j.c.Faults()
	require.Equal(t, first.Epoch+1, second.Epoch, "two that die in one check are one list")
	require.Len(t, second.Faults, 3)
	late, ok := j.c.FaultsAt(first.Epoch)
	require.True(t, ok)
	require.Equal(t, first, late, "whoever reads late reads the same")
	_, ok = j.c.FaultsAt(second.Epoch + 1)
	require.False(t, ok)
}

// TestComplaint10ADeadNodeStuckInTeardownIsDead: dlrover #1420: a dead node that uploads a core
// dump is not launched anew.
func TestComplaint10ADeadNodeStuckInTeardownIsDead(t *testing.T) {
	m := newMonitor(t, Config{}, 0, 1)
	keep(t, m, 10*sec, 0, 1)
	out, err := m.Evidence(at(10*sec), 0, 1, Exited)
	require.NoError(t, err)
	require.Equal(t, Accepted, out)
	require.Equal(t, "rank 0: alive -> dead (exited)", say(t, m.Check, 10*sec))
	told := ""
	for d := 11 * sec; d < 10*minute; d += sec {
		out, err = m.Beat(at(d), 0, Beat{Incarnation: 1, Progress: 99, Phase: PhaseTeardown, Pause: 24 * time.Hour})
		require.NoError(t, err)
		require.Equal(t, Fenced, out, "whatever it says")
		// Rank 1 says itself that it is stopping, beats, and does not get done.
		_, err = m.Beat(at(d), 1, Beat{Incarnation: 1, Progress: 9, Phase: PhaseTeardown})
		require.NoError(t, err)
		if s := say(t, m.Check, d); s != "" {
			told += fmt.Sprint(d, " ", s)
		}
	}
	require.Equal(t, "5m11s rank 1: alive -> dead (teardown)", told)
}

// TestComplaint11EvidenceDoesNotWaitForATimeout: torchft #164 and #35: survivors wait for the
// timeout of a collective although the death is known.
func TestComplaint11EvidenceDoesNotWaitForATimeout(t *testing.T) {
	j := newJob(t, Config{}, 4, 2)
	j.run(10 * sec)
	for n, e := range []Evidence{Exited, Disconnected, Broken} {
		_, err := j.c.Evidence(at(j.now), nodeID(n), 1, e)
		require.NoError(t, err)
		wake, ok := j.c.NextWake(at(j.now))
		require.True(t, ok)
		require.Equal(t, at(j.now), wake)
		why := []string{"exited", "disconnected", "broken"}[n]
		require.Equal(t, fmt.Sprintf("node n%02d: alive -> dead (%s); rank %d: alive -> dead (node); rank %d: alive -> dead (node)", n, why, 2*n, 2*n+1), say(t, j.c.Check, j.now))
	}
	require.Equal(t, []int{6, 7}, j.c.AppendParticipants(nil))
}

// TestComplaint11TheDeadLeaveTheParticipants: torchft #63: a dead member counted for ever.
func TestComplaint11TheDeadLeaveTheParticipants(t *testing.T) {
	j := newJob(t, Config{}, 3, 2)
	require.Empty(t, j.c.AppendParticipants(nil), "who was not heard of does not take part")
	j.run(10 * sec)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, j.c.AppendParticipants(nil))
	j.dead[1] = true
	j.run(10 * sec)
	require.Equal(t, []int{0, 2, 3, 4, 5}, j.c.AppendParticipants(nil))
	j.mute[2] = true
	j.run(10 * sec)
	require.Equal(t, []int{0, 2, 3}, j.c.AppendParticipants(nil))
	require.Equal(t, 3, j.c.Faults().Participants)
	// Its reports do not bring it back; a new incarnation does, without the old ranks.
	j.mute[2] = false
	j.run(10 * sec)
	require.Equal(t, []int{0, 2, 3}, j.c.AppendParticipants(nil))
	require.NoError(t, j.c.Join(at(j.now), "n02", 2, []Member{{Rank: 4, Incarnation: 2}}))
	out, err := j.c.Report(at(j.now), Report{Node: "n02", Incarnation: 2, Sequence: 1, Members: []Member{
		{Rank: 4, Incarnation: 2, State: Alive, Reason: reasonBeating, Since: t0}, {Rank: 5, Incarnation: 1, State: Alive, Reason: reasonBeating, Since: t0},
	}})
	require.NoError(t, err)
	require.Equal(t, Accepted, out)
	require.Equal(t, "node n02: dead -> alive (beating); rank 4: dead -> alive (beating)", say(t, j.c.Check, j.now))
	require.Equal(t, []int{0, 2, 3, 4}, j.c.AppendParticipants(nil))
}

// TestComplaint11FlappingIsBounded: torchft #71: a quorum that flips with each beat. A member
// that beats 4 s and is silent 4 s, for an hour, is told of a bounded number of times.
func TestComplaint11FlappingIsBounded(t *testing.T) {
	m := newMonitor(t, Config{Method: Deadline, SuspectAfter: 2 * sec, DeadAfter: minute, Settle: 2 * sec}, 0)
	events := 0
	for d := sec; d < time.Hour; d += sec {
		if d/sec%8 < 4 {
			beat(t, m, d, 0, uint64(d/sec), PhaseStep)
		}
		told, err := m.Check(nil, at(d))
		require.NoError(t, err)
		events += len(told)
	}
	require.LessOrEqual(t, events, 7)
	s, _ := m.Status(at(time.Hour), 0)
	require.Equal(t, Suspect, s.State)
	// It is trusted again, but only after having been steady for long.
	for d := time.Hour; d < time.Hour+2*minute; d += sec {
		beat(t, m, d, 0, uint64(d/sec), PhaseStep)
		_, err := m.Check(nil, at(d))
		require.NoError(t, err)
	}
	s, _ = m.Status(at(time.Hour+2*minute), 0)
	require.Equal(t, Alive, s.State)
}

// TestComplaint12SurvivorsThatBlameTheWrongPeerBlameNobody: Mooncake #2157: after one rank was
// killed, two of three survivors blamed the wrong peer.
func TestComplaint12SurvivorsThatBlameTheWrongPeerBlameNobody(t *testing.T) {
	j := newJob(t, Config{}, 4, 1)
	j.run(10 * sec)
	j.mute[3], j.dead[3] = true, true
	for _, a := range []Accusation{{0, 1, 4}, {1, 2, 4}, {2, 3, 4}} {
		out, err := j.c.Accuse(at(j.now), a)
		require.NoError(t, err)
		require.Equal(t, Accepted, out)
	}
	require.Equal(t, strings.Join([]string{
		"node n03: alive -> suspect (silent); rank 3: alive -> suspect (node)",
		"node n03: suspect -> dead (silent); rank 3: suspect -> dead (node)",
	}, "\n"), j.run(5*minute))
	require.Equal(t, 3, j.c.Faults().Participants)
}

// TestComplaint12AMajorityIsHeardAndALoneAccuserSuspected is the other side of #2157.
func TestComplaint12AMajorityIsHeardAndALoneAccuserSuspected(t *testing.T) {
	j := newJob(t, Config{}, 4, 1)
	j.run(10 * sec)
	accuse := func(by, of int) {
		t.Helper()
		out, err := j.c.Accuse(at(j.now), Accusation{by, of, 4})
		require.NoError(t, err)
		require.Equal(t, Accepted, out)
	}
	accuse(0, 3)
	require.Equal(t, "", say(t, j.c.Check, j.now), "one of three is not enough")
	accuse(1, 3)
	require.Equal(t, "rank 3: alive -> suspect (accused)", say(t, j.c.Check, j.now))
	require.Equal(t, 4, j.c.Faults().Participants, "suspect is not dead")
	require.Equal(t, "rank 3: suspect -> alive (beating)", j.run(2*minute))

	accuse(2, 0)
	require.Equal(t, "rank 2: alive -> suspect (accuser)\nrank 2: suspect -> alive (beating)", j.run(3*minute))
	_, ok := j.c.NextWake(at(j.now))
	require.True(t, ok)
	require.Empty(t, j.c.open)
	require.Empty(t, j.c.blamed)
}

// TestComplaint16ThresholdsChangeAndDetectionPausesWhileRunning: NVRx #30.
func TestComplaint16ThresholdsChangeAndDetectionPausesWhileRunning(t *testing.T) {
	m := newMonitor(t, Config{}, 0)
	keep(t, m, 100*sec, 0)
	require.NoError(t, m.Pause(at(99*sec), at(10*minute)))
	require.Equal(t, "", say(t, m.Check, 10*minute))
	wake, _ := m.NextWake(at(10 * minute))
	require.True(t, wake.After(at(10*minute+4*sec)))
	require.NoError(t, m.Pause(at(10*minute), at(20*minute)))
	require.NoError(t, m.Pause(at(11*minute), at(11*minute)), "on again at once")
	require.NoError(t, m.Tune(at(11*minute), Config{Pause: 9 * sec, Rules: []Rule{{Phase: PhaseStep, Gap: 3 * minute, Fixed: true}}}))
	s, _ := m.Status(at(11*minute), 0)
	require.Equal(t, 10, int(s.SuspectAt.Sub(at(11*minute))/sec))
	require.Equal(t, at(14*minute), s.HungAt)
	require.Equal(t, "", say(t, m.Check, 11*minute+10*sec))
	require.Equal(t, "rank 0: alive -> suspect (silent)", say(t, m.Check, s.SuspectAt.Sub(t0)))
	// Evidence counts during a pause.
	require.NoError(t, m.Pause(s.SuspectAt, at(time.Hour)))
	_, err := m.Evidence(s.SuspectAt, 0, 1, Exited)
	require.NoError(t, err)
	require.Equal(t, "rank 0: suspect -> dead (exited)", say(t, m.Check, s.SuspectAt.Sub(t0)))
}

// TestComplaint17OneTimeoutForAllWhoAsk: storm #8799: the filter of reports and who kills used
// different timeouts. Status, NextWake, Check, Report and the participants agree at
// every instant.
func TestComplaint17OneTimeoutForAllWhoAsk(t *testing.T) {
	j := newJob(t, Config{}, 4, 1)
	j.run(30 * sec)
	j.mute[2] = true
	for range 100 {
		wake, ok := j.c.NextWake(at(j.now))
		require.True(t, ok)
		before, _ := j.c.Node(wake, "n02")
		if wake.After(at(40 * sec)) {
			break
		}
		j.now = wake.Sub(t0)
		for _, n := range []int{0, 1, 3} {
			_, err := j.mons[n].Beat(wake, n, Beat{Incarnation: 1, Progress: uint64(j.now)})
			require.NoError(t, err)
			_, err = j.mons[n].Check(nil, wake)
			require.NoError(t, err)
			_, err = j.c.Report(wake, j.mons[n].Report())
			require.NoError(t, err)
		}
		_, err := j.c.Check(nil, wake)
		require.NoError(t, err)
		after, _ := j.c.Node(wake, "n02")
		rank, _ := j.c.Rank(2)
		require.Equal(t, after.State, rank.State)
		require.Equal(t, after.State == Dead, len(j.c.AppendParticipants(nil)) == 3)
		require.Equal(t, !wake.Before(before.DeadAt), after.State == Dead)
		require.Equal(t, !wake.Before(before.SuspectAt), after.State >= Suspect)
	}
	require.Equal(t, Dead, j.state(2))
}
