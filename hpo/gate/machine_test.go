package gate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

const ms = time.Millisecond

// script runs events through a Machine. Each line is "TIME EVENT [N [UNTIL]] -> ACTIONS",
// times in milliseconds.
func script(t *testing.T, text string) {
	t.Helper()
	m, err := NewMachine(MachineConfig{Patience: 50 * ms, MaxLease: time.Second})
	require.NoError(t, err)
	kinds := map[string]EventKind{
		"open": EventOpen, "close": EventClose, "connected": EventConnected, "disconnected": EventDisconnected, "quiet": EventQuiet,
		"paused": EventPaused, "resumed": EventResumed, "failed": EventFailed, "exited": EventExited, "tick": EventTick,
	}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		in, want, _ := strings.Cut(strings.TrimSpace(line), "->")
		var at, until int64
		var n uint64
		var kind string
		_, _ = fmt.Sscan(in, &at, &kind, &n, &until)
		e := Event{Kind: kinds[kind], Until: time.Duration(until) * ms, Epoch: n, Serial: n, Op: n}
		actions, err := m.Step(time.Duration(at)*ms, e)
		require.NoError(t, err, line)
		var got []string
		for _, a := range actions {
			switch a.Kind {
			case ActionOpen:
				got = append(got, fmt.Sprintf("open#%d:%d", a.Serial, a.Until/ms))
			case ActionClose:
				got = append(got, fmt.Sprintf("close#%d", a.Serial))
			default:
				got = append(got, fmt.Sprintf("%v!%d", a.Kind, a.Op))
			}
		}
		if m.Quiesced() {
			got = append(got, "still")
		}
		if at, ok := m.NextWake(); ok {
			got = append(got, fmt.Sprintf("wake@%d", at/ms))
		}
		require.Equal(t, strings.TrimSpace(want), strings.Join(got, " "), line)
	}
}

func TestAHookIsAskedFirstAndSignalsComeAfterPatience(t *testing.T) {
	script(t, `
		1 connected      -> still
		10 open 1 100    -> open#1:100 wake@100
		50 close 1       -> close#2 wake@100
		60 quiet 2       -> still
		110 open 2 200   -> open#3:200 wake@200
		150 close 2      -> close#4 wake@200
		190 quiet 3      -> wake@200
		200 tick         -> pause!1
		205 paused 1     -> still
		300 open 3 400   -> open#5:400 resume!2 wake@400
		301 resumed 2    -> wake@400
		350 close 3      -> close#6 wake@400
		360 quiet 6      -> still
		400 tick         -> still`)
}

func TestALeaseThatRunsOutIsConfirmedOrEnforced(t *testing.T) {
	script(t, `
		1 connected      -> still
		10 open 1 100    -> open#1:100 wake@100
		100 tick         -> wake@150
		110 quiet 1      -> still
		200 open 2 300   -> open#2:300 wake@300
		310 tick         -> wake@350
		350 tick         -> pause!1
		360 failed 1     -> wake@410
		410 tick         -> pause!2
		411 paused 1     ->
		420 paused 2     -> still`)
}

func TestALongerWindowTakesBackAQuietThatCrossesIt(t *testing.T) {
	script(t, `
		1 connected      -> still
		10 open 1 100    -> open#1:100 wake@100
		90 open 1 200    -> open#2:200 wake@200
		91 quiet 1       -> wake@200
		150 open 1 180   -> wake@200
		200 tick         -> wake@250
		210 quiet 2      -> still`)
}

func TestOlderEpochsAndWindowsThatAreOverAreNoOps(t *testing.T) {
	script(t, `
		1 connected      -> still
		10 open 5 100    -> open#1:100 wake@100
		11 close 4       -> wake@100
		12 open 4 900    -> wake@100
		13 close 5       -> close#2 wake@63
		14 close 5       -> wake@63
		15 open 5 900    -> wake@63
		16 open 6 16     -> wake@63
		17 quiet 2       -> still
		18 close 9       -> still
		19 open 9 100    -> still
		20 open 10 100   -> open#3:100 wake@100`)
}

func TestWithoutAHookSignalsAreUsedAtOnce(t *testing.T) {
	script(t, `
		1 close 0        -> pause!1
		2 paused 1       -> still
		10 open 1 100    -> resume!2 wake@100
		11 failed 2      -> wake@61
		61 tick          -> resume!3 wake@100
		62 resumed 3     -> wake@100
		100 tick         -> pause!4
		101 open 2 200   -> resume!5 wake@200
		102 paused 4     -> wake@200
		103 exited       -> still
		104 open 3 300   -> still`)
}

