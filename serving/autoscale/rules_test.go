package autoscale

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// fleet returns one with so many ready and starting replicas.
func fleet(ready, starting int) (f Fleet) {
	for i := range ready {
		f.Ready = append(f.Ready, Replica{ID: ReplicaID(fmt.Sprintf("r%05d", i)), Started: t0})
	}
	for i := range starting {
		f.Starting = append(f.Starting, Replica{ID: ReplicaID(fmt.Sprintf("s%05d", i)), Started: t0})
	}
	return f
}

func newScaler(t testing.TB, cfg Config) *Scaler {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

func observe(t testing.TB, s *Scaler, now time.Time, sample Sample) {
	t.Helper()
	require.NoError(t, s.Observe(now, sample))
}

func decide(t testing.TB, s *Scaler, now time.Time, f Fleet) Decision {
	t.Helper()
	d, err := s.Decide(now, f)
	require.NoError(t, err)
	return d
}

// tenMS is a replica that serves ten requests a second one by one.
var tenMS = Batched{Latency: serving.Linear{Each: 100 * time.Millisecond}, Objective: 250 * time.Millisecond}

// everyRule is each rule, sized for replicas of ten requests a second that have one at once.
func everyRule() map[string]Config {
	d := Demand{Capacity: tenMS, Slot: 5 * time.Second}
	return map[string]Config{
		"kpa":        {Rule: KPA{Target: 700}},
		"queue":      {Rule: QueueLength{Target: 800, Down: time.Minute}},
		"headroom":   {Rule: HeadRoom{PerReplica: 10_000, Growth: 5_000, Load: 30 * time.Second}},
		"predictive": {Rule: Predictive{Load: 30 * time.Second}, Demand: d},
		"high-water": {Rule: HighWater{Load: 30 * time.Second, Wait: 2 * time.Second}, Demand: d},
	}
}

var ruleNames = []string{"kpa", "queue", "headroom", "predictive", "high-water"}

// TestKPAOfKnative is the arithmetic of Knative's tests, by hand.
func TestKPAOfKnative(t *testing.T) {
	k := KPA{Target: 7000}
	calm, hasty, over := k.Scale(50_000, 200_000, 5)
	require.Equal(t, []any{8, 29, true}, []any{calm, hasty, over}, "50/7 and 200/7 up; 29/5 is 2 or more")
	calm, _, over = k.Scale(3000, 3000, 8)
	require.Equal(t, []any{4, false}, []any{calm, over}, "not below half of what is ready")
	calm, _, _ = KPA{Target: 1000, Up: 1100}.Scale(3000, 3000, 2)
	require.Equal(t, 3, calm, "not above 1.1 times what is ready, rounded up")
	calm, hasty, over = k.Scale(0, 0, 0)
	require.Equal(t, []any{0, 0, false}, []any{calm, hasty, over})
	calm, _, _ = k.Scale(-5, -5, -5)
	require.Zero(t, calm)
	_, _, over = KPA{Target: 1000}.Scale(1000, 10_000, 5)
	require.True(t, over, "10/5 is just twice")
	_, _, over = KPA{Target: 1000}.Scale(1000, 9000, 5)
	require.False(t, over)
}

func TestQueueLengthOfRayServe(t *testing.T) {
	require.Equal(t, 13, QueueLength{}.Scale(25_000, 4), "25/2")
	require.Equal(t, 3, QueueLength{DownFactor: 500}.Scale(3000, 4), "half of the way from 4 to 1.5")
	require.Equal(t, 4, QueueLength{DownFactor: 100}.Scale(7000, 4), "3.5 is 4")
	require.Equal(t, 3, QueueLength{DownFactor: 100}.Scale(5000, 4), "a tenth of the way is stuck at 4, though 3 would do: one less")
	require.Equal(t, 8, QueueLength{UpFactor: 500}.Scale(24_000, 4), "half of the way from 4 to 12")
	require.Equal(t, 3, QueueLength{}.Scale(5000, 0), "from none straight on")
	require.Equal(t, 0, QueueLength{}.Scale(-1, 1))
}

// TestQueueLengthAgreesWithFractions holds the integers against the rule in floats.
func TestQueueLengthAgreesWithFractions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		q := QueueLength{Target: 1000 * int64(1+r.IntN(8)), UpFactor: 125 * int64(1+r.IntN(16)), DownFactor: 125 * int64(1+r.IntN(8))}
		total, n := int64(r.IntN(64))*250, 1+r.IntN(16)
		ratio := float64(total) / (float64(n) * float64(q.Target)) // exact enough: all are small multiples of powers of two and of few odd factors
		factor := q.UpFactor
		if ratio < 1 {
			factor = q.DownFactor
		}
		smooth := float64(n) * (1 + (ratio-1)*float64(factor)/1000)
		want := ceil(smooth)
		if ratio < 1 && ceil(float64(n)*ratio) < n && want == n {
			want--
		}
		require.Equal(t, want, q.Scale(total, n), "%+v total %d n %d", q, total, n)
	}
}

