package health

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// These tests replay what users of other systems complained of, and next to each
// what is of its kind.

// passes lets the probe named diag pass on a device.
func (b *bed) passes(after time.Duration, n, d int) {
	b.t.Helper()
	b.at(after, Event{Kind: Probe, Node: nod(n), Device: dev(d), Code: "diag", Passed: true})
}

// restored is the machine saved and loaded.
func (b *bed) restored(cfg Config) *bed {
	b.t.Helper()
	var buf bytes.Buffer
	require.NoError(b.t, b.Snapshot(&buf))
	m, err := Restore(cfg, &buf)
	require.NoError(b.t, err)
	return &bed{Machine: m, t: b.t}
}

// NVIDIA/k8s-device-plugin #234, #189, #111: a harmless XID makes a GPU unhealthy for
// ever; after a restart it is healthy, unchecked.
func TestComplaint1RecoveryNeedsEvidenceAndRestartForgetsNothing(t *testing.T) {
	for _, n := range []uint64{13, 31, 43, 45, 68} {
		b := newBed(t, quietly(), 1, 1)
		b.at(time.Minute, Event{Kind: Fault, Code: XID(n), Job: "j"})
		b.at(time.Minute+time.Second, Event{Kind: JobEnd, Job: "j"})
		b.step(time.Hour)
		require.Empty(t, b.seen, "xid %d is harmless", n)
	}
	// Its kind: what is not harmless stays through restarts, and ends with evidence.
	cfg := quietly()
	b := newBed(t, cfg, 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(74)})
	b.step(2 * time.Minute)
	for k := range 10 {
		b = b.restored(cfg)
		b.step(time.Duration(k+1) * time.Hour)
		require.Equal(t, Cordoned, b.state(0, 0), "time and restarts open nothing")
	}
	b.passes(11*time.Hour, 0, 0)
	b.step(11*time.Hour + 1)
	require.Equal(t, Healthy, b.state(0, 0))
	// And who lost even the snapshot knows nothing.
	m, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, m.Track(t0, "n0", "g0"))
	s, _ := m.Status("n0", "g0")
	require.False(t, s.Open)
}

// NVIDIA/k8s-device-plugin #426: a reload of a daemon makes every GPU unhealthy.
func TestComplaint2LossOfAllIsTheObserversFault(t *testing.T) {
	b := newBed(t, Config{}, 2, 8)
	for d := range 8 {
		b.at(time.Minute+time.Duration(d)*time.Millisecond, Event{Kind: Lost, Node: "n0", Device: dev(d), Source: "watch/n0"})
	}
	b.step(2 * time.Minute)
	require.Len(t, b.seen, 8)
	for _, tr := range b.seen {
		require.Equal(t, Unknown, tr.To, "not known, and not faulty")
		require.Equal(t, reasonObserver, tr.Reason)
	}
	for d := range 8 {
		b.at(3*time.Minute, Event{Kind: Seen, Node: "n0", Device: dev(d), Source: "watch/n0"})
	}
	b.step(3*time.Minute + 1)
	for d := range 8 {
		require.Equal(t, Healthy, b.state(0, d), "seen again, it is what it was, without a probe")
	}
	require.Len(t, b.seen, 16)
}

// Its kind, at the very edge: two, and half of them, are the observer's fault; less than
// half is the devices'.
func TestComplaint2HalfIsTheObserversFault(t *testing.T) {
	for devices, want := range map[int]State{3: Unknown, 4: Unknown, 5: Draining} { // each by itself, in any order
		b := newBed(t, quietly(), 1, devices)
		for d := range 2 {
			b.at(time.Minute, Event{Kind: Lost, Node: "n0", Device: dev(d), Source: "watch/n0"})
		}
		b.step(2 * time.Minute)
		require.Equal(t, []State{want, want, Healthy}, []State{b.state(0, 0), b.state(0, 1), b.state(0, 2)}, "%d", devices)
	}
}

