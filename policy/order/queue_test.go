package order

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
	"github.com/lockstep-gpu/lockstep/perfmodel/profile"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func newQueue(t testing.TB, o Order) *Queue {
	t.Helper()
	q, err := New(Config{Order: o})
	require.NoError(t, err)
	return q
}

// sequence returns a whole pass, with nothing granted.
func sequence(q *Queue, now time.Time) string {
	var s []string
	q.Begin(now)
	for id, ok := q.Next(); ok; id, ok = q.Next() {
		q.Outcome(id, lockstep.Blocked)
		s = append(s, string(id))
	}
	return strings.Join(s, " ")
}

// ran lets a job run from start to end.
func ran(t *testing.T, q *Queue, id lockstep.JobID, start, end time.Duration) {
	t.Helper()
	require.NoError(t, q.Start(at(start), id))
	require.NoError(t, q.Stop(at(end), id))
}

// TestLASOracle is the hand-worked case: limit 100 GPU-s, J1 with 4 GPUs ran
// 30 s, J2 with 1 ran 90 s, J3 with 2 never ran, J4 with 8 ran 12 s.
func TestLASOracle(t *testing.T) {
	fill := func(o Order) *Queue {
		q := newQueue(t, o)
		for i, g := range []int64{4, 1, 2, 8} {
			require.NoError(t, q.Submit(at(time.Duration(i)), Job{ID: lockstep.JobID(fmt.Sprint("J", i+1)), GPUs: lockstep.WholeGPU.Mul(g)}))
		}
		s := time.Second
		require.NoError(t, q.Start(at(10*s), "J2"))
		require.NoError(t, q.Start(at(58*s), "J4"))
		require.NoError(t, q.Stop(at(70*s), "J4"))
		require.NoError(t, q.Start(at(70*s), "J1"))
		require.NoError(t, q.Stop(at(100*s), "J2"))
		require.NoError(t, q.Stop(at(100*s), "J1"))
		return q
	}
	limits := []time.Duration{100 * time.Second}
	t.Run("discretised", func(t *testing.T) {
		require.Equal(t, "J2 J3 J4 J1", sequence(fill(LAS{Limits: limits, Then: FIFO{}}), at(101*time.Second)))
	})
	t.Run("as it is", func(t *testing.T) {
		require.Equal(t, "J3 J2 J4 J1", sequence(fill(Attained{}), at(101*time.Second)))
	})
	// J1 stopped at 100 s after 30 s of running: with a knob of 2 it is back at 160 s.
	t.Run("promotion", func(t *testing.T) {
		q := fill(LAS{Limits: limits, Knob: 2, Then: FIFO{}})
		wake, ok := q.NextWake(at(101 * time.Second))
		require.True(t, ok)
		require.Equal(t, at(160*time.Second), wake)
		require.Equal(t, "J2 J3 J4 J1", sequence(q, wake.Add(-1)))
		require.Equal(t, "J1 J2 J3 J4", sequence(q, wake))
		j, ok := q.Job("J1")
		require.True(t, ok)
		require.Zero(t, j.Level())
		_, ok = q.NextWake(wake)
		require.False(t, ok)
	})
	// With 8 GPUs: skipping runs J2, J3 and J1; stopping at the first that does not fit runs J2 and J3.
	t.Run("eight devices", func(t *testing.T) {
		for strict, want := range map[bool]string{false: "J2 J3 J1", true: "J2 J3"} { // any order
			q := fill(LAS{Limits: limits, Then: FIFO{}})
			free := 8 * lockstep.WholeGPU
			var got []string
			q.Begin(at(101 * time.Second))
			for id, ok := q.Next(); ok; id, ok = q.Next() {
				j, _ := q.Job(id)
				if j.GPUs > free {
					q.Outcome(id, lockstep.Blocked)
					if strict {
						break
					}
					continue
				}
				free -= j.GPUs
				got = append(got, string(id))
				q.Outcome(id, lockstep.Granted)
			}
			require.Equal(t, want, strings.Join(got, " "))
		}
	})
}

