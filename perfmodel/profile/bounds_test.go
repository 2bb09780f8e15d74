package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func TestNoSizeIsAboveTheLongestDuration(t *testing.T) {
	d, err := NewDistribution([]time.Duration{time.Second, time.Hour, lockstep.MaxWalltime})
	require.NoError(t, err)
	for _, attained := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, lockstep.MaxWalltime} {
		_, ok := d.Remaining(attained)
		require.False(t, ok, attained)
		x, ok := d.Gittins(attained)
		require.False(t, ok, attained)
		require.Equal(t, Index{}, x)
	}
	left, ok := d.Remaining(lockstep.MaxWalltime - 1)
	require.True(t, ok)
	require.Equal(t, time.Duration(1), left)
	all, ok := d.Remaining(math.MinInt64)
	require.True(t, ok)
	require.Equal(t, d.Mean(), all)
	left, ok = d.Remaining(time.Second)
	require.True(t, ok)
	require.Equal(t, (time.Hour+lockstep.MaxWalltime)/2-time.Second, left, "one of just that size has ended")
}

func TestObservingAPairDrivesOutNeither(t *testing.T) {
	s, err := New(Config{Kinds: 3})
	require.NoError(t, err)
	for _, k := range []Kind{"b", "x", "y"} { // b is the oldest
		require.NoError(t, s.ObserveRate(k, "h100", 7))
	}
	require.NoError(t, s.ObservePair("a", "b", 900, 800))
	require.Equal(t, Measured, s.Rate("b", "h100").Source, "what was known of b stays")
	require.Equal(t, Unknown, s.Rate("x", "h100").Source)
	require.Equal(t, Measured, s.Rate("y", "h100").Source)
	require.Equal(t, 3, s.Len())
}

func TestStoreStaysBoundedAndEven(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 21))
		cfg := Config{Kinds: 1 + rng.IntN(6), Partners: 1 + rng.IntN(3), Keep: 1 + rng.IntN(3)}
		s, err := New(cfg)
		require.NoError(t, err)
		kind := func() Kind { return Kind(fmt.Sprint("k", rng.IntN(9))) }
		for range 200 {
			switch rng.IntN(5) {
			case 0:
				require.NoError(t, s.ObserveRate(kind(), "h100", 1+rng.Float64()))
			case 1:
				require.NoError(t, s.ObserveLevel(kind(), "cluster", time.Second))
			case 2:
				s.Forget(kind())
			default:
				a, b := kind(), kind()
				err := s.ObservePair(a, b, rng.Int64N(1001), rng.Int64N(1001))
				if a != b && cfg.Kinds == 1 {
					require.ErrorIs(t, err, lockstep.ErrConflict)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, Measured, s.Beside(a, b).Source)
				require.Equal(t, Measured, s.Beside(b, a).Source)
			}
			require.LessOrEqual(t, s.Len(), cfg.Kinds)
			require.Empty(t, s.lopsided())
			s.kinds.all(func(_ Kind, e *known) { require.LessOrEqual(t, e.beside.len(), cfg.Partners) })
		}
		again, err := Restore(bytes.NewReader(snapshottest.Save(t, s.Snapshot)))
		require.NoError(t, err)
		require.Equal(t, snapshottest.Save(t, s.Snapshot), snapshottest.Save(t, again.Snapshot))
	}
}

func TestEstimatesOfExtremeRatesAreNumbers(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	for _, rate := range []float64{1e-100, 1e100} {
		require.NoError(t, s.ObserveRate("a", "h100", rate))
		require.NoError(t, s.ObserveRate("b", "h100", 1/rate))
		require.NoError(t, s.ObserveRate("b", "a100", rate))
	}
	require.NoError(t, s.ObserveLevel("a", "cluster", lockstep.MaxWalltime))
	require.NoError(t, s.ObserveLevel("a", lockstep.LevelNode, 1))
	for _, e := range []Estimate{s.Rate("a", "h100"), s.Rate("a", "a100"), s.Rate("b", "a100"), s.Slowdown("a", "cluster"), s.Slowdown("a", lockstep.LevelNode)} {
		_, err := json.Marshal(e) // which takes no figure without end
		require.NoError(t, err, "%+v", e)
		require.LessOrEqual(t, e.Low, e.Value)
		require.LessOrEqual(t, e.Value, e.High)
	}
	require.Equal(t, int64(math.MaxInt64), mille(math.MaxFloat64))
}