func TestATrialWhoseHookGoesIsStopped(t *testing.T) {
	script(t, `
		1 connected      -> still
		10 open 1 100    -> open#1:100 wake@100
		20 disconnected  -> pause!1 wake@100
		21 paused 1      -> still wake@100
		100 tick         -> still
		110 open 2 200   -> resume!2 wake@200
		120 connected    -> open#2:200 wake@200
		121 quiet 1      -> wake@200
		122 disconnected -> pause!3 wake@200`)
}

func TestATrialWhoseHookComesBackInAWindowGoesOn(t *testing.T) {
	script(t, `
		1 connected      -> still
		10 open 1 100    -> open#1:100 wake@100
		20 disconnected  -> pause!1 wake@100
		21 connected     -> open#2:100 resume!2 wake@100
		22 paused 1      -> wake@100
		23 resumed 2     -> wake@100
		30 close 1       -> close#3 wake@80
		31 disconnected  -> pause!3
		32 connected     -> still
		33 paused 3      -> still`)
}

func BenchmarkMachine(b *testing.B) {
	m, err := NewMachine(MachineConfig{})
	require.NoError(b, err)
	_, err = m.Step(ms, Event{Kind: EventConnected})
	require.NoError(b, err)
	now, epoch := ms, uint64(0)
	b.ReportAllocs()
	for b.Loop() { // a window: open, close and quiet
		now += ms
		epoch++
		_, _ = m.Step(now, Event{Kind: EventOpen, Epoch: epoch, Until: now + ms})
		_, _ = m.Step(now, Event{Kind: EventClose, Epoch: epoch})
		_, _ = m.Step(now, Event{Kind: EventQuiet, Serial: m.serial})
	}
}

func TestAResumeThatFailedIsDoneBeforeTheNextWindow(t *testing.T) {
	script(t, `
		1 close 0        -> pause!1
		2 paused 1       -> still
		10 open 1 30     -> resume!2 wake@30
		11 failed 2      -> wake@30
		30 tick          -> pause!3
		31 paused 3      -> still
		40 open 2 90     -> resume!4 wake@90
		41 failed 4      -> wake@90
		42 open 2 95     -> resume!5 wake@95`)
}

