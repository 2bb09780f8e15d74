package health

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// stream draws events at times that do not fall.
type stream struct {
	*rand.Rand
	at     time.Duration
	last   Event
	unique bool    // no name of a boot comes back, as no real one does
	boots  [16]int // by node
}

func newStream(seed uint64) *stream {
	return &stream{Rand: rand.New(rand.NewPCG(seed, 7)), at: time.Second}
}

// boot names the boot that a node is in, where boots have names of their own.
func (r *stream) boot(node int) string { return fmt.Sprintf("b%04d", r.boots[node]) }

// now is a time at which all events so far are past.
func (r *stream) now() time.Duration { return r.at + 1 }

func draw[T any](r *stream, from ...T) T { return from[r.IntN(len(from))] }

func (r *stream) config() Config {
	return Config{
		Watch: 5 * time.Minute, Dwell: 10 * time.Minute, MaxDwell: time.Hour, Relapse: 24 * time.Hour,
		Blast: draw(r, 0, 0, 500, 1000), Crowd: draw(r, 0, 2), Lenient: r.IntN(2) == 0, Stale: draw(r, 0, time.Hour, lockstep.MaxWalltime),
		Domain: func(n lockstep.NodeID) string { return string("ab"[int(n[len(n)-1])%2]) },
	}
}

// event draws the next event of a cluster of nodes.
func (r *stream) event(nodes, devices int) Event {
	r.at += draw(r, 0, 0, time.Nanosecond, time.Second, time.Duration(r.IntN(100))*time.Second, time.Duration(r.IntN(20))*time.Minute)
	if r.IntN(20) == 0 && r.last.Kind != "" {
		return r.last // a duplicate
	}
	n := r.IntN(nodes)
	e := Event{
		Time: t0.Add(r.at), Node: nod(n), Device: dev(r.IntN(devices)), Source: "watch/" + string(nod(n)),
		Kind: draw(r, Fault, Fault, Fault, Clear, Reading, Reading, Probe, Probe, Seen, Seen, Lost, Boot, JobEnd, Drained, Drained, Repaired, Override),
	}
	if r.IntN(10) == 0 {
		e.Device = ""
	}
	if r.IntN(3) == 0 {
		e.Job = draw[lockstep.JobID](r, "j", "k")
	}
	if r.IntN(30) == 0 {
		e.Time = t0.Add(r.at - time.Duration(r.IntN(1000))*time.Second).Add(time.Hour / 60)
	}
	switch e.Kind {
	case Fault, Clear:
		e.Code = draw(r, XID(13), XID(31), XID(45), XID(48), XID(74), XID(79), XID(92), XID(119), XID(162), XID(163), XID(999), CodeSlow, "peer", "xid/145/fatal")
		e.Boot = draw(r, "", "b0", "b1")
		if r.unique {
			e.Boot = draw(r, "", r.boot(n), r.boot(n))
		}
		if e.Kind == Clear {
			e.Code = draw(r, e.Code, "recovery", "rows", "xid")
		}
	case Reading:
		e.Code = draw[Code](r, "ecc/corrected", "ecc/uncorrected", "ecc/lifetime", "rows/pending", "temperature", "use/low", "recovery/reset")
		e.Value = draw(r, 0, 0, 1, 1, 100, int64(r.IntN(3000)))
	case Probe:
		e.Code, e.Passed = draw[Code](r, "diag", "speed"), r.IntN(5) > 0
	case Boot:
		e.Device, e.Boot = "", draw(r, "b0", "b1", "b2")
		if r.unique {
			r.boots[n]++
			e.Boot = r.boot(n)
		}
	case Repaired:
		e.Action = draw(r, ActionReset, ActionReboot, ActionInspect)
	case Override:
		e.State = draw(r, "", "", "", Healthy, Cordoned)
		e.Source = draw(r, "ann", "bob")
	}
	r.last = e
	return e
}

// time is how far the machine has decided.
func (b *bed) time() time.Duration { return time.Duration(b.now - t0.UnixNano()) }

func (b *bed) save() string {
	b.t.Helper()
	var buf bytes.Buffer
	require.NoError(b.t, b.Snapshot(&buf))
	return buf.String()
}

// seeds is how many random streams a property is tried on.
func seeds() uint64 {
	if testing.Short() {
		return 10
	}
	return 60
}