// Its kind: one of eight is a fault of the device; the one that does not come back
// after a reload is, too; a suspect comes back as a suspect, and one that was cordoned
// stays so.
func TestComplaint2LossOfOneIsTheDevicesFault(t *testing.T) {
	b := newBed(t, Config{}, 1, 8)
	b.at(time.Minute, Event{Kind: Lost, Node: "n0", Device: "g3", Source: "watch/n0"})
	require.Empty(t, b.step(time.Minute+30*time.Second), "others may follow")
	require.Equal(t, []string{"n0/g3 healthy>draining reboot evidence lost"}, moves(b.step(2*time.Minute)))

	b = newBed(t, Config{}, 1, 8)
	b.at(time.Second, Event{Kind: Fault, Node: "n0", Device: "g1", Code: XID(92)})
	b.at(time.Second, Event{Kind: Fault, Node: "n0", Device: "g2", Code: XID(74)})
	for k := range 60 { // polls
		for d := range 8 {
			kind := Lost
			if k > 3 && d != 5 {
				kind = Seen
			}
			b.at(time.Minute+time.Duration(k)*10*time.Second, Event{Kind: kind, Node: "n0", Device: dev(d), Source: "watch/n0"})
		}
	}
	b.step(11 * time.Minute)
	require.Equal(t, Healthy, b.state(0, 0))
	require.Equal(t, Suspect, b.state(0, 1))
	require.Equal(t, Cordoned, b.state(0, 2))
	require.Equal(t, Draining, b.state(0, 5), "all others are back, it is not")
}

// NVIDIA/k8s-device-plugin PR #1641: the check failed to start, and the node
// advertised all its devices.
func TestComplaint3AFailedCheckIsUnknown(t *testing.T) {
	m, err := New(Config{})
	require.NoError(t, err)
	require.NoError(t, m.Track(t0, "n0", "g0", "g1"))
	require.NoError(t, m.Observe(Event{Time: t0, Kind: Lost, Node: "n0", Source: "watch/n0", Note: "did not start"}))
	out, err := m.Step(t0.Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, out)
	for s := range m.All {
		require.Equal(t, Unknown, s.State)
		require.False(t, s.Open)
	}
	// Its kind: a check that ran and runs no more; one that hangs says nothing at all.
	for name, e := range map[string]*Event{"says so": {Kind: Lost, Node: "n0", Source: "watch/n0"}, "hangs": nil} { // each by itself, in any order
		b := newBed(t, Config{}, 1, 2)
		if e != nil {
			b.at(time.Minute, *e)
		}
		b.step(time.Hour)
		require.Equal(t, Unknown, b.state(0, 0), name)
		require.Equal(t, Unknown, b.state(0, 1), name)
		drift, err := b.Reconcile([]Status{{Node: "n0", Device: "g0", State: Healthy}, {Node: "n0", Device: "g1", State: Healthy}})
		require.NoError(t, err)
		require.Len(t, drift, 2, "and the full capacity that is advertised is drift")
	}
}

// Project-HAMi/HAMi #2200: transient and permanent faults are never told apart.
func TestComplaint4TransientAndPermanentDiffer(t *testing.T) {
	b := newBed(t, quietly(), 1, 3)
	b.at(time.Minute, Event{Kind: Reading, Node: "n0", Device: "g0", Code: "link/down", Value: 1})
	b.at(2*time.Minute, Event{Kind: Reading, Node: "n0", Device: "g0", Code: "link/down", Value: 0}) // transient
	b.at(time.Minute, Event{Kind: Fault, Node: "n0", Device: "g1", Code: XID(95)})                   // a reset away
	b.at(time.Minute, Event{Kind: Reading, Node: "n0", Device: "g2", Code: "rows/failed", Value: 1}) // permanent
	for d := range 3 {
		b.at(3*time.Minute, Event{Kind: Drained, Node: "n0", Device: dev(d)})
		b.at(4*time.Minute, Event{Kind: Repaired, Node: "n0", Device: dev(d), Action: ActionReset})
		b.passes(5*time.Minute, 0, d)
	}
	b.step(24 * time.Hour)
	require.Equal(t, Healthy, b.state(0, 0))
	require.Equal(t, Healthy, b.state(0, 1))
	require.Equal(t, Quarantined, b.state(0, 2))
	s, _ := b.Status("n0", "g2")
	require.Equal(t, ActionInspect, s.Action)
	// Its kind: what is transient each time, and comes all the time, is not.
	b = newBed(t, quietly(), 1, 1)
	for k := range 6 {
		b.at(time.Duration(2*k+1)*time.Hour, Event{Kind: Reading, Code: "link/down", Value: 1})
		b.at(time.Duration(2*k+1)*time.Hour+time.Minute, Event{Kind: Reading, Code: "link/down", Value: 0})
		b.passes(time.Duration(2*k+1)*time.Hour+2*time.Minute, 0, 0)
	}
	b.step(48 * time.Hour)
	s, _ = b.Status("n0", "g0")
	require.Equal(t, ActionInspect, s.Action)
}