// TestRemainingOracle: X has 8 GPUs and 10 s left, Y has 1 GPU and 20 s.
func TestRemainingOracle(t *testing.T) {
	for _, tt := range []struct {
		order Order
		want  string
	}{{SRTF{}, "X Y Z"}, {SRSF{}, "Y X Z"}, {QSSF{}, "Y X Z"}, {SJF{}, "X Y Z"}, {Fewest{}, "Y Z X"}, {nil, "X Y Z"}} {
		q := newQueue(t, tt.order)
		require.NoError(t, q.Submit(t0, Job{ID: "X", GPUs: 8000, Duration: 10 * time.Second}))
		require.NoError(t, q.Submit(t0, Job{ID: "Y", GPUs: 1000, Duration: 20 * time.Second}))
		require.NoError(t, q.Submit(t0, Job{ID: "Z", GPUs: 1000})) // unknown goes last
		require.Equal(t, tt.want, sequence(q, t0), "%T", tt.order)
	}
}

// kubernetes-sigs/kueue#1282: an evicted job loses its place.
func TestComplaintEvictedJobKeepsItsPlace(t *testing.T) {
	sec := func(n int) time.Time { return at(time.Duration(n) * time.Second) }
	for _, o := range []Order{nil, Priority{}, Aging{Step: time.Second}} {
		q := newQueue(t, o)
		for i, id := range []lockstep.JobID{"first", "second", "third"} {
			require.NoError(t, q.Submit(sec(2*i), Job{ID: id, GPUs: 1000}))
		}
		require.NoError(t, q.Start(sec(6), "first"))
		require.NoError(t, q.Finish(sec(8), "first")) // to back-off
		j := Job{ID: "first", GPUs: 1000, First: sec(0)}
		require.NoError(t, q.Submit(sec(20), j))
		require.Equal(t, "first second third", sequence(q, sec(20)), "%T", o)
		again, err := Restore(Config{Order: o}, strings.NewReader(save(t, q)))
		require.NoError(t, err)
		require.Equal(t, "first second third", sequence(again, sec(20)))
		require.NoError(t, q.Finish(sec(21), "first"))
		require.NoError(t, q.Submit(sec(22), Job{ID: "first", GPUs: 1000}))
		require.Equal(t, "second third first", sequence(q, sec(22)), "a new job comes last")
	}
}

func TestPriorityOverAgingOverLAS(t *testing.T) {
	q := newQueue(t, Priority{Then: Aging{Step: time.Hour, Then: LAS{Limits: []time.Duration{time.Minute}}}})
	submit := func(d time.Duration, id lockstep.JobID, p lockstep.Priority) {
		require.NoError(t, q.Submit(at(d), Job{ID: id, Priority: p, GPUs: 1000}))
	}
	submit(0, "sunk", 0)
	ran(t, q, "sunk", 0, 2*time.Minute)
	submit(3*time.Minute, "fresh", 0)
	submit(61*time.Minute, "later", 0)
	submit(62*time.Minute, "high", 1)
	// high by priority; fresh and sunk came in the first hour; of them LAS prefers fresh.
	require.Equal(t, "high fresh sunk later", sequence(q, at(63*time.Minute)))
}

func TestAgingOvertakesPriority(t *testing.T) {
	q := newQueue(t, Aging{Step: time.Hour})
	require.NoError(t, q.Submit(at(0), Job{ID: "old"}))
	require.NoError(t, q.Submit(at(time.Hour), Job{ID: "p2", Priority: 2}))
	require.NoError(t, q.Submit(at(2*time.Hour), Job{ID: "p1", Priority: 1}))
	require.NoError(t, q.Submit(at(3*time.Hour), Job{ID: "p3", Priority: 3}))
	require.NoError(t, q.Submit(at(4*time.Hour), Job{ID: "q3", Priority: 3}))
	require.Equal(t, "p2 old p3 p1 q3", sequence(q, at(5*time.Hour)))
	q = newQueue(t, Aging{Step: 1}) // keys at the ends of what there is
	require.NoError(t, q.Submit(lockstep.FromNanos(0), Job{ID: "a", Priority: math.MaxInt32}))
	require.NoError(t, q.Submit(lockstep.FromNanos(math.MaxInt64), Job{ID: "b", Priority: math.MinInt32}))
	require.Equal(t, "a b", sequence(q, lockstep.FromNanos(math.MaxInt64)))
}

