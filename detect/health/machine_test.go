package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// t0 is when tests begin.
var t0 = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// bed is a machine with what was decided so far.
type bed struct {
	*Machine
	t    *testing.T
	seen []Transition
}

// newBed tracks nodes n0, n1, … with devices g0, g1, …, which all passed a probe.
func newBed(t *testing.T, cfg Config, nodes, devices int) *bed {
	t.Helper()
	m, err := New(cfg)
	require.NoError(t, err)
	b := &bed{Machine: m, t: t}
	for n := range nodes {
		var ids []lockstep.DeviceID
		for d := range devices {
			ids = append(ids, dev(d))
		}
		require.NoError(t, m.Track(t0, nod(n), ids...))
		for _, id := range ids {
			b.observe(Event{Time: t0, Kind: Seen, Node: nod(n), Device: id, Source: "watch/" + string(nod(n))})
			b.observe(Event{Time: t0, Kind: Probe, Node: nod(n), Device: id, Code: "diag", Passed: true})
			b.observe(Event{Time: t0, Kind: Probe, Node: nod(n), Device: id, Code: "speed", Passed: true})
		}
	}
	b.step(time.Millisecond)
	b.seen = nil
	return b
}

func nod(n int) lockstep.NodeID   { return lockstep.NodeID(fmt.Sprint("n", n)) }
func dev(n int) lockstep.DeviceID { return lockstep.DeviceID(fmt.Sprint("g", n)) }

// quietly is a configuration in which silence of an observer means nothing.
func quietly() Config { return Config{Stale: lockstep.MaxWalltime} }

func (b *bed) observe(e Event) {
	b.t.Helper()
	require.NoError(b.t, b.Observe(e))
}

// at takes an event of n0/g0 in, at a time after t0.
func (b *bed) at(after time.Duration, e Event) {
	b.t.Helper()
	e.Time = t0.Add(after)
	if e.Node == "" {
		e.Node = nod(0)
		if e.Device == "" && e.Kind != Boot {
			e.Device = dev(0)
		}
	}
	b.observe(e)
}

// step decides up to a time after t0 and returns what is new.
func (b *bed) step(after time.Duration) []Transition {
	b.t.Helper()
	out, err := b.Step(t0.Add(after))
	require.NoError(b.t, err)
	b.seen = append(b.seen, out...)
	return out
}

// state is the state of a device.
func (b *bed) state(n, d int) State {
	b.t.Helper()
	s, ok := b.Status(nod(n), dev(d))
	require.True(b.t, ok)
	return s.State
}

// moves renders transitions as "n0/g0 healthy>suspect action reason code".
func moves(in []Transition) (out []string) {
	for _, tr := range in {
		out = append(out, fmt.Sprintf("%s/%s %s>%s %s %s %s", tr.Node, tr.Device, tr.From, tr.To, tr.Action, tr.Reason, tr.Code))
	}
	return out
}

func TestUnknownIsNotHealthy(t *testing.T) {
	m, err := New(Config{})
	require.NoError(t, err)
	require.NoError(t, m.Track(t0, "n", "g"))
	s, ok := m.Status("n", "g")
	require.True(t, ok)
	require.Equal(t, Unknown, s.State)
	require.False(t, s.Open)
	require.NoError(t, m.Observe(Event{Time: t0, Kind: Seen, Node: "n", Device: "g"}))
	out, err := m.Step(t0.Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, out, "to be seen is not enough")
	require.NoError(t, m.Observe(Event{Time: t0.Add(time.Hour), Kind: Probe, Node: "n", Device: "g", Code: "diag", Passed: true}))
	out, err = m.Step(t0.Add(time.Hour + 1))
	require.NoError(t, err)
	require.Equal(t, []string{"n/g unknown>healthy none vouched "}, moves(out))
}

func TestLenientTakesWhatIsSeen(t *testing.T) {
	m, err := New(Config{Lenient: true})
	require.NoError(t, err)
	require.NoError(t, m.Track(t0, "n", "g", "h"))
	require.NoError(t, m.Observe(Event{Time: t0, Kind: Seen, Node: "n", Device: "g"}))
	require.NoError(t, m.Observe(Event{Time: t0, Kind: Seen, Node: "n", Device: "h"}))
	require.NoError(t, m.Observe(Event{Time: t0, Kind: Fault, Node: "n", Device: "h", Code: XID(92)}))
	out, err := m.Step(t0.Add(1))
	require.NoError(t, err)
	require.Equal(t, []string{"n/g unknown>healthy none vouched "}, moves(out), "but not one with evidence against it")
}

