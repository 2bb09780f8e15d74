package reconfig

import (
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
	"github.com/stretchr/testify/require"
)

func TestEndToEndIsAtLeastTheBestKnown(t *testing.T) {
	two, four := jobOf(4, 2, 4, 40, 16), jobOf(4, 4, 4, 32, 32)
	for _, c := range []struct {
		name  string
		job   Job
		at    []int
		speed float64
		best  float64 // of healthy throughput: no action, drop, split, shrink, repartition
	}{
		{"1 dead", two, []int{4}, 0, .917},
		{"1 at half speed", two, []int{4}, .5, .917},
		{"1 at three quarters", two, []int{4}, .75, .922},
		{"2 dead in one stage of two replicas", two, []int{4, 20}, 0, .859},
		{"2 dead in two stages of two replicas", two, []int{4, 24}, 0, .859},
		{"1 dead of four replicas", four, []int{4}, 0, .917},
	} {
		t.Run(c.name, func(t *testing.T) {
			devs := fleet(int(c.job.Layout.Ranks()), 4)
			prev := healthy(t, c.job, devs)
			for _, disturb := range []float64{0, 1} {
				hurt := with(devs, c.speed, c.at...)
				p, err := Replan(c.job, hurt, prev, Options{Disturb: disturb})
				require.NoError(t, err)
				require.NoError(t, Verify(c.job, hurt, p))
				ratio := float64(prev.Estimate.Iteration) / float64(p.Estimate.Iteration)
				require.GreaterOrEqual(t, ratio, c.best-.0005)
				t.Logf("disturb %g: %.4f, best known %.3f, split %v", disturb, ratio, c.best, p.Split)
			}
		})
	}
}

func TestLayersAreDividedBest(t *testing.T) {
	for _, c := range []struct {
		layers int
		speeds []int64 // millionths
		loss   int64   // layers that the last stage has besides
		want   division
		bottle int64 // millionths of a layer
	}{
		{12, []int64{1e6, 5e5, 1e6}, 0, division{5, 2, 5}, 5_000_000},
		{12, []int64{1e6, 1e6, 5e5}, 0, division{5, 5, 2}, 5_000_000},
		{32, []int64{1e6, 5e5, 1e6, 1e6}, 0, division{10, 2, 10, 10}, 10_000_000},
		{32, []int64{1e6, 75e4, 1e6, 1e6}, 0, division{9, 5, 9, 9}, 9_000_000},
		{32, []int64{1e6, 5e5, 1e6, 5e5}, 0, division{11, 5, 11, 5}, 11_000_000},
		{24, []int64{1e6, 1e6, 1e6, 25e4}, 0, division{7, 8, 8, 1}, 8_000_000},
		{10, []int64{1e6, 3e5, 1e6, 1e6, 1e6}, 0, division{1, 1, 2, 3, 3}, 3_333_334},
		{36, []int64{1e6, 1e6, 1e6, 1e6}, 9, division{9, 12, 12, 3}, 12_000_000},
		{40, []int64{1e6, 5e5, 1e6, 1e6}, 0, division{12, 4, 12, 12}, 12_000_000},
	} {
		for _, mixed := range []bool{false, true} {
			job := jobOf(1, 1, 1, c.layers, 1)
			job.Costs = Costs{Layer: Cost{Forward: time.Millisecond}}
			if mixed { // the same layers, but named one by one
				for range c.layers {
					job.Costs.Layers = append(job.Costs.Layers, Cost{Forward: time.Millisecond})
				}
			}
			w, err := newWorld("test", job, fleet(1, 1))
			require.NoError(t, err)
			lanes := make([]lane, len(c.speeds))
			for i, v := range c.speeds {
				lanes[i] = lane{rate: v, room: c.layers}
			}
			lanes[len(lanes)-1].extra = c.loss * 1e6
			got := make(division, len(lanes))
			require.True(t, w.divide(lanes, got))
			require.Equal(t, c.want, got, "mixed %v", mixed)
			at, worst := 0, int64(0)
			for i, n := range got {
				worst = max(worst, w.laneCost(&lanes[i], at, at+int(n)))
				at += int(n)
			}
			require.Equal(t, c.bottle, worst)
		}
	}
}

