package moves_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/resize"
)

// stageOf is a stage of layers first to end-1 on devices of tinyFleet.
func stageOf(first, end int, devices ...int) reconfig.Stage {
	s := reconfig.Stage{Spans: []reconfig.Span{{First: first, Layers: end - first}}}
	for _, d := range devices {
		s.Devices = append(s.Devices, lockstep.DeviceID(fmt.Sprintf("g%02d", d)))
	}
	return s
}

func planOf(replicas ...[]reconfig.Stage) *reconfig.Plan {
	p := &reconfig.Plan{Version: 1}
	for i, stages := range replicas {
		p.Replicas = append(p.Replicas, reconfig.Replica{Number: i, Stages: stages})
		p.Split = append(p.Split, 1)
	}
	p.Digest = p.Sum()
	return p
}

// stages is a pipeline.
type stages = []reconfig.Stage

func plainJob() reconfig.Job {
	return reconfig.Job{
		Model:  perfmodel.Model{Layers: 4, Hidden: 8, Heads: 4, FFN: 16, Vocab: 16},
		Layout: perfmodel.Layout{TP: 4, DP: 4},
		Micros: 8,
		Costs:  reconfig.Costs{Layer: reconfig.Cost{Forward: 1, Backward: 1}},
	}
}

func movesOf(t testing.TB, job reconfig.Job, devs []reconfig.Device, old, to *reconfig.Plan, o moves.Options) *moves.Sequence {
	t.Helper()
	have, err := moves.Held(job, old)
	require.NoError(t, err)
	m, err := moves.Between(job, devs, have, to, o)
	require.NoError(t, err)
	return m
}

func TestMovesDoNotDependOnTheOrderOfWhatIsGiven(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		x := newTransition(t, rng, tinyFleet(4, 4, 2), true)
		devs, have := slices.Clone(x.devs), slices.Clone(x.have)
		rng.Shuffle(len(devs), func(i, j int) { devs[i], devs[j] = devs[j], devs[i] })
		rng.Shuffle(len(have), func(i, j int) { have[i], have[j] = have[j], have[i] })
		m, err := moves.Between(x.job, devs, have, x.to, moves.Options{CheckpointCurrent: x.current})
		require.NoError(t, err)
		require.Equal(t, x.moves, m)
	}
}

func TestMovesHaveTheSameDigestOnEveryPlatform(t *testing.T) {
	sum := reconfig.Digest{}
	for seed := range uint64(20) {
		x := newTransition(t, rand.New(rand.NewPCG(seed, 8)), tinyFleet(4, 4, 2), true)
		to := *x.to
		to.Digest = reconfig.Digest{1} // that of plans has a test of its own
		m, err := moves.Between(x.job, x.devs, x.have, &to, moves.Options{})
		require.NoError(t, err)
		for i, b := range m.Digest {
			sum[i] ^= b
		}
	}
	require.Equal(t, "8c2ce4b9860092811b4e9726287e8489df5cfa4e9d7a44292bcae1b929674323", sum.String())
}

func TestMoreReplicasShareTheLoadOfDonating(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 8, 1)
	old := planOf(stages{stageOf(0, 4, 0, 1)}, stages{stageOf(0, 4, 2, 3)}, stages{stageOf(0, 4, 4, 5)})
	to := planOf(stages{stageOf(0, 4, 0, 1)}, stages{stageOf(0, 4, 2, 3)}, stages{stageOf(0, 4, 4, 5)}, stages{stageOf(0, 4, 6, 7)})
	m := movesOf(t, job, devs, old, to, moves.Options{})
	sent := map[lockstep.DeviceID]lockstep.Bytes{}
	most, total := lockstep.Bytes(0), lockstep.Bytes(0)
	for _, tr := range m.Phases[0].Transfers {
		sent[tr.From] += tr.Bytes
		total += tr.Bytes
		most = max(most, sent[tr.From])
	}
	require.Len(t, sent, 6)
	require.Less(t, most, total/3, "a fair share is a sixth")
	require.Equal(t, total, m.Traffic.Node)
}