// TestStepsMayBeCoarseOrFine: when Step is called makes no difference.
func TestStepsMayBeCoarseOrFine(t *testing.T) {
	for seed := range seeds() {
		r := newStream(seed)
		cfg := r.config()
		fine, coarse := newBed(t, cfg, 3, 3), newBed(t, cfg, 3, 3)
		for range 300 {
			e := r.event(3, 3)
			e.Time = t0.Add(r.at) // none late, since that is a matter of when Step was called
			fine.observe(e)
			coarse.observe(e)
			fine.step(r.at)
			for range r.IntN(3) {
				if wake, ok := fine.NextWake(); ok && wake.Sub(t0) < r.at {
					t.Fatal("there was something to decide before")
				}
			}
		}
		end := r.at + 30*24*time.Hour
		fine.step(end)
		coarse.step(end)
		require.Equal(t, moves(coarse.seen), moves(fine.seen), "seed %d", seed)
		require.Equal(t, coarse.seen, fine.seen)
		require.Equal(t, coarse.save(), fine.save())
	}
}

// TestOrderWithinAnInstantIsIrrelevant, and so is how often an event is told.
func TestOrderWithinAnInstantIsIrrelevant(t *testing.T) {
	for seed := range seeds() {
		r := newStream(seed)
		cfg := r.config()
		one, other := newBed(t, cfg, 3, 3), newBed(t, cfg, 3, 3)
		for range 60 {
			var batch []Event
			for range 1 + r.IntN(8) {
				e := r.event(3, 3)
				batch = append(batch, e)
			}
			for k := range batch {
				batch[k].Time = t0.Add(r.at)
			}
			for _, e := range batch {
				one.observe(e)
			}
			r.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			for _, e := range batch {
				other.observe(e)
				other.observe(e)
				other.step(r.at)
			}
			one.step(r.at)
		}
		end := r.at + 30*24*time.Hour
		one.step(end)
		other.step(end)
		require.Equal(t, one.seen, other.seen, "seed %d", seed)
		require.Equal(t, one.save(), other.save())
	}
}

// TestDuplicatesAreIdempotent: what was decided about already changes nothing when it
// is told again later. Votes of a quorum are left out: they count while they are fresh.
func TestDuplicatesAreIdempotent(t *testing.T) {
	for seed := range seeds() {
		r := newStream(seed)
		r.unique = true // that names come back, as elsewhere, a log that is read again cannot tell from itself
		cfg := r.config()
		once, twice := newBed(t, cfg, 3, 3), newBed(t, cfg, 3, 3)
		var log []Event
		for range 300 {
			e := r.event(3, 3)
			e.Time = t0.Add(r.at)
			if e.Code == "peer" {
				continue
			}
			log = append(log, e)
			once.observe(e)
			twice.observe(e)
			once.step(r.now())
			twice.step(r.now())
			if k := len(log); k > 20 && r.IntN(10) == 0 {
				for _, old := range log[k-10:] { // a log that is read again
					twice.observe(old)
				}
			}
		}
		// What follows is not byte for byte the same: a repeated loss or drain may be told
		// in a later state. No repetition makes anything worse or better than it was.
		end := r.at + 1
		once.step(end)
		twice.step(end)
		for s := range once.All {
			o, ok := twice.Status(s.Node, s.Device)
			require.True(t, ok)
			require.Equal(t, s.State, o.State, "seed %d %s/%s", seed, s.Node, s.Device)
		}
	}
}

// TestARestoredMachineGoesOnAsIfNothingHappened, wherever it was interrupted.
func TestARestoredMachineGoesOnAsIfNothingHappened(t *testing.T) {
	for seed := range seeds() {
		r := newStream(seed)
		cfg := r.config()
		whole, parts := newBed(t, cfg, 3, 3), newBed(t, cfg, 3, 3)
		for range 300 {
			e := r.event(3, 3)
			whole.observe(e)
			parts.observe(e)
			if r.IntN(3) == 0 {
				at := max(r.at-time.Duration(r.IntN(2)), whole.time())
				require.Equal(t, whole.step(at), parts.step(at))
			}
			if r.IntN(10) == 0 {
				saved := parts.save()
				seen := parts.seen
				parts = parts.restored(cfg)
				parts.seen = seen
				require.Equal(t, saved, parts.save())
				w1, ok1 := whole.NextWake()
				w2, ok2 := parts.NextWake()
				require.Equal(t, w1, w2)
				require.Equal(t, ok1, ok2)
			}
		}
		end := r.at + 30*24*time.Hour
		whole.step(end)
		parts.step(end)
		require.Equal(t, whole.seen, parts.seen, "seed %d", seed)
		require.Equal(t, whole.save(), parts.save())
	}
}

