package fairness

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

func TestExp2IsWithinItsBoundAndGrows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	phases := []uint64{0, 1, 2, 1<<phaseBits - 2}
	for range 20_000 {
		phases = append(phases, r.Uint64N(1<<phaseBits-1))
	}
	for _, phase := range phases {
		x := float64(phase) / (1 << phaseBits)
		require.InEpsilon(t, math.Exp2(x), float64(exp2(phase))/(1<<63), 1e-15, phase)
		require.Less(t, exp2(phase), exp2(phase+1), phase)
	}
	require.Equal(t, uint64(1<<63), exp2(0))
	// A square root, twice a quarter and so on give 2 again, to the bound.
	for i, root := range roots {
		v := new(big.Float).SetPrec(200).SetUint64(root)
		v.Quo(v, new(big.Float).SetPrec(200).SetUint64(1<<63))
		for range i + 1 {
			v.Mul(v, v)
		}
		f, _ := v.Float64()
		require.InEpsilon(t, 2, f, math.Exp2(float64(i)-60), i)
	}
}

func TestWarpedTimeGrowsAndBeginsAnewAtEpochs(t *testing.T) {
	for _, h := range []time.Duration{1, 3, time.Second, 7 * 24 * time.Hour, lockstep.MaxWalltime} {
		w := newWarp(h)
		for _, epoch := range []int64{-2, 0, 2} {
			w.epoch = epoch
			begin := epoch * w.half * epochHalves
			require.Equal(t, int64(warpStart), w.at(begin))
			if h != 1 {
				require.Less(t, w.at(begin+w.half*epochHalves-1), int64(warpStart<<epochHalves))
			}
			require.Equal(t, int64(warpStart<<3), w.at(begin+3*w.half))
			require.Equal(t, epoch, w.epochOf(begin))
			require.Equal(t, epoch-1, w.epochOf(begin-1))
			last := int64(0)
			for i := range int64(1000) {
				at := w.at(begin + i*(w.half*epochHalves/1000))
				require.GreaterOrEqual(t, at, last)
				last = at
			}
		}
	}
}

// stretch is a time in which a tenant held a rate.
type stretch struct {
	from, to, rate int64
}

// decayedExactly returns the sum of rate × decay over stretches, as of now, in
// MilliGPU-nanoseconds, by floats of 200 bits where float64 has too few.
func decayedExactly(list []stretch, now, half int64) float64 {
	sum := 0.0
	for _, s := range list {
		x := math.Exp2(-float64(now-s.to)/float64(half)) * -math.Expm1(-float64(s.to-s.from)/float64(half)*math.Ln2)
		sum += float64(s.rate) * x * float64(half) / math.Ln2
	}
	return sum
}

// TestHalfLifeIsExactAtAnySpacing is invariant 13: whatever events there were in
// between, what is left of a service is the closed form.
func TestHalfLifeIsExactAtAnySpacing(t *testing.T) {
	for seed := range lists(200) {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		half := time.Duration(1 + r.Int64N(int64(10*time.Hour)))
		l := start(t, Config{Capacity: 16_000, Memory: Memory{HalfLife: half}})
		require.NoError(t, l.Join(epoch, "a", 1))
		require.NoError(t, l.Join(epoch, "b", 1))
		require.NoError(t, l.Submit(epoch, "j", "a", 8000))
		var held []stretch
		now, rate := epoch.UnixNano(), int64(0)
		from := now
		for i := range 200 {
			now += r.Int64N(int64(half)) / int64(1+r.IntN(20))
			at := lockstep.FromNanos(now)
			switch r.IntN(4) {
			case 0, 1: // events that do not concern a
				id := lockstep.JobID(fmt.Sprint("b", i))
				require.NoError(t, l.Submit(at, id, "b", 1000))
			case 2:
				held = append(held, stretch{from, now, rate})
				from = now
				if rate == 0 {
					rate = 1 + r.Int64N(8000)
					require.NoError(t, l.Start(at, "j", lockstep.MilliGPU(rate)))
				} else {
					rate = 0
					require.NoError(t, l.Stop(at, "j"))
				}
			}
			if r.IntN(10) == 0 {
				later := now + r.Int64N(int64(half)/2+1)
				s, err := l.Statement(lockstep.FromNanos(later), "a")
				require.NoError(t, err)
				want := decayedExactly(append(held[:len(held):len(held)], stretch{from, later, rate}), later, int64(half))
				got := int128.Int(s.RecentService).Float64()
				// Times are told to half/2^48, and there are few rates in a half-life.
				require.InDelta(t, want, got, want*1e-9+8000*float64(half)*math.Exp2(-44)+2, "seed %d", seed)
				require.GreaterOrEqual(t, got, 0.0)
			}
		}
		// It decays to nothing, and never below.
		require.NoError(t, l.Finish(lockstep.FromNanos(now), "j"))
		require.NoError(t, l.SetCapacity(lockstep.FromNanos(now+500*int64(half)), 1))
		s, err := l.Statement(lockstep.FromNanos(now+500*int64(half)), "a")
		require.NoError(t, err)
		require.Zero(t, s.RecentService.Sign())
	}
}

