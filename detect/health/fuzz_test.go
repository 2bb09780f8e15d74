package health

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// bytewise draws from bytes, 0 where they are over.
type bytewise struct{ data []byte }

func (r *bytewise) next() int {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return int(b)
}

func pick[T any](r *bytewise, from ...T) T { return from[r.next()%len(from)] }

// FuzzEvents plays what comes as bytes on two machines, of which one is saved and
// restored, and checks what must hold of both.
func FuzzEvents(f *testing.F) {
	for seed := range 8 {
		data := make([]byte, 400)
		for k := range data {
			data[k] = byte(k * (2*seed + 7) >> (seed % 3))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &bytewise{data: data[:min(len(data), 2000)]}
		cfg := Config{
			Watch: time.Minute, Dwell: 2 * time.Minute, MaxDwell: time.Hour, Blast: pick(r, 0, 500, 1000), Lenient: r.next()%2 == 0,
			Stale: pick(r, 0, time.Hour), SameRelapses: pick(r, 0, 1, 16), Coalesce: pick(r, 0, 1, time.Hour), Hold: pick(r, 0, 1, time.Hour),
		}
		one, other := newBed(t, cfg, 2, 2), newBed(t, cfg, 2, 2)
		at := time.Second
		for len(r.data) > 0 {
			at += pick(r, 0, 1, time.Second, 40*time.Second, time.Duration(r.next())*time.Minute)
			e := Event{
				Time: t0.Add(at - pick(r, 0, 0, 0, time.Minute, -time.Hour, at+2*time.Hour)), Node: nod(r.next() % 2), Device: pick(r, "", dev(0), dev(1)),
				Kind:   pick(r, Fault, Fault, Clear, Reading, Probe, Seen, Lost, Boot, JobEnd, Drained, Repaired, Override, "odd"),
				Code:   pick[Code](r, "xid/13", "xid/45", "xid/48", "xid/74", "xid/79", "xid/92", "xid/162", "xid/163", "xid/9", "slow", "peer", "lost", "probe", "ecc/corrected", "ecc/lifetime", "rows/pending", "temperature", "diag", "speed", "xid", "", "X"),
				Value:  pick[int64](r, 0, 1, 95, 5000, 1<<63-1, -1),
				Passed: r.next()%2 == 0, Boot: pick(r, "", "a", "b"), Job: pick[lockstep.JobID](r, "", "j", "k", " "), Source: pick(r, "", "s", "z"),
				Action: pick(r, ActionReset, ActionReboot, ActionInspect, ActionNone), State: pick(r, "", Healthy, Cordoned, Quarantined, Retired, "odd"),
			}
			e1, e2 := one.Observe(e), other.Observe(e)
			require.Equal(t, e1, e2)
			if r.next()%2 == 0 {
				at = max(at, one.time())
				require.Equal(t, one.step(at), other.step(at))
				one.consistent()
			}
			if r.next()%8 == 0 {
				other = other.restored(cfg)
			}
		}
		end := max(at, one.time()) + 100*time.Hour
		require.Equal(t, one.step(end), other.step(end))
		one.consistent()
		require.Equal(t, one.save(), other.save())
	})
}

