package deadline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// curve is the worked example's: 1, 1.8 and 3 steps a second on 1, 2 and 4 devices, in thousandths.
func curve() []Point { return []Point{{1, 1000}, {2, 1800}, {4, 3000}} }

func TestMinShare(t *testing.T) {
	for _, c := range []struct {
		left   int64
		within time.Duration
		want   int
	}{{1_000_000, 400 * time.Second, 4}, {1_000_000, 600 * time.Second, 2}, {1_000_000, 1000 * time.Second, 1}, {1_000_000, 100 * time.Second, 0}} {
		n, ok := MinShare(curve(), c.left, c.within, 4)
		require.Equal(t, c.want, n)
		require.Equal(t, c.want > 0, ok)
	}
	_, ok := MinShare(curve(), 1_000_000, 600*time.Second, 1)
	require.False(t, ok)
	_, ok = MinShare(nil, 1, time.Second, 1)
	require.False(t, ok)
}

func TestElasticOracle(t *testing.T) {
	e, err := NewElastic(4)
	require.NoError(t, err)
	admit := func(id lockstep.JobID, left int64, deadline int) bool {
		d, err := e.Admit(t0, ElasticJob{ID: id, Left: left * 1000, Points: curve(), Deadline: t0.Add(time.Duration(deadline) * time.Second)})
		require.NoError(t, err)
		return d.Feasible
	}
	require.True(t, admit("x", 1000, 400))
	require.True(t, admit("y", 500, 600))
	require.False(t, admit("z", 500, 600), "300 steps are possible")
	shares, left, until, ok, err := e.AppendShares(nil, t0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []Share{{"x", 4}, {"y", 0}}, shares)
	require.Zero(t, left)
	end := t0.Add(time.Second * 1000 / 3)
	require.WithinDuration(t, end, until, 1)
	require.NoError(t, e.Finish(until, "x"))
	shares, _, done, _, err := e.AppendShares(nil, until)
	require.NoError(t, err)
	require.Equal(t, []Share{{"y", 4}}, shares, "500 steps in 267 s need 1.87 a second")
	require.WithinDuration(t, t0.Add(500*time.Second), done, 2)
}

func TestNoElasticJobMissesItsDeadline(t *testing.T) {
	runs := 200
	if testing.Short() {
		runs = 30
	}
	total := 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 3))
		gpus := 1 << r.IntN(5)
		e, err := NewElastic(gpus)
		require.NoError(t, err)
		left := map[lockstep.JobID]work{}
		jobs := map[lockstep.JobID]ElasticJob{}
		now := t0
		for arrivals := 40; arrivals > 0 || len(left) > 0; {
			shares, spare, until, ok, err := e.AppendShares(nil, now)
			require.NoError(t, err)
			require.GreaterOrEqual(t, spare, 0, "no more is promised than there is")
			require.Empty(t, e.AppendAtRisk(nil))
			rate := map[lockstep.JobID]int64{}
			next := until
			if !ok {
				next = now.Add(time.Hour)
			}
			for _, s := range shares {
				n := s.GPUs
				for _, p := range jobs[s.ID].Points { // what is left over goes to whoever comes first
					if p.GPUs > n && p.GPUs-s.GPUs <= spare && r.IntN(2) == 0 {
						n = p.GPUs
					}
				}
				spare -= n - s.GPUs
				if p, ok := within(jobs[s.ID].Points, n); ok && n > 0 {
					rate[s.ID] = p.Rate
					if end := now.Add(time.Duration(takes(left[s.ID], p.Rate))); end.Before(next) {
						next = end
					}
				}
			}
			arrives := false
			if arrivals > 0 {
				if at := now.Add(time.Duration(r.Int64N(int64(10 * time.Minute)))); at.Before(next) {
					next, arrives = at, true
				}
			}
			for id, v := range rate { // each by itself
				left[id] = left[id].Sub(int128.Product(v, int64(next.Sub(now))))
			}
			now = next
			var ids []lockstep.JobID
			for id := range rate {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			for _, id := range ids {
				if left[id].Sign() <= 0 {
					require.False(t, jobs[id].Deadline.Before(now), "seed %d: %s misses", seed, id)
					require.NoError(t, e.Finish(now, id))
					delete(left, id)
					continue
				}
				if r.IntN(2) == 0 {
					units := int64(math.Ceil(left[id].Float64() / 1e9))
					require.NoError(t, e.Ran(now, id, units))
				}
			}
			if !arrives {
				continue
			}
			arrivals--
			j := ElasticJob{ID: lockstep.JobID(fmt.Sprint("j", arrivals)), Left: 1 + r.Int64N(3_000_000), Deadline: now.Add(time.Duration(r.Int64N(int64(2 * time.Hour))))}
			v := int64(500 + r.IntN(1000))
			for n := 1; n <= 16; n *= 2 {
				j.Points = append(j.Points, Point{n, v})
				v += v * int64(r.IntN(1000)) / 1000
			}
			d, err := e.Admit(now, j)
			require.NoError(t, err)
			if d.Feasible {
				total++
				jobs[j.ID], left[j.ID] = j, workOf(j.Left)
			}
		}
	}
	require.Greater(t, total, runs*5)
}

