package moves_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// orders answers by search whether the transfers of a plan can be done one after the
// other without host memory. Transfers of whole spares only, so each frees at its
// sender what no other still reads.
type orders struct {
	transfers []moves.Transfer
	kept      map[lockstep.DeviceID]lockstep.Bytes // what a device has and keeps
	room      map[lockstep.DeviceID]lockstep.Bytes
	spare     []lockstep.Bytes // by transfer: what of it the sender does not need in the end
	dead      map[uint32]bool
}

// held returns what a device holds when a set of transfers is done.
func (o *orders) held(id lockstep.DeviceID, done uint32) lockstep.Bytes {
	n := o.kept[id]
	var pending []moves.Shard
	for i, t := range o.transfers {
		is := done&(1<<i) != 0
		if t.To == id && is {
			n += t.Bytes
		}
		if t.From == id && !is && !slices.Contains(pending, t.Shard) {
			pending = append(pending, t.Shard)
			n += o.spare[i]
		}
	}
	return n
}

func (o *orders) search(done uint32) bool {
	if done == 1<<len(o.transfers)-1 {
		return true
	}
	if o.dead[done] {
		return false
	}
	for i, t := range o.transfers {
		if done&(1<<i) == 0 && o.held(t.To, done)+t.Bytes <= o.room[t.To] && o.search(done|1<<i) {
			return true
		}
	}
	o.dead[done] = true
	return false
}

// permuted returns the plan with its devices changed about.
func permuted(rng *rand.Rand, p *reconfig.Plan, devs []reconfig.Device) *reconfig.Plan {
	names := map[lockstep.DeviceID]lockstep.DeviceID{}
	for i, j := range rng.Perm(len(devs)) {
		names[devs[i].ID] = devs[j].ID
	}
	out := &reconfig.Plan{Version: 2, Split: p.Split}
	for _, r := range p.Replicas {
		c := reconfig.Replica{Number: r.Number}
		for _, s := range r.Stages {
			n := reconfig.Stage{Spans: s.Spans}
			for _, id := range s.Devices {
				n.Devices = append(n.Devices, names[id])
			}
			c.Stages = append(c.Stages, n)
		}
		out.Replicas = append(out.Replicas, c)
	}
	out.Digest = out.Sum()
	return out
}

// TestHostMemoryIsUsedWhereNoOrderExists compares with a search over all orders, where
// devices are so full that order matters.
func TestHostMemoryIsUsedWhereNoOrderExists(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 500
	}
	asked, staged, missed := 0, 0, 0
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 11))
		job, devs := tinyJob(rng), tinyFleet(1, 4, 1)
		job.Layout.ZeRO, job.Layout.Precision.Weight, job.Layout.Precision.Optimizer, job.Layout.EP = 0, 3, 0, 0
		job.Model.Layers = 3 + rng.IntN(3)
		old := randomPlan(rng, job, devs)
		to := permuted(rng, old, devs)
		if rng.IntN(2) == 0 {
			to = randomPlan(rng, job, devs)
		}
		have, err := moves.Held(job, old)
		require.NoError(t, err)
		want, err := moves.Held(job, to)
		require.NoError(t, err)
		has := func(list []moves.Holding, id lockstep.DeviceID) []moves.Shard {
			for _, h := range list {
				if h.Device == id {
					return h.Shards
				}
			}
			return nil
		}
		o := orders{kept: map[lockstep.DeviceID]lockstep.Bytes{}, room: map[lockstep.DeviceID]lockstep.Bytes{}, dead: map[uint32]bool{}}
		for i, d := range devs {
			least := max(1, sizeOf(job, has(have, d.ID)), sizeOf(job, has(want, d.ID)))
			devs[i].Memory = least + lockstep.Bytes(rng.Int64N(int64(least)/2+1))
			o.room[d.ID] = devs[i].Memory
		}
		m, err := moves.Between(job, devs, have, to, moves.Options{})
		require.NoError(t, err)
		mine := cells(devs, want, false)
		for _, p := range m.Phases {
			for _, tr := range p.Transfers {
				from := slices.IndexFunc(devs, func(d reconfig.Device) bool { return d.ID == tr.From })
				o.transfers = append(o.transfers, tr)
				spare := lockstep.Bytes(0)
				for i := tr.Shard.First; i < tr.Shard.End(); i++ {
					if !slices.Contains(mine[cell{tr.Shard.Part, tr.Shard.Block, i}], from) {
						spare += tr.Bytes / lockstep.Bytes(tr.Shard.Count)
					}
				}
				o.spare = append(o.spare, spare)
			}
		}
		if len(o.transfers) > 14 {
			continue
		}
		for c, users := range cells(devs, have, true) { // a sum does not depend on order
			for _, u := range users {
				if slices.Contains(mine[c], u) {
					o.kept[devs[u].ID] += sizeOf(job, []moves.Shard{{Part: c.part, Count: 1}})
				}
			}
		}
		asked++
		if m.Staged > 0 {
			staged++
			if o.search(0) {
				missed++
			}
		}
	}
	t.Logf("%d changes, %d through host memory, for %d of them there is an order without", asked, staged, missed)
	require.NotZero(t, staged)
	require.Zero(t, missed)
}