func ceil(x float64) int {
	n := int(x)
	if float64(n) < x-1e-9 {
		n++
	}
	return n
}

func TestHeadRoomOfINFaaS(t *testing.T) {
	h := HeadRoom{PerReplica: 400_000}
	require.Equal(t, 1, h.Delta(1_000_000, 2), "1000 a second on 2 × 400")
	require.Equal(t, -1, h.Delta(300_000, 2), "one carries 300")
	require.Equal(t, 0, h.Delta(500_000, 2))
	h = HeadRoom{PerReplica: 400_000, Growth: 50_000, Load: 10 * time.Second}
	require.Equal(t, 1, h.Delta(500_000, 2), "half of 800 is to be free")
	require.Equal(t, 2, h.Delta(1_000_000, 2), "(1000 - 800 + 400)/400 up")
	require.Equal(t, 1, h.Delta(1, 0))
	require.Equal(t, 0, h.Delta(0, 0))
}

// TestTokensByHand: step 10 ms + 1 ms a sequence + .1 ms a token of a prompt, 60 ms a token, prompts of 1000, outputs of
// 100: a sequence costs 1 + .1 × 1000/100 = 2 ms of each step, so (60-10)/2 = 25 fit, and a request keeps a replica busy
// for 100 × (10/25 + 1) + 1000 × .1 = 240 ms.
func TestTokensByHand(t *testing.T) {
	k := Tokens{Step: 10 * time.Millisecond, Sequence: time.Millisecond, PromptToken: 100 * time.Microsecond, PerToken: 60 * time.Millisecond}
	require.NoError(t, k.Validate())
	one := Traffic{Requests: 1, Prompt: 1000, Output: 100}
	require.Equal(t, 25, k.Batch(one))
	require.Equal(t, 240*time.Millisecond, k.Busy(one))
	require.Equal(t, 2400*time.Millisecond, k.Busy(Traffic{Requests: 10, Prompt: 10_000, Output: 1000}))
	k.Cache = 10_500 // 1050 tokens a sequence: 10 fit
	require.Equal(t, 10, k.Batch(one))
	require.Equal(t, 300*time.Millisecond, k.Busy(one))
	require.Equal(t, k.Busy(Traffic{Requests: 1, Prompt: 50, Output: 128}), k.Busy(Traffic{Requests: 1, Prompt: 50}), "as long as nothing is known")
	require.Zero(t, k.Busy(Traffic{}))
}

func TestBatchedGoesByTheSaturatedBatch(t *testing.T) {
	b := Batched{Latency: serving.Linear{Base: 5 * time.Millisecond, Each: 1500 * time.Microsecond}, Objective: 50 * time.Millisecond}
	n, took := b.Batch()
	require.Equal(t, 13, n, "2 × 24.5 ≤ 50")
	require.Equal(t, 24500*time.Microsecond, took)
	require.Equal(t, 10*took, b.Busy(Traffic{Requests: 130}))
}

func TestCapacityGrowsWithTraffic(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	k := Tokens{Step: 10 * time.Millisecond, Sequence: 200 * time.Microsecond, PromptToken: 50 * time.Microsecond, PerToken: 50 * time.Millisecond, Cache: 100_000}
	for range 5000 {
		tr := Traffic{Requests: int64(r.IntN(100)), Prompt: int64(r.IntN(100_000)), Output: 1 + int64(r.IntN(10_000))}
		more := tr
		more.Prompt += int64(r.IntN(1000))
		require.LessOrEqual(t, k.Busy(tr), k.Busy(more)+time.Millisecond, "%+v", tr)
		require.GreaterOrEqual(t, k.Busy(tr), time.Duration(0))
	}
	huge := Traffic{Requests: maxCount, Prompt: maxTokens, Output: maxTokens}
	require.Positive(t, Tokens{PerToken: time.Hour, Sequence: time.Hour, Step: 0}.Busy(huge))
}

// world is a service of replicas that serve ten requests a second each, in steps of a second; what they do not serve waits.
type world struct {
	t        testing.TB
	s        *Scaler
	load     time.Duration
	now      time.Duration
	ready    []Replica
	starting []Replica
	wait     float64
	next     int
	// what came of it
	paid    int // replica-seconds
	late    int // seconds in which something waited
	changes int // of direction
	last    int
	reasons map[lockstep.Reason]int
}

func newWorld(t testing.TB, cfg Config, load time.Duration, ready int) *world {
	w := &world{t: t, s: newScaler(t, cfg), load: load, reasons: map[lockstep.Reason]int{}}
	for range ready {
		w.start(&w.ready)
	}
	return w
}

func (w *world) start(to *[]Replica) {
	*to = append(*to, Replica{ID: ReplicaID(fmt.Sprintf("r%05d", w.next)), Started: at(w.now)})
	w.next++
}