// NVIDIA/NVSentinel #1710: repeated code 45 escalated to fatal, 672 times on 3 nodes
// within 3 hours, 1232 reports on the worst, all of them normal teardown.
func TestComplaint5TeardownIsNothing(t *testing.T) {
	for name, named := range map[string]bool{"jobs known": true, "jobs not known": false} { // each by itself, in any order
		b := newBed(t, quietly(), 3, 8)
		for k := range 1232 / 8 {
			at := time.Minute + time.Duration(k)*3*time.Hour/154
			job := lockstep.JobID(fmt.Sprint("job-", k))
			for n := range 3 {
				for d := range 8 {
					e := Event{Kind: Fault, Node: nod(n), Device: dev(d), Code: XID(45)}
					if named {
						e.Job = job
					}
					b.at(at+time.Duration(d)*time.Millisecond, e)
				}
				b.at(at+time.Second, Event{Kind: JobEnd, Node: nod(n), Job: job})
			}
			b.step(at + 2*time.Second)
		}
		b.step(4 * time.Hour)
		require.Empty(t, b.seen, name)
	}
	// Its kind: alone it does mean something, beside another code that one counts.
	b := newBed(t, quietly(), 1, 2)
	b.at(time.Minute, Event{Kind: Fault, Node: "n0", Device: "g0", Code: XID(45), Job: "j"})
	b.at(time.Minute, Event{Kind: Fault, Node: "n0", Device: "g1", Code: XID(45), Job: "j"})
	b.at(time.Minute+time.Second, Event{Kind: Fault, Node: "n0", Device: "g1", Code: XID(63), Job: "j"})
	require.Equal(t, []string{"n0/g0 healthy>suspect watch evidence xid/45"}, moves(b.step(5*time.Minute)))
	// Nor does any number of them ever close a device.
	b = newBed(t, quietly(), 1, 1)
	for k := range 500 {
		b.at(time.Duration(k+1)*5*time.Minute, Event{Kind: Fault, Code: XID(45)})
	}
	b.step(48 * time.Hour)
	for _, tr := range b.seen {
		require.True(t, tr.To.Open())
	}
}