func TestStoppedJobsLeadThoseThatWait(t *testing.T) {
	q := newQueue(t, LAS{})
	for i, id := range []lockstep.JobID{"e", "d", "c", "b", "a"} {
		require.NoError(t, q.Submit(at(time.Duration(i)), Job{ID: id, GPUs: 1000}))
	}
	require.Equal(t, "e d c b a", sequence(q, at(10)))
	require.NoError(t, q.Start(at(10), "b"))
	require.NoError(t, q.Start(at(10), "d"))
	require.NoError(t, q.Due(at(20), "d"))
	require.NoError(t, q.Due(at(20), "b"))
	require.Equal(t, "b d e c a", sequence(q, at(20)), "those that run, by when they were let")
	require.NoError(t, q.Stop(at(20), "d"))
	require.NoError(t, q.Stop(at(20), "b"))
	require.Equal(t, "b d e c a", sequence(q, at(30)))
	require.NoError(t, q.Start(at(30), "c"))
	require.Equal(t, "b d e a", sequence(q, at(30)))
	require.NoError(t, q.Stop(at(40), "c"))
	require.NoError(t, q.Submit(at(40), Job{ID: "f", GPUs: 1000}))
	require.Equal(t, "c b d e a f", sequence(q, at(40)))
}

func TestOutcomes(t *testing.T) {
	q := newQueue(t, nil)
	for _, id := range []lockstep.JobID{"a", "b", "c"} {
		require.NoError(t, q.Submit(t0, Job{ID: id, GPUs: 1000}))
	}
	q.Begin(t0)
	id, _ := q.Next()
	q.Outcome(id, lockstep.Granted)
	id, _ = q.Next()
	require.Equal(t, lockstep.JobID("b"), id)
	q.Outcome(id, lockstep.Dropped)
	q.Outcome("unknown", lockstep.Granted)
	q.Outcome("c", lockstep.Kept) // does not compete: nothing happens
	require.Equal(t, "b c", sequence(q, t0))
	require.NoError(t, q.Stop(at(1), "a"), "the hold was given back")
	require.Equal(t, "a b c", sequence(q, at(1)))
	require.NoError(t, q.Start(at(1), "a"))
	require.NoError(t, q.Due(at(2), "a"))
	q.Begin(at(2))
	id, _ = q.Next()
	require.Equal(t, lockstep.JobID("a"), id)
	q.Outcome(id, lockstep.Kept)
	require.Equal(t, "b c", sequence(q, at(3)))
	require.NoError(t, q.Finish(at(4), "a"))
	require.Equal(t, 2, q.Len())
	q.Begin(t0) // an earlier time counts as the latest
	require.Equal(t, at(4), lockstep.FromNanos(q.now))
}

// TestHoldThatFellThroughKeepsThePlace: a job that was granted and did not run
// has waited all along, so that no run of bad luck lets it starve.
func TestHoldThatFellThroughKeepsThePlace(t *testing.T) {
	q := newQueue(t, Aging{Step: time.Minute})
	require.NoError(t, q.Submit(t0, Job{ID: "old", GPUs: 1000}))
	require.NoError(t, q.Submit(at(time.Hour), Job{ID: "new", GPUs: 1000}))
	require.Equal(t, "old new", sequence(q, at(time.Hour)))
	q.Outcome("old", lockstep.Granted)
	require.NoError(t, q.Stop(at(2*time.Hour), "old"))
	require.Equal(t, "old new", sequence(q, at(2*time.Hour)))
	ran(t, q, "old", 2*time.Hour, 3*time.Hour)
	require.Equal(t, "new old", sequence(q, at(3*time.Hour)), "it waits anew once it ran")

	q = newQueue(t, LAS{Limits: []time.Duration{time.Minute}, Knob: 2})
	require.NoError(t, q.Submit(t0, Job{ID: "a", GPUs: 1000}))
	ran(t, q, "a", 0, time.Minute)
	q.Outcome("a", lockstep.Granted)
	require.NoError(t, q.Stop(at(4*time.Minute), "a"))
	q.Begin(at(4 * time.Minute))
	j, _ := q.Job("a")
	require.Zero(t, j.Level(), "it has waited since its last run for three times as long as it ran")
}

// TestNextAgainstASearch changes the queue in the middle of passes, and compares
// Next with a scan of the tree for what comes behind the job given last.
func TestNextAgainstASearch(t *testing.T) {
	for _, o := range []Order{FIFO{}, SRSF{}, Priority{Then: LAS{Limits: []time.Duration{time.Minute, time.Hour}, Knob: 2}}} {
		rng := rand.New(rand.NewPCG(8, 9))
		q := newQueue(t, o)
		model := make(map[lockstep.JobID]*ref)
		now := t0.UnixNano()
		var last *Job // a copy, as it stood
		for range 20_000 {
			switch rng.IntN(12) {
			case 0:
				q.Begin(lockstep.FromNanos(now))
				for _, r := range model { // order does not matter
					if r.state == competing {
						r.since = now
					}
				}
				last = nil
			case 1:
				now += rng.Int64N(int64(time.Minute))
			case 2, 3:
				randomCall(t, rng, q, model, lockstep.JobID(fmt.Sprint("j", rng.IntN(300))), now)
			default:
				var want *Job
				q.tree.Ascend(func(j *Job) bool {
					if last == nil || j.ID != last.ID && tie(o, last, j) < 0 {
						want = j
					}
					return want == nil
				})
				id, ok := q.Next()
				require.Equal(t, want != nil, ok)
				if ok {
					require.Equal(t, want.ID, id)
					c := *want
					last = &c
				}
			}
		}
	}
}

