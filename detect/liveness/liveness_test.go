package liveness

import (
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

const (
	sec    = time.Second
	minute = time.Minute
)

func newMonitor(t testing.TB, cfg Config, ranks ...int) *Monitor {
	t.Helper()
	m, err := NewMonitor(cfg, "n0", 1)
	require.NoError(t, err)
	for _, r := range ranks {
		require.NoError(t, m.Join(t0, r, 1))
	}
	return m
}

func beat(t testing.TB, m *Monitor, d time.Duration, rank int, progress uint64, phase Phase) {
	t.Helper()
	out, err := m.Beat(at(d), rank, Beat{Incarnation: 1, Progress: progress, Phase: phase})
	require.NoError(t, err)
	require.Equal(t, Accepted, out)
}

// say is the events of a check, one a line.
func say(t testing.TB, check func([]Event, time.Time) ([]Event, error), d time.Duration) string {
	t.Helper()
	events, err := check(nil, at(d))
	require.NoError(t, err)
	lines := make([]string, 0, len(events))
	for _, e := range events {
		require.Equal(t, at(d), e.At)
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "; ")
}

// keep brings the ranks of m to Alive with a beat each second up to, not including, until.
func keep(t testing.TB, m *Monitor, until time.Duration, ranks ...int) {
	t.Helper()
	for d := sec; d < until; d += sec {
		for _, r := range ranks {
			beat(t, m, d, r, uint64(d/sec), PhaseStep)
		}
		_, err := m.Check(nil, at(d))
		require.NoError(t, err)
	}
}

func save(t testing.TB, m interface{ Snapshot(w io.Writer) error }) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, m.Snapshot(&b))
	return b.String()
}

func TestPhiOracles(t *testing.T) {
	require.InDelta(t, 6.543, phi(1500*time.Millisecond, sec, 100*time.Millisecond), 0.0005)
	require.InDelta(t, 0.301, phi(sec, sec, 100*time.Millisecond), 0.0005)
	require.InDelta(t, 1.643, phi(1200*time.Millisecond, sec, 100*time.Millisecond), 0.0005)
	require.InDelta(t, math.Log10(2), phi(sec, sec, sec), 1e-15)
	// Tails beyond where 1-F is 0: -log10 of the tail, from its asymptotic series (Abramowitz and Stegun 26.2.12).
	for _, z := range []float64{20, 37, 50, 1000} {
		tail := z*z/2/math.Ln10 + math.Log10(z*math.Sqrt(2*math.Pi)) - math.Log1p(-1/(z*z)+3/(z*z*z*z))/math.Ln10
		require.InEpsilon(t, tail, phiAt(z), 1e-6)
	}
	require.InDelta(t, phiAt(3*math.Sqrt2-1e-9), phiAt(3*math.Sqrt2), 1e-7, "the two ways of working it out meet")
	require.Equal(t, 0.0, phi(0, sec, 0))
	require.True(t, math.IsInf(phi(sec, sec, 0), 1))
	require.Greater(t, phi(0, sec, 10*time.Millisecond), -1e-300)
}

// TestPhiRisesWithElapsedTime is the property that makes an instant of a threshold.
func TestPhiRisesWithElapsedTime(t *testing.T) {
	for _, sigma := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 3 * sec} {
		before := -1.0
		for e := time.Duration(0); e < 30*sec; e += 7 * time.Millisecond {
			phi := phi(e, sec, sigma)
			require.GreaterOrEqual(t, phi, before)
			require.False(t, math.IsNaN(phi) || math.IsInf(phi, 0))
			before = phi
		}
	}
}

func TestThresholdsAreReachedWhereSaid(t *testing.T) {
	for _, threshold := range []int{500, 1000, 6543, 8000, 12000, 16000, 300_000} {
		z := sigmasFor(threshold)
		require.GreaterOrEqual(t, phiAt(float64(z)/million)*thousand, float64(threshold))
		require.Less(t, phiAt(float64(z-1)/million)*thousand, float64(threshold))
	}
	require.InDelta(t, 5*million, sigmasFor(6543), 1000)
}

// TestStatusAgreesWithTheDecision: a member is Suspect when its phi is at the threshold.
func TestStatusAgreesWithTheDecision(t *testing.T) {
	m := newMonitor(t, Config{DeadAfter: 1}, 0)
	keep(t, m, 100*sec, 0)
	s, ok := m.Status(at(99*sec), 0)
	require.True(t, ok)
	require.Equal(t, Alive, s.State)
	require.InDelta(t, float64(sec), float64(s.Mean), float64(10*time.Millisecond))
	require.Equal(t, 100*time.Millisecond, s.Sigma)
	require.Zero(t, math.Floor(s.Phi))
	then, _ := m.Status(s.SuspectAt, 0)
	require.InDelta(t, 8.0, then.Phi, 1e-4)
	then, _ = m.Status(s.DeadAt, 0)
	require.InDelta(t, 12.0, then.Phi, 1e-4)
	require.Equal(t, "", say(t, m.Check, s.SuspectAt.Sub(t0)-1))
	require.Equal(t, "rank 0: alive -> suspect (silent)", say(t, m.Check, s.SuspectAt.Sub(t0)))
	require.Equal(t, "rank 0: suspect -> dead (silent)", say(t, m.Check, s.DeadAt.Sub(t0)))
	_, ok = m.Status(t0, 7)
	require.False(t, ok)
}