// TestHalfLifeOrdersByWhatIsLeft: of tenants that all got as much too much, the one
// that got it longest ago comes first; with no decay they would be alike.
func TestHalfLifeOrdersByWhatIsLeft(t *testing.T) {
	for half, want := range map[time.Duration][]lockstep.JobID{ // the order does not matter: each stands alone
		0:         {"new-a", "new-b", "new-c"},
		time.Hour: {"new-c", "new-b", "new-a"},
	} {
		l := start(t, Config{Basis: Fixed, Capacity: 8000, Memory: Memory{HalfLife: half}, Horizon: 1})
		for _, id := range []lockstep.TenantID{"a", "b", "c"} {
			require.NoError(t, l.Join(epoch, id, 1))
		}
		now := epoch
		for _, id := range []lockstep.TenantID{"c", "b", "a"} {
			job := lockstep.JobID("old-" + id)
			require.NoError(t, l.Submit(now, job, id, 8000))
			require.NoError(t, l.Start(now, job, 8000))
			now = now.Add(7 * time.Hour)
			require.NoError(t, l.Finish(now, job))
		}
		for _, id := range []lockstep.TenantID{"a", "b", "c"} {
			require.NoError(t, l.Submit(now, lockstep.JobID("new-"+id), id, 1000))
		}
		require.Equal(t, want, drain(l, now, always(lockstep.Blocked)))
	}
}

func TestAQuietCenturyIsNoTrouble(t *testing.T) {
	for _, half := range []time.Duration{1, time.Microsecond, time.Hour} {
		l := start(t, Config{Capacity: 8000, Memory: Memory{HalfLife: half}})
		require.NoError(t, l.Join(epoch, "a", 1))
		require.NoError(t, l.Submit(epoch, "j", "a", 4000))
		require.NoError(t, l.Start(epoch, "j", 4000))
		later := epoch.AddDate(100, 0, 0)
		require.Equal(t, []lockstep.JobID(nil), drain(l, later, always(lockstep.Blocked)))
		require.NoError(t, l.Submit(later, "k", "a", 1))
		s, err := l.Statement(later, "a")
		require.NoError(t, err)
		steady := float64(4000) * float64(half) / math.Ln2
		require.InDelta(t, steady, int128.Int(s.RecentService).Float64(), steady*1e-9+1)
	}
}

