package reconfig

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
	"github.com/stretchr/testify/require"
)

// instance returns a random job of any schedule and constraints, and its devices.
func instance(r *rand.Rand) (Job, []Device) {
	shapes := [][4]int{ // TP, DP, PP, devices of a node
		{1, 2, 3, 2}, {2, 2, 2, 4}, {2, 3, 2, 2}, {4, 2, 2, 4}, {4, 2, 4, 4}, {4, 3, 2, 8}, {8, 2, 2, 8}, {1, 4, 2, 4},
	}
	s := shapes[r.IntN(len(shapes))]
	job := jobOf(s[0], s[1], s[2], s[2]*(2+r.IntN(5)), s[1]*s[2]*(1+r.IntN(3)))
	job.Schedule = pipeline.Schedule(r.IntN(5))
	if job.Schedule == pipeline.Interleaved {
		job.Chunks = 2
	}
	a := &job.Allow
	a.Uniform, a.FixedStages, a.AllowOddTP, a.AllowMigration = r.IntN(4) == 0, r.IntN(4) == 0, r.IntN(3) == 0, r.IntN(3) == 0
	if r.IntN(2) == 0 {
		job.Costs.Hop = Hops{Node: 10 * time.Microsecond, Leaf: 50 * time.Microsecond, Fabric: 90 * time.Microsecond}
		job.Costs.Exchange = time.Millisecond
	}
	if r.IntN(3) == 0 {
		job.Costs.Head = Cost{Forward: time.Millisecond, Weight: time.Millisecond}
	}
	job.Layout.ZeRO = r.IntN(2)
	devs := fleet(s[0]*s[1]*s[2], s[3])
	if r.IntN(2) == 0 {
		job.Batch.Tokens = 512
		w, err := newWorld("test", job, devs)
		if err != nil {
			panic(err)
		}
		share := job.Micros / s[1]
		need := w.memory(int32(s[0]), job.Model.Layers/s[2], true, true, w.schedule(s[2], share).peaks[0], w.losses(share), s[1])
		for i := range devs {
			devs[i].Memory = lockstep.Bytes(need) * 3 / 2
		}
	}
	return job, devs
}

func TestEveryPlanKeepsTheInvariants(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 12
	}
	infeasible, migrated := 0, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		job, devs := instance(r)
		name := fmt.Sprintf("seed %d: %v %+v", seed, job.Schedule, job.Allow)
		prev, err := Replan(job, devs, nil, Options{})
		require.NoError(t, err, name)
		require.NoError(t, Verify(job, devs, prev), name)
		for step := range 3 {
			devs = hurt(r, devs)
			before := describe(prev)
			next, err := Replan(job, devs, prev, Options{})
			require.Equal(t, before, describe(prev), "the plan before is only read")
			if err != nil {
				require.ErrorIs(t, err, ErrInfeasible, name)
				infeasible++
				break
			}
			require.NoError(t, Verify(job, devs, next), "%s step %d", name, step)
			require.LessOrEqual(t, next.Estimate.Fluid, next.Estimate.Iteration)
			e, err := Evaluate(job, devs, next)
			require.NoError(t, err)
			require.Equal(t, next.Estimate, e, name)
			if e, err := Evaluate(job, devs, prev); err == nil {
				require.LessOrEqual(t, next.Estimate.Iteration, e.Iteration, "no action is never better: %s", name)
			}
			migrated += len(next.Migrations)
			prev = next
		}
	}
	t.Logf("%d of %d ran out of plans; %d migrations", infeasible, n, migrated)
	require.Less(t, infeasible, n/4)
}

func describe(p *Plan) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestEqualInputGivesEqualPlans(t *testing.T) {
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 12))
		job, devs := instance(r)
		prev := healthy(t, job, devs)
		devs = hurt(r, devs)
		p, err := Replan(job, devs, prev, Options{})
		if err != nil {
			continue
		}
		r.Shuffle(len(devs), func(i, j int) { devs[i], devs[j] = devs[j], devs[i] })
		q, err := Replan(job, devs, prev, Options{})
		require.NoError(t, err)
		require.Equal(t, p.Digest, q.Digest, "the order of devices does not matter")
		require.Equal(t, describe(p), describe(q))
	}
}

func TestRelabellingDevicesRelabelsThePlan(t *testing.T) {
	rename := func(s string) string {
		return strings.NewReplacer("gpu-", "dev-", "node-", "host-", "leaf-", "pod-").Replace(s)
	}
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 13))
		job, devs := instance(r)
		devs = hurt(r, devs)
		p, err := Replan(job, devs, nil, Options{})
		if err != nil {
			continue
		}
		for i := range devs {
			d := &devs[i]
			d.ID, d.Node, d.Leaf = lockstep.DeviceID(rename(string(d.ID))), lockstep.NodeID(rename(string(d.Node))), rename(d.Leaf)
		}
		q, err := Replan(job, devs, nil, Options{})
		require.NoError(t, err)
		p.Basis, p.Digest, q.Basis, q.Digest = Digest{}, Digest{}, Digest{}, Digest{}
		require.Equal(t, rename(describe(p)), describe(q))
	}
}

func TestNoChangeReturnsThePlanItself(t *testing.T) {
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 14))
		job, devs := instance(r)
		p := healthy(t, job, devs)
		again, err := Replan(job, devs, p, Options{})
		require.NoError(t, err)
		require.Same(t, p, again)
		devs = hurt(r, devs)
		q, err := Replan(job, devs, p, Options{})
		if err != nil {
			continue
		}
		again, err = Replan(job, devs, q, Options{})
		require.NoError(t, err)
		require.Same(t, q, again)
	}
}

