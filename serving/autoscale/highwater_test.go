package autoscale

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// waterOf is a Scaler by h of replicas that serve ten requests a second each.
func waterOf(t *testing.T, h HighWater) *Scaler {
	return newScaler(t, Config{Rule: h, Demand: Demand{Capacity: tenMS}, Margin: NoMargin})
}

// TestHighWaterByHand: 10 s to load, so windows of 10 s; 100 requests are ten replica-seconds.
func TestHighWaterByHand(t *testing.T) {
	s := waterOf(t, HighWater{Load: 10 * time.Second, Use: 500})
	want := func(second int, f Fleet) Decision { return decide(t, s, at(time.Duration(second)*time.Second), f) }
	tell := func(second, requests int) {
		observe(t, s, at(time.Duration(second)*time.Second), Sample{Requests: int64(requests), Ongoing: 1})
	}
	tell(0, 900) // came in no known time
	tell(10, 100)
	d := want(10, fleet(1, 0))
	require.Equal(t, []any{2, int64(1000), int64(1000), ReasonRule}, []any{d.Want, d.Why.Load, d.Why.Bound, d.Why.Reason}, "a load of 1 at half use")
	tell(12, 160) // 1.6 over ten seconds with 8 seconds of the former
	d = want(12, fleet(2, 0))
	require.Equal(t, []any{5, int64(2400)}, []any{d.Want, d.Why.Load}, "0.8 and 1.6 at half use")
	for second := 20; second <= 160; second += 10 {
		tell(second, 0)
		d = want(second, fleet(5, 0))
		require.Equal(t, []any{5, ReasonForecast}, []any{d.Want, d.Why.Reason}, "at %d the mark of 12 stands", second)
	}
	tell(165, 0)
	require.Equal(t, 4, want(165, fleet(5, 0)).Want, "that of 20 stands, 1.6")
	tell(175, 0)
	require.Equal(t, 1, want(175, fleet(4, 0)).Want, "for what is ongoing")
}

// TestWaitHoldsTheRoomDown: of a steady load no more is had than keeps all within Wait, and a swell within Wait costs less.
func TestWaitHoldsTheRoomDown(t *testing.T) {
	for _, wait := range []time.Duration{0, 10 * time.Second, time.Second, 10 * time.Millisecond} {
		s := waterOf(t, HighWater{Load: 40 * time.Second, Use: 200, Wait: wait})
		for i := range 60 {
			n := int64(40) // a load of 4
			if i == 30 {
				n = 80 // twice that for two seconds
			}
			observe(t, s, at(time.Duration(2*i)*time.Second), Sample{Requests: 2 * n})
		}
		d := decide(t, s, at(118*time.Second), fleet(1, 0))
		// 4.2 over 40 s at 200 of 1000, 21 in whole ones; or the most of (8 × 2 + 4 × rest) / (length + wait) at 600 of 1000.
		load := 4.0
		most := 0.0
		for length := 2.0; length <= 40; length += 2 {
			most = max(most, (load*length+8)/(length+wait.Seconds()))
		}
		n := 21
		if wait > 0 {
			n = min(n, int(math.Ceil(most/.6)))
		}
		require.Equal(t, n, d.Want, "wait %v", wait)
	}
}