func TestJobOf(t *testing.T) {
	g := &lockstep.Gang{ID: "a", Priority: 3, Walltime: time.Hour, Roles: []lockstep.Role{{Min: 2, Demand: lockstep.Demand{GPUs: 4}}}}
	require.Equal(t, Job{ID: "a", Priority: 3, GPUs: 8000, Duration: time.Hour}, JobOf(g))
}

func TestBadInputsChangeNothing(t *testing.T) {
	q := newQueue(t, LAS{Knob: 1})
	require.NoError(t, q.Submit(at(5), Job{ID: "w", GPUs: 1000}))
	require.NoError(t, q.Submit(at(5), Job{ID: "r", GPUs: 1000}))
	require.NoError(t, q.Start(at(5), "r"))
	now := at(6)
	tests := []struct {
		name string
		kind error
		call func() error
	}{
		{"duplicate", lockstep.ErrDuplicate, func() error { return q.Submit(now, Job{ID: "w"}) }},
		{"no ID", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{}) }},
		{"negative devices", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{ID: "n", GPUs: -1}) }},
		{"negative duration", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{ID: "n", Duration: -1}) }},
		{"absurd duration", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{ID: "n", Duration: math.MaxInt64}) }},
		{"zero time", lockstep.ErrInvalid, func() error { return q.Submit(time.Time{}, Job{ID: "n"}) }},
		{"before 1970", lockstep.ErrInvalid, func() error { return q.Submit(lockstep.FromNanos(-1), Job{ID: "n"}) }},
		{"deadline before 1970", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{ID: "n", Deadline: lockstep.FromNanos(-1)}) }},
		{"deadline out of range", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{ID: "n", Deadline: time.Unix(1<<60, 0)}) }},
		{"first in the future", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{ID: "n", First: at(7)}) }},
		{"first before 1970", lockstep.ErrInvalid, func() error { return q.Submit(now, Job{ID: "n", First: lockstep.FromNanos(-1)}) }},
		{"past", lockstep.ErrPast, func() error { return q.Submit(t0, Job{ID: "n"}) }},
		{"past start", lockstep.ErrPast, func() error { return q.Start(t0, "w") }},
		{"start unknown", lockstep.ErrUnknown, func() error { return q.Start(now, "n") }},
		{"start twice", lockstep.ErrConflict, func() error { return q.Start(now, "r") }},
		{"stop waiting", lockstep.ErrConflict, func() error { return q.Stop(now, "w") }},
		{"due waiting", lockstep.ErrConflict, func() error { return q.Due(now, "w") }},
		{"finish unknown", lockstep.ErrUnknown, func() error { return q.Finish(now, "n") }},
		{"resize negative", lockstep.ErrInvalid, func() error { return q.Resize(now, "w", -1) }},
		{"resize unknown", lockstep.ErrUnknown, func() error { return q.Resize(now, "n", 1) }},
	}
	before := save(t, q)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.call()
			require.ErrorIs(t, err, tt.kind)
			var typed *lockstep.Error
			require.ErrorAs(t, err, &typed)
			require.NotEmpty(t, typed.Field)
			require.Equal(t, before, save(t, q))
		})
	}
	for _, o := range []Order{
		Aging{Step: -1},
		LAS{Limits: []time.Duration{0}},
		LAS{Limits: []time.Duration{2, 2}},
		LAS{Knob: -1},
		LAS{Then: LAS{}},
		Priority{Then: SJF{Then: LAS{Knob: math.MaxInt}}},
		Gittins{},
		Gittins{Past: new(profile.Distribution)},
		Priority{Then: &EDF{}},
		&LAS{}, // would never let a job sink
		Priority{Then: &Aging{Step: -1}},
		Priority{Then: (*SRTF)(nil)},
		Priority{Then: struct{ LAS }{}},
	} {
		_, err := New(Config{Order: o})
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%#v", o)
		require.ErrorIs(t, Config{Order: o}.Validate(), lockstep.ErrInvalid)
	}
	_, ok := q.Job("n")
	require.False(t, ok)
}

