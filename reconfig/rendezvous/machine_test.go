package rendezvous

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// driver runs a machine in a test; every call must be taken.
type driver struct {
	t *testing.T
	m *Machine
}

func drive(t *testing.T, cfg Config) *driver {
	t.Helper()
	m, err := New(cfg)
	require.NoError(t, err)
	return &driver{t: t, m: m}
}

// at makes a call and returns what happened, each as "kind cause node".
func (d *driver) at(after time.Duration, c Call) []string {
	d.t.Helper()
	events, err := d.m.Step(nil, start.Add(after), c)
	require.NoError(d.t, err)
	var out []string
	for _, e := range events {
		s := fmt.Sprint(e.Time.Sub(start), " ", e.Kind, " ", e.Number)
		if e.Cause != "" {
			s += " " + string(e.Cause)
		}
		if e.Node != "" {
			s += " " + string(e.Node)
		}
		out = append(out, s)
	}
	return out
}

func join(node string) Call { return Call{Kind: Join, Node: lockstep.NodeID(node), Slots: 1} }

const second = time.Second

func TestRoundFormsAtTheEndOfTheLastCallOrWithMaxNodes(t *testing.T) {
	d := drive(t, Config{Min: 2, Max: 4, Silence: Never})
	require.Empty(t, d.at(0, join("a")))
	require.Empty(t, d.at(5*second, join("b")))
	require.Empty(t, d.at(20*second, join("c")), "a later node does not lengthen the last call")
	require.Equal(t, []string{"35s formed 1"}, d.at(time.Minute, Call{}))
	r, ok := d.m.Round()
	require.True(t, ok)
	require.Equal(t, 3, r.World)

	d = drive(t, Config{Min: 2, Max: 4, Silence: Never})
	for i, n := range []string{"d", "c", "b"} {
		require.Empty(t, d.at(time.Duration(i)*second, join(n)))
	}
	require.Equal(t, []string{"3s formed 1"}, d.at(3*second, join("a")))
	r, _ = d.m.Round()
	require.Equal(t, []Member{{"d", 1, 0}, {"c", 1, 1}, {"b", 1, 2}, {"a", 1, 3}}, r.Members, "by the time they joined")
}

func TestLastCallEndsWhenTooFewAreLeft(t *testing.T) {
	d := drive(t, Config{Min: 2, Max: 4, Silence: Never})
	d.at(0, join("a"))
	d.at(second, join("b"))
	d.at(10*second, Call{Kind: Leave, Node: "a"})
	require.Empty(t, d.at(40*second, Call{}))
	d.at(50*second, join("c"))
	require.Equal(t, []string{"1m20s formed 1"}, d.at(2*time.Minute, Call{}), "a new last call")
}

func TestTooFewNodesCloseTheMachine(t *testing.T) {
	d := drive(t, Config{Min: 2, Silence: Never})
	d.at(0, join("a"))
	require.Equal(t, []string{"10m0s closed 0 few"}, d.at(time.Hour, Call{}))
	_, err := d.m.Step(nil, start.Add(time.Hour), join("b"))
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, ok := d.m.NextWake(start)
	require.False(t, ok)
}

func TestFaultsNeedARetryAndGrowthDoesNot(t *testing.T) {
	for _, tt := range []struct {
		call Call
		want string
	}{
		{Call{Kind: Fail, Node: "b", Round: 1}, "1m40s stopped 1 failed b"},
		{Call{Kind: Leave, Node: "b"}, "1m40s stopped 1 left b"},
		{Call{Kind: Leave, Node: "b", Round: 1}, "1m40s stopped 1 left b"},
		{join("b"), "1m40s stopped 1 rejoin b"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			d := drive(t, Config{Min: 1, Max: 3, Silence: Never, LastCall: second})
			d.at(0, join("a"))
			d.at(0, join("b"))
			d.at(second, Call{})
			require.Equal(t, []string{tt.want}, d.at(100*second, tt.call))
			require.Equal(t, Stopped, d.m.State())
			d.at(100*second, join("c"))
			d.at(100*second, join("d"))
			require.Empty(t, d.at(time.Hour, Call{}), "nothing forms before a retry")
			events := d.at(time.Hour, Call{Kind: Retry})
			require.Contains(t, events, "1h0m0s formed 2")
		})
	}
	d := drive(t, Config{Min: 1, Max: 3, Silence: Never, LastCall: second})
	d.at(0, join("a"))
	d.at(second, Call{})
	d.at(2*second, join("b"))
	require.Equal(t, []string{"1m1s stopped 1 grow", "1m2s formed 2"}, d.at(time.Hour, Call{}), "after Dwell, and another last call")
}