// TestMarksAgreeWithSamples holds the marks against sums over all samples.
func TestMarksAgreeWithSamples(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 28))
	for range 30 {
		h := HighWater{Load: time.Duration(5+r.IntN(60)) * time.Second, Hold: time.Duration(100+r.IntN(900)) * time.Second, Wait: time.Duration(1+r.IntN(5000)) * time.Millisecond}.withDefaults()
		w := newWater(h)
		type sample struct{ at, busy int64 } // in milliseconds
		told := []sample{{1_000_000, 0}}
		w.add(told[0].at*1e6, 0)
		var swells, surges []int64
		for range 300 {
			s := sample{told[len(told)-1].at + 500 + r.Int64N(8000), r.Int64N(60_000)}
			told = append(told, s)
			w.add(s.at*1e6, time.Duration(s.busy)*time.Millisecond)
			over := func(from int64) (sum float64) { // work since then, evenly spread between samples
				for i := 1; i < len(told); i++ {
					a, b := told[i-1].at, told[i].at
					if b > from {
						sum += float64(told[i].busy) * float64(b-max(a, from)) / float64(b-a)
					}
				}
				return sum
			}
			load := h.Load.Milliseconds()
			swells = append(swells, int64(math.Ceil(over(s.at-load)/float64(load)*1000-1e-6)))
			surge := 0.0
			for _, k := range told {
				if s.at-k.at <= load {
					surge = max(surge, over(k.at)/float64(s.at-k.at+h.Wait.Milliseconds())*1000)
				}
			}
			surges = append(surges, int64(math.Ceil(surge-1e-6)))
			now := s.at * 1e6
			most, high := int64(0), int64(0)
			for i, v := range swells {
				if told[i+1].at*1e6/w.width() >= now/w.width()-tides {
					most, high = max(most, v), max(high, surges[i])
				}
			}
			swell, top := w.highest(now)
			require.InDelta(t, most, swell, 1)
			require.InDelta(t, high, top, 1)
			require.LessOrEqual(t, len(w.Tides), tides+1)
		}
	}
}

// TestANewControllerLowersNothingForALoad: it knows of no mark yet.
func TestANewControllerLowersNothingForALoad(t *testing.T) {
	s := waterOf(t, HighWater{Load: 40 * time.Second})
	for second := 0; second <= 50; second += 2 {
		now := at(time.Duration(second) * time.Second)
		observe(t, s, now, Sample{Requests: 12, Ongoing: 1})
		d := decide(t, s, now, fleet(9, 0))
		if second < 40 {
			require.Equal(t, []any{9, ReasonForecast}, []any{d.Want, d.Why.Reason}, "%d s", second)
		} else {
			require.Equal(t, 1, d.Want, "%d s", second)
		}
	}
}

// TestStretchesShorterThanALoadCountForLess: what is over before a replica is ready starts none for itself.
func TestStretchesShorterThanALoadCountForLess(t *testing.T) {
	for length, want := range map[int]int{2: 1, 20: 8, 40: 16, 60: 16} { // the order does not matter
		s := waterOf(t, HighWater{Load: 40 * time.Second, Use: 625})
		most := 0
		for second := 0; second <= 200; second += 2 {
			n := int64(0)
			if second > 80 && second <= 80+length {
				n = 200 // a load of ten
			}
			now := at(time.Duration(second) * time.Second)
			observe(t, s, now, Sample{Requests: n})
			most = max(most, decide(t, s, now, fleet(1, 0)).Want)
		}
		require.Equal(t, want, most, "%d s", length)
	}
}

// hugeCapacity takes for ever.
type hugeCapacity struct{}

func (hugeCapacity) Busy(Traffic) time.Duration { return math.MaxInt64 }

func TestHugeWorkDoesNotWrap(t *testing.T) {
	s := newScaler(t, Config{Rule: HighWater{Load: 24 * time.Hour, Hold: 96 * time.Hour, Wait: time.Nanosecond}, Demand: Demand{Capacity: hugeCapacity{}}})
	for i := range 5000 {
		now := at(time.Duration(i) * time.Minute)
		observe(t, s, now, Sample{Requests: maxCount, Ongoing: maxCount, Queued: maxCount})
		d := decide(t, s, now, fleet(1, 0))
		require.GreaterOrEqual(t, d.Want, 1)
		require.GreaterOrEqual(t, d.Why.Load, int64(0))
		if i > 10 {
			require.Equal(t, MaxReplicas, d.Want)
		}
	}
	again, err := Restore(s.cfg0(), bytes.NewReader(snapshottest.Save(t, s.Snapshot)))
	require.NoError(t, err)
	require.Equal(t, s.water, again.water)
}

// cfg0 is the configuration that s was made of, with a delay that rules bring left out.
func (s *Scaler) cfg0() Config {
	c := s.cfg
	c.Steady.Delayed.Up, c.Steady.Delayed.Down = 0, 0
	return c
}