// TestTheWayOutAndBack goes through all states.
func TestTheWayOutAndBack(t *testing.T) {
	b := newBed(t, quietly(), 1, 2)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(92)})
	require.Equal(t, []string{"n0/g0 healthy>suspect watch evidence xid/92"}, moves(b.step(time.Minute+1)))
	b.at(2*time.Minute, Event{Kind: Fault, Code: XID(74)})
	require.Equal(t, []string{"n0/g0 suspect>cordoned cordon evidence xid/74"}, moves(b.step(2*time.Minute+1)))
	b.at(3*time.Minute, Event{Kind: Fault, Code: XID(48)})
	require.Equal(t, []string{"n0/g0 cordoned>draining reset evidence xid/48"}, moves(b.step(3*time.Minute+1)))
	b.at(4*time.Minute, Event{Kind: Fault, Code: XID(79)})
	require.Equal(t, []string{"n0/g0 draining>draining reboot evidence xid/79"}, moves(b.step(4*time.Minute+1)), "what it needs grew")
	b.at(5*time.Minute, Event{Kind: Drained})
	require.Equal(t, []string{"n0/g0 draining>quarantined reboot drained xid/79"}, moves(b.step(5*time.Minute+1)))
	b.at(6*time.Minute, Event{Kind: Repaired, Action: ActionReset})
	require.Empty(t, b.step(6*time.Minute+1), "a reset is not enough")
	b.at(7*time.Minute, Event{Kind: Repaired, Action: ActionReboot})
	require.Equal(t, []string{"n0/g0 quarantined>probation cordon repaired "}, moves(b.step(7*time.Minute+1)))
	require.Empty(t, b.step(2*time.Hour), "time alone does not bring it back")
	b.at(3*time.Hour, Event{Kind: Probe, Code: "diag", Passed: true})
	out := b.step(4 * time.Hour)
	require.Equal(t, []string{"n0/g0 probation>healthy none quiet "}, moves(out))
	require.Equal(t, t0.Add(3*time.Hour), out[0].Time)
	require.Equal(t, Healthy, b.state(0, 1), "the other one had nothing to do with it")
}

func TestProbationTakesItsTimeAfterAPass(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(48)})
	b.at(2*time.Minute, Event{Kind: Drained})
	b.at(3*time.Minute, Event{Kind: Repaired, Action: ActionReset})
	b.at(4*time.Minute, Event{Kind: Probe, Code: "diag", Passed: true})
	b.step(5 * time.Minute)
	require.Equal(t, Probation, b.state(0, 0))
	wake, ok := b.NextWake()
	require.True(t, ok)
	require.Equal(t, t0.Add(33*time.Minute+1), wake)
	require.Empty(t, b.step(33*time.Minute))
	require.Len(t, b.step(33*time.Minute+1), 1)
	require.Equal(t, Healthy, b.state(0, 0))
}

// TestAPassBeforeTheRepairDoesNotCount: on probation it takes one of that time, and the
// dwell.
func TestAPassBeforeTheRepairDoesNotCount(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(79)})
	b.at(2*time.Minute, Event{Kind: Drained})
	b.passes(3*time.Minute, 0, 0)
	b.at(4*time.Minute, Event{Kind: Repaired, Action: ActionReboot})
	b.at(23*time.Hour, Event{Kind: Seen, Source: "watch/n0"})
	b.step(24 * time.Hour)
	require.Equal(t, Probation, b.state(0, 0))
	b.passes(24*time.Hour, 0, 0)
	b.step(24*time.Hour + 1)
	require.Equal(t, Healthy, b.state(0, 0), "the dwell was over")
}

// TestAPassBeforeTheConditionIsOverDoesNotCount: the way back begins when it is over.
func TestAPassBeforeTheConditionIsOverDoesNotCount(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(74)})
	b.passes(2*time.Minute, 0, 0)
	b.at(3*time.Minute, Event{Kind: Clear, Code: XID(74)})
	b.step(24 * time.Hour)
	require.Equal(t, Cordoned, b.state(0, 0))
	b.passes(24*time.Hour, 0, 0)
	b.step(24*time.Hour + 1)
	require.Equal(t, Healthy, b.state(0, 0))
}