func TestSilentNodesLeave(t *testing.T) {
	d := drive(t, Config{Min: 1, Max: 3, LastCall: second})
	d.at(0, join("a"))
	d.at(0, join("b"))
	d.at(second, Call{})
	for at := 10 * second; at <= 60*second; at += 10 * second {
		var got []string
		got = append(got, d.at(at, Call{Kind: Heard, Node: "a"})...)
		if at == 20*second {
			require.Equal(t, []string{"15s stopped 1 silent b"}, got, "found at its own time")
		} else {
			require.Empty(t, got)
		}
	}
	_, err := d.m.Step(nil, start.Add(time.Minute), Call{Kind: Heard, Node: "b"})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

func TestRanksAreStable(t *testing.T) {
	d := drive(t, Config{Min: 2, Max: 5, Silence: Never, LastCall: second})
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		d.at(0, join(n))
	}
	d.at(second, Call{Kind: Leave, Node: "b"})
	d.at(second, Call{Kind: Leave, Node: "c"})
	d.at(second, join("z"))
	d.at(second, Call{Kind: Retry})
	d.at(time.Minute, Call{})
	r, _ := d.m.Round()
	var got []string
	for _, m := range r.Members {
		got = append(got, string(m.Node))
	}
	require.Equal(t, []string{"a", "e", "z", "d"}, got, "a and d stay, e moves down, z is new")
}

func TestMultiplesLeaveNodesWaiting(t *testing.T) {
	d := drive(t, Config{Min: 2, Max: 7, Multiple: 2, Silence: Never, LastCall: second})
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		d.at(0, join(n))
	}
	require.Equal(t, []string{"1s formed 1"}, d.at(time.Hour, Call{}))
	require.Equal(t, 1, d.m.Waiting())
	require.Equal(t, []string{"1h0m0s stopped 1 grow", "1h0m0s formed 2"}, d.at(time.Hour, join("f")), "six is the most that seven allow")
	require.Zero(t, d.m.Waiting())
}

func TestRanksOfProcessesFollowTheSlots(t *testing.T) {
	d := drive(t, Config{Min: 2, Silence: Never})
	d.at(0, Call{Kind: Join, Node: "a", Slots: 8})
	d.at(0, Call{Kind: Join, Node: "b", Slots: 4})
	r, _ := d.m.Round()
	require.Equal(t, Round{Number: 1, World: 12, Members: []Member{{"a", 8, 0}, {"b", 4, 8}}}, r)
	rank, ok := r.Rank("b")
	require.True(t, ok)
	require.Equal(t, 1, rank)
	_, ok = r.Rank("c")
	require.False(t, ok)
}

func TestBadCallsChangeNothing(t *testing.T) {
	d := drive(t, Config{Min: 1, Max: 2, LastCall: second})
	d.at(0, join("a"))
	d.at(second, Call{})
	before := snapshottest.Save(t, d.m.Snapshot)
	for _, tt := range []struct {
		name string
		at   time.Duration
		call Call
		kind error
	}{
		{"past", 0, Call{}, lockstep.ErrPast},
		{"kind", second, Call{Kind: "sing"}, lockstep.ErrInvalid},
		{"no node", second, Call{Kind: Join, Slots: 1}, lockstep.ErrInvalid},
		{"no slots", second, Call{Kind: Join, Node: "b"}, lockstep.ErrInvalid},
		{"too many slots", second, Call{Kind: Join, Node: "b", Slots: math.MaxInt32}, lockstep.ErrInvalid},
		{"unknown heard", second, Call{Kind: Heard, Node: "b"}, lockstep.ErrUnknown},
		{"unknown leaves", second, Call{Kind: Leave, Node: "b"}, lockstep.ErrUnknown},
		{"stale failure", second, Call{Kind: Fail, Node: "a", Round: 7}, lockstep.ErrStale},
		{"no round", second, Call{Kind: Fail, Node: "a"}, lockstep.ErrStale},
		{"falls due first", time.Hour, Call{Kind: Heard, Node: "a"}, lockstep.ErrUnknown}, // silent since
		{"out of range", -100 * 365 * 24 * time.Hour, Call{}, lockstep.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dst := []Event{{Number: 9}}
			got, err := d.m.Step(dst, start.Add(tt.at), tt.call)
			require.ErrorIs(t, err, tt.kind)
			var typed *lockstep.Error
			require.ErrorAs(t, err, &typed)
			require.NotEmpty(t, typed.Field)
			require.Equal(t, dst, got)
			require.Equal(t, before, snapshottest.Save(t, d.m.Snapshot))
		})
	}
}

func TestBadConfigsAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Min: -1},
		{Max: -1},
		{Min: 3, Max: 2},
		{Multiple: -2},
		{Min: 5, Max: 7, Multiple: 4},
		{Max: maxNodes + 1},
		{LastCall: -1},
		{Join: -1},
		{Silence: -1},
		{Dwell: -1},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%+v", cfg)
	}
	err := Config{Min: -1, Join: -1}.Validate()
	require.ErrorContains(t, err, "Min")
	require.ErrorContains(t, err, "Join")
}

// randomCall draws a call about one of few nodes; most can be taken.
func randomCall(rng *rand.Rand, m *Machine) Call {
	node := lockstep.NodeID(string(rune('a' + rng.IntN(7))))
	switch rng.IntN(12) {
	case 0, 1, 2, 3:
		return Call{Kind: Join, Node: node, Slots: 1 + rng.IntN(3)}
	case 4, 5, 6:
		return Call{Kind: Heard, Node: node}
	case 7:
		return Call{Kind: Leave, Node: node}
	case 8:
		return Call{Kind: Fail, Node: node, Round: m.number - uint64(rng.IntN(2))}
	case 9, 10:
		if m.State() == Stopped || rng.IntN(4) == 0 {
			return Call{Kind: Retry}
		}
	}
	return Call{}
}

func TestInvariantsHoldUnderRandomCalls(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 50
	}
	formed := 0
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 11))
		cfg := Config{Min: 1 + rng.IntN(3), Multiple: 1 + rng.IntN(2), LastCall: 5 * second, Dwell: 20 * second, Join: Never}
		cfg.Max = cfg.Min + 1 + rng.IntN(4)
		m, err := New(cfg)
		require.NoError(t, err)
		var last Round
		var running bool
		at := time.Duration(0)
		for range 150 {
			at += time.Duration(rng.IntN(6)) * second
			other := reload(t, m)
			c := randomCall(rng, m)
			stopped := m.State() == Stopped
			events, err := m.Step(nil, start.Add(at), c)
			again, errAgain := other.Step(nil, start.Add(at), c)
			require.Equal(t, err, errAgain)
			require.Equal(t, events, again, "a restored machine decides alike")
			if stopped && c.Kind != Retry {
				require.Empty(t, events, "only Retry leads out of Stopped")
			}
			for _, e := range events {
				switch e.Kind {
				case EventFormed:
					require.False(t, running)
					checkRound(t, m.cfg, &last, e.Round)
					last, running = *e.Round, true
					formed++
				case EventStopped:
					require.True(t, running)
					require.Equal(t, last.Number, e.Number)
					running = false
				}
			}
			require.Equal(t, running, m.State() == Running)
			if wake, ok := m.NextWake(start.Add(at)); ok {
				require.False(t, wake.Before(start.Add(at)))
			}
		}
	}
	require.Greater(t, formed, runs, "the runs form rounds")
}

// checkRound says whether next may follow last.
func checkRound(t *testing.T, cfg Config, last, next *Round) {
	t.Helper()
	require.Greater(t, next.Number, last.Number)
	n := len(next.Members)
	require.GreaterOrEqual(t, n, cfg.Min)
	require.LessOrEqual(t, n, cfg.Max)
	require.Zero(t, n%cfg.Multiple)
	first := 0
	for rank, m := range next.Members {
		require.NotEmpty(t, m.Node)
		require.Equal(t, first, m.First)
		first += m.Slots
		found, _ := next.Rank(m.Node)
		require.Equal(t, rank, found, "each node once")
	}
	require.Equal(t, first, next.World)
}