func TestMarksThatCannotBeAreRefused(t *testing.T) {
	cfg := everyRule()["high-water"]
	s := newScaler(t, cfg)
	for i := range 40 {
		observe(t, s, at(time.Duration(i)*5*time.Second), Sample{Source: "a", Requests: 10, Ongoing: 3})
		decide(t, s, at(time.Duration(i)*5*time.Second), fleet(3, 0))
	}
	image := snapshottest.Save(t, s.Snapshot)
	restore := func(r io.Reader) error { _, err := Restore(cfg, r); return err }
	snapshottest.RefusesForgeries(t, format, version, image, restore, [][2]string{
		{`"kind":"autoscale.HighWater"`, `"kind":"autoscale.Predictive"`},
		{`"use":630`, `"use":631`},
		{`"work":{"width":`, `"work":{"width":-`},
		{`"tides":[{`, `"tides":[{"piece":1,"swell":-1,"surge":0},{`},
		{`"tides":[{`, `"tides":[{"piece":9000000000000000000,"swell":1,"surge":0},{`},
		{`"swell":`, `"swell":-`},
		{`"surge":`, `"surge":-`},
		{`"water":{`, `"lost":{`},
	})
	other := cfg
	other.Rule = HighWater{Load: 30 * time.Second, Wait: 3 * time.Second}
	_, err := Restore(other, bytes.NewReader(image))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// TestWhatWaitsIsCaughtUpWith: ten replica-seconds a second for 20 s on one replica leave some 180 to do, over 80 s.
func TestWhatWaitsIsCaughtUpWith(t *testing.T) {
	s := waterOf(t, HighWater{Load: 40 * time.Second, Use: 1000})
	var d Decision
	for second := 0; second <= 22; second += 2 {
		now := at(time.Duration(second) * time.Second)
		n := int64(0)
		if second > 2 {
			n = 200
		}
		observe(t, s, now, Sample{Requests: n, Ongoing: 5000})
		d = decide(t, s, now, fleet(1, 0))
	}
	// 20 s × 10 came; 0.9 a second were done of it for 20 s, as of the first decision after some had come.
	require.Equal(t, int64(math.Ceil((200-18)/80.*1000)), d.Why.Backlog)
	require.Equal(t, int64(5000), d.Why.Bound, "200 over 40 s")
	require.Equal(t, []any{8, ReasonBacklog}, []any{d.Want, d.Why.Reason})

	now := at(24 * time.Second)
	observe(t, s, now, Sample{Ongoing: 50}) // so there are but five replica-seconds of work
	d = decide(t, s, now, fleet(1, 0))
	require.Equal(t, int64(math.Ceil(5/80.*1000)), d.Why.Backlog)
	now = at(26 * time.Second)
	observe(t, s, now, Sample{Ongoing: 50})
	d = decide(t, s, now, fleet(8, 0))
	require.LessOrEqual(t, d.Why.Backlog, int64(63))
	now = at(28 * time.Second)
	observe(t, s, now, Sample{Ongoing: 50}) // eight had two seconds
	require.Zero(t, decide(t, s, now, fleet(8, 0)).Why.Backlog, "in service, but not waiting")
}

// TestAskingMoreOftenChangesNothing: decisions between samples neither serve nor forget.
func TestAskingMoreOftenChangesNothing(t *testing.T) {
	a, b := waterOf(t, HighWater{Load: 40 * time.Second}), waterOf(t, HighWater{Load: 40 * time.Second})
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 200 {
		now := time.Duration(i) * 5 * time.Second
		sample := Sample{Requests: r.Int64N(400), Ongoing: r.Int64N(100)}
		observe(t, a, at(now), sample)
		observe(t, b, at(now), sample)
		f := fleet(1+r.IntN(5), 0)
		da, db := decide(t, a, at(now), f), decide(t, b, at(now), f)
		require.Equal(t, da.Why, db.Why)
		for k := range 4 {
			decide(t, b, at(now+time.Duration(k+1)*time.Second), f)
		}
	}
}