func TestTensorSubgroupIsTheFastest(t *testing.T) {
	for _, c := range []struct {
		speeds []float64
		odd    bool
		want   int32 // degree; of several as fast the one with fewer devices
	}{
		{[]float64{1, 1, 1, .6}, false, 4},
		{[]float64{1, 1, 1, .5}, false, 2},
		{[]float64{1, 1, 1, .4}, false, 2},
		{[]float64{1, 1, 1, 0}, false, 2},
		{[]float64{1, 1, 1, 0}, true, 3},
		{[]float64{1, 1, 1, 1, 1, 1, 1, .5}, false, 4},
		{[]float64{1, 1, 1, 1, 1, 1, 0, 0}, false, 4},
		{[]float64{1, 1, 1, 1, 1, 1, 0, 0}, true, 6},
		{[]float64{1, .8, .8, .3}, false, 2},
	} {
		job := jobOf(len(c.speeds), 1, 1, 4, 1)
		job.Allow.AllowOddTP = c.odd
		devs := fleet(len(c.speeds), len(c.speeds))
		for i, v := range c.speeds {
			devs[i].Speed = v
		}
		w, err := newWorld("test", job, devs)
		require.NoError(t, err)
		p := newPlanner(w, Options{})
		p.room(&layout{used: make([]bool, len(devs))})
		require.Equal(t, c.want, p.bestDegree(p.free[0]), "%v odd %v", c.speeds, c.odd)
	}
}

func TestMicroBatchesAreSplitBest(t *testing.T) {
	for _, c := range []struct {
		micros int
		times  []int64 // of one micro-batch, in tenths
		want   []int32
		top    int64
	}{
		{16, []int64{10, 20}, []int32{11, 5}, 110},
		{32, []int64{10, 13, 10, 10}, []int32{9, 6, 9, 8}, 90},
		{32, []int64{10, 10, 10, 20}, []int32{10, 9, 9, 4}, 100},
		{64, []int64{10, 11, 15, 30}, []int32{22, 20, 15, 7}, 225},
		{5, []int64{10, 100}, []int32{5, 0}, 50},
	} {
		job := jobOf(1, len(c.times), 1, 1, c.micros)
		job.Costs = Costs{Layer: Cost{Forward: 10}}
		devs := fleet(len(c.times), 1)
		w, err := newWorld("test", job, devs)
		require.NoError(t, err)
		p := newPlanner(w, Options{})
		var pipes []*shape
		for _, v := range c.times {
			g := &group{devs: []int32{0}, rate: 10 * whole / v, mem: 1 << 62}
			sh := p.s.of([]*group{g}, 1)
			for m := range c.micros + 1 { // exact, without the rounding of rates
				sh.times = append(sh.times, timed{int32(m), int64(m) * v, division{1}})
			}
			pipes = append(pipes, sh)
		}
		out := make([]int32, len(pipes))
		require.Equal(t, c.top, p.s.split(pipes, c.micros, out))
		require.Equal(t, c.want, out)
	}
}

func TestEvaluateIsThePipelinesMakespan(t *testing.T) {
	job := jobOf(2, 1, 4, 8, 8)
	p := healthy(t, job, fleet(8, 2))
	// Four equal stages of two layers on two devices: 1 ms forward, 2 ms back.
	require.Equal(t, (8+3)*3*time.Millisecond, p.Estimate.Iteration)
	require.Equal(t, 8*8*3*time.Millisecond/8, p.Estimate.Fluid)
	for schedule := range pipeline.ZBH2 {
		job.Schedule = schedule
		e, err := Evaluate(job, fleet(8, 2), p)
		require.NoError(t, err)
		require.GreaterOrEqual(t, e.Iteration, e.Fluid)
	}
}

func TestStandbyReplacesALostDevice(t *testing.T) {
	job := jobOf(4, 2, 2, 8, 16)
	job.Allow.FixedStages = true
	devs := fleet(16, 4)
	spare := fleet(20, 4)[16:] // a node more than the job has groups for
	prev := healthy(t, job, append(devs, spare...))
	require.Len(t, prev.Standby, 4)
	hurt := with(append(devs, spare...), 0, 0, 1, 2, 3)
	p, err := Replan(job, hurt, prev, Options{})
	require.NoError(t, err)
	require.Equal(t, prev.Estimate.Iteration, p.Estimate.Iteration)
	require.Empty(t, p.Restore, "the other replica has all layers")
}