func save(t testing.TB, q *Queue) string {
	t.Helper()
	return string(snapshottest.Save(t, q.Snapshot))
}

// ref is a plain reference for one job: it keeps the stretches that it ran and
// works everything out from them.
type ref struct {
	Job
	submitted, since int64
	runs             []stretch // the last one is open while phase is running or competing
	state            phase
}

type stretch struct{ from, to, gpus int64 }

func (r *ref) executed(now int64) (ns int64, service *big.Int) {
	service = new(big.Int)
	for _, s := range r.runs {
		d := min(s.to, now) - s.from
		ns += d
		service.Add(service, new(big.Int).Mul(big.NewInt(d), big.NewInt(s.gpus)))
	}
	return ns, service
}

// TestOrdersAgainstAModel compares every order but LAS's inner one with a sort
// by keys that are worked out from scratch with big integers.
func TestOrdersAgainstAModel(t *testing.T) {
	limits := []time.Duration{20 * time.Minute, 90 * time.Minute, 5 * time.Hour}
	level := func(r *ref, now int64) int {
		_, s := r.executed(now)
		n := 0
		for _, l := range limits {
			if s.Cmp(new(big.Int).Mul(big.NewInt(int64(l)), big.NewInt(1000))) >= 0 {
				n++
			}
		}
		return n
	}
	remaining := func(r *ref, now int64) int64 {
		ns, _ := r.executed(now)
		return max(int64(r.Duration)-ns, 0)
	}
	unknown := func(a, b *ref) int {
		return cmp.Compare(map[bool]int{true: 1}[a.Duration == 0], map[bool]int{true: 1}[b.Duration == 0])
	}
	window := func(r *ref) int64 { return int128.FloorDiv(r.since, int64(time.Hour)) - int64(r.Priority) }
	orders := []struct {
		order Order
		less  func(a, b *ref, now int64) int
	}{
		{FIFO{}, func(*ref, *ref, int64) int { return 0 }},
		{Priority{}, func(a, b *ref, _ int64) int { return cmp.Compare(b.Priority, a.Priority) }},
		{Aging{Step: time.Hour}, func(a, b *ref, _ int64) int { return cmp.Compare(window(a), window(b)) }},
		{SJF{}, func(a, b *ref, _ int64) int { return cmp.Or(unknown(a, b), cmp.Compare(a.Duration, b.Duration)) }},
		{Fewest{Then: SJF{}}, func(a, b *ref, _ int64) int {
			return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), unknown(a, b), cmp.Compare(a.Duration, b.Duration))
		}},
		{SRTF{}, func(a, b *ref, now int64) int {
			return cmp.Or(unknown(a, b), cmp.Compare(remaining(a, now), remaining(b, now)))
		}},
		{SRSF{}, func(a, b *ref, now int64) int {
			product := func(r *ref) *big.Int {
				return new(big.Int).Mul(big.NewInt(remaining(r, now)), big.NewInt(int64(r.GPUs)))
			}
			return cmp.Or(unknown(a, b), product(a).Cmp(product(b)))
		}},
		{Attained{}, func(a, b *ref, now int64) int {
			_, sa := a.executed(now)
			_, sb := b.executed(now)
			return sa.Cmp(sb)
		}},
		{Priority{Then: LAS{Limits: limits, Then: SRTF{}}}, func(a, b *ref, now int64) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(level(a, now), level(b, now)),
				unknown(a, b), cmp.Compare(remaining(a, now), remaining(b, now)))
		}},
	}
	deadline := func(r *ref) int64 {
		if r.Deadline.IsZero() {
			return math.MaxInt64
		}
		return r.Deadline.UnixNano()
	}
	slack := func(r *ref, now int64) int64 {
		if r.Deadline.IsZero() {
			return math.MaxInt64
		}
		return deadline(r) - remaining(r, now)
	}
	past := []time.Duration{time.Minute, 20 * time.Minute, 20 * time.Minute, time.Hour, 3 * time.Hour, 9 * time.Hour, 40 * time.Hour}
	dist, err := profile.NewDistribution(past)
	require.NoError(t, err)
	index := func(r *ref, now int64) *big.Rat { // probability to end within an hour over service that is expected to be used
		_, s := r.executed(now)
		a := new(big.Int).Div(s, big.NewInt(1000)).Int64()
		ends, work := int64(0), int64(0)
		for _, p := range past {
			if left := int64(p) - a; left > 0 {
				if left <= int64(time.Hour) {
					ends++
				}
				work += min(left, int64(time.Hour))
			}
		}
		if work == 0 {
			return new(big.Rat)
		}
		return big.NewRat(ends, work)
	}
	orders = append(orders, []struct {
		order Order
		less  func(a, b *ref, now int64) int
	}{
		{EDF{}, func(a, b *ref, _ int64) int { return cmp.Compare(deadline(a), deadline(b)) }},
		{LeastLaxity{}, func(a, b *ref, now int64) int { return cmp.Compare(slack(a, now), slack(b, now)) }},
		{EDF{Then: QSSF{}}, func(a, b *ref, _ int64) int {
			work := func(r *ref) *big.Int {
				return new(big.Int).Mul(big.NewInt(int64(r.Duration)), big.NewInt(int64(r.GPUs)))
			}
			return cmp.Or(cmp.Compare(deadline(a), deadline(b)), unknown(a, b), work(a).Cmp(work(b)))
		}},
		{Gittins{Past: dist, Quantum: time.Hour, Then: EDF{}}, func(a, b *ref, now int64) int {
			return cmp.Or(index(b, now).Cmp(index(a, now)), cmp.Compare(deadline(a), deadline(b)))
		}},
	}...)
	steps := 1200
	if testing.Short() {
		steps = 300
	}
	for _, o := range orders {
		t.Run(fmt.Sprintf("%T", o.order), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			q := newQueue(t, o.order)
			model := make(map[lockstep.JobID]*ref)
			now := t0.UnixNano()
			for step := range steps {
				if rng.IntN(2) == 0 {
					now += rng.Int64N(int64(5 * time.Minute))
				}
				id := lockstep.JobID(fmt.Sprint("j", rng.IntN(40)))
				randomCall(t, rng, q, model, id, now)
				if rng.IntN(40) == 0 {
					again, err := Restore(Config{Order: o.order}, strings.NewReader(save(t, q)))
					require.NoError(t, err)
					require.Equal(t, save(t, q), save(t, again))
					q = again
				}
				got := sequence(q, lockstep.FromNanos(now))
				var want []*ref
				for _, r := range model { // sorted below, by a total order
					if r.state == competing {
						r.since = now
					}
					if r.state == waiting || r.state == competing {
						want = append(want, r)
					}
				}
				slices.SortFunc(want, func(a, b *ref) int {
					return cmp.Or(o.less(a, b, now), cmp.Compare(a.submitted, b.submitted), cmp.Compare(a.ID, b.ID))
				})
				var names []string
				for _, r := range want {
					names = append(names, string(r.ID))
				}
				require.Equal(t, strings.Join(names, " "), got, "step %d", step)
			}
		})
	}
}