// TestDoubtComesWellBeforeDeath: between Suspect and Dead there is time to look.
func TestDoubtComesWellBeforeDeath(t *testing.T) {
	m := newMonitor(t, Config{}, 0)
	keep(t, m, 100*sec, 0)
	require.Equal(t, "", say(t, m.Check, 103500*time.Millisecond))
	require.Equal(t, "rank 0: alive -> suspect (silent)", say(t, m.Check, 104*sec), "about as torchft's 5 s")
	require.Equal(t, "", say(t, m.Check, 109*sec-1))
	require.Equal(t, "rank 0: suspect -> dead (silent)", say(t, m.Check, 109*sec), "DeadAfter")
}

// TestPhiResetsOnABeat is the property of the specification.
func TestPhiResetsOnABeat(t *testing.T) {
	m := newMonitor(t, Config{}, 0)
	keep(t, m, 20*sec, 0)
	s, _ := m.Status(at(23500*time.Millisecond), 0)
	require.Greater(t, s.Phi, 3.0)
	beat(t, m, 23500*time.Millisecond, 0, 30, PhaseStep)
	s, _ = m.Status(at(23500*time.Millisecond), 0)
	require.Less(t, s.Phi, 0.3)
}

func TestDeadlineJudgesByLengthAlone(t *testing.T) {
	m := newMonitor(t, Config{Method: Deadline, SuspectAfter: 5 * sec}, 0)
	keep(t, m, 3*sec, 0)
	wake, ok := m.NextWake(at(2 * sec))
	require.True(t, ok)
	require.Equal(t, at(7*sec), wake)
	require.Equal(t, "rank 0: alive -> suspect (silent)", say(t, m.Check, 7*sec))
	wake, _ = m.NextWake(at(7 * sec))
	require.Equal(t, at(12*sec), wake)
	require.Equal(t, "rank 0: suspect -> dead (silent)", say(t, m.Check, 12*sec))
	_, ok = m.NextWake(at(12 * sec))
	require.False(t, ok)
}

func TestUnknownIsNotAlive(t *testing.T) {
	m := newMonitor(t, Config{Startup: minute}, 0, 1)
	require.Equal(t, "", say(t, m.Check, 0))
	require.Equal(t, Unknown, m.Report().Members[0].State)
	beat(t, m, sec, 1, 0, PhaseFirst)
	require.Equal(t, "rank 1: unknown -> alive (beating)", say(t, m.Check, sec))
	for d := 2 * sec; d <= minute; d += sec {
		beat(t, m, d, 1, 0, PhaseFirst)
	}
	require.Equal(t, "rank 0: unknown -> suspect (never-started)", say(t, m.Check, minute))
	s, _ := m.Status(at(minute), 0)
	require.Equal(t, "rank 0: suspect -> dead (never-started); rank 1: alive -> suspect (silent)", say(t, m.Check, s.DeadAt.Sub(t0)+4*sec))
}

