package autoscale

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
	"github.com/lockstep-gpu/lockstep/policy"
)

// TestNoRuleIsBothCheaperAndBetterThanPredictive runs every rule on a load that rises and falls within half an hour,
// with bursts, and replicas that take a minute to load.
func TestNoRuleIsBothCheaperAndBetterThanPredictive(t *testing.T) {
	hours := 4
	if testing.Short() {
		hours = 2
	}
	type result struct{ paid, late int }
	run := func(cfg Config) result {
		r := rand.New(rand.NewPCG(10, 10))
		w := newWorld(t, cfg, time.Minute, 12)
		burst := 0.0
		for i := range hours * 3600 {
			if burst *= .99; r.Float64() < .0005 {
				burst = 60
			}
			w.step(int(poisson(r, 100+80*math.Sin(float64(i)*2*math.Pi/1800)+burst)))
			if i == 1800 { // the first half hour is there to learn from, for all
				w.paid, w.late = 0, 0
			}
		}
		return result{w.paid, w.late}
	}
	others := map[string]result{}
	for _, name := range ruleNames[:3] {
		cfg := everyRule()[name]
		if name == "headroom" {
			cfg.Rule = HeadRoom{PerReplica: 10_000, Growth: 5000, Load: time.Minute}
		}
		others[name] = run(cfg)
		t.Logf("%-10s %7d replica-seconds, something waited in %5d s", name, others[name].paid, others[name].late)
	}
	d := Demand{Capacity: tenMS, Slot: 15 * time.Second, Season: 120}
	var all []result
	for _, q := range []int{500, 800, 950} {
		got := run(Config{Rule: Predictive{Load: time.Minute, Quantile: q}, Demand: d})
		t.Logf("quantile %d %7d replica-seconds, something waited in %5d s", q, got.paid, got.late)
		for name, o := range others { // the order does not matter
			require.False(t, o.paid <= got.paid && o.late <= got.late, "%s beats quantile %d", name, q)
		}
		if len(all) > 0 {
			last := all[len(all)-1]
			require.Greater(t, got.paid, last.paid, "the knob trades cost ...")
			require.LessOrEqual(t, got.late, last.late, "... for attainment")
		}
		all = append(all, got)
	}
}

// TestLateSamplesAreSpread: samples less often than slots end are taken to be of all of them, unless they come so late
// that nobody knows.
func TestLateSamplesAreSpread(t *testing.T) {
	cfg := everyRule()["predictive"]
	cfg.Demand.Slot = 10 * time.Second
	often, seldom := newScaler(t, cfg), newScaler(t, cfg)
	for i := range 60 {
		now := at(time.Duration(i) * 10 * time.Second)
		observe(t, often, now, Sample{Requests: 40})
		if i%4 == 0 {
			observe(t, seldom, now, Sample{Requests: 160})
		}
	}
	a, _ := often.forecast.Point(0)
	b, _ := seldom.forecast.Point(0)
	require.Equal(t, int64(400), a)
	require.Equal(t, a, b)
	recent := len(seldom.forecast.s.Recent)
	observe(t, seldom, at(20*time.Minute), Sample{Requests: 9000})
	require.Equal(t, unknown, seldom.forecast.s.Recent[recent-1], "an hour's backlog is no burst")
}

// TestTheFirstSlotIsNotCounted: it may have begun before anybody looked.
func TestTheFirstSlotIsNotCounted(t *testing.T) {
	cfg := everyRule()["predictive"]
	cfg.Demand.Slot = 10 * time.Second
	s := newScaler(t, cfg)
	observe(t, s, at(9*time.Second), Sample{Requests: 4})
	observe(t, s, at(10*time.Second), Sample{Requests: 4})
	require.Equal(t, []int64{unknown}, s.forecast.s.Recent)
}

// TestPanicEndsWithinBothWindows for many windows and bursts.
func TestPanicEndsWithinBothWindows(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	for range 40 {
		k := KPA{Target: 1000, Stable: time.Duration(10+r.IntN(60)) * time.Second}
		k.Burst = k.Stable / time.Duration(2+r.IntN(9))
		s := newScaler(t, Config{Rule: k, Margin: NoMargin})
		now, n := time.Duration(0), 2
		var burst time.Duration
		for range 600 {
			ongoing := int64(2)
			if now > 100*time.Second && now < time.Duration(101+r.IntN(40))*time.Second {
				ongoing, burst = int64(40+r.IntN(40)), now
			}
			observe(t, s, at(now), Sample{Ongoing: ongoing})
			d := decide(t, s, at(now), fleet(n, 0))
			if d.Why.Reason == ReasonPanic {
				require.GreaterOrEqual(t, d.Want, min(n, d.Why.Rule), "nothing is lowered in a panic")
				require.LessOrEqual(t, now-burst, k.Stable+k.Burst+2*time.Second)
			}
			n = max(d.Want, 1)
			now += time.Second
		}
		require.Equal(t, 2, n)
	}
}

func TestSizesStayLegal(t *testing.T) {
	for _, name := range ruleNames {
		cfg := everyRule()[name]
		cfg.Steady.Bounded = policy.Bounded{PowersOfTwo: true, RoundUp: true, Max: 32}
		w := newWorld(t, cfg, 10*time.Second, 0)
		r := rand.New(rand.NewPCG(2, 3))
		for i := range 1200 {
			n := r.IntN(100)
			if i/300%2 == 1 {
				n = 0
			}
			d := w.step(n)
			require.True(t, d.Want == 0 || d.Want <= 32 && d.Want&(d.Want-1) == 0, "%s: %d", name, d.Want)
		}
	}
}

// FuzzRestore holds that no bytes make a Scaler that panics.
func FuzzRestore(f *testing.F) {
	rules := []string{"predictive", "high-water"}
	config := func(rule uint8) Config {
		cfg := everyRule()[rules[int(rule)%len(rules)]]
		cfg.Demand.Errors, cfg.Demand.Season = 16, 3
		return cfg
	}
	for rule := range uint8(len(rules)) {
		s := newScaler(f, config(rule))
		f.Add(rule, snapshottest.Body(f, snapshottest.Save(f, s.Snapshot)))
		for i := range 30 {
			observe(f, s, at(time.Duration(i)*3*time.Second), Sample{Source: fmt.Sprint(i % 2), Requests: int64(i), Ongoing: 3, Queued: 1})
			decide(f, s, at(time.Duration(i)*3*time.Second), fleet(i%4, 0))
		}
		f.Add(rule, snapshottest.Body(f, snapshottest.Save(f, s.Snapshot)))
	}
	f.Fuzz(func(t *testing.T, rule uint8, body []byte) {
		s, err := Restore(config(rule), bytes.NewReader(snapshottest.Frame(t, format, version, body)))
		if err != nil {
			return
		}
		now := s.now
		for range 20 {
			now += int64(20 * time.Second)
			if now < 0 {
				return
			}
			if s.Observe(time.Unix(0, now), Sample{Requests: 100, Ongoing: 9}) == nil {
				_, err := s.Decide(time.Unix(0, now), fleet(3, 1))
				require.NoError(t, err)
			}
		}
	})
}
