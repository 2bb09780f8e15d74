package deadline

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// plainProfile is a profile without any of its shortcuts.
type plainProfile struct {
	at   []int64
	free []int
}

func (p *plainProfile) cut(t int64) int {
	i, ok := slices.BinarySearch(p.at, t)
	if !ok && i > 0 {
		p.at, p.free = slices.Insert(p.at, i, t), slices.Insert(p.free, i, p.free[i-1])
	}
	return i
}

func (p *plainProfile) reserve(plan []stretch) {
	for _, s := range plan {
		i, j := p.cut(s.from), p.cut(s.to)
		for ; i < j; i++ {
			p.free[i] -= s.gpus
		}
	}
}

// least tries one number of devices after the other, entry by entry.
func (p *plainProfile) least(j *elastic, gpus int) []stretch {
	for _, most := range j.points {
		if most.GPUs > gpus {
			break
		}
		var plan []stretch
		left := j.left
		for i, from := range p.at {
			to := j.deadline
			if i+1 < len(p.at) {
				to = min(to, p.at[i+1])
			}
			on, ok := within(j.points, min(most.GPUs, p.free[i]))
			if !ok || from >= to {
				continue
			}
			if need := takes(left, on.Rate); need <= to-from {
				return joined(append(plan, stretch{from, from + need, on.GPUs, on.Rate}))
			}
			plan = append(plan, stretch{from, to, on.GPUs, on.Rate})
			left = left.Sub(int128.Product(on.Rate, to-from))
		}
	}
	return nil
}

// joined makes one of stretches that go on.
func joined(plan []stretch) (out []stretch) {
	for _, s := range plan {
		if last := len(out) - 1; last >= 0 && out[last].to == s.from && out[last].gpus == s.gpus {
			out[last].to = s.to
			continue
		}
		out = append(out, s)
	}
	return out
}

// plainly reports whether n is admitted if all are planned anew by progressive filling, or beside the plans that there are.
func (e *Elastic) plainly(n *elastic) bool {
	if e.hopeless(n, e.now) {
		return false
	}
	at, _ := slices.BinarySearchFunc(e.jobs, n, byDeadline)
	p := plainProfile{[]int64{e.now}, []int{e.gpus}}
	fits := true
	for _, j := range slices.Insert(slices.Clone(e.jobs), at, n) {
		if j.left.Sign() <= 0 || e.hopeless(j, e.now) {
			continue // comes last, and fails nobody
		}
		plan := p.least(j, e.gpus)
		if fits = plan != nil; !fits {
			break
		}
		p.reserve(plan)
	}
	if fits {
		return true
	}
	p = plainProfile{[]int64{e.now}, []int{e.gpus}}
	for _, j := range e.jobs {
		p.reserve(j.plan)
	}
	return p.least(n, e.gpus) != nil
}

// sound requires that no more devices are promised than there are, that free is what is left, and that all keep their
// deadlines but those who were at risk.
func (e *Elastic) sound(t *testing.T, risk []lockstep.JobID) {
	t.Helper()
	p := plainProfile{[]int64{e.now}, []int{e.gpus}}
	for _, j := range e.jobs {
		p.reserve(j.plan)
		if !slices.Contains(risk, j.id) {
			require.True(t, j.holds(), j.id)
		}
	}
	require.GreaterOrEqual(t, slices.Min(p.free), 0)
	var free profile
	for i := range p.at {
		if last := len(free.at) - 1; last < 0 || p.free[i] != free.free[last] {
			free.at, free.free = append(free.at, p.at[i]), append(free.free, p.free[i])
		}
	}
	require.Equal(t, free.at, e.free.at)
	require.Equal(t, free.free, e.free.free)
	require.True(t, slices.IsSorted(e.free.free[e.free.rising:]), "%v from %d", e.free.free, e.free.rising)
	if e.filled {
		p = plainProfile{[]int64{e.now}, []int{e.gpus}}
		for _, j := range e.jobs {
			if j.left.Sign() <= 0 {
				require.Empty(t, j.plan)
				continue
			}
			require.Equal(t, j.plan, append(j.plan[:0:0], p.least(j, e.gpus)...), "it is called filled")
			p.reserve(j.plan)
		}
	}
}

// storm is a sequence of calls, drawn from r, on an Elastic; each sees it before and after.
type storm struct {
	r    *rand.Rand
	e    *Elastic
	now  time.Time
	next int
}

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{r: rand.New(rand.NewPCG(seed, 9)), now: t0}
	var err error
	s.e, err = NewElastic(1 + s.r.IntN(24))
	require.NoError(t, err)
	return s
}

