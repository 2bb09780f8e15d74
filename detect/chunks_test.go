package detect

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/change"
)

func chunksFor(t testing.TB, g *rig) *ChunkTest {
	t.Helper()
	c, err := NewChunks(ChunkConfig{Replicas: len(g.costs), Stages: g.stages})
	require.NoError(t, err)
	return c
}

func feedChunks(t testing.TB, g *rig, c *ChunkTest, iterations int) (at []int, last change.Decision) {
	t.Helper()
	for i := range iterations {
		g.next()
		d, err := c.Observe(g.observed, g.expected)
		require.NoError(t, err)
		if d.Alarm {
			at = append(at, i)
		}
		last = d
	}
	return at, last
}

func TestChunkTimesNameASlowStage(t *testing.T) {
	for seed := range uint64(8) {
		for _, replicas := range []int{1, 2, 5} {
			g := newRig(t, seed, replicas)
			c := chunksFor(t, g)
			at, d := feedChunks(t, g, c, 150)
			require.Empty(t, at)
			require.Less(t, d.MinDetectable, 1.06)
			g.factor = slowAt(replicas-1, 1, 1.1)
			at, d = feedChunks(t, g, c, 20)
			require.Len(t, at, 1)
			require.Less(t, at[0], 6)
			require.InDelta(t, 20, d.Since, 3)
			suspects := c.AppendSuspects(nil, 4)
			require.Len(t, suspects, 1)
			require.Equal(t, replicas-1, suspects[0].Replica)
			require.Equal(t, 1, suspects[0].Stage)
			require.InDelta(t, 1.1, suspects[0].Factor, 0.05)
			require.GreaterOrEqual(t, suspects[0].Score, 1.0)
			g.factor = nil
			at, d = feedChunks(t, g, c, 60)
			require.Empty(t, at)
			require.False(t, d.Standing)
		}
	}
}

func TestAStageThatIsSlowerInAllReplicasIsNoDevice(t *testing.T) {
	for _, replicas := range []int{2, 3, 8} {
		g := newRig(t, 3, replicas)
		c := chunksFor(t, g)
		feedChunks(t, g, c, 150)
		g.factor = func(_, stage int) float64 {
			if stage == 2 {
				return 1.4
			}
			return 1
		}
		at, _ := feedChunks(t, g, c, 100)
		require.Empty(t, at, "%d replicas", replicas)
	}
}

func TestARampIsCaughtAlthoughLevelsAreLearned(t *testing.T) {
	for _, length := range []float64{30, 300, 3000} {
		g := newRig(t, 5, 2)
		c := chunksFor(t, g)
		feedChunks(t, g, c, 100)
		now := 0.0
		g.factor = func(replica, stage int) float64 {
			if replica == 0 && stage == 0 {
				return 1 + 0.1*min(now/length, 1)
			}
			return 1
		}
		found := false
		for ; now < length+30 && !found; now++ {
			at, _ := feedChunks(t, g, c, 1)
			found = len(at) > 0
		}
		require.True(t, found, "over %v iterations", length)
	}
}

func TestTwoPlacesHaveAlarmsOfTheirOwn(t *testing.T) {
	g := newRig(t, 5, 2)
	c := chunksFor(t, g)
	feedChunks(t, g, c, 100)
	first := slowAt(0, 0, 1.3)
	g.factor = first
	at, _ := feedChunks(t, g, c, 20)
	require.Len(t, at, 1)
	second := slowAt(1, 2, 1.2)
	g.factor = func(r, s int) float64 { return first(r, s) * second(r, s) }
	at, _ = feedChunks(t, g, c, 20)
	require.Len(t, at, 1)
	require.Len(t, c.AppendSuspects(nil, 4), 2)
	require.Len(t, c.AppendSuspects(nil, 1), 1)
	g.factor = second
	_, d := feedChunks(t, g, c, 60)
	require.True(t, d.Standing)
	suspects := c.AppendSuspects(nil, 4)
	require.Len(t, suspects, 1)
	require.Equal(t, 1, suspects[0].Replica)
}

func TestAPauseIsNoFault(t *testing.T) {
	g := newRig(t, 6, 2)
	c := chunksFor(t, g)
	feedChunks(t, g, c, 100)
	for range 20 {
		g.factor = slowAt(1, 1, 2)
		at, _ := feedChunks(t, g, c, 1)
		require.Empty(t, at)
		g.factor = nil
		at, _ = feedChunks(t, g, c, 12)
		require.Empty(t, at)
	}
}

func TestUnknownChunksArePassedOver(t *testing.T) {
	g := newRig(t, 6, 2)
	c := chunksFor(t, g)
	for i := range 300 {
		if i == 200 {
			g.factor = slowAt(0, 2, 1.2)
		}
		g.next()
		if i%3 != 0 { // sampled: a place is known in one of three iterations, and one never is
			g.observed[2], g.observed[4] = 0, 0
		}
		g.observed[1] = 0
		d, err := c.Observe(g.observed, g.expected)
		require.NoError(t, err)
		require.False(t, d.Alarm && i < 200, i)
	}
	suspects := c.AppendSuspects(nil, 4)
	require.Equal(t, 2, suspects[0].Stage)
	_, ok := c.Detectable(0, 1)
	require.False(t, ok)
	_, ok = c.Detectable(0, 2)
	require.True(t, ok)
}