// TestABootThatIsToldLateIsNoReboot, and so the next that is told of the present boot is
// none either.
func TestABootThatIsToldLateIsNoReboot(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	boot := func(after time.Duration, name string) {
		b.at(after, Event{Kind: Boot, Node: "n0", Boot: name})
		b.step(max(b.time(), after) + 1)
	}
	boot(time.Second, "b0")
	boot(10*time.Minute, "b1")
	b.at(20*time.Minute, Event{Kind: Fault, Code: XID(79)})
	b.step(21 * time.Minute)
	boot(time.Second, "b0")
	boot(30*time.Minute, "b1") // the watcher began anew
	require.Equal(t, Draining, b.state(0, 0))
	boot(40*time.Minute, "b2")
	require.Equal(t, Probation, b.state(0, 0))
}

func TestAFailedProbeAsksForItself(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Probe, Code: "speed"})
	require.Equal(t, []string{"n0/g0 healthy>draining drain evidence probe/speed"}, moves(b.step(time.Minute+1)))
	b.at(2*time.Minute, Event{Kind: Drained})
	require.Equal(t, []string{"n0/g0 draining>probation cordon drained probe/speed"}, moves(b.step(2*time.Minute+1)))
	b.at(time.Hour, Event{Kind: Probe, Code: "diag", Passed: true})
	require.Empty(t, b.step(2*time.Hour))
	b.at(3*time.Hour, Event{Kind: Probe, Code: "speed", Passed: true})
	require.Equal(t, []string{"n0/g0 probation>healthy none quiet "}, moves(b.step(4*time.Hour)))
}

func TestWhatFailsOnProbationNeedsARepair(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Probe, Code: "speed"})
	b.at(2*time.Minute, Event{Kind: Drained})
	b.at(20*time.Minute, Event{Kind: Probe, Code: "speed"})
	b.step(21 * time.Minute)
	require.Equal(t, "n0/g0 probation>quarantined reset evidence probe/speed", moves(b.seen)[2])
	b.at(22*time.Minute, Event{Kind: Repaired, Action: ActionReset})
	b.at(23*time.Minute, Event{Kind: Probe, Code: "speed", Passed: true})
	b.step(24 * time.Hour)
	require.Equal(t, Healthy, b.state(0, 0))
}

// relapse takes n0/g0 down by code and back up, and returns how long it had to be
// quiet.
func (b *bed) relapse(from time.Duration, code Code) time.Duration {
	b.t.Helper()
	b.at(from, Event{Kind: Fault, Code: code})
	b.step(from + 1)
	s, _ := b.Status("n0", "g0")
	b.at(from+1, Event{Kind: Probe, Code: "diag", Passed: true})
	b.step(from + s.Dwell + 2)
	return s.Dwell
}

func TestDwellDoublesWithEachRelapse(t *testing.T) {
	cfg := quietly()
	cfg.SameRelapses, cfg.AnyRelapses, cfg.MaxDwell = 16, 16, 3*time.Hour
	b := newBed(t, cfg, 1, 1)
	var got []time.Duration
	for k := range 5 {
		got = append(got, b.relapse(time.Duration(k+1)*24*time.Hour, XID(74)))
		require.Equal(t, Healthy, b.state(0, 0))
	}
	require.Equal(t, []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 3 * time.Hour}, got)
	require.Equal(t, 30*time.Minute, b.relapse(30*24*time.Hour, XID(74)), "they are forgotten")
}

func TestRelapsesAskForInspection(t *testing.T) {
	for _, c := range []struct {
		name  string
		codes []uint64
	}{
		{"of one code after 3", []uint64{74, 74, 74, 74}},
		{"of any code after 5", []uint64{74, 78, 74, 78, 7, 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, quietly(), 1, 1)
			for k, n := range c.codes {
				require.Equal(t, Healthy, b.state(0, 0))
				at := time.Duration(k+1) * 24 * time.Hour
				if k < len(c.codes)-1 {
					b.relapse(at, XID(n))
					continue
				}
				b.at(at, Event{Kind: Fault, Code: XID(n)})
				require.Equal(t, []string{"n0/g0 healthy>draining inspect relapse " + string(XID(n))}, moves(b.step(at+1)))
				b.at(at+1, Event{Kind: Drained})
				b.at(at+2, Event{Kind: Repaired, Action: ActionReboot})
				b.step(at + 3)
				require.Equal(t, Quarantined, b.state(0, 0), "a reboot is no inspection")
				b.at(at+4, Event{Kind: Repaired, Action: ActionInspect})
				b.step(at + 5)
				require.Equal(t, Probation, b.state(0, 0))
				b.at(at+6, Event{Kind: Fault, Code: XID(n)})
				b.step(at + 7)
				require.Equal(t, Quarantined, b.state(0, 0), "on probation there is no work to drain")
			}
		})
	}
}

