package autoscale

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
)

// TestComplaint1StartingReplicasCount (vllm-project/aibrix#2670: 2, 4, 8, 16): what loads is not asked for again, however
// often a decision is made meanwhile.
func TestComplaint1StartingReplicasCount(t *testing.T) {
	for _, name := range []string{"headroom", "predictive"} { // the others go by what waits, which grows
		w := newWorld(t, everyRule()[name], 5*time.Minute, 2)
		for range 100 {
			w.step(20)
		}
		most := 0
		for range 290 { // nothing that is started now is ready before this is over
			w.step(40)
			most = max(most, w.count())
		}
		// What comes is 4 replicas' work; what 290 s leave behind is 5800 requests, and is caught up with in 30 s by 20.
		require.LessOrEqual(t, most, map[string]int{"headroom": 6, "predictive": 2 * (4 + 20)}[name], name)
	}
	// The same numbers again and again, while the first answer loads: no more is asked for.
	s := newScaler(t, Config{Rule: KPA{Target: 1000}})
	observe(t, s, t0, Sample{Ongoing: 4})
	observe(t, s, at(time.Minute), Sample{Ongoing: 4})
	d := decide(t, s, at(time.Minute), fleet(2, 0))
	require.Equal(t, 2, d.Add)
	for i := range 30 {
		now := at(time.Minute + time.Duration(i+1)*time.Second)
		observe(t, s, now, Sample{Ongoing: 4})
		require.Zero(t, decide(t, s, now, fleet(2, 2)).Add)
	}
}

// TestComplaint2ScaleDownAfterABurstIsBounded (vllm-project/aibrix#593): KPA panics for no longer than both windows after
// the burst, then halves at most at a time; Predictive is down once Hold, Load and the horizon's slots are over.
func TestComplaint2ScaleDownAfterABurstIsBounded(t *testing.T) {
	w := newWorld(t, Config{Rule: KPA{Target: 700}}, 30*time.Second, 2)
	for range 300 {
		w.step(14)
	}
	for range 20 {
		w.step(300)
	}
	w.wait = 0 // the burst is over, and with it what it left
	burst := w.now
	require.Positive(t, w.reasons[ReasonPanic])
	for w.step(14).Why.Reason == ReasonPanic {
		require.LessOrEqual(t, w.now-burst, (60+6+1)*time.Second)
	}
	for range 60 {
		w.step(14)
	}
	require.LessOrEqual(t, w.count(), 4)

	w = newWorld(t, everyRule()["predictive"], 30*time.Second, 2)
	for range 3600 {
		w.step(14)
	}
	before := w.count()
	for range 20 {
		w.step(300)
	}
	w.wait = 0
	require.Greater(t, w.count(), 10)
	for range 600 {
		w.step(14)
	}
	require.LessOrEqual(t, w.count(), before+1)
}