// NVIDIA/NVSentinel PR #1629: 77 nodes in 11 racks flagged after one job crashed, all
// healthy.
func TestComplaint5SympatheticEventsAreOneJobs(t *testing.T) {
	racks := func(n lockstep.NodeID) string { return "rack-" + string(n[1]) + string(n[len(n)-1]) }
	for _, code := range []uint64{13, 31, 43, 45, 94} {
		for _, job := range []lockstep.JobID{"j", ""} {
			cfg := quietly()
			cfg.Domain = racks
			cfg.Policy = Catalog()
			e, _ := cfg.Policy.Lookup(XID(code))
			e.Sympathetic, e.Action, e.Repeat, e.PerJob = true, ActionDrain, 0, false // as grave as can be
			cfg.Policy = cfg.Policy.With(e)
			b := newBed(t, cfg, 77, 8)
			for k := range 10 {
				for n := range 77 {
					for d := range 8 {
						b.at(time.Duration(k+1)*time.Hour+time.Duration(n*8+d)*time.Millisecond, Event{Kind: Fault, Node: nod(n), Device: dev(d), Code: XID(code), Job: job})
					}
				}
			}
			b.step(12 * time.Hour)
			require.Empty(t, b.seen, "xid %d of job %q", code, job)
		}
	}
	// Its kind: the one that has a code of its own beside is found among them.
	b := newBed(t, quietly(), 77, 1)
	for n := range 77 {
		b.at(time.Minute, Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(31), Job: "j"})
	}
	b.at(time.Minute-time.Second, Event{Kind: Fault, Node: "n40", Device: "g0", Code: XID(48), Job: "j"})
	b.step(time.Hour)
	require.Equal(t, []string{"n40/g0 healthy>draining reset evidence xid/48"}, moves(b.seen))
}

// Its kind: a false alarm that nobody foresaw takes a share of a domain and no more,
// and what is proven is not held back.
func TestComplaint5BlastRadius(t *testing.T) {
	cfg := quietly()
	cfg.Domain = func(n lockstep.NodeID) string { return "rack-" + string(n[len(n)-1]) } // 7 or 8 nodes each
	b := newBed(t, cfg, 77, 1)
	for n := range 77 {
		b.at(time.Minute, Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(999)})
	}
	b.step(2 * time.Minute)
	closed := map[string]int{}
	for s := range b.All {
		if s.Device != "" && !s.Open {
			closed[cfg.Domain(s.Node)]++
		}
	}
	require.Len(t, closed, 10)
	for rack, n := range closed { // each by itself, in any order
		require.LessOrEqual(t, n, 2, rack)
	}
	capped := 0
	for _, tr := range b.seen {
		if tr.Reason == reasonCapped {
			require.Equal(t, Suspect, tr.To)
			capped++
		}
	}
	require.Equal(t, 77, capped+len(b.seen)-capped)
	require.GreaterOrEqual(t, capped, 57)
	for n := range 77 {
		b.at(3*time.Minute, Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(79)})
	}
	b.step(4 * time.Minute)
	for n := range 77 {
		require.Equal(t, Draining, b.state(n, 0), "off the bus is off the bus")
	}
}

// Its kind: whoever is held back is not forgiven sooner for that.
func TestComplaint5HeldBackIsNotForgiven(t *testing.T) {
	b := newBed(t, quietly(), 2, 1)
	for n := range 2 {
		b.at(time.Minute, Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(999)})
	}
	b.step(24 * time.Hour)
	require.Equal(t, []State{Cordoned, Suspect}, []State{b.state(0, 0), b.state(1, 0)})
	s, _ := b.Status("n1", "g0")
	require.Equal(t, 30*time.Minute, s.Dwell)
	b.passes(24*time.Hour, 1, 0)
	b.step(24*time.Hour + 1)
	require.Equal(t, []State{Cordoned, Healthy}, []State{b.state(0, 0), b.state(1, 0)})
}

// Its kind: whoever is held back is looked at again when there is room.
func TestComplaint5RoomIsUsedWhenItComes(t *testing.T) {
	b := newBed(t, quietly(), 4, 1)
	for n := range 3 {
		b.at(time.Minute+time.Duration(n), Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(74)})
	}
	b.step(2 * time.Minute)
	require.Equal(t, []State{Cordoned, Suspect, Suspect}, []State{b.state(0, 0), b.state(1, 0), b.state(2, 0)})
	b.at(3*time.Minute, Event{Kind: Override, Node: "n0", Device: "g0", State: Healthy, Source: "ann"})
	b.step(4 * time.Minute)
	require.Equal(t, []State{Healthy, Cordoned, Suspect}, []State{b.state(0, 0), b.state(1, 0), b.state(2, 0)})
}