func TestOneCodeFiveTimesADayEscalates(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	for k := range 5 {
		for j := range 100 { // a burst is one
			b.at(time.Duration(k+1)*time.Hour+time.Duration(j)*time.Second, Event{Kind: Fault, Code: XID(163)})
		}
	}
	b.step(5 * time.Hour)
	require.Equal(t, Suspect, b.state(0, 0))
	b.step(6 * time.Hour)
	require.Equal(t, Draining, b.state(0, 0))
	last := b.seen[len(b.seen)-1]
	require.Equal(t, []string{"n0/g0 suspect>draining inspect repeated xid/163"}, moves([]Transition{last})[:1])
	require.Equal(t, 5, last.Count)
	b.at(6*time.Hour, Event{Kind: Fault, Code: XID(162)})
	b.step(6*time.Hour + 1)
	require.Equal(t, Draining, b.state(0, 0), "that it is over does not undo that it came so often")
}

func TestAFailingJobIsNoFaultOfTheDevice(t *testing.T) {
	for _, c := range []struct {
		name string
		job  func(k int) lockstep.JobID
		want State
	}{
		{"one job again and again", func(int) lockstep.JobID { return "j" }, Healthy},
		{"jobs without a name", func(int) lockstep.JobID { return "" }, Healthy},
		{"one job after another", func(k int) lockstep.JobID { return lockstep.JobID(fmt.Sprint("j", k)) }, Cordoned},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, quietly(), 1, 1)
			for k := range 12 {
				b.at(time.Duration(k+1)*time.Hour, Event{Kind: Fault, Code: XID(13), Job: c.job(k)})
			}
			b.step(13 * time.Hour)
			require.Equal(t, c.want, b.state(0, 0))
		})
	}
}

func TestTwoRebootsThatDoNotHelpAskForInspection(t *testing.T) {
	run := func(code Code) *bed {
		b := newBed(t, quietly(), 1, 1)
		b.at(time.Second, Event{Kind: Boot, Boot: "b0"})
		for k := range 3 {
			at := time.Duration(k+1) * 10 * time.Minute
			b.at(at, Event{Kind: Fault, Code: code, Boot: fmt.Sprint("b", k)})
			b.at(at+time.Minute, Event{Kind: Drained})
			b.at(at+2*time.Minute, Event{Kind: Boot, Boot: fmt.Sprint("b", k+1)})
			b.step(at + time.Hour/10)
		}
		return b
	}
	b := run(XID(119))
	require.Contains(t, moves(b.seen), "n0/g0 probation>quarantined inspect repeated xid/119")
	require.Equal(t, Quarantined, b.state(0, 0), "the third reboot is no inspection")
	require.Equal(t, Healthy, run(XID(94)).state(0, 0), "a contained error is the job's")
}

func TestABootRepairsWhatARebootCan(t *testing.T) {
	b := newBed(t, quietly(), 1, 2)
	b.at(time.Second, Event{Kind: Boot, Boot: "b0"})
	b.at(time.Minute, Event{Kind: Fault, Code: XID(79)})
	b.at(time.Minute, Event{Kind: Fault, Code: "rows/failed", Node: "n0", Device: "g1"})
	b.at(2*time.Minute, Event{Kind: Boot, Boot: "b0"})
	b.step(3 * time.Minute)
	require.Equal(t, Draining, b.state(0, 0), "that was the same boot")
	b.at(3*time.Minute, Event{Kind: Boot, Boot: "b1"})
	b.step(4 * time.Minute)
	require.Equal(t, Probation, b.state(0, 0))
	require.Equal(t, Draining, b.state(0, 1), "what asks for inspection does not go away")
}