// TestStepsAtAnEpochKeepAPassGoing crosses an epoch between Begin and the events
// that a pass leads to.
func TestStepsAtAnEpochKeepAPassGoing(t *testing.T) {
	half := time.Hour
	begin := time.Unix(0, 0).UTC().Add(50 * 10 * half).Add(-time.Minute) // an epoch ends a minute later
	l := start(t, Config{Capacity: 2000, Memory: Memory{HalfLife: half}})
	var jobs []lockstep.JobID
	for i := range 6 {
		tenant := lockstep.TenantID(fmt.Sprint("t", i%3))
		if i < 3 {
			require.NoError(t, l.Join(begin, tenant, int64(1+i)))
		}
		job := lockstep.JobID(fmt.Sprint("j", i))
		require.NoError(t, l.Submit(begin, job, tenant, 1000))
		jobs = append(jobs, job)
	}
	now := begin.Add(2 * time.Minute)
	l.Begin(now)
	var got []lockstep.JobID
	for job, ok := l.Next(); ok; job, ok = l.Next() {
		got = append(got, job)
		require.NoError(t, l.Start(now, job, 1000))
		l.Outcome(job, lockstep.Granted)
	}
	require.ElementsMatch(t, jobs, got)
	require.Equal(t, lockstep.JobID("j2"), got[0], "the one of most weight")
}

// TestLookingAheadIsAsIfSomethingHappened: with a half-life, a pass, a statement and a
// reclaim of a time that lies epochs behind the latest event are what they are once
// an event that changes nothing has led there. An index that is equal but for its
// last bit may be rounded otherwise, so those orders are held to the tenants' alone.
func TestLookingAheadIsAsIfSomethingHappened(t *testing.T) {
	proposals := 0
	for seed := range lists(700) {
		r := rand.New(rand.NewPCG(uint64(seed), 21))
		src := newSource(uint64(seed) + 1<<22)
		src.jobs, src.weights = 24, []int64{0, 1, 1, 2, 3}
		half := pick(r, []time.Duration{time.Minute, 20 * time.Minute, 10 * time.Hour})
		cfg := Config{
			Capacity: 16000, Memory: Memory{HalfLife: half}, Basis: bases[seed%3], JobOrder: orders[seed%len(orders)], Payer: payers[seed/2%3],
			Horizon: pick(r, []time.Duration{time.Minute, 30 * time.Minute, 100 * time.Hour}),
		}
		l := start(t, cfg)
		log := record(t, l, src, 120)
		there := start(t, cfg)
		play(t, there, log)
		for _, id := range suits(l, EventStop) {
			if r.IntN(2) == 0 {
				require.NoError(t, l.Due(id))
				require.NoError(t, there.Due(id))
			}
		}
		now := src.now.Add(time.Duration(r.Int64N(30)) * half * 2 / 3)
		before := saved(t, l)
		require.NoError(t, there.SetCapacity(now, there.capacity))
		for _, id := range ids(l.tenants) {
			a, err := l.Statement(now, id)
			require.NoError(t, err)
			b, err := there.Statement(now, id)
			require.NoError(t, err)
			for _, pair := range [][2]lockstep.GPUTime{{a.RecentService, b.RecentService}, {a.RecentEntitlement, b.RecentEntitlement}, {a.Adjust, b.Adjust}} {
				x, y := pair[0], pair[1]
				require.InDelta(t, x.GPUSeconds(), y.GPUSeconds(), 1e-9*(1+half.Seconds()))
			}
		}
		for _, id := range suits(l, EventStart) {
			a, err := l.AppendReclaim(nil, now, id, 8000)
			require.NoError(t, err)
			b, err := there.AppendReclaim(nil, now, id, 8000)
			require.NoError(t, err)
			if !cfg.JobOrder.ranked() {
				require.Equal(t, b, a, "seed %d %s", seed, id)
			}
		}
		got, want := drain(l, now, always(lockstep.Blocked)), drain(there, now, always(lockstep.Blocked))
		proposals += len(got)
		require.ElementsMatch(t, want, got)
		for i := range got {
			require.Equal(t, l.jobs[want[i]].tenant.id, l.jobs[got[i]].tenant.id, "seed %d", seed)
			require.True(t, cfg.JobOrder.ranked() || want[i] == got[i], "seed %d: %v, want %v", seed, got, want)
		}
		same(t, before, saved(t, l))
	}
	t.Log(proposals, "proposals")
}

