package rendezvous

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func TestNodeThatLeftHasItsRankAgain(t *testing.T) {
	d := drive(t, Config{Min: 2, Max: 3, LastCall: second})
	for _, n := range []string{"a", "b", "c"} {
		d.at(0, join(n))
	}
	d.at(10*second, Call{Kind: Heard, Node: "a"})
	d.at(10*second, Call{Kind: Heard, Node: "b"})
	require.Equal(t, []string{"15s stopped 1 silent c"}, d.at(15*second, Call{}))
	d.at(16*second, Call{Kind: Leave, Node: "a"})
	for _, n := range []string{"x", "b", "c", "a"} { // x came first, but was not in the last round
		d.m = reload(t, d.m)
		d.at(17*second, join(n))
	}
	require.Equal(t, []string{"17s formed 2"}, d.at(17*second, Call{Kind: Retry}))
	r, _ := d.m.Round()
	require.Equal(t, []Member{{"a", 1, 0}, {"b", 1, 1}, {"c", 1, 2}}, r.Members)
	require.Equal(t, 1, d.m.Waiting())

	d.at(18*second, Call{Kind: Leave, Node: "c"})
	require.Equal(t, []string{"18s formed 3"}, d.at(18*second, Call{Kind: Retry}))
	require.Equal(t, []string{"19s stopped 3 left a"}, d.at(19*second, Call{Kind: Leave, Node: "a"}))
	d.at(19*second, join("c"))
	d.at(19*second, join("a"))
	d.at(19*second, Call{Kind: Retry})
	r, _ = d.m.Round()
	require.Equal(t, []Member{{"a", 1, 0}, {"b", 1, 1}, {"x", 1, 2}}, r.Members, "c was not in round 3")
}

func TestMembersThatFallSilentAtOnceEndOneRound(t *testing.T) {
	const n = 1 << 14 // one by one this would take minutes
	d := drive(t, Config{Min: n, Max: n})
	for i := range n {
		d.m.nodes = append(d.m.nodes, entry{id: lockstep.NodeID(fmt.Sprintf("n%05d", i)), slots: 1, joined: start.UnixNano(), heard: start.UnixNano(), rank: none})
	}
	require.Empty(t, d.at(0, Call{}))
	d.m.recall()
	d.m.call = start.UnixNano()
	require.Equal(t, []string{"0s formed 1"}, d.at(0, Call{}))
	require.Equal(t, []string{"15s stopped 1 silent n00000"}, d.at(time.Minute, Call{}))
	require.Zero(t, d.m.Len())
}

func TestLastInstantThatCanBeKept(t *testing.T) {
	last := lockstep.FromNanos(math.MaxInt64)
	for _, calls := range [][]Call{{{}}, {join("a"), {}}, {join("a"), join("b"), {}, {Kind: Retry}, {Kind: Close}}} {
		m, err := New(Config{Min: 1, Max: 2, Silence: Never, Dwell: Never})
		require.NoError(t, err)
		for _, c := range calls {
			_, err := m.Step(nil, last, c)
			require.NoError(t, err)
			m = reload(t, m)
		}
	}
}

func TestLastCallWithoutEndIsSaved(t *testing.T) {
	for _, wait := range []time.Duration{Never, Never - 1, 290 * 365 * 24 * time.Hour} {
		d := drive(t, Config{Min: 1, Max: 2, LastCall: wait, Silence: Never})
		d.at(0, join("a"))
		d.m = reload(t, d.m)
		require.Empty(t, d.at(1000*time.Hour, Call{}))
		require.Equal(t, []string{"1000h0m0s formed 1"}, d.at(1000*time.Hour, join("b")))
	}
}

func TestLastCallThatLosesItsNodesAfterTheDeadlineCloses(t *testing.T) {
	d := drive(t, Config{Min: 2, Max: 3, Silence: Never})
	d.at(0, join("a"))
	require.Empty(t, d.at(10*time.Minute-second, join("b")))
	require.Equal(t, []string{"10m10s closed 0 few"}, d.at(10*time.Minute+10*second, Call{Kind: Leave, Node: "b"}))
}