// randomCall makes one call on both q and the model, if it suits the job.
func randomCall(t *testing.T, rng *rand.Rand, q *Queue, model map[lockstep.JobID]*ref, id lockstep.JobID, now int64) {
	t.Helper()
	at := lockstep.FromNanos(now)
	r, ok := model[id]
	if !ok {
		job := Job{ID: id, Priority: lockstep.Priority(rng.IntN(3)), GPUs: lockstep.MilliGPU(rng.IntN(9) * 500), Duration: time.Duration(rng.IntN(4)) * time.Hour}
		if rng.IntN(3) > 0 {
			job.Deadline = t0.Add(time.Duration(rng.IntN(20)) * time.Hour)
		}
		require.NoError(t, q.Submit(at, job))
		model[id] = &ref{Job: job, submitted: now, since: now}
		return
	}
	closeRun := func() { r.runs[len(r.runs)-1].to = now }
	open := func() { r.runs = append(r.runs, stretch{now, math.MaxInt64, int64(r.GPUs)}) }
	runs := r.state == running || r.state == competing
	switch rng.IntN(8) {
	case 0, 1, 2:
		switch r.state {
		case waiting, granted:
			require.NoError(t, q.Start(at, id))
			open()
			r.state = running
		case running:
			require.NoError(t, q.Due(at, id))
			r.state, r.since = competing, now
		}
	case 3, 4:
		if r.state != waiting {
			require.NoError(t, q.Stop(at, id))
			if runs {
				closeRun()
			}
			if r.state != granted {
				r.since = now
			}
			r.state = waiting
		}
	case 5:
		require.NoError(t, q.Resize(at, id, lockstep.MilliGPU(rng.IntN(9)*500)))
		j, _ := q.Job(id)
		r.GPUs = j.GPUs
		if runs {
			closeRun()
			open()
		}
	case 6:
		if rng.IntN(3) == 0 {
			require.NoError(t, q.Finish(at, id))
			delete(model, id)
		}
	case 7:
		if r.state == waiting {
			q.Outcome(id, lockstep.Granted)
			r.state = granted
		}
	}
}