// TestComplaint3DelaysShorterThanTheLookBackAreRefused (ray-project/ray#26455).
func TestComplaint3DelaysShorterThanTheLookBackAreRefused(t *testing.T) {
	for _, q := range []QueueLength{{Up: 10 * time.Second}, {Down: 29 * time.Second}, {LookBack: time.Minute}} {
		_, err := New(Config{Rule: q})
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%+v", q)
	}
	_, err := New(Config{Rule: QueueLength{}, Steady: policy.Steady{Delayed: policy.Delayed{Up: time.Second}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid, "no way around it either")
	require.ErrorIs(t, Predictive{Load: time.Minute, Hold: time.Second}.Validate(), lockstep.ErrInvalid, "given back sooner than it can be had again")
	_, err = New(Config{Rule: QueueLength{Up: 30 * time.Second, Down: 30 * time.Second}})
	require.NoError(t, err)
}

// TestComplaint3NoThrashAsReplicasAppear (ray-project/ray#18925): under a constant load, arriving with the usual scatter,
// Predictive and QueueLength hardly turn.
func TestComplaint3NoThrashAsReplicasAppear(t *testing.T) {
	for _, name := range []string{"queue", "predictive"} {
		r := rand.New(rand.NewPCG(3, 3))
		w := newWorld(t, everyRule()[name], 30*time.Second, 1)
		for range 3600 {
			w.step(int(poisson(r, 55)))
		}
		w.changes = 0
		for range 3 * 3600 {
			w.step(int(poisson(r, 55)))
		}
		require.LessOrEqual(t, w.changes, 60, "%s: turns in three hours", name)
	}
}

// TestComplaint4ARateAtTheEdgeDoesNotFlap (knative/serving#12765): a rate that wants just about one.
func TestComplaint4ARateAtTheEdgeDoesNotFlap(t *testing.T) {
	flaps := func(margin int) int {
		s := newScaler(t, Config{Rule: KPA{Target: 1000, Stable: 10 * time.Second, Burst: 5 * time.Second}, Margin: margin})
		n, changes := 1, 0
		for i := range 3600 {
			now := at(time.Duration(i) * time.Second)
			ongoing := int64(100)
			if i/40%2 == 0 {
				ongoing = 101 // a hundredth above and below what 100 take
			}
			observe(t, s, now, Sample{Ongoing: ongoing})
			if d := decide(t, s, now, fleet(max(n, 1), 0)); d.Want != n && i > 100 {
				n = d.Want
				changes++
			} else {
				n = d.Want
			}
		}
		return changes
	}
	require.Greater(t, flaps(NoMargin), 50)
	require.LessOrEqual(t, flaps(0), 1)
}

// TestComplaint5AnOlderControllerIsRefused (kubeai-project/kubeai#67): two controllers, each with its own view.
func TestComplaint5AnOlderControllerIsRefused(t *testing.T) {
	mk := func(term uint64) *Scaler { return newScaler(t, Config{Rule: KPA{Target: 1000}, Term: term}) }
	old, now := mk(3), mk(4)
	var fence Fence
	observe(t, old, t0, Sample{Ongoing: 1})
	first := decide(t, old, t0, Fleet{})
	require.NoError(t, fence.Admit(first))
	require.ErrorIs(t, fence.Admit(first), lockstep.ErrStale, "carried out once")
	observe(t, now, t0, Sample{})
	require.NoError(t, fence.Admit(decide(t, now, t0, fleet(1, 0))))
	for i := range 10 {
		late := decide(t, old, at(time.Duration(i)*time.Second), Fleet{})
		require.ErrorIs(t, fence.Admit(late), lockstep.ErrStale)
	}
	one, two := decide(t, now, at(time.Second), Fleet{}), decide(t, now, at(2*time.Second), Fleet{})
	require.NoError(t, fence.Admit(two))
	require.ErrorIs(t, fence.Admit(one), lockstep.ErrStale, "overtaken")
	require.Equal(t, Fence{Term: 4, Seq: two.Seq}, fence)
	require.ErrorIs(t, old.Raise(3), lockstep.ErrStale)
	require.NoError(t, old.Raise(5))
	again := decide(t, old, at(time.Minute), Fleet{})
	require.Equal(t, uint64(1), again.Seq)
	require.NoError(t, fence.Admit(again))
}

// TestComplaint6StartingReplicasGoBeforeThoseThatServe (ray-project/ray#43034, #12929).
func TestComplaint6StartingReplicasGoBeforeThoseThatServe(t *testing.T) {
	f := Fleet{
		Ready: []Replica{
			{ID: "busy", Started: t0, Ongoing: 9},
			{ID: "old", Started: t0, Ongoing: 1},
			{ID: "new", Started: at(time.Hour), Ongoing: 1},
			{ID: "new-2", Started: at(time.Hour), Ongoing: 1},
			{ID: "idle", Started: t0},
		},
		Starting: []Replica{{ID: "s1", Started: t0}, {ID: "s2", Started: at(time.Minute)}},
		Draining: []Replica{{ID: "gone"}},
	}
	require.Equal(t, []ReplicaID{"s2", "s1", "idle", "new-2", "new", "old", "busy"}, victims(f, 7))
	require.Equal(t, []ReplicaID{"s2", "s1"}, victims(f, 2))
	k := newScaler(t, Config{Rule: KPA{Target: 1000, Down: 1_000_000}})
	observe(t, k, t0, Sample{Ongoing: 5})
	observe(t, k, at(time.Minute), Sample{Ongoing: 5})
	require.Equal(t, []ReplicaID{"s2"}, decide(t, k, at(time.Minute), f).Remove, "5 of 7, and a margin of .7")
}

// TestComplaint7CountsExpire (ray-project/ray#61551): what a source that is gone told last pins nothing.
func TestComplaint7CountsExpire(t *testing.T) {
	s := newScaler(t, Config{Rule: KPA{Target: 1000, Stable: 10 * time.Second}, Expiry: 30 * time.Second, Grace: time.Second})
	observe(t, s, t0, Sample{Source: "router-1", Ongoing: 20})
	n := 20
	for i := range 300 {
		now := at(time.Duration(i) * time.Second)
		observe(t, s, now, Sample{Source: "router-2"})
		d := decide(t, s, now, fleet(n, 0))
		n = d.Want
		if i < 20 && i > 0 {
			require.Equal(t, 20, n, "at %d s", i)
		}
	}
	require.Zero(t, n)
	// A source that is silent does not stretch the mean either: it ends when it expired, not when somebody looks.
	s = newScaler(t, Config{Rule: KPA{Target: 1000, Stable: time.Minute, Burst: time.Minute}, Expiry: 30 * time.Second})
	observe(t, s, t0, Sample{Source: "a", Ongoing: 10})
	observe(t, s, at(time.Minute), Sample{Source: "b"})
	require.Equal(t, int64(5000), decide(t, s, at(time.Minute), fleet(1, 0)).Why.Load, "10 for half of the window")
}

func TestZeroAndBack(t *testing.T) {
	for _, name := range ruleNames {
		w := newWorld(t, everyRule()[name], 10*time.Second, 0)
		d := w.step(1)
		require.Positive(t, d.Add, "%s: the first request starts one at once", name)
		for range 30 {
			w.step(1)
		}
		last := w.now
		for w.count() > 0 {
			w.step(0)
			require.Less(t, w.now-last, 10*time.Minute, name)
		}
		require.GreaterOrEqual(t, w.now-last, 30*time.Second, "%s: the grace", name)
		most := 4 * time.Minute
		if name == "high-water" {
			most = 15*30*time.Second + time.Minute // its mark stands
		}
		require.LessOrEqual(t, w.now-last, most, "%s", name)
	}
}

func TestNothingIsLoweredWithoutSamples(t *testing.T) {
	for _, name := range ruleNames {
		s := newScaler(t, everyRule()[name])
		observe(t, s, t0, Sample{Requests: 100, Ongoing: 10})
		for i := range 100 {
			d := decide(t, s, at(2*time.Minute+time.Duration(i)*time.Second), fleet(7, 1))
			require.Equal(t, 8, d.Want, name)
			require.Equal(t, ReasonNoSamples, d.Why.Reason)
		}
	}
}