// step lets a second pass in which so many requests arrive.
func (w *world) step(arrive int) Decision {
	for len(w.starting) > 0 && !w.starting[0].Started.Add(w.load).After(at(w.now)) {
		w.ready, w.starting = append(w.ready, w.starting[0]), w.starting[1:]
	}
	serve := float64(10 * len(w.ready))
	work := w.wait + float64(arrive)
	w.wait = max(work-serve, 0)
	busy := min(work, serve)
	if w.wait > 0 {
		w.late++
	}
	w.paid += len(w.ready) + len(w.starting)
	w.now += time.Second
	observe(w.t, w.s, at(w.now), Sample{Requests: int64(arrive), Finished: int64(busy), Ongoing: int64(busy/10 + .999), Queued: int64(w.wait)})
	d := decide(w.t, w.s, at(w.now), Fleet{Ready: w.ready, Starting: w.starting})
	w.reasons[d.Why.Reason]++
	for range d.Add {
		w.start(&w.starting)
	}
	gone := map[ReplicaID]bool{}
	for _, id := range d.Remove {
		gone[id] = true
	}
	keep := func(in []Replica) (out []Replica) {
		for _, r := range in {
			if !gone[r.ID] {
				out = append(out, r)
			}
		}
		return out
	}
	w.ready, w.starting = keep(w.ready), keep(w.starting)
	dir := 0
	if d.Add > 0 {
		dir = 1
	} else if len(d.Remove) > 0 {
		dir = -1
	}
	if dir != 0 && dir != w.last {
		w.changes++
		w.last = dir
	}
	return d
}

func (w *world) count() int { return len(w.ready) + len(w.starting) }

// TestConstantLoadNeverOscillates: with a constant load every rule settles, and then changes nothing.
func TestConstantLoadNeverOscillates(t *testing.T) {
	rates, still := []int{1, 7, 10, 11, 35, 70, 140}, 1800
	if testing.Short() {
		rates, still = []int{7, 10, 35}, 900
	}
	for _, name := range ruleNames {
		for _, rate := range rates {
			w := newWorld(t, everyRule()[name], 30*time.Second, 3)
			for range 1800 {
				w.step(rate)
			}
			n := w.count()
			for range still {
				d := w.step(rate)
				require.Equal(t, n, d.Want, "%s rate %d at %v: %+v", name, rate, w.now, d.Why)
			}
			require.GreaterOrEqual(t, n*10, rate, "%s rate %d", name, rate)
			require.LessOrEqual(t, n, max(rate/4, 3), "%s rate %d", name, rate)
		}
	}
}

// TestMoreLoadNeverWantsFewer: of two services that differ in how much was asked of them, the busier wants as many.
func TestMoreLoadNeverWantsFewer(t *testing.T) {
	for _, name := range ruleNames {
		for seed := range 20 {
			r := rand.New(rand.NewPCG(uint64(seed), 3))
			a, b := newScaler(t, everyRule()[name]), newScaler(t, everyRule()[name])
			f := fleet(r.IntN(20), r.IntN(5))
			for i := range 200 {
				now := at(time.Duration(i) * time.Second)
				n := int64(r.IntN(100))
				more := n + n/2 + 5
				observe(t, a, now, Sample{Requests: n, Ongoing: n / 10})
				observe(t, b, now, Sample{Requests: more, Ongoing: more / 10})
			}
			now := at(200 * time.Second)
			da, db := decide(t, a, now, f), decide(t, b, now, f)
			require.LessOrEqual(t, da.Want, db.Want, "%s seed %d", name, seed)
		}
	}
}

// TestDecisionsAreBoundedAndAddUp under random samples and fleets.
func TestDecisionsAreBoundedAndAddUp(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 500
	}
	for _, name := range ruleNames {
		cfg := everyRule()[name]
		cfg.Steady.Bounded = policy.Bounded{Min: 2, Max: 40}
		s := newScaler(t, cfg)
		r := rand.New(rand.NewPCG(5, 5))
		now := time.Duration(0)
		for range rounds {
			now += time.Duration(r.IntN(20_000)) * time.Millisecond
			if r.IntN(3) > 0 {
				observe(t, s, at(now), Sample{Source: fmt.Sprint(r.IntN(3)), Requests: int64(r.IntN(1000)), Ongoing: int64(r.IntN(100)), Queued: int64(r.IntN(50))})
			}
			f := fleet(r.IntN(50), r.IntN(10))
			d := decide(t, s, at(now), f)
			have := len(f.Ready) + len(f.Starting)
			require.GreaterOrEqual(t, d.Want, 2)
			require.LessOrEqual(t, d.Want, 40)
			require.Equal(t, d.Want, have+d.Add-len(d.Remove), "%s", name)
			require.True(t, d.Add == 0 || d.Remove == nil)
			seen := map[ReplicaID]bool{}
			for _, id := range d.Remove {
				require.False(t, seen[id])
				seen[id] = true
			}
			wake, ok := s.NextWake(at(now))
			if ok {
				require.True(t, wake.After(at(now)))
			}
		}
	}
}
