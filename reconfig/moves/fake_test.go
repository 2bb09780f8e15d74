package moves_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/moves/movestest"
)

// tinyJob is a job whose state is small enough to hold every parameter as a number.
func tinyJob(rng *rand.Rand) reconfig.Job {
	m := perfmodel.Model{
		Layers: 3 + rng.IntN(4), Hidden: 4, Heads: 4, KVHeads: []int{1, 2, 4}[rng.IntN(3)], FFN: 8, Vocab: 8,
		Gated: rng.IntN(2) == 0, Tied: rng.IntN(2) == 0, Bias: rng.IntN(2) == 0, Learned: rng.IntN(2) * 3,
	}
	l := perfmodel.Layout{TP: 4, PP: 3, DP: 4, ZeRO: rng.IntN(4)}
	if rng.IntN(4) == 0 {
		m.Experts, m.TopK, m.ExpertFFN = 4, 2, 4
		l.EP = 1 + rng.IntN(2)
	}
	if rng.IntN(4) == 0 {
		l.Precision = perfmodel.Precision{Weight: 2, Gradient: 4, Optimizer: 8}
	}
	return reconfig.Job{
		Model: m, Layout: l, Micros: 8,
		Costs: reconfig.Costs{Layer: reconfig.Cost{Forward: time.Millisecond, Backward: 2 * time.Millisecond}},
	}
}

// tinyFleet is so many nodes, with devices each, so many nodes to a leaf.
func tinyFleet(nodes, devices, perLeaf int) []reconfig.Device {
	out := make([]reconfig.Device, nodes*devices)
	for i := range out {
		out[i] = reconfig.Device{
			ID: lockstep.DeviceID(fmt.Sprintf("g%02d", i)), Node: lockstep.NodeID(fmt.Sprintf("n%d", i/devices)),
			Leaf: fmt.Sprintf("l%d", i/devices/perLeaf), Speed: 1,
		}
	}
	return out
}

// oddJob is a tiny job that can be divided by 3 too, with other widths and experts.
func oddJob(rng *rand.Rand) reconfig.Job {
	job := tinyJob(rng)
	m := &job.Model
	m.Hidden, m.Heads, m.KVHeads, m.HeadDim, m.FFN, m.Vocab = 12, 12, []int{1, 2, 3, 6, 12}[rng.IntN(5)], 1+rng.IntN(2), 24, 12
	job.Layout.TP, job.Allow.AllowOddTP = 6, true
	if m.Experts > 0 {
		m.Experts, m.ExpertFFN, m.SharedExperts = 8, 12, rng.IntN(2)
		job.Layout.EP = []int{1, 2, 4}[rng.IntN(3)]
	}
	return job
}

// degreesOf returns the degrees by which a job can be divided.
func degreesOf(job reconfig.Job) []int {
	var out []int
	for k := 1; k <= job.Layout.TP; k++ {
		if job.Model.Vocab%k == 0 && job.Model.Check(perfmodel.Layout{TP: k}) == nil {
			out = append(out, k)
		}
	}
	return out
}

// randomPlan lays a job out on some of the devices, anyhow.
func randomPlan(rng *rand.Rand, job reconfig.Job, devs []reconfig.Device) *reconfig.Plan {
	free := []lockstep.DeviceID{}
	for _, d := range devs {
		if d.State == reconfig.Up {
			free = append(free, d.ID)
		}
	}
	if rng.IntN(2) == 0 { // else near each other
		rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	}
	p := &reconfig.Plan{Version: 1}
	ep := max(1, job.Layout.EP)
	replicas := ep * (1 + rng.IntN(4/ep))
	left := len(free)
	for i := range replicas {
		r := reconfig.Replica{Number: i}
		stages := min(1+rng.IntN(3), left-(replicas-i-1))
		cuts := []int{0, job.Model.Layers}
		for _, c := range rng.Perm(job.Model.Layers - 1)[:stages-1] {
			cuts = append(cuts, c+1)
		}
		slices.Sort(cuts)
		for j := range stages {
			most := left - (replicas - i - 1) - (stages - j - 1)
			degrees := degreesOf(job)
			at := rng.IntN(len(degrees))
			for degrees[at] > most {
				at--
			}
			k := degrees[at]
			first := len(free) - left
			left -= k
			r.Stages = append(r.Stages, reconfig.Stage{
				Devices: free[first : first+k : first+k], Spans: []reconfig.Span{{First: cuts[j], Layers: cuts[j+1] - cuts[j]}},
			})
		}
		p.Replicas = append(p.Replicas, r)
		p.Split = append(p.Split, 1)
	}
	p.Digest = p.Sum()
	return p
}

// transition is a random change of plan, with memory that is just enough or some more.
type transition struct {
	job      reconfig.Job
	devs     []reconfig.Device
	old, to  *reconfig.Plan
	have     []moves.Holding
	want     []moves.Holding
	moves    *moves.Sequence
	step     uint8 // whose state the devices have
	current  bool
	restored uint8
}

