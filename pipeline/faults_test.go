package pipeline

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// ops reads an order such as "F0 F1 B0 B1".
func ops(list ...string) (out []Op) {
	for _, s := range list {
		out = append(out, Op{Kind: Kind(map[byte]int{'F': 0, 'B': 1, 'W': 2}[s[0]]), Micro: int32(s[1] - '0')})
	}
	return out
}

func TestConfigsThatCanNotBe(t *testing.T) {
	tests := []struct {
		name, field string
		cfg         Config
	}{
		{"no stages", "Stages", Config{Micros: 1}},
		{"no micro-batches", "Micros", Config{Stages: 1}},
		{"negative stages", "Stages", Config{Stages: -1, Micros: 1}},
		{"negative chunks", "Chunks", Config{Stages: 1, Micros: 1, Chunks: -1}},
		{"negative replicas", "Replicas", Config{Stages: 1, Micros: 1, Replicas: -1}},
		{"too many stages", "Stages", Config{Stages: math.MaxInt, Micros: 1}},
		{"too many ops", "Micros", Config{Stages: 1 << 20, Micros: 1 << 20}},
		{"too many virtual stages", "Micros", Config{Stages: 1<<22 + 1, Micros: 1}},
		{"a product past the range of int64", "Micros", Config{Schedule: Interleaved, Stages: 1 << 24, Micros: 1 << 24, Chunks: 1 << 24}},
		{"two to the 31 ops", "Micros", Config{Schedule: Interleaved, Stages: 1 << 10, Micros: 1 << 10, Chunks: 1 << 10}},
		{"shares past the range of int", "Micros", Config{Stages: 1, Replicas: 200, Split: slices.Repeat([]int{math.MaxInt32}, 200)}},
		{"too many rows", "Micros", Config{Stages: 1 << 20, Micros: 1, Replicas: 1 << 20, Orders: [][]Op{}}},
		{"no such schedule", "Schedule", Config{Schedule: 99, Stages: 1, Micros: 1}},
		{"chunks of another schedule", "Chunks", Config{Schedule: GPipe, Stages: 2, Micros: 2, Chunks: 2}},
		{"stages do not divide micro-batches", "Micros", Config{Schedule: Interleaved, Stages: 4, Micros: 6, Chunks: 2}},
		{"stages do not divide those of a replica", "Micros", Config{Schedule: Interleaved, Stages: 2, Micros: 8, Chunks: 2, Replicas: 2, Split: []int{5, 3}}},
		{"a share for each replica", "Split", Config{Stages: 2, Micros: 8, Replicas: 2, Split: []int{8}}},
		{"shares of another sum", "Split", Config{Stages: 2, Micros: 8, Replicas: 2, Split: []int{4, 5}}},
		{"negative share", "Split[1]", Config{Stages: 2, Micros: 8, Replicas: 2, Split: []int{9, -1}}},
		{"rows of another number", "Orders", Config{Stages: 2, Micros: 1, Orders: [][]Op{ops("F0", "B0")}}},
		{"no op", "Orders", Config{Stages: 1, Micros: 1, Orders: [][]Op{{}}}},
		{"unknown kind", "Orders[0][1]", Config{Micros: 1, Orders: [][]Op{{{}, {Kind: 3}}}}},
		{"negative micro-batch", "Orders[0][0]", Config{Micros: 1, Orders: [][]Op{{{Micro: -1}}}}},
		{"micro-batch past the last", "Orders[0][2]", Config{Micros: 1, Orders: [][]Op{ops("F0", "B0", "F1")}}},
		{"negative chunk", "Orders[0][0]", Config{Micros: 1, Orders: [][]Op{{{Chunk: -1}}}}},
		{"chunk past the last", "Orders[0][0]", Config{Micros: 1, Chunks: 1, Orders: [][]Op{{{Chunk: 1}}}}},
		{"largest chunk", "Chunks", Config{Micros: 1, Orders: [][]Op{{{Chunk: math.MaxInt32}}}}},
		{"no backward", "Orders", Config{Micros: 2, Orders: [][]Op{ops("F0", "F1", "B0")}}},
		{"a stage with some micro-batches only", "Orders", Config{Micros: 3, Orders: [][]Op{ops("F0", "F1", "F2", "B0", "B1", "B2"), ops("F1", "B1")}}},
		{"no forward", "Orders", Config{Micros: 1, Orders: [][]Op{ops("B0")}}},
		{"no forward on one stage", "Orders", Config{Micros: 1, Orders: [][]Op{ops("F0", "B0"), ops("B0")}}},
		{"a weight alone on one stage", "Orders", Config{Micros: 1, Orders: [][]Op{ops("F0", "B0"), ops("W0")}}},
		{"weight of some", "Orders", Config{Micros: 2, Orders: [][]Op{ops("F0", "B0", "W0", "F1", "B1")}}},
		{"weight of others", "Orders", Config{Micros: 2, Orders: [][]Op{ops("F0", "B0", "W1", "F1", "B1")}}},
		{"backward away from its forward", "Orders[1][0]", Config{Micros: 1, Replicas: 2, Orders: [][]Op{ops("F0"), ops("B0")}}},
		{"weight away from its forward", "Orders[1][0]", Config{Micros: 1, Replicas: 2, Orders: [][]Op{ops("F0", "B0"), ops("W0")}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := New(test.cfg)
			require.Nil(t, l)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, test.field, e.Field, err)
		})
	}
}