// TestInvariants: what leaves Cordoned or Probation for Healthy was quiet long enough
// and passed; transitions are bounded; nothing leaves Retired; counts are right.
func TestInvariants(t *testing.T) {
	for seed := range seeds() {
		r := newStream(seed)
		cfg := r.config()
		b := newBed(t, cfg, 3, 3)
		full := b.cfg
		since := map[string]time.Time{}
		state := map[string]State{}
		for s := range b.All {
			state[string(s.Node)+"/"+string(s.Device)] = s.State
		}
		recoveries := map[string]int{}
		check := func(out []Transition) {
			for _, tr := range out {
				k := string(tr.Node) + "/" + string(tr.Device)
				require.Equal(t, state[k], tr.From, "seed %d", seed)
				require.NotEqual(t, Retired, tr.From)
				if tr.From != tr.To {
					if tr.To == Healthy && tr.Reason == reasonQuiet {
						dwell := full.Dwell
						if tr.From == Suspect {
							dwell = full.Watch
						}
						require.GreaterOrEqual(t, tr.Time.Sub(since[k]), dwell, "seed %d", seed)
						recoveries[k]++
					}
					if tr.From.closed() && tr.To == Healthy {
						require.Contains(t, []lockstep.Reason{reasonQuiet, reasonManual}, tr.Reason)
						require.Contains(t, []State{Cordoned, Probation, Draining, Quarantined}, tr.From)
					}
					since[k] = tr.Time
				}
				state[k] = tr.To
			}
		}
		for range 500 {
			b.observe(r.event(3, 3))
			if r.IntN(3) == 0 {
				check(b.step(r.at))
				b.consistent()
			}
		}
		check(b.step(r.at + 30*24*time.Hour))
		b.consistent()
		for k, n := range recoveries { // each by itself, in any order
			require.LessOrEqual(t, n, 1+int((r.at+30*24*time.Hour)/full.Watch), k)
		}
	}
}

// consistent checks what is counted against what is.
func (b *bed) consistent() {
	b.t.Helper()
	closed := map[string]int{}
	sources := map[string]int{}
	timers := 0
	for _, n := range b.sortedNodes() {
		k := 0
		for _, t := range n.all() {
			if t.state.closed() && !t.pinned() {
				k++
			}
			if t.source != "" {
				sources[t.source]++
			}
			if t.deadline != forever {
				timers++
				require.True(b.t, b.timers.Has(t))
				require.GreaterOrEqual(b.t, t.deadline, b.now)
			}
			require.Equal(b.t, t.capped, n.domain.capped.Has(t))
			require.LessOrEqual(b.t, len(t.incidents), maxIncidents)
		}
		require.Equal(b.t, k, n.closed)
		if k > 0 {
			closed[n.domain.name]++
		}
	}
	for name, d := range b.domains { // each by itself, in any order
		require.Equal(b.t, closed[name], d.closed)
	}
	require.Equal(b.t, sources, b.sources)
	require.Equal(b.t, timers, b.timers.Len())
	n := 0
	for _, k := range b.crowd { // a sum, in any order
		n += k
	}
	require.Len(b.t, b.hits[b.past:], n)
}

// TestTransitionsAreBounded: as fast as evidence and passes may come, a device goes in
// and out once a dwell.
func TestTransitionsAreBounded(t *testing.T) {
	cfg := quietly()
	cfg.SameRelapses, cfg.AnyRelapses, cfg.Repeat = 16, 16, 16
	b := newBed(t, cfg, 1, 1)
	const span = 48 * time.Hour
	for at := time.Minute; at < span; at += 4 * time.Minute {
		if s := b.state(0, 0); s == Healthy {
			b.at(at, Event{Kind: Fault, Code: XID(74)})
		} else {
			b.at(at, Event{Kind: Probe, Code: "diag", Passed: true})
		}
		b.step(at + 1)
	}
	// Dwells of 30 m, 1 h, 2 h, 4 h, 8 h, 16 h and 24 h follow each other.
	require.LessOrEqual(t, len(b.seen), 14, fmt.Sprint(moves(b.seen)))
	require.GreaterOrEqual(t, len(b.seen), 11)
}