func TestNarrowerGroupReshardsOnlyWhatIsMissing(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 4, 1)
	job.Layout.Precision = perfmodel.Precision{Weight: 1}
	m := movesOf(t, job, devs, planOf(stages{stageOf(0, 4, 0, 1, 2, 3)}), planOf(stages{stageOf(0, 4, 0, 1)}), moves.Options{})
	// Rank 0 has the first quarter of what is divided and needs the first half; rank 1 has the second and needs the
	// third and the fourth.
	whole := job.Model.Parameters(job.Model.Whole())
	norms := int64(4*2*8 + 8)
	require.Equal(t, lockstep.Bytes((whole-norms)*3/4), m.Traffic.Node)
	require.Equal(t, lockstep.Bytes((whole-norms)/4+2*norms), m.Kept)
}

func TestByteEntersALeafAndANodeOnce(t *testing.T) {
	job, devs := plainJob(), tinyFleet(6, 2, 2) // leaves 0-3, 4-7, 8-11
	job.Layout.Precision = perfmodel.Precision{Weight: 1}
	old := planOf(stages{stageOf(0, 4, 0)})
	to := planOf(stages{stageOf(0, 4, 0)}, stages{stageOf(0, 4, 4)}, stages{stageOf(0, 4, 5)}, stages{stageOf(0, 4, 6)})
	m := movesOf(t, job, devs, old, to, moves.Options{})
	one := lockstep.Bytes(job.Model.Parameters(job.Model.Whole()))
	require.Equal(t, moves.Traffic{Fabric: one, Leaf: one, Node: one}, m.Traffic)
	require.Len(t, m.Phases, 2, "in over the fabric, and on from there")
}

func TestStateThatNobodyHoldsNeedsACheckpoint(t *testing.T) {
	job, devs := plainJob(), tinyFleet(2, 2, 2)
	devs[1].State, devs[1].Speed = reconfig.Down, 0
	old, to := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}), planOf(stages{stageOf(0, 4, 2)})
	have, err := moves.Held(job, old)
	require.NoError(t, err)

	_, err = moves.Between(job, devs, have, to, moves.Options{NoCheckpoint: true})
	var no *reconfig.Infeasible
	require.ErrorAs(t, err, &no)
	require.Equal(t, reconfig.ReasonCheckpoint, no.Reason)

	all := movesOf(t, job, devs, old, to, moves.Options{})
	require.True(t, all.Restore)
	require.Zero(t, all.Kept)
	require.Equal(t, all.Traffic.Total(), all.Traffic.Store, "live state of a later step does not go with it")
	blocks := map[moves.Block]bool{}
	for _, s := range all.Lost {
		blocks[s.Block] = true
	}
	require.Equal(t, map[moves.Block]bool{2: true, 3: true, moves.Head: true}, blocks)

	some := movesOf(t, job, devs, old, to, moves.Options{CheckpointCurrent: true})
	require.False(t, some.Restore)
	require.Equal(t, all.Traffic.Store, some.Traffic.Store+some.Traffic.Leaf)
	require.Positive(t, some.Traffic.Leaf)
}

func TestCordonedDeviceDonates(t *testing.T) {
	job, devs := plainJob(), tinyFleet(2, 2, 2)
	devs[1].State = reconfig.Cordoned
	m := movesOf(t, job, devs, planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}), planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 3)}), moves.Options{NoCheckpoint: true})
	require.Equal(t, lockstep.DeviceID("g01"), m.Phases[0].Transfers[0].From)
	last := m.Phases[len(m.Phases)-1]
	require.Empty(t, last.Transfers)
	require.Equal(t, lockstep.DeviceID("g01"), last.Free[0].Device, "it gives up what it held in the end")
}