func sizeOf(job reconfig.Job, shards []moves.Shard) lockstep.Bytes {
	one, _ := job.Layout.Precision.States(1, 0, 1)
	n := lockstep.Bytes(0)
	for _, s := range shards {
		if s.Part == moves.Parameters {
			n += one.Weights * lockstep.Bytes(s.Count)
		} else {
			n += (one.Optimizer + one.Master) * lockstep.Bytes(s.Count)
		}
	}
	return n
}

func newTransition(t require.TestingT, rng *rand.Rand, devs []reconfig.Device, tight bool) transition {
	return newTransitionOf(t, rng, tinyJob(rng), devs, tight)
}

func newTransitionOf(t require.TestingT, rng *rand.Rand, job reconfig.Job, devs []reconfig.Device, tight bool) transition {
	x := transition{job: job, devs: devs, step: 7, current: rng.IntN(2) == 0}
	x.old = randomPlan(rng, x.job, x.devs)
	calm := rng.IntN(3) == 0 // nothing fails, and places change
	for i, up := 0, len(devs); i < len(devs) && up > 4 && !calm; i++ {
		switch rng.IntN(12) {
		case 0:
			x.devs[i].State, x.devs[i].Speed = reconfig.Down, 0
		case 1:
			x.devs[i].State = reconfig.Cordoned
		default:
			up++
		}
		up--
	}
	x.to = randomPlan(rng, x.job, x.devs)
	full := calm && rng.IntN(2) == 0 // and devices have no room to spare
	if calm {
		some := x.devs
		if full {
			some = some[:4]
			x.old = randomPlan(rng, x.job, some)
		}
		x.to = permuted(rng, x.old, some)
	}
	var err error
	x.have, err = moves.Held(x.job, x.old)
	require.NoError(t, err)
	x.want, err = moves.Held(x.job, x.to)
	require.NoError(t, err)
	if slack := rng.IntN(4); tight && (slack < 3 || full) { // else memory does not limit
		for i := range x.devs {
			most := lockstep.Bytes(1)
			for _, h := range append(slices.Clone(x.have), x.want...) {
				if h.Device == x.devs[i].ID {
					most = max(most, sizeOf(x.job, h.Shards))
				}
			}
			if x.devs[i].Memory = most; !full {
				x.devs[i].Memory += most * lockstep.Bytes(slack) / 4
			}
		}
	}
	x.moves, err = moves.Between(x.job, x.devs, x.have, x.to, moves.Options{CheckpointCurrent: x.current})
	require.NoError(t, err)
	x.restored = x.step
	if x.moves.Restore {
		x.restored = x.step - 1
	}
	return x
}

// fake returns devices with the old state, of which those that are down are lost.
func (x transition) fake() *movestest.Fake {
	f := movestest.NewFake(movestest.Bench{Job: x.job, Devices: x.devs, Stored: func(p moves.Part, b moves.Block, i int64) uint64 {
		return movestest.Tag(x.restored, p, b, i)
	}})
	f.Load(x.have, x.step)
	for _, d := range x.devs {
		if d.State == reconfig.Down {
			f.Lose(d.ID)
		}
		f.Derive(d.ID, x.moves)
	}
	return f
}

// requireHeld checks that live devices hold exactly what is wanted, as it was after a step.
func (x transition) requireHeld(t require.TestingT, f *movestest.Fake, want []moves.Holding, step uint8, note string) {
	sizes := map[lockstep.DeviceID]lockstep.Bytes{}
	for _, h := range want {
		sizes[h.Device] = sizeOf(x.job, h.Shards)
		for _, s := range h.Shards {
			for i, tag := range f.Read(h.Device, s) {
				if want := movestest.Tag(step, s.Part, s.Block, s.First+int64(i)); tag != want {
					require.Equal(t, want, tag, "%s: %s %v parameter %d", note, h.Device, s, s.First+int64(i))
				}
			}
		}
	}
	for _, d := range x.devs {
		if d.State != reconfig.Down {
			require.Equal(t, sizes[d.ID], f.Used(d.ID), "%s: %s holds more than its own", note, d.ID)
		}
	}
}

// requireSources checks that who sends has it before the phase, so that the transfers
// of a phase may happen in any order.
func (x transition) requireSources(t require.TestingT) {
	for i, p := range x.moves.Phases {
		now, err := x.moves.After(x.have, i, i+1)
		require.NoError(t, err)
		for _, tr := range p.Transfers {
			if tr.From == "" {
				continue
			}
			at, ok := slices.BinarySearchFunc(now, tr.From, func(h moves.Holding, id lockstep.DeviceID) int { return cmp.Compare(h.Device, id) })
			require.True(t, ok)
			list := now[at].Shards
			if tr.Host {
				list = now[at].Host
			}
			ok = slices.ContainsFunc(list, func(s moves.Shard) bool {
				return s.Part == tr.Shard.Part && s.Block == tr.Shard.Block && s.First <= tr.Shard.First && s.End() >= tr.Shard.End()
			})
			if !ok {
				require.Fail(t, "not there", "phase %d: %+v", i, tr)
			}
		}
	}
}

