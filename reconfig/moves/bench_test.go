package moves_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// largeMoves is a job of 7B on so many devices, groups of 8 in pipelines of 8, and
// what it looks like when one node is lost: its stage goes to a standby node.
func largeMoves(t testing.TB, devices, zero int, drop bool) (reconfig.Job, []reconfig.Device, []moves.Holding, *reconfig.Plan) {
	job := plainJob()
	job.Model = perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true}
	job.Layout = perfmodel.Layout{TP: 8, PP: 8, DP: devices / 64, ZeRO: zero}
	job.Micros = devices
	devs := tinyFleet(devices/8+1, 8, 16)
	for i := range devs {
		devs[i].ID = lockstep.DeviceID(fmt.Sprintf("gpu-%05d", i))
	}
	pipes := func(n, lost int) *reconfig.Plan {
		p := &reconfig.Plan{Version: 1}
		for i := range n {
			r := reconfig.Replica{Number: i}
			for s := range 8 {
				node := i*8 + s
				if node == lost {
					node = devices / 8
				}
				st := reconfig.Stage{Spans: []reconfig.Span{{First: 4 * s, Layers: 4}}}
				for k := range 8 {
					st.Devices = append(st.Devices, devs[node*8+k].ID)
				}
				r.Stages = append(r.Stages, st)
			}
			p.Replicas = append(p.Replicas, r)
			p.Split = append(p.Split, 1)
		}
		p.Digest = p.Sum()
		return p
	}
	n := devices / 64
	old, to := pipes(n, -1), pipes(n, 3)
	if drop {
		old, to = pipes(n, -1), pipes(n-1, -1)
		devs[0].Speed = 1
	}
	have, err := moves.Held(job, old)
	require.NoError(t, err)
	lost := 3
	if drop {
		lost = devices/8 - 1
	}
	for k := range 8 {
		devs[lost*8+k].State, devs[lost*8+k].Speed = reconfig.Down, 0
	}
	return job, devs, have, to
}

func BenchmarkBetween(b *testing.B) {
	for _, devices := range []int{256, 4096, 16384} {
		for _, c := range []struct {
			name string
			zero int
			drop bool
		}{{"standby", 0, false}, {"drop", 0, true}, {"drop/zero=1", 1, true}} {
			b.Run(fmt.Sprintf("%s/gpus=%d", c.name, devices), func(b *testing.B) {
				job, devs, have, to := largeMoves(b, devices, c.zero, c.drop)
				o := moves.Options{CheckpointCurrent: true}
				transfers := 0
				b.ReportAllocs()
				for b.Loop() {
					m, err := moves.Between(job, devs, have, to, o)
					require.NoError(b, err)
					transfers = 0
					for _, p := range m.Phases {
						transfers += len(p.Transfers)
					}
				}
				b.ReportMetric(float64(transfers), "transfers")
			})
		}
	}
}