func TestValidateReportsAllFaults(t *testing.T) {
	err := Config{Stages: -1, Micros: -2, Chunks: -3, Replicas: -4, Schedule: 77}.Validate()
	for _, field := range []string{"Stages", "Micros", "Chunks", "Replicas", "Schedule"} {
		require.ErrorContains(t, err, field)
	}
}

func TestAnOpThatIsThereTwiceIsADuplicate(t *testing.T) {
	_, err := New(Config{Micros: 1, Orders: [][]Op{ops("F0", "B0", "F0")}})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.ErrorContains(t, err, "Orders[0][2]")
}

func TestADeadlockNamesTheOpsThatWait(t *testing.T) {
	// Stage 0 wants its gradient of micro-batch 0 before it sends 1, which stage 1 wants first.
	_, err := New(Config{Micros: 2, Orders: [][]Op{ops("F0", "B0", "F1", "B1"), ops("F1", "F0", "B0", "B1")}})
	var e *DeadlockError
	require.ErrorAs(t, err, &e)
	require.Equal(t, []Wait{
		{Blocked: Place{0, 1, Op{Kind: Backward}}, For: Place{1, 2, Op{Kind: Backward}}},
		{Blocked: Place{1, 0, Op{Micro: 1}}, For: Place{0, 2, Op{Micro: 1}}},
	}, e.Cycle)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.EqualError(t, err, "pipeline: new: Orders: deadlock: stage 0 op 1 (B0) waits for stage 1 op 2 (B0), stage 1 op 0 (F1) waits for stage 0 op 2 (F1)")

	// An op before what it needs, in one stage.
	_, err = New(Config{Micros: 1, Orders: [][]Op{ops("F0", "W0", "B0")}})
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Cycle, 1)
	_, err = New(Config{Micros: 1, Orders: [][]Op{ops("B0", "F0")}})
	require.ErrorAs(t, err, &e)
}

func TestCostsThatCanNotBe(t *testing.T) {
	// The second stage is that of the other replica.
	crossing := Config{Stages: 2, Replicas: 2, Micros: 1, Orders: [][]Op{ops("F0", "B0"), {}, {}, ops("F0", "B0")}}
	tests := []struct {
		name, field string
		cfg         Config
		costs       Costs
	}{
		{"no costs", "Forward", Config{Stages: 2, Micros: 3}, Costs{}},
		{"too few", "Backward", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(1, 1)}},
		{"neither each stage nor each micro-batch", "Forward", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(3, 1), Backward: fill(2, 1)}},
		{"weights missing", "Weight", Config{Schedule: ZBH1, Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(2, 1)}},
		{"weights of another shape", "Weight", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Weight: fill(5, 1)}},
		{"sends of another shape", "Send", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Send: fill(3, 1)}},
		{"returns of another shape", "Return", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Return: fill(6, 1)}},
		{"negative forward", "Forward[1]", Config{Stages: 2, Micros: 3}, Costs{Forward: []time.Duration{1, -1}, Backward: fill(2, 1)}},
		{"negative backward", "Backward[0]", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: []time.Duration{-5, 1}}},
		{"negative backward under its weight", "Backward[0]", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: []time.Duration{-5, 1}, Weight: fill(2, 9)}},
		{"negative weight", "Weight[5]", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Weight: append(fill(5, 1), -1)}},
		{"negative send", "Send[0]", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Send: fill(1, -1)}},
		{"negative across", "Across[0]", crossing, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Across: -1}},
		{"negative across under its send", "Across[0]", crossing, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Send: fill(1, 5), Return: fill(1, 5), Across: -3}},
		{"negative send under its across", "Send[0]", crossing, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Send: fill(1, -3), Across: 5}},
		{"send and across past the range", "Costs", crossing, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Send: fill(1, math.MaxInt64), Across: math.MaxInt64}},
		{"least send", "Send[0]", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Send: fill(1, math.MinInt64)}},
		{"sum past the range", "Costs", Config{Stages: 2, Micros: 3}, Costs{Forward: fill(2, math.MaxInt64), Backward: fill(2, math.MaxInt64)}},
		{"sum just past the range", "Costs", Config{Stages: 1, Micros: 2}, Costs{Forward: fill(1, math.MaxInt64/4+1), Backward: fill(1, math.MaxInt64/4+1)}},
		{"backward and weight past the range", "Costs", Config{Stages: 1, Micros: 1}, Costs{Forward: fill(1, 0), Backward: fill(1, math.MaxInt64), Weight: fill(1, 1)}},
		{"transfer past the range", "Costs", Config{Stages: 2, Micros: 1}, Costs{Forward: fill(2, 1), Backward: fill(2, 1), Send: fill(1, math.MaxInt64)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, r := equal(t, test.cfg, 3, 5, time.Duration(btoi(test.cfg.Schedule.Splits())), 1)
			span, busy, end := r.Makespan, append([]time.Duration(nil), r.Busy...), r.End(0, 1)
			windows := r.AppendWindows(nil, 0)
			err := l.Run(&test.costs, r)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, test.field, e.Field, err)
			require.Equal(t, span, r.Makespan, "after an error nothing has changed")
			require.Equal(t, busy, r.Busy)
			require.Equal(t, end, r.End(0, 1))
			require.Equal(t, windows, r.AppendWindows(nil, 0))
		})
	}
}