func TestStepRefusesWhatCannotBe(t *testing.T) {
	m, err := NewMachine(MachineConfig{})
	require.NoError(t, err)
	_, err = m.Step(10*ms, Event{Kind: EventTick})
	require.NoError(t, err)
	_, err = m.Step(9*ms, Event{Kind: EventTick})
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = m.Step(11*ms, Event{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = m.Step(11*ms, Event{Kind: EventTick + 1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = m.Step(11*ms, Event{Kind: EventOpen, Epoch: 1, Until: 11*ms + time.Minute + 1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, 10*ms, m.now, "after an error nothing has changed")
	_, err = NewMachine(MachineConfig{Patience: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = NewMachine(MachineConfig{MaxLease: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// world is a trial, its process tree and the wires to a Machine, with delays.
type world struct {
	t       *testing.T
	r       *rand.Rand
	m       *Machine
	now     time.Duration
	deaf    bool // once it was let go, the trial does as it likes
	up      bool // there is a connection
	lease   lease
	loud    bool
	busy    time.Duration // end of the quantum under way; 0 for none
	stopped bool
	quanta  int
	toHook  []coop.Message
	toGate  []Event
	ops     []Action // signals under way
	serial  uint64
	op      uint64
}

func (w *world) step(e Event) {
	actions, err := w.m.Step(w.now, e)
	require.NoError(w.t, err)
	for _, a := range actions {
		switch a.Kind {
		case ActionOpen, ActionClose:
			require.Greater(w.t, a.Serial, w.serial)
			w.serial = a.Serial
			m := coop.Numbers("close", a.Epoch, a.Serial)
			if a.Kind == ActionOpen {
				m = coop.Numbers("open", a.Epoch, a.Serial, uint64(a.Until))
			}
			w.toHook = append(w.toHook, m)
		default:
			require.Greater(w.t, a.Op, w.op)
			w.op = a.Op
			w.ops = append(w.ops, a)
		}
	}
	w.check()
}

// check holds what Quiesced promises against what the trial does.
func (w *world) check() {
	if w.m.Quiesced() && !w.stopped {
		require.Zero(w.t, w.busy, "a quiet trial is in a quantum")
	}
}

// hook lets the trial do one thing.
func (w *world) hook() {
	if w.stopped {
		return
	}
	if w.deaf && (w.busy != 0 || w.up && len(w.toHook) > 0) {
		w.busy = 1 // once it was let go it runs for ever, and says nothing
		return
	}
	if w.busy != 0 {
		if w.now < w.busy {
			return
		}
		w.busy = 0
	}
	for _, m := range w.toHook {
		require.True(w.t, w.lease.take(m))
	}
	w.toHook = w.toHook[:0]
	d := time.Duration(1+w.r.IntN(20)) * ms
	if w.up && w.lease.allows(w.now, d) {
		require.LessOrEqual(w.t, w.now+d, w.lease.until)
		w.busy, w.loud = w.now+d, true
		w.quanta++
		require.False(w.t, w.m.Quiesced(), "a quantum starts while the gate says that all is still")
		return
	}
	w.lease.open = false
	if w.up && (w.loud || w.lease.owed) {
		w.loud, w.lease.owed = false, false
		w.toGate = append(w.toGate, Event{Kind: EventQuiet, Serial: w.lease.serial})
	}
}

// signal lets the oldest signal under way come to its end.
func (w *world) signal(fail bool) {
	if len(w.ops) == 0 {
		return
	}
	a := w.ops[0]
	w.ops = w.ops[1:]
	if a.Op != w.op {
		return // a later one has made the tree refuse it
	}
	e := Event{Kind: EventFailed, Op: a.Op}
	if !fail {
		w.stopped = a.Kind == ActionPause
		e.Kind = EventResumed
		if w.stopped {
			e.Kind = EventPaused
		}
	}
	w.step(e)
}

func (w *world) deliver() {
	if len(w.toGate) > 0 {
		e := w.toGate[0]
		w.toGate = w.toGate[1:]
		w.step(e)
	}
}

func (w *world) connect() {
	w.up = !w.up
	w.toHook, w.toGate = nil, nil
	w.lease, w.loud = lease{}, false
	if !w.up {
		w.step(Event{Kind: EventDisconnected})
		return
	}
	if w.stopped || w.busy != 0 {
		w.up = false // a stopped process cannot connect, nor one in a quantum
		return
	}
	w.step(Event{Kind: EventConnected})
}

func TestWhatTheGateCallsStillIsStill(t *testing.T) {
	ran, halts := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, err := NewMachine(MachineConfig{Patience: time.Duration(1+r.IntN(40)) * ms})
		require.NoError(t, err)
		w := &world{t: t, r: r, m: m, now: ms, deaf: seed%4 == 0}
		epoch := uint64(0)
		for range 400 {
			w.now += time.Duration(r.IntN(5)) * ms
			switch r.IntN(12) {
			case 0:
				epoch += uint64(r.IntN(2))
				w.step(Event{Kind: EventOpen, Epoch: epoch, Until: w.now + time.Duration(r.IntN(200))*ms})
			case 1:
				w.step(Event{Kind: EventClose, Epoch: epoch - min(epoch, uint64(r.IntN(3)/2))})
				epoch += uint64(r.IntN(2))
			case 2:
				if r.IntN(10) == 0 || !w.up {
					w.connect()
				}
			case 3:
				w.signal(r.IntN(4) == 0)
			case 4, 5, 6:
				w.deliver()
			case 7, 8, 9, 10:
				w.hook()
			case 11:
				w.step(Event{Kind: EventTick})
			}
			if w.stopped {
				halts++
			}
		}
		// Whatever was, a Close makes it still in time, if signals work again.
		w.step(Event{Kind: EventClose, Epoch: epoch + 1})
		for range 400 {
			if at, ok := m.NextWake(); ok {
				w.now = max(w.now, at)
			}
			w.now += ms
			w.hook()
			w.deliver()
			w.signal(false)
			w.step(Event{Kind: EventTick})
		}
		require.True(t, m.Quiesced(), "seed %d", seed)
		ran += w.quanta
	}
	require.Greater(t, ran, 1000, "the trials did run")
	require.Greater(t, halts, 1000, "and were stopped")
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte{4, 1, 1, 50, 5, 1, 10, 60, 7, 1})
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := NewMachine(MachineConfig{})
		require.NoError(t, err)
		now, serial, op := ms, uint64(0), uint64(0)
		for i := 0; i+1 < len(text); i += 2 {
			now += time.Duration(text[i]>>4) * ms
			n := uint64(text[i+1])
			actions, err := m.Step(now, Event{Kind: EventKind(text[i] & 15), Epoch: n >> 3, Serial: n >> 2, Op: n >> 2, Until: now + time.Duration(n)*ms})
			if err != nil {
				require.ErrorIs(t, err, lockstep.ErrInvalid)
				continue
			}
			for _, a := range actions {
				if a.Kind == ActionOpen || a.Kind == ActionClose {
					require.Greater(t, a.Serial, serial)
					serial = a.Serial
				} else {
					require.Greater(t, a.Op, op)
					op = a.Op
				}
			}
			if at, ok := m.NextWake(); ok {
				require.Greater(t, at, now, "what is due was done")
			}
		}
	})
}