// reload returns a copy of m by way of its saved form.
func reload(t *testing.T, m *Machine) *Machine {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, m.Snapshot(&b))
	out, err := Restore(&b)
	require.NoError(t, err)
	return out
}

func TestTicksMayComeAsOftenAsTheyLike(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 12))
		cfg := Config{Min: 2, Max: 4, LastCall: 5 * second, Dwell: 20 * second}
		lazy, err := New(cfg)
		require.NoError(t, err)
		eager, err := New(cfg)
		require.NoError(t, err)
		var a, b []Event
		at := time.Duration(0)
		for range 80 {
			gap := time.Duration(rng.IntN(8)) * second
			for range gap / second {
				at += second
				b, err = eager.Step(b, start.Add(at), Call{})
				require.NoError(t, err)
			}
			c := randomCall(rng, lazy)
			if eager.check(c) != nil {
				c = Call{}
			}
			a, err = lazy.Step(a, start.Add(at), c)
			require.NoError(t, err)
			b, err = eager.Step(b, start.Add(at), c)
			require.NoError(t, err)
			require.Equal(t, a, b)
		}
	}
}

func TestSavedFormIsChecked(t *testing.T) {
	d := drive(t, Config{Min: 1, Max: 3, LastCall: second, Silence: Never})
	d.at(0, join("a"))
	d.at(0, join("b"))
	d.at(second, Call{})
	d.at(second, join("c"))
	restore := func(r io.Reader) error { _, err := Restore(r); return err }
	image := snapshottest.Save(t, d.m.Snapshot)
	snapshottest.RefusesDamage(t, image, restore)
	snapshottest.PassesFaultsOn(t, d.m.Snapshot, restore)
	for _, edit := range [][2]string{
		{`"state":"running"`, `"state":"sleeping"`},
		{`"state":"running"`, `"state":"stopped"`},
		{`"state":"running"`, `"state":"closed"`},
		{`"number":1`, `"number":0`},
		{`"rank":1`, `"rank":0`},
		{`"rank":1`, `"rank":2`},
		{`"slots":1`, `"slots":0`},
		{`"id":"b"`, `"id":"a"`},
	} {
		body := snapshottest.Body(t, image)
		forged := bytes.Replace(body, []byte(edit[0]), []byte(edit[1]), 1)
		require.NotEqual(t, body, forged, edit[0])
		require.ErrorIs(t, restore(bytes.NewReader(snapshottest.Frame(t, format, version, forged))), lockstep.ErrInvalid, edit[1])
	}
}

func FuzzRestoreIsSafe(f *testing.F) {
	m, err := New(Config{Min: 1, Max: 3})
	require.NoError(f, err)
	_, err = m.Step(nil, start, join("a"))
	require.NoError(f, err)
	f.Add(snapshottest.Body(f, snapshottest.Save(f, m.Snapshot)))
	_, err = m.Step(nil, start.Add(40*second), join("b"))
	require.NoError(f, err)
	f.Add(snapshottest.Body(f, snapshottest.Save(f, m.Snapshot)))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := Restore(bytes.NewReader(snapshottest.Frame(t, format, version, body)))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		for i := range 6 {
			now := lockstep.FromNanos(m.now)
			if wake, ok := m.NextWake(now); ok && i > 0 {
				now = wake
			}
			_, err := m.Step(nil, now, []Call{{}, join("q"), {Kind: Retry}}[i%3])
			if err != nil {
				require.ErrorIs(t, err, lockstep.ErrConflict)
			}
		}
	})
}

func BenchmarkHeard(b *testing.B) {
	for _, n := range []int{16, 256, 2048} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			m, err := New(Config{Min: n})
			require.NoError(b, err)
			for i := range n {
				_, err := m.Step(nil, start, join(fmt.Sprint("n", i)))
				require.NoError(b, err)
			}
			require.Equal(b, Running, m.State())
			b.ReportAllocs()
			for b.Loop() {
				_, err := m.Step(nil, start, Call{Kind: Heard, Node: "n0"})
				require.NoError(b, err)
			}
		})
	}
}