func TestARejoiningNodeIsTakenBack(t *testing.T) {
	job := jobOf(4, 4, 2, 8, 16)
	devs := fleet(32, 4)
	prev := healthy(t, job, devs)
	down := with(devs, 0, 0, 1, 2, 3, 4, 5, 6, 7)
	p, err := Replan(job, down, prev, Options{})
	require.NoError(t, err)
	require.Greater(t, p.Estimate.Iteration, prev.Estimate.Iteration)
	back, err := Replan(job, devs, p, Options{})
	require.NoError(t, err)
	require.LessOrEqual(t, back.Estimate.Iteration, prev.Estimate.Iteration)
	require.Len(t, back.Replicas, 4)
}

func TestAStageLostEverywhereNeedsACheckpoint(t *testing.T) {
	job := jobOf(2, 2, 2, 8, 8)
	devs := fleet(8, 2)
	prev := healthy(t, job, devs)
	var gone []int
	for _, r := range prev.Replicas {
		for i, d := range devs {
			if d.ID == r.Stages[1].Devices[0] || d.ID == r.Stages[1].Devices[1] {
				gone = append(gone, i)
			}
		}
	}
	hurt := with(devs, 0, gone...)
	p, err := Replan(job, hurt, prev, Options{})
	require.NoError(t, err)
	require.Equal(t, prev.Replicas[0].Stages[1].Spans, p.Restore)
	_, err = Replan(job, hurt, prev, Options{NoCheckpoint: true})
	var no *Infeasible
	require.ErrorAs(t, err, &no)
	require.Equal(t, ReasonCheckpoint, no.Reason)
	require.Equal(t, StateLevel, no.Level)
	require.Equal(t, prev.Replicas[0].Stages[1].Spans[0], no.Witness.Layers)
	for _, i := range gone { // a cordoned device does no work, but can be read
		hurt[i].State, hurt[i].Speed = Cordoned, 1
	}
	p, err = Replan(job, hurt, prev, Options{NoCheckpoint: true})
	require.NoError(t, err)
	require.Empty(t, p.Restore)
}

func TestAStageLivesInPiecesOfTwoReplicas(t *testing.T) {
	job := jobOf(2, 2, 1, 4, 4)
	devs := fleet(4, 2)
	prev := healthy(t, job, devs)
	p, err := Replan(job, with(devs, 0, 0, 3), prev, Options{})
	require.NoError(t, err)
	require.Empty(t, p.Restore, "rank 1 of one replica and rank 0 of the other hold everything")
	p, err = Replan(job, with(devs, 0, 0, 2), prev, Options{})
	require.NoError(t, err)
	require.Equal(t, []Span{{0, 4}}, p.Restore)
}

func TestMigrationHelpsWhereNeitherLayersNorDevicesCanMove(t *testing.T) {
	job := jobOf(1, 2, 4, 4, 24) // one layer a stage: a slow one cannot be relieved
	job.Allow = Constraints{FixedStages: true, AllowMigration: true}
	devs := fleet(8, 1)
	prev := healthy(t, job, devs)
	hurt := with(devs, .5, 1, 6) // one stage of either replica, not the same
	w, err := newWorld("test", job, hurt)
	require.NoError(t, err)
	p := newPlanner(w, Options{})
	runs, err := w.read("test", prev)
	require.NoError(t, err)
	before, err := w.evaluate(runs, prev.Split, nil)
	require.NoError(t, err)
	split, moved := p.migrations(runs, prev.Split, 1)
	require.NotEmpty(t, moved)
	after, err := w.evaluate(runs, split, moved)
	require.NoError(t, err)
	t.Logf("healthy %v, as it is %v, with %d migrations %v", prev.Estimate.Iteration, before.Iteration, len(moved), after.Iteration)
	require.Less(t, after.Iteration, before.Iteration*9/10)
	_, moved = p.migrations(runs, prev.Split, 100)
	require.Empty(t, moved, "the gap is never as wide")
	q, err := Replan(job, hurt, prev, Options{})
	require.NoError(t, err)
	require.LessOrEqual(t, q.Estimate.Iteration, after.Iteration)
}