// NVIDIA/NVSentinel #1120: some 800,000 log entries of code 95, 29 of them distinct.
func TestComplaint6RepeatsTakeNoMemory(t *testing.T) {
	repeats := 800_000
	if testing.Short() {
		repeats = 80_000
	}
	b := newBed(t, quietly(), 1, 29)
	b.at(time.Second, Event{Kind: Boot, Boot: "b"})
	flood := func(from, n int) {
		for k := from; k < from+n; k++ {
			b.at(time.Minute+time.Duration(k)*time.Millisecond, Event{Kind: Fault, Node: "n0", Device: dev(k % 29), Code: XID(95), Boot: "b"})
			if k%1000 == 0 {
				b.step(time.Minute + time.Duration(k)*time.Millisecond)
			}
		}
	}
	flood(0, repeats/2)
	var small, large bytes.Buffer
	b.step(time.Minute + time.Duration(repeats/2)*time.Millisecond)
	require.NoError(t, b.Snapshot(&small))
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	flood(repeats/2, repeats/2)
	b.step(time.Hour)
	require.NoError(t, b.Snapshot(&large))
	require.Len(t, b.seen, 29, "one transition a device")
	require.InDelta(t, small.Len(), large.Len(), 29*40, "nothing was kept but times")
	require.Less(t, heap(), before+1<<20)
	s, _ := b.Status("n0", "g0")
	require.Equal(t, XID(95), s.Code)
	for s := range b.All {
		if s.Device != "" {
			require.Equal(t, Draining, s.State)
		}
	}
	require.Equal(t, 1, b.seen[28].Count, "and one occurrence")
	// Its kind: without Step the queue is bounded; duplicates do not fill it.
	b = newBed(t, quietly(), 1, 1)
	for range maxQueue + 1000 {
		b.at(time.Minute, Event{Kind: Fault, Code: XID(95)})
	}
	for k := range maxQueue - 1 {
		b.at(time.Minute+time.Duration(k+1), Event{Kind: Fault, Code: XID(95)})
	}
	require.ErrorIs(t, b.Observe(Event{Time: t0, Kind: Fault, Node: "n0", Device: "g0", Code: XID(95)}), lockstep.ErrConflict)
	b.step(time.Hour)
	b.at(time.Hour, Event{Kind: Fault, Code: XID(95)})
	// And codes without number of a device that has gone mad are bounded, too.
	for k := range 10_000 {
		b.at(time.Hour+time.Duration(k), Event{Kind: Fault, Code: XID(uint64(1000 + k))})
	}
	b.step(2 * time.Hour)
	require.Len(t, b.nodes["n0"].devices[0].incidents, maxIncidents)
	s, _ = b.Status("n0", "g0")
	require.Equal(t, XID(95), s.Code, "the gravest is not what is forgotten")
}

// NVIDIA/NVSentinel #1252: code 162 cancels code 163.
func TestComplaint7OneCodeCancelsAnother(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(163)})
	b.step(2 * time.Minute)
	s, _ := b.Status("n0", "g0")
	require.Equal(t, XID(163), s.Code)
	b.at(3*time.Minute, Event{Kind: Fault, Code: XID(162)})
	b.step(4 * time.Minute)
	s, _ = b.Status("n0", "g0")
	require.Empty(t, s.Code)
	// Its kind: it cancels what came before it, not what comes after or at once, in
	// whatever order they are told.
	for _, at := range []time.Duration{0, time.Second} {
		b.at(time.Hour, Event{Kind: Fault, Code: XID(162)})
		b.at(time.Hour+at, Event{Kind: Fault, Code: XID(163)})
		b.step(time.Hour + at + 1)
		s, _ = b.Status("n0", "g0")
		require.Equal(t, XID(163), s.Code)
	}
}