func TestPoolOutOfOrderIsRefused(t *testing.T) {
	p := pool(t, PoolConfig{GPUs: 4})
	submit(t, p, 0, "a", 1)
	submit(t, p, 0, "b", 1)
	actions(t, p, 0, PoolAction{"a", PoolStart}, PoolAction{"b", PoolStart})
	submit(t, p, 0, "c", 3)
	submit(t, p, 0, "d", 4)
	body := snapshottest.Body(t, snapshottest.Save(t, p.Snapshot))
	for _, swap := range [][2]string{{"a", "b"}, {"c", "d"}} {
		forged := bytes.ReplaceAll(body, []byte(`"`+swap[0]+`"`), []byte(`"?"`))
		forged = bytes.ReplaceAll(forged, []byte(`"`+swap[1]+`"`), []byte(`"`+swap[0]+`"`))
		forged = bytes.ReplaceAll(forged, []byte(`"?"`), []byte(`"`+swap[1]+`"`))
		_, err := RestorePool(bytes.NewReader(snapshottest.Frame(t, poolFormat, version, forged)))
		if swap[0] == "a" {
			require.ErrorContains(t, err, "held[1]")
		} else {
			require.NoError(t, err, "which of them wants more is free")
		}
	}
	forged := bytes.Replace(body, []byte(`"gpus":3`), []byte(`"gpus":4`), 1)
	forged = bytes.Replace(forged, []byte(`"job":"d","gpus":4`), []byte(`"job":"d","gpus":3`), 1)
	_, err := RestorePool(bytes.NewReader(snapshottest.Frame(t, poolFormat, version, forged)))
	require.ErrorContains(t, err, "queue[1]")
}

func TestEveryJobLeavesThePool(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 22))
		p := pool(t, PoolConfig{GPUs: 1 + rng.IntN(8), Limit: 10 * time.Second, Wait: 25 * time.Second})
		in := map[lockstep.JobID]float64{}
		running := map[lockstep.JobID]bool{}
		now := 0.0
		for i := 0; i < 60 || len(in) > 0; i++ {
			if i < 60 {
				id := lockstep.JobID(fmt.Sprint("j", i))
				if ok, err := p.Submit(at(now), id, 1+rng.IntN(9)); ok {
					in[id] = now
				} else {
					require.NoError(t, err)
				}
			}
			if rng.IntN(20) == 0 {
				p = func() *Pool {
					again, err := RestorePool(bytes.NewReader(snapshottest.Save(t, p.Snapshot)))
					require.NoError(t, err)
					return again
				}()
			}
			got, err := p.Step(at(now), nil)
			require.NoError(t, err)
			for _, a := range got {
				switch a.Kind {
				case PoolStart:
					require.False(t, running[a.Job])
					running[a.Job] = true
				case PoolStop:
					require.True(t, running[a.Job])
					require.NoError(t, p.Leave(at(now), a.Job))
					delete(in, a.Job)
				case PoolPass:
					require.False(t, running[a.Job])
					delete(in, a.Job)
				}
			}
			for id, since := range in {
				require.LessOrEqual(t, now-since, 35.0, "%s waits at most 25 s and runs at most 10 s", id)
			}
			switch next, ok := p.NextWake(at(now)); {
			case i < 60 && rng.IntN(2) == 0:
				now += float64(rng.IntN(4))
				if ok {
					now = min(now, next.Sub(at(0)).Seconds())
				}
			case ok:
				now = next.Sub(at(0)).Seconds()
			default:
				require.Empty(t, in, "nothing will happen, and jobs are in")
			}
		}
		waiting, held := p.Len()
		require.Zero(t, waiting+held)
		require.Equal(t, p.cfg.GPUs, p.Free())
	}
}

