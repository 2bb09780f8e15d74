package health

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// TestARepairUnderAManualHoldDoesNoMoreThanItSays: a reset does not stand in for the
// reboot that the evidence asks for, whoever held the device meanwhile.
func TestARepairUnderAManualHoldDoesNoMoreThanItSays(t *testing.T) {
	for _, late := range []bool{false, true} { // the evidence comes before the hold, or under it
		b := newBed(t, quietly(), 1, 1)
		fall := Event{Kind: Fault, Code: XID(79)}
		if !late {
			b.at(time.Minute, fall)
		}
		b.at(2*time.Minute, Event{Kind: Override, State: Quarantined, Source: "ann"})
		if late {
			b.at(3*time.Minute, fall)
		}
		b.step(4 * time.Minute)
		s, _ := b.Status("n0", "g0")
		require.Equal(t, ActionReboot, s.Action, "what is to be done is told under a hold too")
		b.at(5*time.Minute, Event{Kind: Repaired, Action: ActionReset})
		b.at(6*time.Minute, Event{Kind: Override, Source: "ann"})
		b.passes(7*time.Minute, 0, 0)
		b.step(48 * time.Hour)
		require.False(t, b.state(0, 0).Open())
		b.at(49*time.Hour, Event{Kind: Drained})
		b.at(50*time.Hour, Event{Kind: Repaired, Action: ActionReboot})
		b.step(51 * time.Hour)
		require.Equal(t, Probation, b.state(0, 0))
	}
}

// TestAnOverrideThatIsToldLateDoesNotComeBack: neither one that is told again after it
// was ended, nor one that was older.
func TestAnOverrideThatIsToldLateDoesNotComeBack(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	hold := Event{Kind: Override, State: Suspect, Source: "ann"}
	b.at(time.Minute, hold)
	b.at(2*time.Minute, Event{Kind: Override, Source: "ann"})
	b.step(3 * time.Minute)
	for _, d := range []time.Duration{time.Minute, 90 * time.Second} {
		b.at(d, hold)
		b.step(3*time.Minute + d)
		s, _ := b.Status("n0", "g0")
		require.Empty(t, s.Manual)
	}
	// The end of a hold that is told again does not end the one that came with it.
	b.at(10*time.Minute, Event{Kind: Override, Source: "bob"})
	b.at(10*time.Minute, Event{Kind: Override, State: Cordoned, Source: "ann"})
	b.step(11 * time.Minute)
	b.at(10*time.Minute, Event{Kind: Override, Source: "bob"})
	b.step(12 * time.Minute)
	require.Equal(t, Cordoned, b.state(0, 0))
	s, _ := b.Status("n0", "g0")
	require.Equal(t, "ann", s.Manual)
	back, err := Restore(quietly(), strings.NewReader(b.save()))
	require.NoError(t, err)
	same, _ := back.Status("n0", "g0")
	require.Equal(t, s, same)
}

// TestNewRoomIsUsedAtTheNextStep, whether a threshold, more nodes, or fewer closed ones
// make it; also after a restart in between.
func TestNewRoomIsUsedAtTheNextStep(t *testing.T) {
	wide := quietly()
	wide.Blast = 500
	for name, more := range map[string]func(m *Machine) error{ // each by itself, in any order
		"threshold": func(m *Machine) error { return m.Configure(wide) },
		"nodes":     func(m *Machine) error { return m.Track(t0.Add(time.Hour), "n4") },
		"forgotten": func(m *Machine) error { return m.Forget("n0") },
		"devices":   func(m *Machine) error { return m.Forget("n0", "g0") },
	} {
		b := newBed(t, quietly(), 7, 2)
		for n := range 4 {
			require.NoError(t, b.Forget(nod(n+3)))
		}
		require.NoError(t, b.Track(t0.Add(time.Minute), "n3", "g0"))
		if name == "nodes" {
			for n := range 3 {
				require.NoError(t, b.Track(t0.Add(time.Minute), nod(n+5)))
			}
		}
		for n := range 3 {
			b.at(2*time.Minute+time.Duration(n), Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(74)})
		}
		b.step(time.Hour)
		require.Equal(t, []State{Cordoned, Suspect, Suspect}, []State{b.state(0, 0), b.state(1, 0), b.state(2, 0)}, name)
		require.NoError(t, more(b.Machine), name)
		cfg := quietly()
		if name == "threshold" {
			cfg = wide
		}
		back, err := Restore(cfg, strings.NewReader(b.save()))
		require.NoError(t, err)
		got, err := back.Step(t0.Add(time.Hour + 1))
		require.NoError(t, err)
		require.Equal(t, []string{"n1/g0 suspect>cordoned cordon evidence xid/74"}, moves(b.step(time.Hour+1)), name)
		require.Equal(t, []string{"n1/g0 suspect>cordoned cordon evidence xid/74"}, moves(got), name)
	}
}

// TestAnotherDeviceOfAClosedNodeNeedsNoRoom: it is the same node.
func TestAnotherDeviceOfAClosedNodeNeedsNoRoom(t *testing.T) {
	b := newBed(t, quietly(), 4, 2)
	for n := range 2 {
		b.at(time.Minute+time.Duration(n), Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(74)})
	}
	b.step(2 * time.Minute)
	require.Equal(t, []State{Cordoned, Suspect}, []State{b.state(0, 0), b.state(1, 0)})
	b.at(3*time.Minute, Event{Kind: Fault, Node: "n1", Device: "g1", Code: XID(79)}) // certain
	require.Equal(t, []string{
		"n1/g1 healthy>draining reboot evidence xid/79", "n1/g0 suspect>cordoned cordon evidence xid/74",
	}, moves(b.step(4*time.Minute)))
}

// TestABootDoesNotForgiveItsOwnErrors: what came after it, as its observers say, though
// the boot was told of later.
func TestABootDoesNotForgiveItsOwnErrors(t *testing.T) {
	for _, boot := range []string{"b0", "b1"} {
		b := newBed(t, quietly(), 1, 1)
		b.at(time.Second, Event{Kind: Boot, Node: "n0", Boot: "b0"})
		b.at(time.Minute, Event{Kind: Fault, Code: XID(79), Boot: boot})
		b.at(time.Minute+1, Event{Kind: Drained})
		b.at(2*time.Minute, Event{Kind: Boot, Node: "n0", Boot: "b1"})
		b.step(3 * time.Minute)
		require.Equal(t, map[string]State{"b0": Probation, "b1": Quarantined}[boot], b.state(0, 0), boot)
	}
}

// TestTextThatIsNoTextIsRefused, since a snapshot could not hold it.
func TestTextThatIsNoTextIsRefused(t *testing.T) {
	m, err := New(Config{Domain: func(lockstep.NodeID) string { return "\xff" }})
	require.NoError(t, err)
	require.NoError(t, m.Track(t0, "n0", "g0"))
	for _, e := range []Event{{Source: "\xff"}, {Note: "\xfe"}, {Boot: "\xfd"}} {
		e.Time, e.Kind, e.Node, e.Device, e.Code = t0, Fault, "n0", "g0", XID(79)
		require.ErrorIs(t, m.Observe(e), lockstep.ErrInvalid)
	}
	var buf strings.Builder
	require.NoError(t, m.Snapshot(&buf))
	_, err = Restore(Config{}, strings.NewReader(buf.String()))
	require.NoError(t, err)
}