// NVIDIA/NVSentinel #458: a node stayed cordoned after the condition was over.
func TestComplaint7TheWayBackBeginsWhenTheConditionIsOver(t *testing.T) {
	b := newBed(t, quietly(), 1, 3)
	for d, code := range []Code{"rows/pending", "recovery/drain", "recovery/reset"} {
		b.at(time.Minute, Event{Kind: Reading, Node: "n0", Device: dev(d), Code: code, Value: 1})
	}
	b.at(2*time.Minute, Event{Kind: Drained, Node: "n0", Device: "g2"})
	b.step(3 * time.Minute)
	require.Equal(t, []State{Cordoned, Draining, Quarantined}, []State{b.state(0, 0), b.state(0, 1), b.state(0, 2)})
	b.at(time.Hour, Event{Kind: Clear, Node: "n0", Device: "g0", Code: "rows"})
	b.at(time.Hour, Event{Kind: Reading, Node: "n0", Device: "g1", Code: "recovery/drain", Value: 0})
	b.at(time.Hour, Event{Kind: Clear, Node: "n0", Device: "g2", Code: "recovery"})
	b.step(time.Hour + 1)
	require.Equal(t, []State{Cordoned, Cordoned, Probation}, []State{b.state(0, 0), b.state(0, 1), b.state(0, 2)})
	for d := range 3 {
		b.passes(time.Hour+2, 0, d)
	}
	b.step(time.Hour + 31*time.Minute)
	for d := range 3 {
		require.Equal(t, Healthy, b.state(0, d))
	}
}

// NVIDIA/NVSentinel #753: the count of quarantined nodes drifted after somebody
// uncordoned one by hand.
func TestComplaint7CountsDoNotDriftAndHandsAreSeen(t *testing.T) {
	b := newBed(t, quietly(), 12, 1)
	for n := range 3 {
		b.at(time.Minute, Event{Kind: Fault, Node: nod(n), Device: "g0", Code: XID(79)})
	}
	b.step(2 * time.Minute)
	var cluster []Status // what the cluster applies: somebody uncordoned n1
	for s := range b.All {
		if s.Device != "" {
			cluster = append(cluster, s)
		}
	}
	drift, err := b.Reconcile(cluster)
	require.NoError(t, err)
	require.Empty(t, drift)
	cluster[1].State = Healthy
	for range 3 { // as often as one likes
		drift, err = b.Reconcile(cluster)
		require.NoError(t, err)
	}
	k := -1
	for i, s := range cluster {
		if s.State == Healthy && b.state(int(s.Node[1]-'0'), 0) == Draining && len(s.Node) == 2 {
			k = i
		}
	}
	require.GreaterOrEqual(t, k, 0)
	require.Equal(t, []string{string(cluster[k].Node) + "/g0 healthy>draining reboot drift xid/79"}, moves(drift))
	require.Empty(t, b.step(3*time.Minute), "to compare is to change nothing")
	// Taken for a manual override, it sticks, and what is counted is what is.
	b.at(4*time.Minute, Event{Kind: Override, Node: cluster[k].Node, Device: "g0", State: Healthy, Source: "bob", Note: "uncordoned by hand"})
	b.step(5 * time.Minute)
	drift, err = b.Reconcile(cluster)
	require.NoError(t, err)
	require.Empty(t, drift)
	n := 0
	for s := range b.All {
		if s.State == Draining {
			n++
		}
	}
	require.Equal(t, 2, n)
	require.Equal(t, 2, b.domains[""].closed)
}