func TestFullDevicesSwapThroughHostMemory(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 2, 1)
	old, to := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}), planOf(stages{stageOf(0, 2, 1), stageOf(2, 4, 0)})
	have, err := moves.Held(job, old)
	require.NoError(t, err)
	for i := range devs {
		devs[i].Memory = max(sizeOf(job, have[0].Shards), sizeOf(job, have[1].Shards))
	}
	m, err := moves.Between(job, devs, have, to, moves.Options{})
	require.NoError(t, err)
	require.Positive(t, m.Staged)
	require.Less(t, m.Staged, devs[0].Memory, "not more than is needed to begin")
	require.Equal(t, devs[0].Memory, m.Peak)

	_, err = moves.Between(job, devs, have, to, moves.Options{Keep: 1})
	var no *reconfig.Infeasible
	require.ErrorAs(t, err, &no)
	require.Equal(t, reconfig.ReasonMemory, no.Reason)
	require.Equal(t, no.Witness.Need, no.Witness.Have+1)

	for i := range devs {
		devs[i].Memory *= 2
	}
	m, err = moves.Between(job, devs, have, to, moves.Options{})
	require.NoError(t, err)
	require.Zero(t, m.Staged)
	require.Len(t, m.Phases, 2, "one to move, one to give up")
}

func TestBetweenRefusesBadInput(t *testing.T) {
	job, devs := plainJob(), tinyFleet(2, 2, 2)
	p := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)})
	have, err := moves.Held(job, p)
	require.NoError(t, err)
	plan := func(have []moves.Holding, to *reconfig.Plan, o moves.Options) error {
		_, err := moves.Between(job, devs, have, to, o)
		return err
	}
	shard := func(s moves.Shard) []moves.Holding {
		return []moves.Holding{{Device: "g00", Shards: []moves.Shard{s}}}
	}
	for name, err := range map[string]error{ // the order does not matter: each case stands alone
		"no plan":           plan(have, nil, moves.Options{}),
		"layers are left":   plan(have, planOf(stages{stageOf(0, 3, 0)}), moves.Options{}),
		"layers are double": plan(have, planOf(stages{stageOf(0, 3, 0), stageOf(2, 3, 1)}), moves.Options{}),
		"too many layers":   plan(have, planOf(stages{stageOf(0, 5, 0)}), moves.Options{}),
		"no devices":        plan(have, planOf(stages{stageOf(0, 4)}), moves.Options{}),
		"three ranks":       plan(have, planOf(stages{stageOf(0, 4, 0, 1, 2)}), moves.Options{}),
		"keep below 0":      plan(have, p, moves.Options{Keep: -1}),
		"cursor below 0":    plan(have, p, moves.Options{Cursor: resize.Cursor{Epoch: -1}}),
		"no such part":      plan(shard(moves.Shard{Part: "gradients", Count: 1}), p, moves.Options{}),
		"no such block":     plan(shard(moves.Shard{Part: moves.Optimizer, Block: 4, Count: 1}), p, moves.Options{}),
		"beyond the block":  plan(shard(moves.Shard{Part: moves.Optimizer, First: 1, Count: 1 << 62}), p, moves.Options{}),
		"nothing in it":     plan(shard(moves.Shard{Part: moves.Optimizer}), p, moves.Options{}),
	} {
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, name)
	}
	require.ErrorIs(t, plan(append(have, have[0]), p, moves.Options{}), lockstep.ErrDuplicate)
	require.ErrorIs(t, plan(have, planOf(stages{stageOf(0, 4, 9)}), moves.Options{}), reconfig.ErrInfeasible, "an unknown device")
	require.ErrorIs(t, plan(have, planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 0)}), moves.Options{}), reconfig.ErrInfeasible, "a device twice")

	m, err := moves.Between(job, devs, have, p, moves.Options{})
	require.NoError(t, err)
	_, err = m.After(have[:1], 0, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "not what they were planned from")
	_, err = m.After(have, 0, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "there is no such phase")
}

