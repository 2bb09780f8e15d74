package reconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/pipeline"
)

func TestTimelineIsTheSimulationBehindEvaluate(t *testing.T) {
	for _, schedule := range []pipeline.Schedule{pipeline.OneFOneB, pipeline.GPipe, pipeline.ZBH1} {
		for _, migrate := range []bool{false, true} {
			job := jobOf(2, 2, 4, 12, 12)
			job.Schedule = schedule
			devs := fleet(16, 8)
			p := healthy(t, job, devs)
			if migrate {
				if schedule == pipeline.ZBH1 {
					continue // migrations need a schedule without weight ops
				}
				p = clone(p)
				p.Migrations = []Migration{{Stage: 1, Owner: 0, Host: 1, Micro: 2}, {Stage: 3, Owner: 0, Host: 1, Micro: 5}}
			}
			slow := with(devs, 0.5, 3)
			want, err := Evaluate(job, slow, p)
			require.NoError(t, err)
			slots, err := Timeline(job, slow, p)
			require.NoError(t, err)
			ends := make([]time.Duration, len(p.Replicas))
			moved, seen := 0, map[Slot]bool{}
			for i, s := range slots {
				key := Slot{Owner: s.Owner, Stage: s.Stage, Op: s.Op}
				require.False(t, seen[key], "each op once")
				seen[key] = true
				require.Less(t, s.Start, s.End)
				require.Less(t, int(s.Op.Micro), p.Split[s.Owner])
				ends[s.Replica] = max(ends[s.Replica], s.End)
				if s.Owner != s.Replica {
					moved++
				}
				if i > 0 && slots[i-1].Replica == s.Replica && slots[i-1].Stage == s.Stage {
					require.GreaterOrEqual(t, s.Start, slots[i-1].End, "one at a time")
				}
			}
			require.Equal(t, 2*len(p.Migrations), moved, "forward and back")
			perMicro := 2
			if schedule == pipeline.ZBH1 {
				perMicro = 3
			}
			require.Len(t, slots, perMicro*job.Micros*4)
			for i := range ends {
				require.LessOrEqual(t, ends[i], want.Replicas[i])
				if !migrate {
					require.Equal(t, want.Replicas[i], ends[i])
				}
			}
		}
	}
}

func TestTimelineRefusesWhatEvaluateRefuses(t *testing.T) {
	job, devs := jobOf(2, 2, 2, 4, 8), fleet(8, 8)
	p := healthy(t, job, devs)
	for _, tt := range []struct {
		name string
		devs []Device
		edit func(*Plan)
	}{
		{"dead device", with(devs, 0, 0), func(*Plan) {}},
		{"no split", devs, func(p *Plan) { p.Split = nil }},
		{"migration of nothing", devs, func(p *Plan) { p.Migrations = []Migration{{Stage: 9}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := clone(p)
			tt.edit(bad)
			_, want := Evaluate(job, tt.devs, bad)
			require.ErrorIs(t, want, ErrInfeasible)
			_, err := Timeline(job, tt.devs, bad)
			require.ErrorIs(t, err, ErrInfeasible)
		})
	}
}

// clone returns a copy of p whose slices are its own.
func clone(p *Plan) *Plan {
	out := *p
	out.Replicas = append([]Replica(nil), p.Replicas...)
	out.Split = append([]int(nil), p.Split...)
	out.Migrations = append([]Migration(nil), p.Migrations...)
	return &out
}