func (s *storm) job() ElasticJob {
	s.next++
	j := ElasticJob{ID: lockstep.JobID(fmt.Sprint("j", s.next)), Left: 1 + s.r.Int64N(3_000_000), Deadline: s.now.Add(time.Duration(s.r.Int64N(int64(2 * time.Hour))))}
	v := int64(500 + s.r.IntN(1000))
	for n := 1 + s.r.IntN(3); n <= 100; n += 1 + s.r.IntN(n*2) {
		j.Points = append(j.Points, Point{n, v})
		v += v * int64(s.r.IntN(1000)) / 1000
	}
	return j
}

// call makes one call and returns it, to be made again on another Elastic.
func (s *storm) call() func(e *Elastic) error {
	at := s.now
	some := func() (*elastic, bool) {
		if len(s.e.jobs) == 0 {
			return nil, false
		}
		return s.e.jobs[s.r.IntN(len(s.e.jobs))], true
	}
	switch s.r.IntN(8) {
	case 0:
		s.now = s.now.Add(time.Duration(s.r.Int64N(int64(20 * time.Minute))))
		at = s.now
		return func(e *Elastic) error { _, _, _, _, err := e.AppendShares(nil, at); return err }
	case 1:
		if j, ok := some(); ok {
			id := j.id
			return func(e *Elastic) error { return e.Finish(at, id) }
		}
	case 2, 3:
		if j, ok := some(); ok {
			id, left := j.id, max(int64(j.left.Float64()/1e9*(0.8+0.25*s.r.Float64())), 1)
			return func(e *Elastic) error { return e.Ran(at, id, left) }
		}
	case 4:
		if s.r.IntN(8) == 0 {
			gpus := 1 + s.r.IntN(24)
			return func(e *Elastic) error { return e.SetGPUs(at, gpus) }
		}
	}
	j := s.job()
	return func(e *Elastic) error { _, err := e.Admit(at, j); return err }
}

func TestAdmitsWhoeverPlainFillingAdmits(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 20
	}
	var admitted, refused, more, moved int
	for seed := range uint64(seeds) {
		s := newStorm(t, seed)
		for range 150 {
			if s.r.IntN(3) > 0 {
				require.NoError(t, s.call()(s.e))
				continue
			}
			j := s.job()
			risk := s.e.AppendAtRisk(nil)
			s.e.sound(t, risk)
			_, _, _, _, err := s.e.AppendShares(nil, s.now)
			require.NoError(t, err)
			deadline, err := in.SinceEpoch("", "", j.Deadline)
			require.NoError(t, err)
			plain := s.e.plainly(&elastic{id: j.ID, points: j.Points, left: workOf(j.Left), deadline: deadline})
			before := s.e.image()
			d, err := s.e.Admit(s.now, j)
			require.NoError(t, err)
			if d.Reason == TooLate {
				require.False(t, plain)
			}
			if plain {
				require.True(t, d.Feasible, "seed %d: %s", seed, j.ID)
			}
			switch {
			case !d.Feasible:
				refused++
				require.Equal(t, before, s.e.image(), "a refusal changes nothing")
			case !plain:
				more++
				fallthrough
			default:
				admitted++
				if len(before.Jobs) > 0 && !slices.Equal(before.Jobs[0].Plan, s.e.image().Jobs[0].Plan) {
					moved++
				}
			}
			s.e.sound(t, risk)
		}
	}
	t.Logf("%d admitted, of them %d that plain filling refuses, %d refused", admitted, more, refused)
	require.Greater(t, admitted, 10*seeds)
	require.Greater(t, refused, 5*seeds)
	require.Less(t, more, admitted/20)
	require.NotZero(t, moved)
}

func TestFewestDevicesAreThoseThatPlainSearchFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	s := &storm{r: r, now: t0}
	found := 0
	for range 4000 {
		e, err := NewElastic(1 + r.IntN(100))
		require.NoError(t, err)
		ns := t0.UnixNano()
		e.free.empty(ns, e.gpus)
		p := plainProfile{[]int64{ns}, []int{e.gpus}}
		for range r.IntN(12) {
			from := ns + r.Int64N(int64(time.Hour))*int64(r.IntN(2))
			plan := []stretch{{from: from, to: from + 1 + r.Int64N(int64(time.Hour)), gpus: 1 + r.IntN(e.gpus)}}
			if e.free.has(plan) {
				e.free.reserve(plan)
				p.reserve(plan)
			}
		}
		j := s.job()
		deadline, err := in.SinceEpoch("", "", j.Deadline)
		require.NoError(t, err)
		n := &elastic{points: j.Points, left: workOf(j.Left), deadline: deadline}
		want := p.least(n, e.gpus)
		require.Equal(t, want, e.least(n, &e.free))
		if want != nil {
			found++
		}
	}
	require.Greater(t, found, 1000)
}