// TestTimeMayBeCutAnywhere: passes in between change neither order nor bytes,
// but for their number.
func TestTimeMayBeCutAnywhere(t *testing.T) {
	run := func(cut bool) string {
		rng := rand.New(rand.NewPCG(5, 5))
		q := newQueue(t, LAS{Limits: []time.Duration{time.Minute, time.Hour}, Knob: 2})
		now := t0.UnixNano()
		model := make(map[lockstep.JobID]*ref)
		for range 500 {
			gap := rng.Int64N(int64(5 * time.Minute))
			for i := range int64(3) {
				if cut {
					q.advance(now + gap*i/3)
				}
			}
			now += gap
			randomCall(t, rng, q, model, lockstep.JobID(fmt.Sprint("j", rng.IntN(20))), now)
		}
		q.Begin(lockstep.FromNanos(now))
		return save(t, q)
	}
	require.Equal(t, run(false), run(true))
}

// TestOrderOfSubmitsDoesNotMatter permutes submits of one instant.
func TestOrderOfSubmitsDoesNotMatter(t *testing.T) {
	jobs := make([]Job, 50)
	for i := range jobs {
		jobs[i] = Job{ID: lockstep.JobID(fmt.Sprint(i)), GPUs: lockstep.MilliGPU(i % 3), Duration: time.Duration(i % 5), Priority: lockstep.Priority(i % 2)}
	}
	for _, o := range []Order{FIFO{}, Priority{}, Aging{}, SJF{}, Fewest{}, SRTF{}, SRSF{}, Attained{}, LAS{}, LAS{Then: FIFO{}}, Priority{Then: Aging{Then: LAS{}}}} {
		var want string
		for seed := range uint64(5) {
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
			q := newQueue(t, o)
			for _, j := range jobs {
				require.NoError(t, q.Submit(t0, j))
			}
			got := sequence(q, t0)
			require.True(t, seed == 0 || got == want, "%T", o)
			want = got
		}
	}
}

func TestSnapshotRefusesDamage(t *testing.T) {
	q := newQueue(t, LAS{})
	require.NoError(t, q.Submit(t0, Job{ID: "a", GPUs: 1000}))
	require.NoError(t, q.Start(t0, "a"))
	image := []byte(save(t, q))
	snapshottest.RefusesDamage(t, image, restored(Config{Order: LAS{}}))
	_, err := Restore(Config{Order: LAS{Knob: 1}}, bytes.NewReader(image))
	require.ErrorContains(t, err, "order")
	_, err = Restore(Config{Order: LAS{Knob: -1}}, bytes.NewReader(image))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestExtremes(t *testing.T) {
	q := newQueue(t, LAS{Limits: []time.Duration{1, math.MaxInt64}, Knob: 1 << 20})
	first, last := lockstep.FromNanos(0), lockstep.FromNanos(math.MaxInt64)
	require.NoError(t, q.Submit(first, Job{ID: "a", GPUs: math.MaxInt64}))
	require.NoError(t, q.Submit(first, Job{ID: "cpu"})) // no devices: attains nothing
	require.NoError(t, q.Start(first, "cpu"))
	require.NoError(t, q.Start(lockstep.FromNanos(0), "a"))
	require.NoError(t, q.Stop(last, "a"))
	require.NotPanics(t, func() { sequence(q, last) })
	j, _ := q.Job("a")
	require.Equal(t, time.Duration(math.MaxInt64), j.Executed())
	require.Equal(t, 2, j.Level())
	j, _ = q.Job("cpu")
	require.Equal(t, time.Duration(math.MaxInt64), j.Executed(), "the longest run there is")
	_, err := Restore(Config{Order: LAS{Limits: []time.Duration{1, math.MaxInt64}, Knob: 1 << 20}}, strings.NewReader(save(t, q)))
	require.NoError(t, err)
}

func TestMemoryStaysFlat(t *testing.T) {
	q := newQueue(t, Priority{Then: LAS{}})
	for i := range 50_000 {
		id, now := lockstep.JobID(fmt.Sprint(i)), at(time.Duration(i)*time.Second)
		require.NoError(t, q.Submit(now, Job{ID: id, GPUs: 1000}))
		require.NoError(t, q.Start(now, id))
		require.NoError(t, q.Finish(now, id))
	}
	require.Zero(t, q.Len()+q.tree.Len()+q.timers.Len()+q.rivals.Len())
}

func TestPassAllocatesNothing(t *testing.T) {
	q := newQueue(t, Priority{Then: SRTF{}})
	for i := range 1000 {
		id := lockstep.JobID(fmt.Sprint(i))
		require.NoError(t, q.Submit(t0, Job{ID: id, GPUs: 1000, Duration: time.Duration(i)}))
		if i%20 == 0 {
			require.NoError(t, q.Start(t0, id))
			require.NoError(t, q.Due(t0, id))
		}
	}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		q.Begin(t0)
		for id, ok := q.Next(); ok; id, ok = q.Next() {
			q.Outcome(id, lockstep.Blocked)
		}
	}))
}