// FuzzPolicy reads policies and uses those that are accepted.
func FuzzPolicy(f *testing.F) {
	for _, p := range []Policy{Catalog(), DevicePlugin(), GPUd()} {
		text, err := json.Marshal(p)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"name":"x","unknown":{"class":"unknown","action":"watch"},"entries":[{"code":"xid/79","class":"c","action":"cordon","signal":"level","limit":9223372036854775807,"for":1,"quorum":16,"cancels":["a"],"source":"s","version":"v","date":"d"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Policy
		if json.Unmarshal(data, &p) != nil {
			return
		}
		m, err := New(Config{Policy: p})
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.NoError(t, m.Track(t0, "n", "g"))
		for k := range 40 {
			code := XID(79)
			if n := len(p.Entries); n > 0 {
				code = p.Entries[k%n].Code
			}
			for _, kind := range []Kind{Fault, Reading, Probe} {
				e := Event{Time: t0.Add(time.Duration(k) * time.Hour), Kind: kind, Node: "n", Device: "g", Code: code, Value: int64(k), Passed: true}
				if kind == Probe {
					e.Code = "diag"
				}
				require.NoError(t, m.Observe(e))
			}
		}
		_, err = m.Step(t0.Add(1000 * time.Hour))
		require.NoError(t, err)
		s, _ := m.Status("n", "g")
		require.GreaterOrEqual(t, s.State.rank(), 0)
	})
}

// busy is a machine with something of all that is saved.
func busy(t testing.TB) []byte {
	b := &bed{}
	if tt, ok := t.(*testing.T); ok {
		b = newBed(tt, Config{Stale: lockstep.MaxWalltime}, 1, 2)
	} else {
		m, err := New(Config{})
		require.NoError(t, err)
		require.NoError(t, m.Track(t0, "n0", "g0", "g1"))
		b.Machine = m
	}
	tell := func(at time.Duration, e Event) {
		e.Time, e.Node = t0.Add(at), "n0"
		if b.now < e.Time.UnixNano()-int64(time.Second) {
			_, err := b.Step(e.Time)
			require.NoError(t, err)
		}
		require.NoError(t, b.Observe(e))
	}
	tell(time.Second, Event{Kind: Boot, Boot: "b0"})
	tell(time.Minute, Event{Kind: Fault, Device: "g0", Code: XID(74), Boot: "b0", Job: "j"})
	tell(time.Minute, Event{Kind: Probe, Device: "g0", Code: "diag", Passed: true})
	tell(time.Minute+1, Event{Kind: Probe, Device: "g0", Code: "speed", Passed: true})
	tell(time.Minute, Event{Kind: Fault, Device: "g1", Code: "peer", Source: "s"})
	tell(2*time.Hour, Event{Kind: Fault, Device: "g0", Code: XID(119), Boot: "b0"})
	tell(2*time.Hour+time.Minute, Event{Kind: Boot, Boot: "b1"})
	tell(2*time.Hour+2*time.Minute, Event{Kind: Fault, Device: "g0", Code: XID(119), Boot: "b1"})
	tell(2*time.Hour+3*time.Minute, Event{Kind: Fault, Device: "g1", Code: XID(45), Job: "j"})
	tell(2*time.Hour+3*time.Minute, Event{Kind: JobEnd, Job: "j"})
	tell(2*time.Hour+3*time.Minute, Event{Kind: Reading, Device: "g1", Code: "temperature", Value: 99})
	tell(2*time.Hour+3*time.Minute, Event{Kind: Reading, Device: "g1", Code: "ecc/corrected", Value: 99})
	tell(2*time.Hour+3*time.Minute, Event{Kind: Override, Device: "g1", State: Cordoned, Source: "ann", Note: "x"})
	_, err := b.Step(t0.Add(2*time.Hour + 3*time.Minute + 1))
	require.NoError(t, err)
	tell(2*time.Hour+3*time.Minute+2, Event{Kind: Seen, Device: "g1", Source: "s"})
	var buf bytes.Buffer
	require.NoError(t, b.Snapshot(&buf))
	return buf.Bytes()
}

func TestDamagedSnapshotsAreRefused(t *testing.T) {
	cfg := Config{Policy: DevicePlugin()} // what was saved is of no policy
	restore := func(r io.Reader) error { _, err := Restore(cfg, r); return err }
	image := busy(t)
	snapshottest.RefusesDamage(t, image, restore)
	snapshottest.RefusesForgeries(t, format, version, image, restore, [][2]string{
		{`"state":"cordoned"`, `"state":"fine"`},
		{`"id":"n0"`, `"id":""`},
		{`"device":"g0"`, `"device":"g1"`},
		{`"device":"g0"`, `"device":" "`},
		{`"since":17`, `"since":-17`},
		{`"need":"none"`, `"need":"reset"`},
		{`"now":17`, `"now":-17`},
		{`"code":"xid/74"`, `"code":"aid/74"`},
		{`"code":"xid/74"`, `"code":"XID"`},
		{`"first":17`, `"first":18`},
		{`"held":17`, `"held":-17`},
		{`"above":17`, `"above":-17`},
		{`"bursts":[{`, `"bursts":[{"first":-9},{`},
		{`"probe":"diag"`, `"probe":"tiag"`},
		{`"action":"reset"`, `"action":"none"`},
		{`"level":99`, `"level":-99`},
		{`"kind":"seen"`, `"kind":"heard"`},
		{`"hits":[{"at":17`, `"hits":[{"at":-17`},
		{`"pin":{`, `"pin":{"odd":1,`},
		{`"pin":{"state":"cordoned","by":"ann","note":"x","at":17`, `"pin":{"state":"cordoned","by":"ann","note":"x","at":-17`},
		{`"pin":{"state":"cordoned"`, `"pin":{"state":"healthy"`},
		{`"relapses":[{"at":17`, `"relapses":[{"at":-17`},
		{`"reboots":[17`, `"reboots":[-17`},
		{`"ends":[17`, `"ends":[-17`},
	})
	b := newBed(t, Config{}, 1, 1)
	snapshottest.PassesFaultsOn(t, b.Snapshot, restore)
	_, err := Restore(Config{Dwell: -1}, bytes.NewReader(image))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// FuzzRestore reads bodies, under a header that suits, and uses those that are
// accepted.
func FuzzRestore(f *testing.F) {
	f.Add(snapshottest.Body(f, busy(f)))
	f.Add([]byte(`{"now":-1,"nodes":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		image := snapshottest.Frame(t, format, version, body)
		m, err := Restore(Config{}, bytes.NewReader(image))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		b := &bed{Machine: m, t: t}
		require.Equal(t, string(image), b.save())
		b.consistent()
		last := int64(0)
		for range 1000 { // all that time alone changes
			wake, ok := m.NextWake()
			if !ok || wake.UnixNano() < 0 {
				break
			}
			require.GreaterOrEqual(t, wake.UnixNano(), last)
			last = wake.UnixNano()
			if _, err := m.Step(wake); err != nil {
				break // it woke at the end of time
			}
			b.consistent()
		}
	})
}

func TestBadEventsAreRefused(t *testing.T) {
	b := newBed(t, Config{}, 1, 1)
	before := b.save()
	good := Event{Time: t0.Add(time.Hour), Kind: Fault, Node: "n0", Device: "g0", Code: XID(79)}
	for name, c := range map[string]struct { // each by itself, in any order
		spoil func(e *Event)
		kind  error
	}{
		"no time":      {func(e *Event) { e.Time = time.Time{} }, lockstep.ErrInvalid},
		"before 1970":  {func(e *Event) { e.Time = time.Unix(-1, 0) }, lockstep.ErrInvalid},
		"no kind":      {func(e *Event) { e.Kind = "" }, lockstep.ErrInvalid},
		"no code":      {func(e *Event) { e.Code = "" }, lockstep.ErrInvalid},
		"bad code":     {func(e *Event) { e.Code = "XID 79" }, lockstep.ErrInvalid},
		"no such node": {func(e *Event) { e.Node = "n7" }, lockstep.ErrUnknown},
		"no such GPU":  {func(e *Event) { e.Device = "g7" }, lockstep.ErrUnknown},
		"negative":     {func(e *Event) { e.Kind, e.Value = Reading, -1 }, lockstep.ErrInvalid},
		"no boot":      {func(e *Event) { e.Kind, e.Device = Boot, "" }, lockstep.ErrInvalid},
		"boot of GPU":  {func(e *Event) { e.Kind, e.Boot = Boot, "b" }, lockstep.ErrInvalid},
		"no repair":    {func(e *Event) { e.Kind, e.Action = Repaired, ActionWatch }, lockstep.ErrInvalid},
		"no state":     {func(e *Event) { e.Kind, e.State = Override, "fine" }, lockstep.ErrInvalid},
		"bad job":      {func(e *Event) { e.Job = " " }, lockstep.ErrInvalid},
		"long note":    {func(e *Event) { e.Note = string(make([]byte, 2000)) }, lockstep.ErrInvalid},
		"long probe":   {func(e *Event) { e.Kind, e.Code = Probe, Code(bytes.Repeat([]byte("x"), 60)) }, lockstep.ErrInvalid},
	} {
		e := good
		c.spoil(&e)
		require.ErrorIs(t, b.Observe(e), c.kind, name)
	}
	require.ErrorIs(t, b.Track(t0.Add(-time.Hour), "n8"), lockstep.ErrPast)
	require.ErrorIs(t, b.Track(time.Time{}, "n8"), lockstep.ErrInvalid)
	require.ErrorIs(t, b.Track(t0.Add(time.Hour), ""), lockstep.ErrInvalid)
	require.ErrorIs(t, b.Track(t0.Add(time.Hour), "n8", "g0", " "), lockstep.ErrInvalid)
	_, err := b.Step(t0)
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = b.Step(time.Time{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, b.Forget("n0", "g0", "g9"), lockstep.ErrUnknown)
	require.Equal(t, before, b.save(), "after an error nothing has changed")
}

func TestWhatChangesNothingAllocatesNothing(t *testing.T) {
	b := newBed(t, quietly(), 1, 8)
	kinds := []Event{
		{Kind: Fault, Code: XID(95), Boot: "b"},
		{Kind: Fault, Code: XID(13), Job: "j"},
		{Kind: Reading, Code: "ecc/corrected", Value: 10},
		{Kind: Reading, Code: "temperature", Value: 60},
		{Kind: Seen, Source: "watch/n0"},
		{Kind: Probe, Code: "diag", Passed: true},
		{Kind: Drained},
	}
	k := 0
	round := func() {
		for range 8 * len(kinds) {
			e := kinds[k%len(kinds)]
			e.Time, e.Node, e.Device = t0.Add(time.Second+time.Duration(k)*time.Millisecond), "n0", b.nodes["n0"].devices[k/len(kinds)%8].device
			if err := b.Observe(e); err != nil {
				t.Fatal(err)
			}
			k++
		}
		if _, err := b.Step(t0.Add(time.Second + time.Duration(k)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		round()
	}
	require.Zero(t, testing.AllocsPerRun(100, round))
}

func BenchmarkEvents(b *testing.B) {
	for _, nodes := range []int{1, 1250, 12500} {
		b.Run(fmt.Sprint("devices=", nodes*8), func(b *testing.B) {
			m, err := New(Config{Stale: lockstep.MaxWalltime})
			require.NoError(b, err)
			for n := range nodes {
				require.NoError(b, m.Track(t0, nod(n), dev(0), dev(1), dev(2), dev(3), dev(4), dev(5), dev(6), dev(7)))
			}
			kinds := []Event{
				{Kind: Fault, Code: XID(95)},
				{Kind: Reading, Code: "ecc/corrected", Value: 10},
				{Kind: Reading, Code: "temperature", Value: 60},
				{Kind: Seen, Source: "s"},
				{Kind: Probe, Code: "diag", Passed: true},
			}
			ids, devs := make([]lockstep.NodeID, nodes), make([]lockstep.DeviceID, 8)
			for n := range ids {
				ids[n] = nod(n)
			}
			for d := range devs {
				devs[d] = dev(d)
			}
			b.ReportAllocs()
			k := 0
			for b.Loop() {
				e := kinds[k%len(kinds)]
				e.Time, e.Node, e.Device = t0.Add(time.Duration(k)*time.Millisecond), ids[k%nodes], devs[k/nodes%8]
				if err := m.Observe(e); err != nil {
					b.Fatal(err)
				}
				if k%64 == 63 {
					if _, err := m.Step(e.Time); err != nil {
						b.Fatal(err)
					}
				}
				k++
			}
		})
	}
}
