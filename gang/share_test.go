package gang_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// shared is a random gang of members with whole devices or shares of one, kept in
// one domain of some level.
func shared(r *rand.Rand, n, devices, nodes int) *lockstep.Gang {
	g := plain(lockstep.JobID(fmt.Sprintf("j%03d", n)), 1+r.IntN(4), 1+r.IntN(30))
	d := &g.Roles[0].Demand
	switch r.IntN(3) {
	case 0:
		d.GPUs = 1 + r.IntN(devices)
		g.Roles[0].Min = 1 + r.IntN(nodes)
	case 1:
		d.Share = 500
	default:
		d.Share = lockstep.MilliGPU(100 * (1 + r.IntN(9)))
	}
	g.Required = []lockstep.Level{"", placertest.Rack, lockstep.LevelNode}[r.IntN(3)]
	return g
}

// With shares of devices and levels of the topology, on package placement: true
// walltimes given, whoever has the one reservation of EASY starts by then, whatever was
// backfilled, and nobody waits for ever who fits alone. Where all who wait have
// one, a few slip: parts of devices are not all alike to the placer.
func TestBackfillNeverDelaysAReservationWithSharesAndLevels(t *testing.T) {
	kept, slept := map[gang.Backfill]int{}, map[gang.Backfill]int{}
	for seed := range many(120) {
		r := rand.New(rand.NewPCG(uint64(seed), 121))
		racks, nodes, devices := 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(3)
		cfg := gang.Config{StartAtOnce: seed%3 != 0, Hold: 2 * time.Second}
		if seed%4 == 1 {
			cfg.Backfill = gang.Conservative
		}
		w, _ := rackWorld(t, racks, nodes, devices, cfg)
		w.share = true
		for n := range 40 {
			w.submit(r.IntN(100), shared(r, n, devices, nodes))
		}
		promised := map[lockstep.JobID]int{}
		for second := range 160 {
			w.run(second)
			for _, id := range w.a.AppendJobs(nil, gang.Queued) {
				if start, ok := forecast(w.a, id); ok {
					if _, known := promised[id]; !known {
						promised[id] = seconds(start)
					}
				}
			}
		}
		w.run(1 << 20)
		for id, s := range promised {
			require.Len(t, w.starts[id], 1, "seed %d: %s", seed, id)
			if w.starts[id][0] > s {
				slept[cfg.Backfill]++
				t.Logf("seed %d: %s was promised %d and started at %d", seed, id, s, w.starts[id][0])
			}
			kept[cfg.Backfill]++
		}
	}
	t.Logf("promises %v, not kept %v", kept, slept)
	require.Zero(t, slept[gang.EASY])
	require.LessOrEqual(t, 50*slept[gang.Conservative], kept[gang.Conservative])
	require.NotZero(t, kept[gang.EASY])
}