func TestTheWholeRangeMayBeUsed(t *testing.T) {
	_, r := equal(t, Config{Stages: 1, Micros: 1}, math.MaxInt64-1, 1, 0, 0)
	require.Equal(t, time.Duration(math.MaxInt64), r.Makespan)
	_, r = equal(t, Config{Stages: 2, Micros: 1}, 0, 0, 0, math.MaxInt64/2)
	require.Equal(t, time.Duration(math.MaxInt64-1), r.Makespan)
	require.Equal(t, []Window{{End: math.MaxInt64 - 1, Transfer: math.MaxInt64 / 2, Next: 2}}, r.AppendWindows(nil, 1), "ops that take no time do not part windows")
}

func TestACostThatNoOpTakesIsNotLookedAt(t *testing.T) {
	// Virtual stage 1 holds nothing.
	l, err := New(Config{Stages: 2, Micros: 1, Orders: [][]Op{ops("F0", "B0"), {}}})
	require.NoError(t, err)
	var r Result
	require.NoError(t, l.Run(&Costs{Forward: []time.Duration{1, -9}, Backward: []time.Duration{2, math.MaxInt64}}, &r))
	require.Equal(t, time.Duration(3), r.Makespan)
	require.Equal(t, []Window{{End: 3}}, r.AppendWindows(nil, 1))
}

