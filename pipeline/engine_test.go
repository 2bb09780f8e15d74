package pipeline

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// key is an op of a pipeline, wherever it runs.
type key struct {
	kind     Kind
	v, micro int
}

// oracle evaluates orders by the rules of the package, over and over until nothing changes: an op starts when the op before it
// in its row has ended and what it needs is there. It shares no code with Line.
type oracle struct {
	stages, chunks, micros int
	costs                  *Costs
	home                   map[key]int  // the row of each op
	held                   map[int]bool // virtual stages with ops
	done                   map[key]time.Duration
}

// slowOracle returns the ends of all ops; ok is false if the orders never end.
func slowOracle(orders [][]Op, stages, micros int, c *Costs) (ends [][]time.Duration, ok bool) {
	o := oracle{stages: stages, chunks: max(1, len(c.Send)/stages), micros: micros, costs: c, home: map[key]int{}, held: map[int]bool{}, done: map[key]time.Duration{}}
	for row, ops := range orders {
		for _, op := range ops {
			k := o.key(row, op)
			o.home[k], o.held[k.v] = row, true
		}
	}
	ends = make([][]time.Duration, len(orders))
	for changed := true; changed; {
		changed = false
		for row, ops := range orders {
			if len(ends[row]) == len(ops) {
				continue
			}
			k := o.key(row, ops[len(ends[row])])
			start, ok := o.need(k, row)
			if !ok {
				continue
			}
			if n := len(ends[row]); n > 0 {
				start = max(start, ends[row][n-1])
			}
			o.done[k] = start + o.cost(k)
			ends[row], changed = append(ends[row], o.done[k]), true
		}
	}
	for row, ops := range orders {
		if len(ends[row]) < len(ops) {
			return ends, false
		}
	}
	return ends, true
}

func (o *oracle) key(row int, op Op) key {
	return key{op.Kind, int(op.Chunk)*o.stages + row%o.stages, int(op.Micro)}
}

func (o *oracle) entry(of []time.Duration, k key) time.Duration {
	switch len(of) {
	case 0:
		return 0
	case o.stages * o.chunks:
		return of[k.v]
	}
	return of[k.v*o.micros+k.micro]
}

func (o *oracle) cost(k key) time.Duration {
	switch k.kind {
	case Forward:
		return o.entry(o.costs.Forward, k)
	case Weight:
		return o.entry(o.costs.Weight, k)
	}
	if _, split := o.home[key{Weight, k.v, k.micro}]; split {
		return o.entry(o.costs.Backward, k)
	}
	return o.entry(o.costs.Backward, k) + o.entry(o.costs.Weight, k)
}

// need returns when what an op in a row needs is there.
func (o *oracle) need(k key, row int) (time.Duration, bool) {
	switch k.kind {
	case Weight:
		at, ok := o.done[key{Backward, k.v, k.micro}]
		return at, ok
	case Backward:
		for w := k.v + 1; w < o.stages*o.chunks; w++ {
			if o.held[w] {
				return o.arrives(key{Backward, w, k.micro}, row, o.costs.Return, k.v)
			}
		}
		at, ok := o.done[key{Forward, k.v, k.micro}]
		return at, ok
	}
	for w := k.v - 1; w >= 0; w-- {
		if o.held[w] {
			return o.arrives(key{Forward, w, k.micro}, row, o.costs.Send, w)
		}
	}
	return 0, true
}

// arrives returns when what an op made is in a row.
func (o *oracle) arrives(on key, row int, hops []time.Duration, v int) (time.Duration, bool) {
	at, ok := o.done[on]
	from := o.home[on]
	if from != row {
		at += hops[v]
	}
	if from/o.stages != row/o.stages {
		at += o.costs.Across
	}
	return at, ok
}