func TestCountersAreJudgedByGrowth(t *testing.T) {
	read := func(code Code, v int64, boot string) Event {
		return Event{Kind: Reading, Code: code, Value: v, Boot: boot}
	}
	for _, c := range []struct {
		name   string
		events []Event
		want   State
	}{
		{"volatile from the start", []Event{read("ecc/uncorrected", 1, "")}, Draining},
		{"volatile nothing", []Event{read("ecc/uncorrected", 0, ""), read("ecc/uncorrected", 0, "")}, Healthy},
		{"life from the start is history", []Event{read("ecc/lifetime", 7, ""), read("ecc/lifetime", 7, "")}, Healthy},
		{"life that grows", []Event{read("ecc/lifetime", 7, ""), read("ecc/lifetime", 8, "")}, Suspect},
		{"life that falls is another device", []Event{read("ecc/lifetime", 7, ""), read("ecc/lifetime", 3, ""), read("ecc/lifetime", 3, "")}, Healthy},
		{"life outlives a boot", []Event{read("ecc/lifetime", 7, "a"), read("ecc/lifetime", 8, "b")}, Suspect},
		{"rate below the limit", []Event{read("ecc/corrected", 500, ""), read("ecc/corrected", 999, "")}, Healthy},
		{"rate at the limit", []Event{read("ecc/corrected", 500, ""), read("ecc/corrected", 1100, "")}, Suspect},
		{"reset between", []Event{read("ecc/corrected", 900, ""), read("ecc/corrected", 200, "")}, Suspect},
		{"reset seen by the boot only", []Event{read("ecc/corrected", 500, "a"), read("ecc/corrected", 600, "b")}, Suspect},
		{"no reset", []Event{read("ecc/corrected", 500, "a"), read("ecc/corrected", 600, "a")}, Healthy},
		{"near the end of int64", []Event{read("ecc/corrected", 1<<63-1, ""), read("ecc/corrected", 5, "")}, Suspect},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, quietly(), 1, 1)
			for k, e := range c.events {
				b.at(time.Duration(k+1)*time.Minute, e)
			}
			b.step(time.Hour / 6)
			require.Equal(t, c.want, b.state(0, 0))
		})
	}
}

func TestAVolatileCounterCountsOnce(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Reading, Code: "ecc/uncorrected", Value: 1})
	b.at(2*time.Minute, Event{Kind: Drained})
	for k := range 200 {
		b.at(2*time.Minute+time.Duration(k)*time.Minute, Event{Kind: Reading, Code: "ecc/uncorrected", Value: 1})
	}
	b.at(3*time.Minute, Event{Kind: Probe, Code: "diag", Passed: true})
	b.step(3 * time.Hour)
	require.Equal(t, Healthy, b.state(0, 0), "the same value is no new error")
}

func TestCorrectedErrorsLeakAway(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	for k := range 100 {
		b.at(time.Duration(k)*time.Hour, Event{Kind: Reading, Code: "ecc/corrected", Value: int64(900 * k)})
	}
	b.step(100 * time.Hour)
	require.Empty(t, b.seen, "900 an hour is below 1000 an hour")
}

func TestLevelsCountWhileTheyLast(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	hot := func(at time.Duration, v int64) { b.at(at, Event{Kind: Reading, Code: "temperature", Value: v}) }
	hot(time.Minute, 95)
	hot(90*time.Second, 89)
	hot(2*time.Minute, 95)
	hot(150*time.Second, 95)
	require.Empty(t, b.step(3*time.Minute), "not for a minute yet")
	require.Equal(t, []string{"n0/g0 healthy>suspect watch evidence temperature"}, moves(b.step(3*time.Minute+1)))
	require.Empty(t, b.step(5*time.Hour), "it lasts as long as nobody says otherwise")
	hot(5*time.Hour, 60)
	require.Empty(t, b.step(5*time.Hour+10*time.Minute))
	require.Equal(t, []string{"n0/g0 suspect>healthy none quiet "}, moves(b.step(5*time.Hour+10*time.Minute+1)))
}

func TestPendingRowsCordonUntilTheReset(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	rows := func(at time.Duration, v int64) { b.at(at, Event{Kind: Reading, Code: "rows/pending", Value: v}) }
	for k := range 100 {
		rows(time.Duration(k+1)*10*time.Minute, 1)
		b.at(time.Duration(k+1)*10*time.Minute+1, Event{Kind: Probe, Code: "diag", Passed: true})
	}
	b.step(17 * time.Hour)
	require.Equal(t, []string{"n0/g0 healthy>cordoned cordon evidence rows/pending"}, moves(b.seen))
	rows(18*time.Hour, 0)
	b.at(18*time.Hour+1, Event{Kind: Probe, Code: "diag", Passed: true})
	b.step(19 * time.Hour)
	require.Equal(t, Healthy, b.state(0, 0))
}