func TestChunksDoNotMindHowReplicasAreNumbered(t *testing.T) {
	a, b := newRig(t, 4, 3), newRig(t, 4, 3)
	ca, cb := chunksFor(t, a), chunksFor(t, b)
	turned, expected := make([]time.Duration, 9), make([]time.Duration, 9)
	for i := range 140 {
		if i == 120 {
			a.factor = slowAt(2, 1, 1.15)
			b.factor = a.factor
		}
		a.next()
		b.next()
		for p := range turned {
			turned[(p+3)%9], expected[(p+3)%9] = b.observed[p], b.expected[p]
		}
		da, err := ca.Observe(a.observed, a.expected)
		require.NoError(t, err)
		db, err := cb.Observe(turned, expected)
		require.NoError(t, err)
		require.Equal(t, da.Alarm, db.Alarm)
	}
	sa, sb := ca.AppendSuspects(nil, 1), cb.AppendSuspects(nil, 1)
	require.Equal(t, 2, sa[0].Replica)
	require.Equal(t, 0, sb[0].Replica)
	require.InDelta(t, sa[0].Score, sb[0].Score, 1e-6)
}

func TestChunksGoOnFromASnapshot(t *testing.T) {
	for _, cut := range []int{0, 12, 80, 130} {
		g := newRig(t, 7, 2)
		c := chunksFor(t, g)
		feedChunks(t, g, c, cut)
		if cut > 100 {
			g.factor = slowAt(0, 0, 1.5)
			feedChunks(t, g, c, 10)
		}
		var a, b bytes.Buffer
		require.NoError(t, c.Snapshot(&a))
		again, err := RestoreChunks(bytes.NewReader(a.Bytes()))
		require.NoError(t, err)
		require.NoError(t, again.Snapshot(&b))
		require.Equal(t, a.String(), b.String())
		for range 50 {
			g.next()
			d, err := c.Observe(g.observed, g.expected)
			require.NoError(t, err)
			e, err := again.Observe(g.observed, g.expected)
			require.NoError(t, err)
			require.Equal(t, d, e)
		}
		require.Equal(t, c.AppendSuspects(nil, 8), again.AppendSuspects(nil, 8))
	}
}

func TestADamagedSnapshotOfChunksIsRefused(t *testing.T) {
	g := newRig(t, 7, 2)
	c := chunksFor(t, g)
	feedChunks(t, g, c, 40)
	var a bytes.Buffer
	require.NoError(t, c.Snapshot(&a))
	_, err := RestoreChunks(strings.NewReader(a.String()[:a.Len()-2]))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, damage := range []func(*chunksImage){
		func(i *chunksImage) { i.Places = i.Places[1:] },
		func(i *chunksImage) { i.Places[0].Series.Unsure = -1 },
		func(i *chunksImage) { i.Places[0].Series.Top = math.NaN() },
		func(i *chunksImage) { i.Places[1].Branches = nil },
		func(i *chunksImage) { i.Places[1].Branches[0][5] = 7 },
		func(i *chunksImage) { i.Places[1].Odds = math.NaN() },
		func(i *chunksImage) { i.Places[1].Warm = make([]float64, 40) },
		func(i *chunksImage) { i.Shared = 2 },
		func(i *chunksImage) { i.Config.Stages = 4 },
		func(i *chunksImage) { i.Config.Power = 2 },
	} {
		img := c.image()
		damage(img)
		_, err := chunksOf(img)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestChunksRefuseWhatCannotBe(t *testing.T) {
	_, err := NewChunks(ChunkConfig{FalseAlarms: -1, Warmup: 1})
	for _, field := range []string{"Replicas", "Stages", "FalseAlarms", "Warmup"} {
		require.ErrorContains(t, err, field)
	}
	g := newRig(t, 1, 2)
	c := chunksFor(t, g)
	feedChunks(t, g, c, 50)
	before := c.image()
	good := g.expected
	for _, tc := range [][2][]time.Duration{
		{good[1:], good},
		{good, good[1:]},
		{nil, nil},
		{{1, 1, 1, 1, 1, -1}, good},
		{good, {1, 1, 1, 1, 1, 0}},
		{good, {1, 1, 1, 1, 1, -5}},
	} {
		_, err := c.Observe(tc[0], tc[1])
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	require.ErrorIs(t, c.Tune(math.NaN()), lockstep.ErrInvalid)
	require.Equal(t, before, c.image())
}

func TestChunksCanBeTunedRearmedAndReset(t *testing.T) {
	g := newRig(t, 1, 2)
	c := chunksFor(t, g)
	feedChunks(t, g, c, 60)
	g.factor = slowAt(0, 1, 3)
	at, _ := feedChunks(t, g, c, 15)
	require.Len(t, at, 1)
	require.NoError(t, c.Tune(0.1))
	var b bytes.Buffer
	require.NoError(t, c.Snapshot(&b))
	_, err := RestoreChunks(&b)
	require.NoError(t, err, "odds are held at the new threshold")
	c.Rearm()
	at, _ = feedChunks(t, g, c, 15)
	require.NotEmpty(t, at, "the fault is still there")
	c.Reset()
	fresh := chunksFor(t, g)
	require.NoError(t, fresh.Tune(0.1))
	require.Equal(t, fresh.image(), c.image())
}

func TestChunksAllocateNothing(t *testing.T) {
	g := newRig(t, 1, 4)
	c := chunksFor(t, g)
	feedChunks(t, g, c, 60)
	suspects := make([]Suspect, 0, 8)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if _, err := c.Observe(g.observed, g.expected); err != nil {
			t.Fatal(err)
		}
		suspects = c.AppendSuspects(suspects[:0], 4)
	}))
}

func FuzzRestoreChunks(f *testing.F) {
	g := newRig(f, 7, 1)
	c, err := NewChunks(ChunkConfig{Replicas: 1, Stages: 3})
	require.NoError(f, err)
	feedChunks(f, g, c, 40)
	var b bytes.Buffer
	require.NoError(f, c.Snapshot(&b))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := RestoreChunks(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, c.Snapshot(&again))
		require.Equal(t, string(data), again.String())
	})
}