// shuffled returns random orders that may or may not end: rows of all replicas, with some chunks that hold nothing.
func shuffled(rng *rand.Rand, swaps int) Config {
	cfg := Config{Stages: 1 + rng.IntN(4), Micros: 1 + rng.IntN(5), Replicas: 1 + rng.IntN(2)}
	chunks := 1 + rng.IntN(3)
	cfg.Orders = make([][]Op, cfg.Stages*cfg.Replicas)
	any := false
	for v := range cfg.Stages * chunks {
		if rng.IntN(4) == 0 && (any || v+1 < cfg.Stages*chunks) {
			continue
		}
		any = true
		split := rng.IntN(2) == 0
		for j := range cfg.Micros {
			row := rng.IntN(cfg.Replicas)*cfg.Stages + v%cfg.Stages
			op := Op{Chunk: int32(v / cfg.Stages), Micro: int32(j)}
			for _, kind := range []Kind{Forward, Backward, Weight}[:2+btoi(split)] {
				op.Kind = kind
				cfg.Orders[row] = append(cfg.Orders[row], op)
			}
		}
	}
	// By kind first, forwards upwards: these orders end. Each swap may break that.
	for _, ops := range cfg.Orders {
		sortOps(ops)
		for range swaps {
			if len(ops) > 1 {
				i := rng.IntN(len(ops) - 1)
				ops[i], ops[i+1] = ops[i+1], ops[i]
			}
		}
	}
	return cfg
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sortOps puts forwards first, chunk by chunk, then backwards in the reverse order of chunks, then weights.
func sortOps(ops []Op) {
	rank := func(o Op) int {
		chunk := int(o.Chunk)
		if o.Kind != Forward {
			chunk = 100 - chunk
		}
		return (int(o.Kind)*1000+chunk)*1000 + int(o.Micro)
	}
	for i := range ops {
		for j := i; j > 0 && rank(ops[j]) < rank(ops[j-1]); j-- {
			ops[j], ops[j-1] = ops[j-1], ops[j]
		}
	}
}

func orders(l *Line) [][]Op {
	out := make([][]Op, l.Stages())
	for s := range out {
		out[s] = l.Order(s)
	}
	return out
}

// requireSame compares a run with the oracle, op by op, and checks what holds in every run.
func requireSame(t testing.TB, l *Line, c *Costs, r *Result) {
	t.Helper()
	ends, ok := slowOracle(orders(l), l.cfg.Stages, l.cfg.Micros, c)
	require.True(t, ok)
	last, serial := time.Duration(0), time.Duration(0)
	for s := range l.Stages() {
		for i := range l.Order(s) {
			require.Equal(t, ends[s][i], r.End(s, i))
			last = max(last, ends[s][i])
		}
		requireWindows(t, l, r, s)
		serial += r.Busy[s]
	}
	require.Equal(t, last, r.Makespan)
	for _, d := range r.hops {
		serial += d * time.Duration(l.cfg.Micros)
	}
	require.LessOrEqual(t, r.Makespan, serial)
	requireChain(t, l, r)
}

// requireWindows checks that ops and windows of a stage make up the iteration.
func requireWindows(t testing.TB, l *Line, r *Result, s int) {
	t.Helper()
	idle, free, from := time.Duration(0), time.Duration(-1), 0
	for _, w := range r.AppendWindows(nil, s) {
		alone := time.Duration(0)
		for ; from <= w.Next && from < len(l.Order(s)); from++ {
			alone += onTheWay(l, r, s, from)
		}
		require.Equal(t, alone, w.Transfer)
		require.Less(t, w.Start, w.End)
		require.Less(t, free, w.Start, "windows never touch")
		free = w.End
		idle += w.End - w.Start
		require.GreaterOrEqual(t, w.Transfer, time.Duration(0))
		require.Equal(t, w.Transfer == w.End-w.Start, w.Kind == CommWait)
		if w.Next < len(l.Order(s)) {
			require.Equal(t, w.End, r.Start(s, w.Next))
		} else {
			require.Equal(t, w.End, r.Makespan)
		}
	}
	require.Equal(t, r.Idle(s), idle)
}

// onTheWay is how long a stage that has nothing else to do waits for what the i-th op needs after it has been made.
func onTheWay(l *Line, r *Result, s, i int) time.Duration {
	op, free, stages := l.Order(s)[i], time.Duration(0), l.cfg.Stages
	if i > 0 {
		free = r.End(s, i-1)
	}
	step := map[Kind]int{Forward: -1, Backward: 1}[op.Kind]
	v := int(op.Chunk)*stages + s%stages
	for w := v + step; step != 0 && w >= 0 && w < len(l.next); w += step {
		for row := w % stages; row < l.Stages(); row += stages {
			if at, ok := l.Index(row, Op{Kind: op.Kind, Chunk: int32(w / stages), Micro: op.Micro}); ok {
				return max(0, r.Start(s, i)-max(free, r.End(row, at)))
			}
		}
	}
	return 0
}

// requireChain checks that the binding chain is one, from 0 to the makespan.
func requireChain(t testing.TB, l *Line, r *Result) {
	t.Helper()
	at := time.Duration(0)
	for _, step := range r.AppendChain(nil) {
		require.Equal(t, step.Op, l.Order(step.Stage)[step.Index])
		require.Equal(t, at+step.Transfer, step.Start)
		require.Equal(t, r.Start(step.Stage, step.Index), step.Start)
		require.Zero(t, r.Slack(step.Stage, step.Index))
		at = step.End
	}
	require.Equal(t, r.Makespan, at)
}

func TestSchedulesEqualThePlainEvaluation(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 3))
	var r Result
	for range 100 {
		p := 1 + rng.IntN(5)
		cfg := Config{Schedule: Schedule(rng.IntN(5)), Stages: p, Micros: p * (1 + rng.IntN(3)), Replicas: 1 + rng.IntN(2)}
		if cfg.Schedule == Interleaved {
			cfg.Chunks = 1 + rng.IntN(3)
			cfg.Micros *= cfg.Replicas
		}
		l, err := New(cfg)
		require.NoError(t, err)
		c := drawn(l, rng, 20)
		require.NoError(t, l.Run(&c, &r))
		requireSame(t, l, &c, &r)
		require.Equal(t, cfg.Schedule.Splits(), l.Splits())
	}
}