func TestRegroupKeepsWhatHasTheSameMembers(t *testing.T) {
	job := plainJob()
	group := func(kind reconfig.GroupKind, ids ...lockstep.DeviceID) reconfig.Group {
		return reconfig.Group{Kind: kind, Devices: ids}
	}
	old := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}, stages{stageOf(0, 2, 2), stageOf(2, 4, 3)})
	old.Groups = []reconfig.Group{
		group(reconfig.PipelineGroup, "g00", "g01"), group(reconfig.PipelineGroup, "g02", "g03"),
		group(reconfig.DataGroup, "g00", "g02"), group(reconfig.DataGroup, "g01", "g03"),
	}
	to := planOf(stages{stageOf(0, 3, 0), stageOf(3, 4, 1)}, stages{stageOf(0, 3, 2), stageOf(3, 4, 4)})
	to.Groups = []reconfig.Group{
		group(reconfig.PipelineGroup, "g00", "g01"), group(reconfig.PipelineGroup, "g02", "g04"),
		group(reconfig.DataGroup, "g00", "g02"), group(reconfig.DataGroup, "g01", "g04"),
	}
	r := moves.Regroup(job, old, to)
	require.Equal(t, moves.Regrouping{
		Destroy: []reconfig.Group{old.Groups[1], old.Groups[3]},
		Keep:    []reconfig.Group{to.Groups[0], to.Groups[2]},
		Build:   []reconfig.Group{to.Groups[1], to.Groups[3]},
	}, r)
	require.Equal(t, to.Groups, moves.Regroup(job, nil, to).Build)

	job.Model.Tied = true
	r = moves.Regroup(job, old, to)
	require.Equal(t, group(moves.TieGroup, "g00", "g01").Devices, r.Keep[2].Devices)
	require.Equal(t, moves.TieGroup, r.Build[2].Kind)
	require.Equal(t, []lockstep.DeviceID{"g02", "g04"}, r.Build[2].Devices)

	wide := planOf(stages{stageOf(0, 2, 0, 1), stageOf(2, 4, 2)})
	ties := moves.Regroup(job, nil, wide).Build
	require.Len(t, ties, 2, "one for each slice")
	require.Equal(t, []lockstep.DeviceID{"g01", "g02"}, ties[1].Devices)
}

// TestMovesFollowReplanThroughACascade lets devices fail and come back, one after the
// other, and carries out what the planner says each time.
func TestMovesFollowReplanThroughACascade(t *testing.T) {
	job := plainJob()
	job.Layout = perfmodel.Layout{TP: 2, PP: 2, DP: 4, ZeRO: 1}
	job.Batch = perfmodel.Batch{Tokens: 4}
	devs := tinyFleet(4, 4, 2)
	for i := range devs {
		devs[i].Memory = 64 << 10
	}
	rng := rand.New(rand.NewPCG(1, 12))
	old, err := reconfig.Replan(job, devs, nil, reconfig.Options{})
	require.NoError(t, err)
	moved, restored := 0, 0
	for range 30 {
		i := rng.IntN(len(devs))
		down := devs[i].State == reconfig.Down
		devs[i].State, devs[i].Speed = reconfig.Down, 0
		if down {
			devs[i].State, devs[i].Speed = reconfig.Up, 1
		}
		to, err := reconfig.Replan(job, devs, old, reconfig.Options{})
		require.NoError(t, err)
		x := transition{job: job, devs: slices.Clone(devs), old: old, to: to, step: 5, restored: 5}
		x.have, err = moves.Held(job, old)
		require.NoError(t, err)
		x.have = slices.DeleteFunc(x.have, func(h moves.Holding) bool { return h.Device == devs[i].ID })
		x.want, err = moves.Held(job, to)
		require.NoError(t, err)
		x.moves, err = moves.Between(job, devs, x.have, to, moves.Options{})
		require.NoError(t, err)
		if x.moves.Restore {
			x.restored = 4
			restored++
		} else if x.moves.Traffic.Total() > 0 {
			moved++
		}
		f := x.fake()
		d, err := moves.NewDriver(x.moves, to)
		require.NoError(t, err)
		state, err := moves.Drive(d, f)
		require.NoError(t, err)
		require.Equal(t, moves.Done, state)
		x.requireHeld(t, f, x.want, x.restored, "cascade")
		old = to
	}
	t.Logf("%d changes moved state, %d lost the only copy of some", moved, restored)
	require.NotZero(t, moved)
	require.NotZero(t, restored, "a device has the only copy of its part of the optimizer")
}