func TestRangeLeavesOutOneInTwenty(t *testing.T) {
	d, err := NewDurations(DurationsConfig{Window: 100})
	require.NoError(t, err)
	j := Job{Tenant: "ann", Name: "bert"}
	for i := range 100 {
		require.NoError(t, d.Observe(j, 0, time.Duration((i*37)%100+1)*time.Minute))
	}
	e, err := d.Expect(j, 0)
	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, e.Low)
	require.Equal(t, 95*time.Minute, e.High)
	require.Equal(t, 50*time.Minute+30*time.Second, e.Duration)
}

func TestSlowdownIsNoSurerThanWhatItIsOver(t *testing.T) {
	high := func(base int) float64 {
		s, err := New(Config{})
		require.NoError(t, err)
		for range 16 {
			require.NoError(t, s.ObserveLevel("a", "cluster", 2*time.Second))
		}
		for range base {
			require.NoError(t, s.ObserveLevel("a", lockstep.LevelNode, time.Second))
		}
		e := s.Slowdown("a", "cluster")
		require.InDelta(t, 2, e.Value, 1e-9)
		require.InDelta(t, e.Value*e.Value, e.Low*e.High, 1e-9, "as far down as up")
		return e.High / e.Value
	}
	require.Greater(t, high(1), 1.2)
	require.Less(t, high(16), 1.03)
	require.Greater(t, high(2), high(4))
}

func TestEveryNameIsSavedAndFoundAgain(t *testing.T) {
	d, err := NewDurations(DurationsConfig{})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 23))
	names := []string{"\xff", "İ1", "ẞ22", "K", "a<b>&\u2028\x00", "７7", string(bytes.Repeat([]byte("Ⱥ"), 126)), string(bytes.Repeat([]byte("9"), 253))}
	for range 500 {
		name := make([]byte, 1+rng.IntN(lockstep.MaxIDLength))
		for i := range name {
			name[i] = byte(rng.Uint32())
		}
		names = append(names, string(name))
	}
	for _, name := range names {
		require.NoError(t, d.Observe(Job{Tenant: "t", Name: name}, 0, time.Hour))
	}
	again, err := RestoreDurations(bytes.NewReader(snapshottest.Save(t, d.Snapshot)), nil)
	require.NoError(t, err)
	for _, name := range names {
		require.Equal(t, similar(name), similar(similar(name)))
		e, err := again.Expect(Job{Tenant: "t", Name: name}, 0)
		require.NoError(t, err)
		require.Equal(t, LikeJob, e.Like, "%q", name)
	}
}

func TestPoolTakesNoJobOfMoreThanMost(t *testing.T) {
	p := pool(t, PoolConfig{GPUs: 8, Most: 2})
	for gpus, want := range map[int]bool{1: true, 2: true, 3: false, 8: false, maxGPUs: false} { // each by itself
		ok, err := p.Submit(at(0), lockstep.JobID(fmt.Sprint("j", gpus)), gpus)
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
	waiting, _ := p.Len()
	require.Equal(t, 2, waiting)
}

func TestFewPairsTellNothingOfUsage(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, s.Describe(Kind(fmt.Sprint(i)), Usage{Cache: .1 * float64(i), Memory: .3}))
	}
	require.NoError(t, s.Describe("new", Usage{Cache: .2, Memory: .3}))
	for i := range 4 {
		require.Equal(t, Unknown, s.Beside("new", "0").Source, "%d rates are known", 2*i)
		require.NoError(t, s.ObservePair(Kind(fmt.Sprint(i)), Kind(fmt.Sprint(i+1)), 800, 700))
	}
	e := s.Beside("new", "0")
	require.Equal(t, Inferred, e.Source)
	require.True(t, 0 <= e.Low && e.Low <= e.Value && e.Value <= e.High && e.High <= 1, "%+v", e)
}