// Transfers that take far longer than ops, or ops that take no time, or both.
func TestLopsidedCostsEqualThePlainEvaluation(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 15))
	var r Result
	for range 500 {
		l, err := New(shuffled(rng, 0))
		require.NoError(t, err)
		ops, hops := drawn(l, rng, int64(rng.IntN(3))), drawn(l, rng, []int64{0, 1, 1000}[rng.IntN(3)])
		c := Costs{Forward: ops.Forward, Backward: ops.Backward, Weight: ops.Weight, Send: hops.Send, Return: hops.Return, Across: hops.Across}
		require.NoError(t, l.Run(&c, &r))
		requireSame(t, l, &c, &r)
		factors := []Factor{0, 1, 999, Same, 1001, 1500, MaxFactor}
		stage := rng.IntN(l.Stages())
		got, err := r.AppendSlowed(nil, stage, factors...)
		require.NoError(t, err)
		for i, x := range factors {
			require.Equal(t, plainSlowed(t, l, &c, stage, x), got[i])
		}
	}
}

func TestTheLowerStageEndsTheChainWhereTwoEndLast(t *testing.T) {
	_, r := equal(t, Config{Stages: 2, Micros: 4, Replicas: 3, Split: []int{1, 2, 1}}, 1, 2, 0, 0)
	chain := r.AppendChain(nil)
	require.Equal(t, 2, chain[len(chain)-1].Stage)
	_, r = equal(t, Config{Stages: 2, Micros: 4, Replicas: 2}, 1, 2, 0, 0)
	chain = r.AppendChain(chain)
	require.Zero(t, chain[len(chain)-1].Stage)
	_, r = equal(t, Config{Stages: 2, Micros: 4, Replicas: 2}, 0, 0, 0, 0)
	require.Equal(t, []Step{{Place: Place{Stage: 0, Index: 3, Op: Op{Kind: Backward, Micro: 1}}}}, r.AppendChain(nil), "the one last op where nothing takes time")
}