func TestLookUpsOutsideFindNothing(t *testing.T) {
	l, r := equal(t, Config{Stages: 2, Micros: 2}, 1, 1, 0, 0)
	for _, stage := range []int{-1, 2} {
		require.Nil(t, l.Order(stage))
		require.Zero(t, l.Peak(stage))
		require.Zero(t, l.PeakWeights(stage))
		require.Zero(t, r.Idle(stage))
		require.Zero(t, r.Start(stage, 0))
		require.Zero(t, r.End(stage, 0))
		require.Zero(t, r.Slack(stage, 0))
		require.Empty(t, r.AppendWindows(nil, stage))
		_, ok := l.Index(stage, Op{})
		require.False(t, ok)
		_, err := l.PeakBytes(stage, nil, nil)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	for _, i := range []int{-1, 4} {
		require.Zero(t, r.End(0, i))
	}
	for _, op := range []Op{{Kind: Weight}, {Kind: 9}, {Chunk: 1}, {Chunk: -1}, {Micro: 2}, {Micro: -1}} {
		_, ok := l.Index(0, op)
		require.False(t, ok)
	}
	for s := range 2 {
		for i, op := range l.Order(s) {
			got, ok := l.Index(s, op)
			require.True(t, ok)
			require.Equal(t, i, got)
		}
	}
	l, _ = equal(t, Config{Stages: 2, Micros: 2, Replicas: 2}, 1, 1, 0, 0)
	for stage, micro := range []int32{0, 0, 1, 1} {
		_, ok := l.Index(stage, Op{Micro: micro})
		require.True(t, ok)
		_, ok = l.Index(stage, Op{Micro: 1 - micro})
		require.False(t, ok, "it is in the order of the other replica")
	}

	var none Result
	require.Empty(t, none.AppendWindows(nil, 0))
	require.Empty(t, none.AppendChain(nil))
	require.Zero(t, none.Slack(0, 0))
	require.Zero(t, none.Idle(0))
	_, err := none.Moved()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	l, r := equal(t, Config{Stages: 1, Micros: 1}, 1, 1, 0, 0)
	require.ErrorIs(t, l.Run(nil, r), lockstep.ErrInvalid)
	require.ErrorIs(t, l.Run(&Costs{}, nil), lockstep.ErrInvalid)
	var zero Line
	c := zero.Uniform(1, 1, 1)
	require.NoError(t, zero.Run(&c, r))
	require.Zero(t, r.Makespan)
	require.Empty(t, r.AppendChain(nil))
	require.Zero(t, zero.Stages())
	_, err := r.AppendSlowed(nil, 0, Same)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	cfg, err := r.Moved()
	require.NoError(t, err)
	_, err = New(cfg)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestAResultServesLinesOfAnySize(t *testing.T) {
	var r Result
	for _, p := range []int{5, 2, 9, 1} {
		l, err := New(Config{Stages: p, Micros: 6})
		require.NoError(t, err)
		for range 3 {
			c := l.Uniform(1, 2, 0)
			c.Send, c.Return = fill(p, 1), fill(p, 1)
			require.NoError(t, l.Run(&c, &r))
			requireSame(t, l, &c, &r)
			got, err := r.AppendSlowed(nil, p-1, 1500)
			require.NoError(t, err)
			require.Equal(t, plainSlowed(t, l, &c, p-1, 1500), got[0])
		}
	}
}

func TestALineKeepsNothingOfWhatItIsGivenOrReturns(t *testing.T) {
	given := [][]Op{ops("F0", "F1", "B0", "B1"), ops("F0", "B0", "F1", "B1")}
	l, err := New(Config{Micros: 2, Orders: given})
	require.NoError(t, err)
	want := ops("F0", "F1", "B0", "B1")
	given[0][0], given[1] = Op{Kind: Weight}, nil
	require.Equal(t, want, l.Order(0))
	_ = append(l.Order(0), Op{Kind: Weight, Micro: 7}) // must not reach the row behind
	require.Equal(t, ops("F0", "B0", "F1", "B1"), l.Order(1))

	c := l.Uniform(1, 2, 0)
	c.Forward[0] = 5
	require.Equal(t, fill(2, 1), l.Uniform(1, 2, 0).Forward)
	var r Result
	require.NoError(t, l.Run(&c, &r))
	c.Forward[0] = 100
	cfg, err := r.Moved()
	require.NoError(t, err)
	cfg.Orders[0][0] = Op{Kind: Weight}
	require.Equal(t, want, l.Order(0))
	require.Equal(t, time.Duration(5), r.End(0, 0))
}

func TestNamesAreReadable(t *testing.T) {
	require.Equal(t, "B3", Op{Kind: Backward, Micro: 3}.String())
	require.Equal(t, "W3.1", Op{Kind: Weight, Micro: 3, Chunk: 1}.String())
	require.Equal(t, "Kind(7)", Kind(7).String())
	require.Equal(t, "Schedule(9)", Schedule(9).String())
	require.Equal(t, "WindowKind(9)", WindowKind(9).String())
	require.Equal(t, []string{"1F1B", "GPipe", "interleaved", "ZB-H1", "ZB-H2"}, []string{OneFOneB.String(), GPipe.String(), Interleaved.String(), ZBH1.String(), ZBH2.String()})
	require.Equal(t, "idle", Idle.String())
	require.Equal(t, "[1s,2s) comm", Window{Start: time.Second, End: 2 * time.Second, Kind: CommWait}.String())
	require.Equal(t, "[1s,2s)", Window{Start: time.Second, End: 2 * time.Second}.String())
}

func TestTextGoesThereAndBack(t *testing.T) {
	type both struct {
		Kind     Kind
		Schedule Schedule
	}
	for s := OneFOneB; s <= ZBH2; s++ {
		for k := Forward; k <= Weight; k++ {
			data, err := json.Marshal(both{k, s})
			require.NoError(t, err)
			require.Contains(t, string(data), s.String())
			var got both
			require.NoError(t, json.Unmarshal(data, &got))
			require.Equal(t, both{k, s}, got)
		}
	}
	_, err := json.Marshal(both{Kind: 3})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = json.Marshal(both{Schedule: 5})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	kept := both{Weight, ZBH2}
	require.ErrorIs(t, json.Unmarshal([]byte(`{"Kind":"f"}`), &kept), lockstep.ErrInvalid)
	require.ErrorIs(t, json.Unmarshal([]byte(`{"Schedule":"1f1b"}`), &kept), lockstep.ErrInvalid)
	require.Equal(t, both{Weight, ZBH2}, kept)
}