func TestElasticGoesOnFromItsSnapshot(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	jobs := 0
	for seed := range uint64(seeds) {
		s := newStorm(t, seed)
		other := s.e
		for range 120 {
			call := s.call()
			require.NoError(t, call(s.e))
			if other != s.e {
				require.NoError(t, call(other))
			}
			data := snapshottest.Save(t, s.e.Snapshot)
			require.Equal(t, data, snapshottest.Save(t, other.Snapshot))
			if s.r.IntN(5) == 0 {
				var err error
				other, err = RestoreElastic(bytes.NewReader(data))
				require.NoError(t, err)
				require.Equal(t, data, snapshottest.Save(t, other.Snapshot))
				jobs += other.Len()
			}
		}
		require.Equal(t, s.e.AppendAtRisk(nil), other.AppendAtRisk(nil))
	}
	require.Greater(t, jobs, seeds)
}

func TestElasticSnapshotRefusesDamage(t *testing.T) {
	e, err := NewElastic(4)
	require.NoError(t, err)
	for _, j := range []ElasticJob{
		{ID: "a", Left: 180_000, Points: curve(), Deadline: t0.Add(100 * time.Second)},
		{ID: "b", Left: 180_000, Points: curve(), Deadline: t0.Add(100 * time.Second)},
	} {
		d, err := e.Admit(t0, j)
		require.NoError(t, err)
		require.True(t, d.Feasible)
	}
	restore := func(r io.Reader) error { _, err := RestoreElastic(r); return err }
	data := snapshottest.Save(t, e.Snapshot)
	snapshottest.RefusesDamage(t, data, restore)
	snapshottest.PassesFaultsOn(t, e.Snapshot, restore)
	_, body, _ := bytes.Cut(data, []byte("\n"))
	snapshottest.RefusesForgeries(t, elasticFormat, elasticVersion, data, restore, [][2]string{
		{`"id":"a"`, `"id":""`},
		{`"id":"a"`, `"id":"b"`},
		{`"id":"a"`, `"id":"c"`},
		{`{"gpus":4`, `{"gpus":3`},
		{`{"gpus":4`, `{"gpus":0`},
		{`"now":`, `"now":-`},
		{`"filled":true`, `"stale":true,"filled":true`},
		{`"left":"1`, `"left":"999999999999999999999999999999999991`},
		{`"left":"1`, `"left":"01`},
		{`"left":"1`, `"left":"x1`},
		{`"deadline":1`, `"deadline":-1`},
		{`"rate":1000`, `"rate":-1000`},
		{`"plan":[{"from":1`, `"plan":[{"from":0`},
		{`"gpus":2}]`, `"gpus":3}]`},
		{`"gpus":2}]`, `"gpus":0}]`},
	})
	require.Contains(t, string(body), `"filled":true`)
	_, err = Restore(bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrInvalid, "that of a Table")
}

func FuzzRestoreElastic(f *testing.F) {
	s := &storm{r: rand.New(rand.NewPCG(1, 9)), now: t0}
	s.e, _ = NewElastic(8)
	for range 20 {
		if err := s.call()(s.e); err != nil {
			f.Fatal(err)
		}
		f.Add(snapshottest.Body(f, snapshottest.Save(f, s.e.Snapshot)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := snapshottest.Frame(t, elasticFormat, elasticVersion, body)
		e, err := RestoreElastic(bytes.NewReader(data))
		if err != nil {
			return
		}
		require.Equal(t, data, snapshottest.Save(t, e.Snapshot))
		now := lockstep.FromNanos(e.now)
		_, _, _, _, err = e.AppendShares(nil, now)
		require.NoError(t, err)
		_, err = e.Admit(now, ElasticJob{ID: "new", Left: 1000, Points: curve(), Deadline: now.Add(time.Hour)})
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrDuplicate)
		}
		_ = e.AppendAtRisk(nil)
	})
}