// What is in dst before is left alone, even a window that touches the first new one.
func TestAppendingLeavesWhatIsThere(t *testing.T) {
	_, r := equal(t, Config{Stages: 2, Micros: 3}, 1, 2, 0, 0)
	for s := range 2 {
		fresh := r.AppendWindows(nil, s)
		before := Window{Start: fresh[0].Start - 5, End: fresh[0].Start, Next: 77}
		require.Equal(t, append([]Window{before}, fresh...), r.AppendWindows([]Window{before}, s))
	}
	chain := r.AppendChain(nil)
	require.Equal(t, append([]Step{{Transfer: 9}}, chain...), r.AppendChain([]Step{{Transfer: 9}}))
}

// One Line serves any number of goroutines, each with its own Result; the race detector sees what they share.
func TestALineServesManyAtOnce(t *testing.T) {
	l, err := New(Config{Schedule: ZBH1, Stages: 4, Micros: 9, Replicas: 2})
	require.NoError(t, err)
	c := drawn(l, rand.New(rand.NewPCG(6, 16)), 100)
	ask := func() (all []any) {
		var r Result
		for range 3 {
			err := l.Run(&c, &r)
			spans, slowed := r.AppendSlowed(nil, 1, 900, 1300, 2000)
			moved, refused := r.Moved(Move{Stage: 1, Micro: 2, Replica: 1})
			bytes, beyond := l.PeakBytes(2, nil, nil)
			all = append(all, err, r.Makespan, spans, slowed, moved, refused, bytes, beyond, r.Slack(3, 3), r.AppendWindows(nil, 5), r.AppendChain(nil))
		}
		return all
	}
	want, got := ask(), make([][]any, 8)
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() { got[i] = ask() })
	}
	group.Wait()
	for i := range got {
		require.Equal(t, want, got[i])
	}
}

func TestExplicitOrdersEqualThePlainEvaluation(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 4))
	var r Result
	ended, stuck := 0, 0
	for range 2000 {
		cfg := shuffled(rng, rng.IntN(4))
		l, err := New(cfg)
		if err == nil {
			c := drawn(l, rng, 20)
			require.NoError(t, l.Run(&c, &r))
			requireSame(t, l, &c, &r)
			ended++
			continue
		}
		var deadlock *DeadlockError
		require.ErrorAs(t, err, &deadlock)
		requireDeadlock(t, cfg, deadlock)
		stuck++
	}
	require.Greater(t, ended, 200)
	require.Greater(t, stuck, 200)
}

// requireDeadlock checks that orders never end and that the circle is one.
func requireDeadlock(t testing.TB, cfg Config, e *DeadlockError) {
	t.Helper()
	cfg = cfg.withDefaults()
	n := cfg.Stages * cfg.Chunks
	_, ok := slowOracle(cfg.Orders, cfg.Stages, cfg.Micros, &Costs{Forward: fill(n, 1), Backward: fill(n, 1), Weight: fill(n, 1), Send: fill(n, 0), Return: fill(n, 0)})
	require.False(t, ok)
	require.NotEmpty(t, e.Cycle)
	for i, w := range e.Cycle {
		next := e.Cycle[(i+1)%len(e.Cycle)].Blocked
		require.Equal(t, next.Stage, w.For.Stage)
		require.GreaterOrEqual(t, w.For.Index, next.Index)
		require.Equal(t, w.Blocked.Op, cfg.Orders[w.Blocked.Stage][w.Blocked.Index])
		require.Equal(t, w.For.Op, cfg.Orders[w.For.Stage][w.For.Index])
	}
	require.ErrorContains(t, e, "deadlock")
}