// Its kind: what only one of the two knows, and what is named twice.
func TestComplaint7ReconcileNamesWhatIsMissing(t *testing.T) {
	b := newBed(t, quietly(), 1, 2)
	drift, err := b.Reconcile([]Status{{Node: "n0", Device: "g0", State: Suspect}, {Node: "n9", State: Healthy}})
	require.NoError(t, err)
	require.Equal(t, []string{"n0/g1 >healthy none drift ", "n9/ healthy> none drift "}, moves(drift))
	_, err = b.Reconcile([]Status{{Node: "n0", State: Healthy}, {Node: "n0", State: Healthy}})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = b.Reconcile([]Status{{Node: "n0", State: "fine"}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// NVIDIA/DCGM #122: an A100 at a third of its peak passes the long diagnostic.
func TestComplaint8ADiagnosticDoesNotClearAMeasuredSlowdown(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: CodeSlow, Source: "detect"})
	b.step(2 * time.Minute)
	require.Equal(t, Cordoned, b.state(0, 0))
	for k := range 100 {
		b.passes(time.Duration(k+1)*time.Hour, 0, 0)
	}
	b.step(101 * time.Hour)
	require.Equal(t, Cordoned, b.state(0, 0))
	b.at(101*time.Hour, Event{Kind: Probe, Code: "speed", Passed: true})
	b.step(101*time.Hour + 1)
	require.Equal(t, Healthy, b.state(0, 0))
	// Its kind: nor does it after a repair, on probation.
	b = newBed(t, quietly(), 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: CodeSlow})
	b.at(time.Minute, Event{Kind: Fault, Code: XID(48)})
	b.at(2*time.Minute, Event{Kind: Drained})
	b.at(3*time.Minute, Event{Kind: Repaired, Action: ActionReset})
	b.passes(4*time.Minute, 0, 0)
	b.step(100 * time.Hour)
	require.Equal(t, Probation, b.state(0, 0))
	b.at(100*time.Hour, Event{Kind: Probe, Code: "speed", Passed: true})
	b.step(100*time.Hour + 1)
	require.Equal(t, Healthy, b.state(0, 0))
}

// FlagScale PR #1243: what was reported once is never reported again, since nothing
// clears the key by which it is known. Its kind: what was told, and is over, is told
// again when it comes again, and not in between.
func TestComplaint9WhatComesAgainIsToldAgain(t *testing.T) {
	b := newBed(t, quietly(), 1, 1)
	for k := range 3 {
		at := time.Duration(k) * 3 * time.Hour
		for i := range 50 { // one occurrence, told again and again
			b.at(at+time.Minute+time.Duration(i)*time.Second, Event{Kind: Fault, Code: XID(92)})
		}
		require.Equal(t, []string{"n0/g0 healthy>suspect watch evidence xid/92", "n0/g0 suspect>healthy none quiet "}, moves(b.step(at+2*time.Hour)))
	}
}

// kvcache-ai/Mooncake #2157: after a kill the survivors blamed the wrong peers, two of
// three falsely.
func TestComplaint12OneReporterIsNotBelieved(t *testing.T) {
	b := newBed(t, quietly(), 4, 1)
	for reporter, blamed := range map[int]int{1: 0, 2: 1, 3: 2} { // at once, so in any order
		b.at(time.Minute, Event{Kind: Fault, Node: nod(blamed), Device: "g0", Code: "peer", Source: fmt.Sprint(reporter)})
	}
	require.Empty(t, b.step(time.Hour), "each is blamed by one")
	for reporter := 1; reporter < 4; reporter++ {
		b.at(2*time.Hour, Event{Kind: Fault, Node: "n0", Device: "g0", Code: "peer", Source: fmt.Sprint(reporter)})
	}
	b.at(2*time.Hour, Event{Kind: Fault, Node: "n1", Device: "g0", Code: "peer", Source: "3"})
	require.Equal(t, []string{"n0/g0 healthy>suspect watch evidence peer"}, moves(b.step(2*time.Hour+1)))
}

// apache/storm #8799: what reported and what acted had thresholds of their own.
func TestComplaint17ThereIsOneTruth(t *testing.T) {
	r := newStream(1)
	b := newBed(t, r.config(), 3, 3)
	states := map[string]State{}
	for s := range b.All {
		states[string(s.Node)+"/"+string(s.Device)] = s.State
	}
	for range 2000 {
		b.observe(r.event(3, 3))
		for _, tr := range b.step(r.now()) {
			k := string(tr.Node) + "/" + string(tr.Device)
			require.Equal(t, states[k], tr.From)
			states[k] = tr.To
		}
		for s := range b.All {
			require.Equal(t, states[string(s.Node)+"/"+string(s.Device)], s.State, "what was told is what is")
		}
	}
}