func TestElasticTellsWhoIsAtRisk(t *testing.T) {
	e, err := NewElastic(4)
	require.NoError(t, err)
	for _, id := range []lockstep.JobID{"a", "b"} {
		d, err := e.Admit(t0, ElasticJob{ID: id, Left: 180_000, Points: curve(), Deadline: t0.Add(100 * time.Second)})
		require.NoError(t, err)
		require.True(t, d.Feasible)
	}
	require.NoError(t, e.SetGPUs(t0, 2))
	require.Len(t, e.AppendAtRisk(nil), 1)
	require.NoError(t, e.SetGPUs(t0, 4))
	require.Empty(t, e.AppendAtRisk(nil))
	require.NoError(t, e.Ran(t0.Add(10*time.Second), "a", 300_000))
	require.NotEmpty(t, e.AppendAtRisk(nil))
}

func TestJobThatIsLateKeepsNobodyOut(t *testing.T) {
	e, err := NewElastic(4)
	require.NoError(t, err)
	admit := func(at time.Duration, id lockstep.JobID, left int64, deadline time.Duration) bool {
		d, err := e.Admit(t0.Add(at), ElasticJob{ID: id, Left: left, Points: curve(), Deadline: t0.Add(deadline)})
		require.NoError(t, err)
		return d.Feasible
	}
	require.True(t, admit(0, "late", 300_000, 100*time.Second))
	// It turns out to have far more to do, and its deadline passes.
	require.NoError(t, e.Ran(t0.Add(90*time.Second), "late", 900_000))
	require.Equal(t, []lockstep.JobID{"late"}, e.AppendAtRisk(nil))
	require.True(t, admit(110*time.Second, "new", 300_000, 220*time.Second))
	shares, left, _, _, err := e.AppendShares(nil, t0.Add(110*time.Second))
	require.NoError(t, err)
	require.Equal(t, []Share{{"late", 0}, {"new", 4}}, shares, "the newcomer needs all of them")
	require.Zero(t, left)
	require.Equal(t, []lockstep.JobID{"late"}, e.AppendAtRisk(nil))
	require.NoError(t, e.Finish(t0.Add(210*time.Second), "new"))
	shares, _, _, _, err = e.AppendShares(nil, t0.Add(210*time.Second))
	require.NoError(t, err)
	require.Equal(t, []Share{{"late", 4}}, shares)
}

func TestElasticBadInput(t *testing.T) {
	e, err := NewElastic(4)
	require.NoError(t, err)
	_, err = e.Admit(t0, ElasticJob{ID: "a", Left: 1, Points: curve(), Deadline: t0.Add(time.Hour)})
	require.NoError(t, err)
	deadline := t0.Add(time.Hour)
	for name, c := range map[string]struct { // each by itself
		j    ElasticJob
		kind error
		want string
	}{
		"no ID":     {ElasticJob{Left: 1, Points: curve(), Deadline: deadline}, lockstep.ErrInvalid, "ID"},
		"nothing":   {ElasticJob{ID: "b", Points: curve(), Deadline: deadline}, lockstep.ErrInvalid, "Left = 0"},
		"no points": {ElasticJob{ID: "b", Left: 1, Deadline: deadline}, lockstep.ErrInvalid, "Points = 0"},
		"order":     {ElasticJob{ID: "b", Left: 1, Points: []Point{{2, 1}, {1, 2}}, Deadline: deadline}, lockstep.ErrInvalid, "Points[1].GPUs = 1"},
		"falls":     {ElasticJob{ID: "b", Left: 1, Points: []Point{{1, 2}, {2, 1}}, Deadline: deadline}, lockstep.ErrInvalid, "Points[1].Rate = 1"},
		"zero rate": {ElasticJob{ID: "b", Left: 1, Points: []Point{{1, 0}}, Deadline: deadline}, lockstep.ErrInvalid, "Points[0].Rate = 0"},
		"twice":     {ElasticJob{ID: "a", Left: 1, Points: curve(), Deadline: deadline}, lockstep.ErrDuplicate, `ID = "a"`},
		"no time":   {ElasticJob{ID: "b", Left: 1, Points: curve()}, lockstep.ErrInvalid, "Deadline"},
	} {
		_, err := e.Admit(t0, c.j)
		require.ErrorIs(t, err, c.kind, name)
		require.ErrorContains(t, err, c.want, name)
	}
	d, err := e.Admit(t0, ElasticJob{ID: "b", Left: 1, Points: curve(), Deadline: t0.Add(-1)})
	require.NoError(t, err)
	require.Equal(t, TooLate, d.Reason)
	require.ErrorIs(t, e.Finish(t0, "x"), lockstep.ErrUnknown)
	require.ErrorIs(t, e.Ran(t0, "x", 1), lockstep.ErrUnknown)
	require.ErrorIs(t, e.Ran(t0, "a", 0), lockstep.ErrInvalid)
	require.ErrorIs(t, e.SetGPUs(t0, 0), lockstep.ErrInvalid)
	require.ErrorIs(t, e.Finish(t0.Add(-1), "a"), lockstep.ErrPast)
	_, _, _, _, err = e.AppendShares(nil, t0.Add(-1))
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = NewElastic(0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, 1, e.Len())
	_, err = e.Admit(t0, ElasticJob{ID: "huge", Left: math.MaxInt64, Points: []Point{{1, 1}, {4, math.MaxInt64}}, Deadline: time.Unix(0, math.MaxInt64)})
	require.NoError(t, err)
}