func FuzzRestore(f *testing.F) {
	cfg := Config{Order: Priority{Then: LAS{Knob: 2}}}
	q, _ := New(cfg)
	_ = q.Submit(t0, Job{ID: "a", GPUs: 4000})
	_ = q.Submit(t0, Job{ID: "b", GPUs: 4000, Priority: 1})
	_ = q.Start(t0, "a")
	f.Add(snapshottest.Body(f, []byte(save(f, q))))
	f.Fuzz(func(t *testing.T, body []byte) {
		image := string(snapshottest.Frame(t, format, version, body)) // so that the fuzzer gets past the checksum
		q, err := Restore(cfg, strings.NewReader(image))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.Equal(t, image, save(t, q))
		n := 0
		q.Begin(lockstep.FromNanos(q.now))
		for id, ok := q.Next(); ok; id, ok = q.Next() {
			q.Outcome(id, lockstep.Granted)
			n++
		}
		require.LessOrEqual(t, n, q.Len())
		require.True(t, json.Valid(body))
	})
}

func BenchmarkQueue(b *testing.B) {
	for _, o := range []Order{FIFO{}, SRTF{}, LAS{}, Priority{Then: Aging{Then: LAS{}}}} {
		q := newQueue(b, o)
		for i := range 3000 {
			job := Job{ID: lockstep.JobID(fmt.Sprintf("job-%07d", i*7919%3000)), GPUs: 8000, Duration: time.Duration(i%50) * time.Minute}
			if err := q.Submit(at(time.Duration(i)*time.Second), job); err != nil {
				b.Fatal(err)
			}
		}
		now := at(time.Hour)
		b.Run(fmt.Sprintf("pass/order=%T/jobs=3000", o), func(b *testing.B) { // Begin, and all are proposed and blocked
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Second)
				q.Begin(now)
				for id, ok := q.Next(); ok; id, ok = q.Next() {
					q.Outcome(id, lockstep.Blocked)
				}
			}
		})
	}
	for _, n := range []int{100, 10_000, 1_000_000} {
		q := newQueue(b, Priority{Then: LAS{}})
		ids := make([]lockstep.JobID, n)
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range ids {
			ids[i] = lockstep.JobID(fmt.Sprintf("job-%07d", i))
			if err := q.Submit(at(time.Duration(i)), Job{ID: ids[i], GPUs: 8000, Priority: lockstep.Priority(rng.IntN(4))}); err != nil {
				b.Fatal(err)
			}
		}
		now := at(time.Second)
		b.Run(fmt.Sprintf("grant-run-stop/jobs=%d", n), func(b *testing.B) { // a pass with one grant, a run, a stop
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				q.Begin(now)
				id, _ := q.Next()
				q.Outcome(id, lockstep.Granted)
				if q.Start(now, id) != nil || q.Stop(now.Add(time.Microsecond), id) != nil {
					b.Fatal(id)
				}
			}
		})
		b.Run(fmt.Sprintf("propose/jobs=%d", n), func(b *testing.B) { // one Next and Outcome
			b.ReportAllocs()
			q.Begin(now)
			for b.Loop() {
				id, ok := q.Next()
				if !ok {
					q.Begin(now)
					continue
				}
				q.Outcome(id, lockstep.Blocked)
			}
		})
	}
}