func TestShouldReplanBreaksEven(t *testing.T) {
	e := func(d time.Duration) Estimate { return Estimate{Iteration: d} }
	for _, c := range []struct {
		name          string
		old, next     time.Duration
		cost, horizon time.Duration
		margin        float64
		want          bool
	}{
		{"twice as fast pays soon", 2 * time.Second, time.Second, time.Minute, 3 * time.Minute, 0, true},
		{"but not at once", 2 * time.Second, time.Second, time.Minute, 2 * time.Minute, 0, false},
		{"exactly even is not enough", 2 * time.Second, time.Second, time.Minute, 2 * time.Minute, AnyGain, false},
		{"the margin holds small gains back", 1005 * time.Millisecond, time.Second, 0, time.Hour, 0, false},
		{"any gain", 1005 * time.Millisecond, time.Second, 0, time.Hour, AnyGain, true},
		{"standing still", 0, time.Second, time.Minute, time.Hour, 0, true},
		{"standing still, too late", 0, time.Second, time.Hour, time.Hour, 0, false},
		{"slower", time.Second, 2 * time.Second, 0, time.Hour, AnyGain, false},
		{"no plan", time.Second, 0, 0, time.Hour, 0, false},
		{"nonsense margin", 2 * time.Second, time.Second, 0, time.Hour, -3, false},
	} {
		require.Equal(t, c.want, ShouldReplan(e(c.old), e(c.next), c.cost, c.horizon, c.margin), c.name)
	}
	// Two layouts never each deserve to replace the other.
	for _, next := range []time.Duration{999 * time.Millisecond, time.Second, 1001 * time.Millisecond} {
		there := ShouldReplan(e(time.Second), e(next), 0, time.Hour, AnyGain)
		back := ShouldReplan(e(next), e(time.Second), 0, time.Hour, AnyGain)
		require.False(t, there && back)
	}
}

func TestCostsFollowTheModel(t *testing.T) {
	m := perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true}
	b, err := m.Mask.Batch([]int{4096})
	require.NoError(t, err)
	job := Job{Model: m, Micros: 1, Batch: b, Rate: perfmodel.Rate{Linear: 1e14}}
	c := job.costs()
	all := 32*c.Layer.Forward + c.Head.Forward
	require.InDelta(t, 58.524298e12/1e14, all.Seconds(), 1e-6)
}

// Oobleck #27 again: where no replica can go on alone, their stages make one that can.
func TestReplicasMergeWhereMemoryLeavesNoneAlone(t *testing.T) {
	job := jobOf(1, 2, 4, 16, 16)
	job.Batch.Tokens = 16
	job.Allow.MaxStages = 6
	devs := fleet(8, 1)
	w, err := newWorld("test", job, devs)
	require.NoError(t, err)
	need := max(w.memory(1, 4, true, false, 4, 1, 2), w.memory(1, 4, false, true, 1, 1, 2))
	for i := range devs { // at the ends there is room for four layers, not for five
		devs[i].Memory = lockstep.Bytes(need)
	}
	prev := healthy(t, job, devs)
	require.Len(t, prev.Replicas, 2)
	hurt := with(devs, 0, 1, 6)
	p, err := Replan(job, hurt, prev, Options{})
	require.NoError(t, err)
	require.NoError(t, Verify(job, hurt, p))
	require.Len(t, p.Replicas, 1)
	require.Greater(t, len(p.Replicas[0].Stages), 3)
	t.Logf("%d stages, %v of healthy %v", len(p.Replicas[0].Stages), p.Estimate.Iteration, prev.Estimate.Iteration)
}

func TestExpertParallelReplicasComeInMultiples(t *testing.T) {
	job := jobOf(2, 4, 2, 8, 16)
	job.Model.Experts, job.Model.TopK, job.Model.ExpertFFN = 8, 2, 840
	job.Layout.EP = 2
	devs := fleet(16, 2)
	prev := healthy(t, job, devs)
	require.NoError(t, Verify(job, devs, prev))
	hurt := with(devs, 0, 0, 1)
	p, err := Replan(job, hurt, prev, Options{})
	require.NoError(t, err)
	require.NoError(t, Verify(job, hurt, p))
	require.Zero(t, len(p.Replicas)%2)
}

func TestAGroupMaySpanNodesOnlyIfAllowed(t *testing.T) {
	job := jobOf(4, 2, 1, 8, 8)
	devs := fleet(8, 2)
	p := healthy(t, job, devs)
	for _, r := range p.Replicas {
		for _, s := range r.Stages {
			require.LessOrEqual(t, len(s.Devices), 2)
		}
	}
	job.Allow.AllowCrossNodeTP = true
	q := healthy(t, job, devs)
	require.NoError(t, Verify(job, devs, q))
	require.Equal(t, 4, len(q.Replicas[0].Stages[0].Devices))
	require.LessOrEqual(t, q.Estimate.Iteration, p.Estimate.Iteration)
	hurt := with(devs, 0, 1)
	r, err := Replan(job, hurt, q, Options{})
	require.NoError(t, err)
	require.NoError(t, Verify(job, hurt, r))
}