func TestConfigReportsAllFaults(t *testing.T) {
	_, err := NewMonitor(Config{
		Method: 2, Interval: -1, Window: 1, MinSigma: 2 * minute, Pause: -2, Suspect: 400, Dead: 300_001, SuspectAfter: -1, DeadAfter: -1,
		Startup: -1, Reconnect: -1, Settle: 25 * time.Hour, Late: -1, Factor: 999, Learn: -1, Memory: -1,
		Partition: million + 1, PartitionNodes: -1, Hold: -1, Accuse: -1, History: 1001,
		Rules: []Rule{{Phase: 16}, {Phase: 3, Least: -1, Most: -2, Pause: -1}, {Phase: 3, Gap: 1, Least: 2, Most: 1}},
	}, "n0", 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	for _, field := range []string{
		"Method", "Interval", "Window", "MinSigma", "Pause", "Suspect", "Dead", "SuspectAfter", "DeadAfter", "Startup", "Reconnect", "Settle", "Late",
		"Factor", "Learn", "Memory", "Partition", "PartitionNodes", "Hold", "Accuse", "History",
		"Rules[0].Phase", "Rules[1].Gap", "Rules[1].Least", "Rules[1].Most", "Rules[1].Pause", "Rules[2].Phase", "Rules[2].Most",
	} {
		require.ErrorContains(t, err, field+" =")
	}
	require.NoError(t, Config{}.Validate())
	require.NoError(t, Config{Pause: NoPause, Dead: 4000, Suspect: 4000, SuspectAfter: lockstep.MaxWalltime}.Validate())
	_, err = NewMonitor(Config{}, "", 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = NewCoordinator(Config{Window: 1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestBadInputsChangeNothing(t *testing.T) {
	m := newMonitor(t, Config{}, 0)
	keep(t, m, 5*sec, 0)
	before := save(t, m)
	bad := func(kind error, err error) {
		t.Helper()
		var e *lockstep.Error
		require.ErrorIs(t, err, kind)
		require.ErrorAs(t, err, &e)
		require.Equal(t, before, save(t, m))
	}
	_, err := m.Beat(at(3*sec), 0, Beat{Incarnation: 1})
	bad(lockstep.ErrPast, err)
	_, err = m.Check(nil, at(3*sec))
	bad(lockstep.ErrPast, err)
	_, err = m.Beat(time.Time{}, 0, Beat{Incarnation: 1})
	bad(lockstep.ErrInvalid, err)
	_, err = m.Beat(at(5*sec), 0, Beat{Incarnation: 1, Phase: PhaseOwn})
	bad(lockstep.ErrInvalid, err)
	_, err = m.Beat(at(5*sec), 0, Beat{Incarnation: 1, Phase: 200})
	bad(lockstep.ErrInvalid, err)
	_, err = m.Beat(at(5*sec), 0, Beat{Incarnation: 1, Pause: -1})
	bad(lockstep.ErrInvalid, err)
	_, err = m.Evidence(at(5*sec), 0, 1, Seen+1)
	bad(lockstep.ErrInvalid, err)
	_, err = m.Leave(at(3*sec), 0, 1)
	bad(lockstep.ErrPast, err)
	bad(lockstep.ErrDuplicate, m.Join(at(5*sec), 0, 1))
	bad(lockstep.ErrStale, m.Join(at(5*sec), 0, 0))
	bad(lockstep.ErrInvalid, m.Join(at(5*sec), -1, 1))
	bad(lockstep.ErrInvalid, m.Join(at(5*sec), lockstep.MaxMembers, 1))
	bad(lockstep.ErrPast, m.Join(at(3*sec), 1, 1))
	bad(lockstep.ErrConflict, m.Forget(0))
	bad(lockstep.ErrUnknown, m.Forget(1))
	bad(lockstep.ErrInvalid, m.Pause(at(5*sec), at(4*sec)))
	bad(lockstep.ErrInvalid, m.Pause(at(5*sec), time.Time{}))
	bad(lockstep.ErrPast, m.Pause(at(3*sec), at(4*sec)))
	bad(lockstep.ErrInvalid, m.Pause(at(5*sec), at(6*sec+lockstep.MaxWalltime)))
	bad(lockstep.ErrInvalid, m.Tune(at(5*sec), Config{Window: 3}))
	bad(lockstep.ErrInvalid, m.Tune(at(5*sec), Config{Learn: -1}))
	bad(lockstep.ErrPast, m.Tune(at(3*sec), Config{}))
}

func TestOutcomesOfBeats(t *testing.T) {
	m := newMonitor(t, Config{}, 0, 1, 2)
	send := func(rank int, inc, progress uint64) Outcome {
		out, err := m.Beat(at(sec), rank, Beat{Incarnation: inc, Progress: progress})
		require.NoError(t, err)
		return out
	}
	require.NoError(t, m.Join(t0, 2, 5))
	require.Equal(t, Stranger, send(9, 1, 0))
	require.Equal(t, Accepted, send(0, 1, 7))
	require.Equal(t, Repeated, send(0, 1, 7))
	require.Equal(t, Repeated, send(0, 1, 6), "within one instant the greatest counts")
	require.Equal(t, Stale, send(2, 1, 0))
	require.Equal(t, Early, send(2, 6, 0))
	out, err := m.Beat(at(2*sec), 0, Beat{Incarnation: 1, Progress: 3})
	require.NoError(t, err)
	require.Equal(t, Rewound, out)
	s, _ := m.Status(at(2*sec), 0)
	require.Equal(t, uint64(7), s.Progress)
	require.Equal(t, at(2*sec), s.Last)

	out, err = m.Leave(at(2*sec), 1, 1)
	require.NoError(t, err)
	require.Equal(t, Accepted, out)
	out, _ = m.Leave(at(2*sec), 1, 1)
	require.Equal(t, Retired, out)
	out, _ = m.Leave(at(2*sec), 9, 1)
	require.Equal(t, Stranger, out)
	out, _ = m.Beat(at(2*sec), 1, Beat{Incarnation: 1})
	require.Equal(t, Retired, out)
	out, _ = m.Evidence(at(2*sec), 0, 1, Broken)
	require.Equal(t, Accepted, out)
	out, _ = m.Beat(at(2*sec), 0, Beat{Incarnation: 1, Progress: 8})
	require.Equal(t, Fenced, out)
	require.Equal(t, "rank 0: unknown -> dead (broken); rank 1: unknown -> left (left); rank 2: unknown -> unknown (joined)", say(t, m.Check, 2*sec))
	require.NoError(t, m.Join(at(2*sec), 0, 2))
	require.Equal(t, "rank 0: dead -> unknown (joined)", say(t, m.Check, 2*sec))
	require.NoError(t, m.Forget(1))
	require.Equal(t, 2, m.Len())
	out, _ = m.Beat(at(3*sec), 1, Beat{Incarnation: 1})
	require.Equal(t, Stranger, out)
}

func TestHungIsAStateOfItsOwn(t *testing.T) {
	m := newMonitor(t, Config{Rules: []Rule{{Phase: PhaseStep, Gap: 20 * sec, Fixed: true}}}, 0, 1)
	beats := func(from, to time.Duration, zero uint64) string {
		out := ""
		for d := from; d <= to; d += sec {
			_, err := m.Beat(at(d), 0, Beat{Incarnation: 1, Progress: zero})
			require.NoError(t, err)
			beat(t, m, d, 1, uint64(d/sec), PhaseStep)
			out += say(t, m.Check, d)
		}
		return out
	}
	require.Equal(t, "rank 0: unknown -> alive (beating); rank 1: unknown -> alive (beating)", beats(sec, 20*sec, 0))
	wake, _ := m.NextWake(at(20 * sec))
	require.Equal(t, at(21*sec), wake)
	require.Equal(t, "rank 0: alive -> hung (no-progress)", beats(21*sec, 30*sec, 0))
	require.Equal(t, at(sec), m.Report().Members[0].Since, "the last progress")
	require.Equal(t, "rank 0: hung -> alive (progress)", beats(31*sec, 31*sec, 1))
	require.Equal(t, "rank 0: alive -> hung (no-progress)", beats(32*sec, 60*sec, 1), "a second stall is told")
	require.Equal(t, "rank 0: hung -> suspect (silent); rank 1: alive -> suspect (silent)", say(t, m.Check, 64700*time.Millisecond))
}

// TestFlippingPhasesIsNoProgress: each phase counts once between two steps.
func TestFlippingPhasesIsNoProgress(t *testing.T) {
	m := newMonitor(t, Config{Rules: []Rule{{Phase: PhaseStep, Gap: 20 * sec, Fixed: true}, {Phase: PhaseCheckpoint, Gap: 30 * sec, Fixed: true}}}, 0)
	hung := time.Duration(0)
	for d := sec; hung == 0 && d < 5*minute; d += sec {
		_, err := m.Beat(at(d), 0, Beat{Incarnation: 1, Phase: Phase(d / sec / 5 % 2 * 3)})
		require.NoError(t, err)
		if strings.Contains(say(t, m.Check, d), "hung") {
			hung = d
		}
	}
	require.Equal(t, 51*sec, hung)
}

func TestTuneRefusesToLosePhasesInUse(t *testing.T) {
	m := newMonitor(t, Config{Rules: []Rule{{Phase: PhaseOwn, Gap: minute}}}, 0)
	beat(t, m, sec, 0, 1, PhaseOwn)
	require.ErrorIs(t, m.Tune(at(sec), Config{}), lockstep.ErrConflict)
	require.NoError(t, m.Tune(at(sec), Config{Rules: []Rule{{Phase: PhaseOwn, Gap: 2 * minute}}}))
	s, _ := m.Status(at(sec), 0)
	require.Equal(t, at(sec+2*minute), s.HungAt)
}

func TestNamesAreStable(t *testing.T) {
	for s := range states {
		var back State
		text, err := s.MarshalText()
		require.NoError(t, err)
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, s, back)
	}
	var s State
	require.ErrorIs(t, s.UnmarshalText([]byte("fine")), lockstep.ErrInvalid)
	require.Equal(t, "unknown alive hung suspect dead left 6", strings.Join([]string{Unknown.String(), Alive.String(), Hung.String(), Suspect.String(), Dead.String(), Left.String(), State(6).String()}, " "))
	require.Equal(t, "teardown 6 accepted dropped exited seen phi deadline rank observer late", strings.Join([]string{
		PhaseTeardown.String(), PhaseOwn.String(), Accepted.String(), Dropped.String(), Exited.String(), Seen.String(),
		PhiAccrual.String(), Deadline.String(), RankChanged.String(), ObserverLate.String(),
	}, " "))
}