func TestMoreDevicesOrSpeedNeverLowerTheEstimate(t *testing.T) {
	n := 50
	if testing.Short() {
		n = 15
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 15))
		job, devs := instance(r)
		prev := healthy(t, job, devs)
		devs = hurt(r, hurt(r, devs))
		p, err := Replan(job, devs, prev, Options{})
		if err != nil {
			continue
		}
		for step := range 4 { // devices come back or get faster
			i := r.IntN(len(devs))
			devs[i].Speed = min(1, devs[i].Speed+.3)
			q, err := Replan(job, devs, p, Options{})
			require.NoError(t, err, "seed %d step %d", seed, step)
			require.NoError(t, Verify(job, devs, q))
			require.LessOrEqual(t, q.Estimate.Iteration, p.Estimate.Iteration, "seed %d step %d", seed, step)
			p = q
		}
	}
}

func TestReplanIsNeverWorseThanDroppingWhatIsHurt(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 15
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 16))
		job, devs := instance(r)
		prev := healthy(t, job, devs)
		devs = hurt(r, devs)
		p, err := Replan(job, devs, prev, Options{})
		if err != nil {
			continue
		}
		kept := &Plan{}
		bad := map[lockstep.DeviceID]bool{}
		for _, d := range devs {
			bad[d.ID] = d.Speed < 1
		}
		for _, rep := range prev.Replicas {
			if !slices.ContainsFunc(rep.Stages, func(s Stage) bool {
				return slices.ContainsFunc(s.Devices, func(id lockstep.DeviceID) bool { return bad[id] })
			}) {
				kept.Replicas = append(kept.Replicas, rep)
			}
		}
		if n := len(kept.Replicas); n > 0 && job.Layout.ZeRO == 0 {
			best := time.Duration(forever)
			eachSplit(job.Micros, n, nil, func(split []int) {
				kept.Split = split
				if e, err := Evaluate(job, devs, kept); err == nil && verify(job, devs, kept, false) == nil {
					best = min(best, e.Iteration)
				}
			})
			require.LessOrEqual(t, p.Estimate.Iteration, best, "seed %d", seed)
		}
	}
}

// eachSplit yields every split of m among n, each at least 1.
func eachSplit(m, n int, have []int, yield func([]int)) {
	if n == 1 {
		yield(append(slices.Clone(have), m))
		return
	}
	for k := 1; k <= m-n+1; k++ {
		eachSplit(m-k, n-1, append(have, k), yield)
	}
}

func TestAFailureTouchesOnlyItsReplicaUnlessTheGainIsLarge(t *testing.T) {
	job := jobOf(4, 4, 4, 32, 32)
	devs := fleet(64, 4)
	prev := healthy(t, job, devs)
	touched := 0
	for _, first := range []int{4, 20, 37, 62} {
		one, err := Replan(job, with(devs, 0, first), prev, Options{})
		require.NoError(t, err)
		for _, second := range []int{0, 25, 50} {
			hurt := with(devs, 0, first, second)
			two, err := Replan(job, hurt, one, Options{})
			require.NoError(t, err)
			var others int
			for _, r := range one.Replicas {
				lost := slices.ContainsFunc(r.Stages, func(s Stage) bool { return slices.Contains(s.Devices, devs[second].ID) })
				same := slices.ContainsFunc(two.Replicas, func(q Replica) bool {
					return q.Number == r.Number && slices.EqualFunc(q.Stages, r.Stages, func(a, b Stage) bool {
						return slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Spans, b.Spans)
					})
				})
				if !lost && !same {
					others++
				}
			}
			if others == 0 {
				continue
			}
			touched++
			stay, err := Replan(job, hurt, one, Options{Disturb: 1})
			require.NoError(t, err)
			gain := stay.Estimate.Iteration - two.Estimate.Iteration
			require.GreaterOrEqual(t, float64(gain), .0199*float64(stay.Estimate.Iteration), "replicas that lost nothing change only for 2%%")
		}
	}
	t.Logf("other replicas changed in %d of 12", touched)
}

func TestSyncAndMemoryOfRealModels(t *testing.T) {
	llama := perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true}
	batch, err := llama.Mask.Batch([]int{4096})
	require.NoError(t, err)
	job := Job{
		Model: llama, Layout: perfmodel.Layout{TP: 4, PP: 2, DP: 2, ZeRO: 1}, Micros: 16, Batch: batch,
		Flash: true, Reserve: 4 * lockstep.GiB, Rate: perfmodel.Rate{Linear: 150e12},
	}
	devs := fleet(16, 8)
	for i := range devs {
		devs[i].Memory = 80 * lockstep.GiB
	}
	p := healthy(t, job, devs)
	require.NoError(t, Verify(job, devs, p))
	require.Positive(t, p.Estimate.Memory)
	require.LessOrEqual(t, p.Estimate.Memory, 80*lockstep.GiB)
	for i := range devs {
		devs[i].Memory = 8 * lockstep.GiB
	}
	_, err = Replan(job, devs, nil, Options{})
	var no *Infeasible
	require.ErrorAs(t, err, &no)
	require.Equal(t, ReasonMemory, no.Reason)
	require.Greater(t, no.Witness.Need, int64(0))
}