func TestFurtherEvidence(t *testing.T) {
	for _, c := range []struct {
		code  Code
		value int64
		want  State
	}{
		{"throttle/hardware", 1, Suspect},
		{"throttle/thermal", 1, Suspect},
		{"throttle/brake", 1, Cordoned},
		{"throttle/power", 1, Healthy},
		{"throttle/idle", 1, Healthy},
		{"temperature", 90, Suspect},
		{"temperature", 89, Healthy},
		{"nic/down", 1, Cordoned},
		{"nic/errors", 1000, Suspect},
		{"use/low", 50, Suspect},
		{"use/low", 51, Healthy},
		{"memory/full", 990, Healthy},
		{"link/down", 2, Cordoned},
		{"rows/failed", 1, Draining},
		{"recovery/reset", 1, Draining},
		{"recovery/reset", 0, Healthy},
		{"recovery/of-the-future", 1, Cordoned},
	} {
		t.Run(fmt.Sprintf("%s=%d", c.code, c.value), func(t *testing.T) {
			b := newBed(t, quietly(), 1, 1)
			for k := range 40 {
				b.at(time.Duration(k+1)*time.Minute, Event{Kind: Reading, Code: c.code, Value: c.value})
			}
			b.step(time.Hour)
			got := Healthy
			if len(b.seen) > 0 {
				got = b.seen[0].To
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestAQuorumOfPeersIsNeeded(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	for range 9 {
		b.at(time.Minute, Event{Kind: Fault, Code: "peer", Source: "n7"})
	}
	b.at(2*time.Minute, Event{Kind: Fault, Code: "peer", Source: "n8"})
	require.Empty(t, b.step(3*time.Minute))
	b.at(3*time.Minute, Event{Kind: Fault, Code: "peer", Source: "n8"})
	b.at(3*time.Minute, Event{Kind: Fault, Code: "peer", Source: "n9"})
	require.Equal(t, []string{"n0/g0 healthy>suspect watch evidence peer"}, moves(b.step(3*time.Minute+1)))
}

func TestANodeClosesItsDevices(t *testing.T) {
	b := newBed(t, quietly(), 2, 2)
	b.observe(Event{Time: t0.Add(time.Minute), Kind: Reading, Node: "n0", Code: "nic/down", Value: 1})
	require.Equal(t, []string{"n0/ unknown>cordoned cordon evidence nic/down"}, moves(b.step(2*time.Minute)))
	for k := range 2 {
		s, _ := b.Status("n0", dev(k))
		require.Equal(t, Healthy, s.State)
		require.False(t, s.Open)
		s, _ = b.Status("n1", dev(k))
		require.True(t, s.Open)
	}
}

func TestManualOverridesStick(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	pin := func(at time.Duration, s State) {
		b.at(at, Event{Kind: Override, State: s, Source: "ann", Note: "ticket 7"})
	}
	pin(time.Minute, Cordoned)
	pin(time.Minute, Cordoned)
	require.Equal(t, []string{"n0/g0 healthy>cordoned cordon manual "}, moves(b.step(2*time.Minute)))
	require.Equal(t, "ann", b.seen[0].Source)
	b.at(2*time.Minute, Event{Kind: Probe, Code: "diag", Passed: true})
	require.Empty(t, b.step(24*time.Hour), "nothing opens it")
	s, _ := b.Status("n0", "g0")
	require.Equal(t, "ann", s.Manual)
	require.Equal(t, "ticket 7", s.Note)
	pin(24*time.Hour, Healthy)
	b.at(25*time.Hour, Event{Kind: Fault, Code: XID(79)})
	require.Equal(t, []string{"n0/g0 cordoned>healthy none manual "}, moves(b.step(26*time.Hour)), "nothing closes it")
	s, _ = b.Status("n0", "g0")
	require.Equal(t, XID(79), s.Code, "but it is on record")
	pin(12*time.Hour, Retired)
	require.Empty(t, b.step(27*time.Hour), "an older word does not count")
	pin(27*time.Hour, "")
	require.Equal(t, []string{"n0/g0 healthy>draining reboot evidence xid/79"}, moves(b.step(27*time.Hour+1)))
	pin(28*time.Hour, Retired)
	pin(29*time.Hour, Healthy)
	pin(30*time.Hour, "")
	b.at(30*time.Hour, Event{Kind: Repaired, Action: ActionInspect})
	b.step(60 * time.Hour)
	require.Equal(t, Retired, b.state(0, 0), "there is no way back")
}

func TestASilentObserverIsNoHealth(t *testing.T) {
	b := newBed(t, Config{}, 1, 2)
	out := b.step(time.Hour)
	require.Equal(t, []string{"n0/g0 healthy>unknown cordon stale ", "n0/g1 healthy>unknown cordon stale "}, moves(out))
	require.Equal(t, t0.Add(10*time.Minute), out[0].Time)
	b.at(time.Hour, Event{Kind: Seen, Source: "watch/n0"})
	require.Equal(t, []string{"n0/g0 unknown>healthy none vouched "}, moves(b.step(time.Hour+1)))
}

func TestClocksThatAreWrong(t *testing.T) {
	t.Run("ahead", func(t *testing.T) {
		b := newBed(t, quietly(), 1, 1)
		b.at(1000*time.Hour, Event{Kind: Fault, Code: XID(79)})
		b.step(time.Minute)
		b.step(time.Minute + 1)
		require.Equal(t, Draining, b.state(0, 0), "evidence does not wait for its time")
	})
	t.Run("behind", func(t *testing.T) {
		b := newBed(t, quietly(), 1, 1)
		b.at(12*time.Hour, Event{Kind: Fault, Code: XID(74)})
		b.at(12*time.Hour+1, Event{Kind: Probe, Code: "diag", Passed: true})
		b.step(24 * time.Hour)
		require.Equal(t, Healthy, b.state(0, 0))
		b.at(11*time.Hour, Event{Kind: Fault, Code: XID(74)})
		b.at(12*time.Hour, Event{Kind: Fault, Code: XID(74)})
		b.step(24*time.Hour + 1)
		require.Equal(t, Cordoned, b.state(0, 0), "what was not known counts from when it is")
		b.at(11*time.Hour+1, Event{Kind: Probe, Code: "diag", Passed: true})
		b.at(23*time.Hour+1, Event{Kind: Probe, Code: "diag", Passed: true})
		b.step(36 * time.Hour)
		require.Equal(t, Cordoned, b.state(0, 0), "a pass does not")
	})
}

func TestReadingsThatComeLate(t *testing.T) {
	b := newBed(t, quietly(), 1, 2)
	b.at(12*time.Hour, Event{Kind: Reading, Code: "ecc/uncorrected", Value: 0})
	b.at(12*time.Hour, Event{Kind: Reading, Code: "rows/pending", Value: 0})
	b.step(24 * time.Hour)
	b.at(11*time.Hour, Event{Kind: Reading, Code: "rows/pending", Value: 1})
	b.at(10*time.Hour, Event{Kind: Reading, Code: "ecc/uncorrected", Value: 0})
	require.Empty(t, b.step(25*time.Hour), "an old level and an old count say nothing")
	b.at(11*time.Hour, Event{Kind: Reading, Code: "ecc/uncorrected", Value: 1})
	require.Equal(t, []string{"n0/g0 healthy>draining drain evidence ecc/uncorrected"}, moves(b.step(26*time.Hour)), "more than was known is news")
}

func TestTheLatestProbesAreRemembered(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: CodeSlow})
	b.at(2*time.Minute, Event{Kind: Probe, Code: "speed", Passed: true})
	for k := range 3 * most {
		b.at(time.Second+time.Duration(k), Event{Kind: Probe, Code: Code(fmt.Sprint("old-", k)), Passed: true})
	}
	b.step(time.Hour)
	require.Equal(t, Healthy, b.state(0, 0))
	require.Len(t, b.nodes["n0"].devices[0].passes, most)
}

func TestComplaint16ThresholdsChangeWithoutARestart(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(74)})
	b.at(time.Minute+1, Event{Kind: Probe, Code: "diag", Passed: true})
	b.step(2 * time.Minute)
	cfg := quietly()
	cfg.Dwell = 5 * time.Minute
	cfg.Policy = Catalog().With(Entry{Code: XID(79), Class: "bus", Action: ActionWatch, Source: "us", Version: "1", Date: "2026-01-01"})
	require.NoError(t, b.Configure(cfg))
	out := b.step(7 * time.Minute)
	require.Len(t, out, 1)
	require.Equal(t, t0.Add(6*time.Minute), out[0].Time)
	b.at(8*time.Minute, Event{Kind: Fault, Code: XID(79)})
	b.step(9 * time.Minute)
	require.Equal(t, Suspect, b.state(0, 0))
	require.ErrorIs(t, b.Configure(Config{Dwell: -1}), lockstep.ErrInvalid)
}

func TestPenaltiesDecayAndLeaveAFloor(t *testing.T) {
	b := newBed(t, quietly(), 1, 3)
	penalty := func(d int) int {
		s, ok := b.Status("n0", dev(d))
		require.True(t, ok)
		return s.Penalty
	}
	require.Zero(t, penalty(0))
	b.at(time.Hour, Event{Kind: Fault, Node: "n0", Device: "g0", Code: XID(92)})
	for k := range 9 {
		b.at(time.Hour+time.Duration(k), Event{Kind: Fault, Node: "n0", Device: "g1", Code: XID(uint64(1000 + k))})
	}
	b.step(time.Hour + 10)
	require.Equal(t, 100, penalty(0), "an occurrence weighs by what it asks for")
	require.Equal(t, 950, penalty(1), "never all of it")
	require.Zero(t, penalty(2))
	last := 100
	for k, want := range map[int]int{12: 75, 24: 50, 36: 37, 48: 25} { // each by itself, in any order
		m := b.restored(quietly())
		m.step(time.Hour + time.Duration(k)*time.Hour)
		s, _ := m.Status("n0", "g0")
		require.InDelta(t, want, s.Penalty, 1)
	}
	for k := range 2000 {
		b.step(2*time.Hour + time.Duration(k)*time.Hour)
		require.LessOrEqual(t, penalty(0), last)
		last = penalty(0)
	}
	require.Zero(t, last)
}

func TestForgetLeavesNothingBehind(t *testing.T) {
	b := newBed(t, Config{Domain: func(lockstep.NodeID) string { return "rack" }}, 3, 2)
	empty := newBed(t, Config{}, 0, 0)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(74)})
	b.at(time.Minute, Event{Kind: Fault, Code: XID(74), Node: "n1", Device: "g0"})
	b.at(time.Minute, Event{Kind: Fault, Code: XID(13), Node: "n2", Device: "g1"})
	b.step(2 * time.Minute)
	b.at(2*time.Minute, Event{Kind: Fault, Code: XID(79), Node: "n2", Device: "g1"})
	require.NoError(t, b.Forget("n2", "g1"))
	_, ok := b.Status("n2", "g1")
	require.False(t, ok)
	for k := range 3 {
		require.NoError(t, b.Forget(nod(k)))
	}
	require.Empty(t, b.step(time.Hour))
	empty.step(time.Hour)
	b.step(2 * time.Hour)
	empty.step(2 * time.Hour)
	require.Empty(t, b.timers.Len())
	require.Empty(t, b.sources)
	require.Empty(t, b.domains)
	require.ErrorIs(t, b.Forget("n0"), lockstep.ErrUnknown)
}