// TestAPassGoesOnAcrossEpochs lets a pass run while its jobs start, later and later,
// in epochs behind the one that it began in: it proposes every job once all the same,
// in the order in which it would have.
func TestAPassGoesOnAcrossEpochs(t *testing.T) {
	crossed := 0
	for seed := range lists(500) {
		r := rand.New(rand.NewPCG(uint64(seed), 22))
		src := newSource(uint64(seed) + 1<<23)
		src.jobs, src.tenants, src.weights = 24, 3, []int64{0, 1, 1, 2, 3}
		cfg := Config{
			Capacity: 16000, Memory: Memory{HalfLife: time.Hour}, Basis: bases[seed%3], JobOrder: orders[seed%len(orders)],
			Horizon: pick(r, []time.Duration{time.Minute, 10 * time.Hour}),
		}
		l := start(t, cfg)
		record(t, l, src, 150)
		now := src.now.Add(time.Duration(r.IntN(30)) * time.Hour)
		want := drain(l, now, always(lockstep.Granted))
		l.Begin(now)
		var got []lockstep.JobID
		for id, ok := l.Next(); ok; id, ok = l.Next() {
			got = append(got, id)
			require.LessOrEqual(t, len(got), len(want), "seed %d: %v, want %v", seed, got, want)
			l.Outcome(id, lockstep.Granted)
			require.NoError(t, l.Start(now, id, l.jobs[id].demand))
			if r.IntN(2) == 0 {
				was := l.warp.epoch
				now = now.Add(time.Duration(r.IntN(16)) * time.Hour)
				require.NoError(t, l.SetCapacity(now, l.capacity))
				if l.warp.epoch != was {
					crossed++
				}
			}
		}
		require.ElementsMatch(t, want, got, "seed %d %q", seed, cfg.JobOrder)
		if !cfg.JobOrder.ranked() {
			require.Equal(t, want, got, "seed %d %q", seed, cfg.JobOrder)
		}
	}
	require.Positive(t, crossed)
	t.Log(crossed, "epochs")
}

// TestTheEndsOfTime runs memories from the first nanosecond that there is to the last.
func TestTheEndsOfTime(t *testing.T) {
	for _, memory := range []Memory{
		{HalfLife: 1},
		{HalfLife: time.Hour},
		{HalfLife: lockstep.MaxWalltime},
		{Bucket: leastBucket, Buckets: 3},
		{Bucket: time.Hour, Buckets: maxBuckets},
		{Bucket: lockstep.MaxWalltime, Buckets: 2},
	} {
		cfg := Config{Capacity: maxRate, Memory: memory, Horizon: lockstep.MaxWalltime}
		l := start(t, cfg)
		first, last := lockstep.FromNanos(math.MinInt64), lockstep.FromNanos(math.MaxInt64)
		require.NoError(t, l.Join(first, "a", MaxWeight))
		require.NoError(t, l.Join(first, "b", 1))
		require.NoError(t, l.Submit(first, "ja", "a", maxRate/2))
		require.NoError(t, l.Submit(first, "jb", "b", maxRate/2))
		require.NoError(t, l.Start(first, "ja", maxRate/2))
		for _, at := range []time.Time{lockstep.FromNanos(-1), time.Unix(0, 0), lockstep.FromNanos(1), epoch, last} {
			for range 2 { // looking ahead, and there
				s, err := l.Statement(at, "a")
				require.NoError(t, err)
				r, err := l.Statement(at, "b")
				require.NoError(t, err)
				require.Positive(t, s.RecentService.Sign(), "%+v %s", memory, at)
				require.Zero(t, r.RecentService.Sign())
				require.Equal(t, s.RecentEntitlement, s.RecentService, "%+v: it has what it asks for", memory)
				require.Equal(t, []lockstep.JobID{"jb"}, drain(l, at, always(lockstep.Granted)))
				_, err = l.AppendReclaim(nil, at, "jb", 1)
				require.NoError(t, err)
				require.NoError(t, l.SetCapacity(at, maxRate))
			}
			data := saved(t, l)
			l = restore(t, cfg, data)
			same(t, data, saved(t, l))
		}
		require.ErrorIs(t, l.SetCapacity(epoch, 1), lockstep.ErrPast)
	}
}
