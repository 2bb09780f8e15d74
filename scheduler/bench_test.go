package scheduler_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// BenchmarkJob is one job's life, from submission to its end, on a cluster that
// is three quarters full, with all parts under LTGF.
func BenchmarkJob(b *testing.B) {
	for _, nodes := range []int{24, 240, 2400} {
		b.Run("nodes="+strconv.Itoa(nodes)+"/gpus=8", func(b *testing.B) {
			s := newScheduler(b, scheduler.Config{Tree: cluster(b, nodes), StartAtOnce: true})
			now, n := at(0), 0
			next := func() lockstep.Action {
				n++
				submit(b, s, now, gangOf(lockstep.JobID("j"+strconv.Itoa(n)), lockstep.TenantID("t"+strconv.Itoa(n%11)), 1+n%4, time.Hour))
				actions := step(b, s, now)
				require.Len(b, actions, 1)
				return actions[0]
			}
			ring := make([]lockstep.Action, nodes*8*3/4*10/25) // 2.5 devices a job
			for i := range ring {
				ring[i] = next()
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				a := &ring[i%len(ring)]
				if err := s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: now, Job: a.Job, Attempt: a.Attempt}); err != nil {
					b.Fatal(err)
				}
				ring[i%len(ring)] = next()
				i++
			}
		})
	}
}

// BenchmarkBoundary is the end of all terms at once, where everybody stays.
func BenchmarkBoundary(b *testing.B) {
	for _, nodes := range []int{24, 240, 2400} {
		b.Run("nodes="+strconv.Itoa(nodes)+"/gpus=8", func(b *testing.B) {
			s := newScheduler(b, scheduler.Config{Tree: cluster(b, nodes), StartAtOnce: true})
			now := at(0)
			for n := range nodes {
				submit(b, s, now, gangOf(lockstep.JobID("j"+strconv.Itoa(n)), lockstep.TenantID("t"+strconv.Itoa(n%11)), 8, time.Hour))
			}
			require.Len(b, step(b, s, now), nodes)
			b.ReportAllocs()
			for b.Loop() {
				now, _ = s.NextWake(now)
				if actions := step(b, s, now); len(actions) != nodes {
					b.Fatal(len(actions))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/holder")
		})
	}
}