// loud is an executor that keeps the last error.
type loud struct {
	moves.Executor
	err error
}

func (l *loud) Do(a moves.Action) error {
	err := l.Executor.Do(a)
	if err != nil {
		l.err = err
	}
	return err
}

func TestRandomTransitionsLoseNoShardAndExceedNoMemory(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 150
	}
	require.NotZero(t, transitionsArrive(t, n, func(seed uint64) transition {
		return newTransition(t, rand.New(rand.NewPCG(seed, 1)), tinyFleet(4, 4, 2), true)
	}))
}

func TestOddDegreesLoseNoShardAndExceedNoMemory(t *testing.T) {
	n := 120
	if testing.Short() {
		n = 20
	}
	require.NotZero(t, transitionsArrive(t, n, func(seed uint64) transition {
		rng := rand.New(rand.NewPCG(seed, 22))
		return newTransitionOf(t, rng, oddJob(rng), tinyFleet(4, 5, 2), true)
	}))
}

// TestFewFullDevicesLoseNoShardAndExceedNoMemory has so few transfers that their order
// is searched for, and receivers that hand on.
func TestFewFullDevicesLoseNoShardAndExceedNoMemory(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 150
	}
	transitionsArrive(t, n, func(seed uint64) transition { return relayed(t, seed) })
}

// relayed changes four full devices about, while others in another leaf join.
func relayed(t require.TestingT, seed uint64) transition {
	rng := rand.New(rand.NewPCG(seed, 26))
	x := transition{job: tinyJob(rng), devs: tinyFleet(3, 4, 1), step: 7, restored: 7}
	x.job.Layout.ZeRO, x.job.Layout.Precision.Weight, x.job.Layout.Precision.Optimizer, x.job.Layout.EP = 0, 3, 0, 0
	x.job.Model.Layers, x.job.Model.Experts, x.job.Model.TopK, x.job.Model.ExpertFFN = 3, 0, 0, 0
	x.old = randomPlan(rng, x.job, x.devs[:4])
	x.to = permuted(rng, x.old, x.devs[:4])
	whole := func(device int) stages { return stages{stageOf(0, 3, device)} }
	for _, d := range []int{8, 9} {
		r := planOf(whole(d)).Replicas[0]
		r.Number = d
		x.to.Replicas = append(x.to.Replicas, r)
		x.to.Split = append(x.to.Split, 1)
	}
	x.to.Digest = x.to.Sum()
	var err error
	x.have, err = moves.Held(x.job, x.old)
	require.NoError(t, err)
	x.want, err = moves.Held(x.job, x.to)
	require.NoError(t, err)
	for i := range x.devs[:4] {
		most := lockstep.Bytes(1)
		for _, h := range append(slices.Clone(x.have), x.want...) {
			if h.Device == x.devs[i].ID {
				most = max(most, sizeOf(x.job, h.Shards))
			}
		}
		x.devs[i].Memory = most + lockstep.Bytes(rng.Int64N(int64(most)/2+1))
	}
	x.moves, err = moves.Between(x.job, x.devs, x.have, x.to, moves.Options{})
	require.NoError(t, err)
	return x
}

// transitionsArrive carries transitions out on devices in memory, and returns how many
// of them had to read an older checkpoint.
func transitionsArrive(t *testing.T, n int, of func(seed uint64) transition) (restored int) {
	t.Helper()
	staged, phases := 0, 0
	for seed := range uint64(n) {
		x := of(seed)
		x.requireSources(t)
		f := x.fake()
		d, err := moves.NewDriver(x.moves, x.to)
		require.NoError(t, err)
		l := &loud{Executor: f}
		state, err := moves.Drive(d, l)
		require.NoError(t, err)
		require.Equal(t, moves.Done, state, "seed %d: %v", seed, l.err)
		x.requireHeld(t, f, x.want, x.restored, fmt.Sprint("seed ", seed))
		require.Equal(t, x.moves.Traffic.Total(), f.Moved())
		peak := lockstep.Bytes(0)
		for _, d := range x.devs {
			if d.State != reconfig.Down {
				peak = max(peak, f.Peak(d.ID))
				require.LessOrEqual(t, f.Peak(d.ID), max(d.Memory, x.moves.Peak))
				require.True(t, d.Memory == 0 || f.Peak(d.ID) <= d.Memory, "seed %d: %s", seed, d.ID)
			}
		}
		require.Equal(t, x.moves.Peak, peak, "seed %d", seed)
		again, err := moves.Between(x.job, x.devs, x.want, x.to, moves.Options{})
		require.NoError(t, err)
		require.Zero(t, again.Traffic, "what is there does not move")
		require.Empty(t, again.Phases)
		phases = max(phases, len(x.moves.Phases))
		if x.moves.Staged > 0 {
			staged++
		}
		if x.moves.Restore {
			restored++
		}
	}
	t.Logf("%d transitions: %d through host memory, %d from an older checkpoint, at most %d phases", n, staged, restored, phases)
	require.NotZero(t, staged, "the test sees memory that is too tight for any order")
	return restored
}