func TestRetryWhileGatheringChangesNothing(t *testing.T) {
	d := drive(t, Config{Min: 1, Max: 2, Silence: Never})
	d.at(0, join("a"))
	before := snapshottest.Save(t, d.m.Snapshot)
	d.at(0, Call{Kind: Retry})
	require.Equal(t, before, snapshottest.Save(t, d.m.Snapshot))
	require.Equal(t, []string{"30s formed 1"}, d.at(time.Minute, Call{}))
}

func TestRejoinWhileStoppedTakesTheNewSlots(t *testing.T) {
	d := drive(t, Config{Min: 2, Silence: Never})
	d.at(0, join("a"))
	d.at(0, join("b"))
	d.at(0, Call{Kind: Fail, Node: "a", Round: 1})
	require.Empty(t, d.at(second, Call{Kind: Join, Node: "a", Slots: 4}))
	require.Equal(t, 2, d.m.Len())
	d.at(second, Call{Kind: Retry})
	r, _ := d.m.Round()
	require.Equal(t, []Member{{"a", 4, 0}, {"b", 1, 4}}, r.Members)
	_, err := d.m.Step(nil, start.Add(second), Call{Kind: Leave, Node: "a", Round: 1})
	require.ErrorIs(t, err, lockstep.ErrStale)
}

func TestForgedMachinesAreRefused(t *testing.T) {
	gathering := drive(t, Config{Min: 2, Max: 4, Silence: Never})
	for _, n := range []string{"a", "b", "c", "d"} {
		gathering.at(0, join(n))
	}
	gathering.at(second, Call{Kind: Leave, Node: "d"})
	gathering.at(second, Call{Kind: Leave, Node: "c"})
	gathering.at(2*second, Call{Kind: Retry})
	running := drive(t, Config{Min: 1, Max: 2, Silence: Never})
	running.at(0, join("a"))
	running.at(0, join("b"))
	running.at(second, join("c"))
	for _, tt := range []struct {
		m        *Machine
		old, new string
	}{
		{gathering.m, `"call":[0-9]+`, `"call":9223372036854775806`},
		{gathering.m, `"call":[0-9]+`, `"call":9223372036854775807`},
		{gathering.m, `"call":[0-9]+`, `"call":1767225602000000001`},
		{gathering.m, `"joined":[0-9]+`, `"joined":1767225602000000000`},
		{gathering.m, `"heard":[0-9]+`, `"heard":1767225602000000001`},
		{gathering.m, `"number":1`, `"number":18446744073709551615`},
		{gathering.m, `"id":"c"`, `"id":"a"`},
		{gathering.m, `"id":"c"`, `"id":"e"`},
		{gathering.m, `"rank":3`, `"rank":1`},
		{gathering.m, `"rank":3`, `"rank":4`},
		{gathering.m, `"rank":3`, `"rank":-1`},
		{gathering.m, `"state":"gathering"`, `"state":"running"`},
		{running.m, `"rank":-1`, `"rank":2`},
		{running.m, `"rank":-1`, `"rank":-2`},
		{running.m, `"rank":-1`, `"rank":-1,"member":true`},
		{running.m, `"number":1`, `"gone":[{"id":"z","rank":2}],"number":1`},
		{running.m, `"since":[0-9]+`, `"since":5`},
	} {
		body := snapshottest.Body(t, snapshottest.Save(t, tt.m.Snapshot))
		forged := regexp.MustCompile(tt.old).ReplaceAll(body, []byte(tt.new))
		require.NotEqual(t, string(body), string(forged), tt.old)
		_, err := Restore(io.Reader(bytes.NewReader(snapshottest.Frame(t, format, version, forged))))
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%s", forged)
	}
}