// A repair counts from when the device was closed for it: told late, it still does; one from before does not, however
// late it is told.
func TestRepairsCountFromWhenTheDeviceWasClosed(t *testing.T) {
	for _, tt := range []struct {
		repaired time.Duration
		want     State
	}{{30 * time.Second, Quarantined}, {90 * time.Second, Probation}, {3 * time.Minute, Probation}} {
		b := newBed(t, quietly(), 1, 1)
		b.at(time.Minute, Event{Kind: Fault, Code: XID(48)})
		b.at(2*time.Minute, Event{Kind: Drained})
		b.step(3 * time.Minute)
		require.Equal(t, Quarantined, b.state(0, 0))
		e := Event{Time: t0.Add(tt.repaired), Kind: Repaired, Node: nod(0), Device: dev(0), Action: ActionReset, Source: "ops"}
		for range 2 { // told twice
			b.observe(e)
			b.step(b.time() + time.Minute)
			require.Equal(t, tt.want, b.state(0, 0), tt.repaired)
		}
	}
}

// Of two boots of one instant the greater name counts, in either order, and telling a loss of the whole node again that
// is over takes nothing back.
func TestBootsOfOneInstantAndLossesToldAgain(t *testing.T) {
	boot := func(name string) Event {
		return Event{Time: t0.Add(time.Minute), Kind: Boot, Node: nod(0), Boot: name, Source: "ops"}
	}
	one, two := newBed(t, quietly(), 1, 1), newBed(t, quietly(), 1, 1)
	for k, name := range []string{"b1", "b2", "b1"} {
		one.observe(boot(name))
		one.step(time.Minute + time.Duration(k+1))
	}
	for k, name := range []string{"b2", "b1", "b2"} {
		two.observe(boot(name))
		two.step(time.Minute + time.Duration(k+1))
	}
	require.Equal(t, "b2", one.nodes[nod(0)].boot)
	require.Equal(t, "b2", two.nodes[nod(0)].boot)

	lost := Event{Time: t0.Add(5 * time.Minute), Kind: Lost, Node: nod(0), Source: "ops"}
	one.observe(lost)
	one.step(6 * time.Minute)
	require.Equal(t, Unknown, one.state(0, 0))
	one.passes(7*time.Minute, 0, 0)
	one.step(8 * time.Minute)
	require.Equal(t, Healthy, one.state(0, 0))
	one.observe(lost)
	one.step(9 * time.Minute)
	require.Equal(t, Healthy, one.state(0, 0))
}