func TestMakespanNeverFallsAsACostRises(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 5))
	var r Result
	for range 300 {
		l, err := New(shuffled(rng, 0))
		require.NoError(t, err)
		c := drawn(l, rng, 20)
		require.NoError(t, l.Run(&c, &r))
		before := r.Makespan
		all := [][]time.Duration{c.Forward, c.Backward, c.Send, c.Return}
		if c.Weight != nil {
			all = append(all, c.Weight)
		}
		of := all[rng.IntN(len(all))]
		more := time.Duration(rng.Int64N(30))
		of[rng.IntN(len(of))] += more
		require.NoError(t, l.Run(&c, &r))
		require.GreaterOrEqual(t, r.Makespan, before)
		// A transfer may be on the way of every micro-batch, an op's cost counts once.
		require.LessOrEqual(t, r.Makespan, before+more*time.Duration(2*l.cfg.Micros))

		before = r.Makespan
		for _, of := range append(all, []time.Duration{}) {
			for i := range of {
				of[i] *= 7
			}
		}
		c.Across *= 7
		require.NoError(t, l.Run(&c, &r))
		require.Equal(t, 7*before, r.Makespan, "times in another unit")
	}
}

func TestSlackIsHowMuchLaterAnOpMayEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	var r, later Result
	for range 200 {
		l, err := New(shuffled(rng, 0))
		require.NoError(t, err)
		c := drawn(l, rng, 20)
		require.NoError(t, l.Run(&c, &r))
		s := rng.IntN(l.Stages())
		if len(l.Order(s)) == 0 {
			continue
		}
		i := rng.IntN(len(l.Order(s)))
		at, ok := r.slot(s, i)
		require.True(t, ok)
		of := [][]time.Duration{c.Forward, c.Backward, c.Weight}[l.ops[at].Kind]
		of[l.full[at]] += r.Slack(s, i)
		require.NoError(t, l.Run(&c, &later))
		require.Equal(t, r.Makespan, later.Makespan)
		of[l.full[at]]++
		require.NoError(t, l.Run(&c, &later))
		require.Equal(t, r.Makespan+1, later.Makespan)
	}
}

func TestCostsOfAStageAreThoseOfEachMicroBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	for _, cfg := range []Config{{Stages: 3, Micros: 5}, {Schedule: ZBH1, Stages: 3, Micros: 5}, {Schedule: Interleaved, Stages: 3, Micros: 6, Chunks: 2}} {
		l, err := New(cfg)
		require.NoError(t, err)
		n := len(l.next)
		short := Costs{Forward: fill(n, 0), Backward: fill(n, 0), Weight: fill(n, 0)}
		long := Costs{Forward: fill(n*cfg.Micros, 0), Backward: fill(n*cfg.Micros, 0), Weight: fill(n*cfg.Micros, 0)}
		for v := range n {
			f, b, w := time.Duration(rng.Int64N(9)), time.Duration(rng.Int64N(9)), time.Duration(rng.Int64N(9))
			short.Forward[v], short.Backward[v], short.Weight[v] = f, b, w
			for j := range cfg.Micros {
				long.Forward[v*cfg.Micros+j], long.Backward[v*cfg.Micros+j], long.Weight[v*cfg.Micros+j] = f, b, w
			}
		}
		var a, b Result
		require.NoError(t, l.Run(&short, &a))
		require.NoError(t, l.Run(&long, &b))
		require.Equal(t, a.ends, b.ends)
		require.Equal(t, a.Busy, b.Busy)
	}
}

func TestRunAllocatesNothingWithAUsedResult(t *testing.T) {
	for _, cfg := range sizes[:2] {
		l, err := New(cfg)
		require.NoError(t, err)
		c, r := drawn(l, rand.New(rand.NewPCG(6, 8)), 1e6), Result{}
		var windows []Window
		var chain []Step
		var spans []time.Duration
		all := func() {
			err = errors.Join(err, l.Run(&c, &r))
			windows, chain, spans = r.AppendWindows(windows[:0], 1), r.AppendChain(chain[:0]), spans[:0]
			r.Slack(1, 1)
			spans, err = r.AppendSlowed(spans, 1, 1050, 1100, 1200, 1500, 2000, 900)
		}
		all()
		all() // the second buffers of r
		require.Zero(t, testing.AllocsPerRun(20, all))
		require.NoError(t, err)
	}
}