func TestCapacityOfTheLargestRoundEndsTheLastCall(t *testing.T) {
	d := drive(t, Config{Min: 3, Max: 8, Multiple: 3, Silence: Never, LastCall: second})
	for i := range 5 {
		require.Empty(t, d.at(0, join(fmt.Sprint(i))))
	}
	require.Equal(t, []string{"0s formed 1"}, d.at(0, join("5")), "six are the most of three each")
	d.at(second, Call{Kind: Fail, Node: "0", Round: 1})
	d.at(second, join("6"))
	d.at(second, Call{Kind: Leave, Node: "1"})
	d.at(second, Call{Kind: Leave, Node: "2"})
	require.Empty(t, d.at(second, Call{Kind: Retry}), "five nodes make a round of three, after the last call")
	require.Equal(t, []string{"2s formed 2"}, d.at(time.Hour, Call{}))
	r, _ := d.m.Round()
	require.Equal(t, []Member{{"0", 1, 0}, {"3", 1, 1}, {"4", 1, 2}}, r.Members, "six waits, since the others were there before")
}

func TestNodeThatReportsAFailureIsAlive(t *testing.T) {
	d := drive(t, Config{Min: 1, LastCall: second})
	d.at(0, join("a"))
	require.Equal(t, []string{"10s stopped 1 failed a"}, d.at(10*second, Call{Kind: Fail, Node: "a", Round: 1}))
	d.at(20*second, Call{})
	require.Equal(t, 1, d.m.Len())
	d.at(25*second, Call{})
	require.Zero(t, d.m.Len())
}

func TestRetryWhileARoundRunsIsNoFault(t *testing.T) {
	d := drive(t, Config{Min: 1, Max: 3, Silence: Never, LastCall: second})
	d.at(0, join("a"))
	d.at(0, join("b"))
	d.at(second, Call{})
	require.Equal(t, []string{"2s stopped 1 retry"}, d.at(2*second, Call{Kind: Retry}))
	require.Equal(t, Gathering, d.m.State())
	require.Equal(t, []string{"3s formed 2"}, d.at(time.Hour, Call{}))
	require.Equal(t, []string{"1h0m0s stopped 2 retry", "1h0m0s formed 3"}, func() []string {
		d.m.cfg.Max = 2 // as many as there are
		return d.at(time.Hour, Call{Kind: Retry})
	}())
}

func TestOnlyMembersFailInARound(t *testing.T) {
	d := drive(t, Config{Min: 2, Silence: Never})
	for _, n := range []string{"a", "b", "c"} {
		d.at(0, join(n))
	}
	for _, kind := range []CallKind{Fail, Leave} {
		_, err := d.m.Step(nil, start, Call{Kind: kind, Node: "c", Round: 1})
		require.ErrorIs(t, err, lockstep.ErrStale)
	}
	require.Empty(t, d.at(0, Call{Kind: Leave, Node: "c"}))
	require.Equal(t, []string{"0s stopped 1 closed", "0s closed 1 closed"}, d.at(0, Call{Kind: Close}))
	require.Empty(t, d.at(0, Call{Kind: Close}), "closed it is")
}

func TestRanksAreStableUnderRandomCalls(t *testing.T) {
	kept, moved := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 13))
		cfg := Config{Min: 1 + rng.IntN(3), Multiple: 1 + rng.IntN(2), LastCall: 5 * second, Silence: 20 * second, Dwell: 20 * second, Join: Never}
		cfg.Max = cfg.Min + 1 + rng.IntN(4)
		m, err := New(cfg)
		require.NoError(t, err)
		var last Round
		at := time.Duration(0)
		for range 200 {
			at += time.Duration(rng.IntN(4)) * second
			events, err := m.Step(nil, start.Add(at), randomCall(rng, m))
			if err != nil {
				require.Empty(t, events)
			}
			for _, e := range events {
				if e.Round == nil {
					continue
				}
				n := len(e.Round.Members)
				for rank, member := range e.Round.Members {
					if was, ok := last.Rank(member.Node); ok && was < n {
						require.Equal(t, was, rank, "%s, also if it left in between", member.Node)
						kept++
					} else if ok {
						moved++
					}
				}
				last = *e.Round
			}
		}
	}
	require.Greater(t, kept, 1000)
	require.Greater(t, moved, 10)
}
