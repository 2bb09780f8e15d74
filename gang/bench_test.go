package gang_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/gang"
)

// crowd returns an Admission whose cluster of racks with 32 nodes of 8 devices
// is full of jobs of 8, with queued jobs of 8 to 64 devices waiting.
func crowd(tb testing.TB, racks, queued int, backfill gang.Backfill) (*gang.Admission, int) {
	tb.Helper()
	p := place(racks, 32, 8)
	a, err := gang.New(gang.Config{Placer: p, StartAtOnce: true, Backfill: backfill})
	require.NoError(tb, err)
	running := racks * 32
	for n := range running + queued {
		g := plain(lockstep.JobID(fmt.Sprintf("j%06d", n)), 1, 1000+n%5000)
		g.Roles[0].Demand.GPUs = 8
		if n >= running {
			g.Roles[0].Min = 1 + n%8
		}
		require.NoError(tb, a.Submit(at(0), g))
		if n == running-1 {
			_, err = a.Step(at(0))
			require.NoError(tb, err)
		}
	}
	_, err = a.Step(at(1))
	require.NoError(tb, err)
	require.Len(tb, a.AppendJobs(nil, gang.Running), running)
	return a, running
}

var sizes = []struct{ racks, queued int }{{4, 100}, {32, 1000}, {32, 10000}, {32, 100000}}

// One job ends, the pass over the whole queue fills its room or keeps it for the
// head, and another is submitted.
func BenchmarkStepAfterAnEnd(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("nodes=%d/queued=%d", size.racks*32, size.queued), func(b *testing.B) {
			a, _ := crowd(b, size.racks, size.queued, gang.EASY)
			var dst []lockstep.Action
			live := a.AppendJobs(nil, gang.Running)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				now := at(2 + n)
				if err := a.Finish(now, live[n%len(live)], 0); err != nil {
					b.Fatal(err)
				}
				g := plain(lockstep.JobID(fmt.Sprintf("k%06d", n)), 1+n%8, 1000+n%5000)
				g.Roles[0].Demand.GPUs = 8
				if err := a.Submit(now, g); err != nil {
					b.Fatal(err)
				}
				var err error
				dst, err = a.AppendStep(dst[:0], now)
				if err != nil {
					b.Fatal(err)
				}
				for _, x := range dst {
					live = append(live, x.Job)
				}
				n++
			}
		})
	}
}

// A job is submitted while everything is full and nothing was freed.
func BenchmarkStepAfterASubmit(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("nodes=%d/queued=%d", size.racks*32, size.queued), func(b *testing.B) {
			a, _ := crowd(b, size.racks, size.queued, gang.EASY)
			var dst []lockstep.Action
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				g := plain("extra", 1+n%8, 1000)
				g.Roles[0].Demand.GPUs = 8
				if err := a.Submit(at(2), g); err != nil {
					b.Fatal(err)
				}
				var err error
				if dst, err = a.AppendStep(dst[:0], at(2)); err != nil || len(dst) != 0 {
					b.Fatal(dst, err)
				}
				if err := a.Cancel(at(2), "extra"); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}

// Nothing happened since the last Step.
func BenchmarkStepIdle(b *testing.B) {
	a, _ := crowd(b, 32, 10000, gang.EASY)
	var dst []lockstep.Action
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = a.AppendStep(dst[:0], at(2))
	}
}

// Every holder of the cluster is due at once and a gang ahead wants a rack.
func BenchmarkBoundary(b *testing.B) {
	for _, racks := range []int{1, 4} {
		b.Run(fmt.Sprintf("due=%d", racks*32), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				a := boundaryCrowd(b, racks)
				b.StartTimer()
				if _, err := a.Step(at(10)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func boundaryCrowd(b *testing.B, racks int) *gang.Admission {
	a, err := gang.New(gang.Config{Placer: place(racks, 32, 8), StartAtOnce: true})
	if err != nil {
		b.Fatal(err)
	}
	var list []lockstep.JobID
	for n := range racks * 32 {
		g := holder(lockstep.JobID(fmt.Sprintf("h%04d", n)), 1, 0)
		g.Roles[0].Demand.GPUs = 8
		list = append(list, g.ID)
		if err := a.Submit(at(0), g); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := a.Step(at(0)); err != nil {
		b.Fatal(err)
	}
	w := plain("w", 32, 0)
	w.Priority, w.Required = 1, "rack"
	w.Roles[0].Demand.GPUs = 8
	if err := a.Submit(at(10), w); err != nil {
		b.Fatal(err)
	}
	for _, id := range list {
		if err := a.Due(at(10), id, 0); err != nil {
			b.Fatal(err)
		}
	}
	return a
}

// Every holder of the cluster is due at once and stays, with others waiting behind
// them for room that there is not.
func BenchmarkBoundaryWhereAllStay(b *testing.B) {
	for _, queued := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("due=1024/queued=%d", queued), func(b *testing.B) {
			a, err := gang.New(gang.Config{Placer: place(32, 32, 8), StartAtOnce: true})
			if err != nil {
				b.Fatal(err)
			}
			var list []lockstep.JobID
			for n := range 1024 + queued {
				g := holder(lockstep.JobID(fmt.Sprintf("h%06d", n)), 1, 0)
				if g.Roles[0].Demand.GPUs = 8; n < 1024 {
					list = append(list, g.ID)
				} else {
					g.Roles[0].Min = 1 + n%8
				}
				if err := a.Submit(at(n/1024), g); err != nil {
					b.Fatal(err)
				}
			}
			var dst []lockstep.Action
			now := 1000
			if dst, err = a.AppendStep(dst, at(now)); err != nil || len(dst) != 1024 {
				b.Fatal(len(dst), err)
			}
			b.ReportAllocs()
			for b.Loop() {
				now++
				for _, id := range list {
					if err := a.Due(at(now), id, 0); err != nil {
						b.Fatal(err)
					}
				}
				if dst, err = a.AppendStep(dst[:0], at(now)); err != nil || len(dst) != 1024 {
					b.Fatal(len(dst), err)
				}
			}
		})
	}
}

// One job ends on time, the pass starts who was promised its room, and one more
// job comes and gets a reservation behind all others.
func BenchmarkConservativeAfterAnEnd(b *testing.B) {
	for _, queued := range []int{100, 1000} {
		b.Run(fmt.Sprintf("nodes=32/queued=%d", queued), func(b *testing.B) {
			a, err := gang.New(gang.Config{Placer: place(1, 32, 8), StartAtOnce: true, Backfill: gang.Conservative})
			if err != nil {
				b.Fatal(err)
			}
			var dst []lockstep.Action
			ends := map[int][]lockstep.JobID{}
			n, now := 0, 0
			submit := func() {
				g := plain(lockstep.JobID(fmt.Sprintf("j%07d", n)), 1+n%3, 1+n*7919%600)
				g.Roles[0].Demand.GPUs = 1 << (n % 4)
				n++
				if err := a.Submit(at(now), g); err != nil {
					b.Fatal(err)
				}
			}
			turn := func() {
				if dst, err = a.AppendStep(dst[:0], at(now)); err != nil {
					b.Fatal(err)
				}
				for _, x := range dst {
					t := now + int(x.Plan.Gang.Walltime.Seconds())
					ends[t] = append(ends[t], x.Job)
				}
			}
			for n < 60+queued {
				submit()
			}
			turn()
			b.ReportAllocs()
			for b.Loop() {
				for now++; len(ends[now]) == 0; {
					now++
				}
				for _, id := range ends[now] {
					if err := a.Finish(at(now), id, 0); err != nil {
						b.Fatal(err)
					}
				}
				delete(ends, now)
				turn()
				for range dst { // as many as left
					submit()
				}
				turn()
			}
		})
	}
}

// With nothing to decide a Step allocates nothing, however many wait.
func TestAStepThatDecidesNothingAllocatesNothing(t *testing.T) {
	a, _ := crowd(t, 4, 500, gang.EASY)
	dst := make([]lockstep.Action, 0, 8)
	require.Zero(t, testing.AllocsPerRun(20, func() { dst, _ = a.AppendStep(dst[:0], at(2)) }))
}

// crowdOfOnes returns an Admission whose cluster of racks with 50 nodes of 8 devices
// is full of jobs of one device in a queue that deserves nothing, and a gang of
// so many members of 8 that waits in one that deserves all.
func crowdOfOnes(b *testing.B, racks, members int) *gang.Admission {
	b.Helper()
	nodes := racks * 50
	q, err := quota.New(quota.Config{
		Capacity: lockstep.Resources{lockstep.ResourceGPU: int64(nodes) * 8000},
		Queues:   []quota.Queue{{Name: "all", Weight: 1}, {Name: "none"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	a, err := gang.New(gang.Config{Placer: place(racks, 50, 8), Quota: q, StartAtOnce: true, Preempt: gang.PreemptOn})
	if err != nil {
		b.Fatal(err)
	}
	for n := range nodes * 8 {
		g := holder(lockstep.JobID(fmt.Sprintf("h%06d", n)), 1, 0)
		g.Queue = "none"
		if err := a.Submit(at(0), g); err != nil {
			b.Fatal(err)
		}
	}
	if got, err := a.Step(at(0)); err != nil || len(got) != nodes*8 {
		b.Fatal(len(got), err)
	}
	w := plain("w", members, 0)
	w.Queue, w.Roles[0].Demand.GPUs = "all", 8
	if err := a.Submit(at(10), w); err != nil {
		b.Fatal(err)
	}
	return a
}

// One gang takes back the room of many small jobs that borrowed it.
func BenchmarkReclaim(b *testing.B) {
	for _, size := range []struct{ racks, members int }{{2, 10}, {10, 50}, {20, 100}} {
		b.Run(fmt.Sprintf("nodes=%d/jobs=%d/gang=%d", size.racks*50, size.racks*400, size.members), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				a := crowdOfOnes(b, size.racks, size.members)
				b.StartTimer()
				if got, err := a.Step(at(10)); err != nil || len(got) != size.members*8 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}

// As BenchmarkStepAfterAnEnd, where waiting gangs may take room but all are of one
// priority, and where those that wait are of a higher one and the holders bear nothing.
func BenchmarkStepAfterAnEndTaking(b *testing.B) {
	for _, higher := range []bool{false, true} {
		b.Run(fmt.Sprintf("nodes=1024/queued=10000/higher=%v", higher), func(b *testing.B) {
			a, err := gang.New(gang.Config{Placer: place(32, 32, 8), StartAtOnce: true, Preempt: gang.PreemptOn})
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			submit := func(now, members int) {
				g := plain(lockstep.JobID(fmt.Sprintf("j%06d", n)), members, 1000+n%5000)
				g.Roles[0].Demand.GPUs = 8
				if higher && n >= 1024 {
					g.Priority = 1
				}
				g.Capabilities.Preemptible = n == 7 && higher
				n++
				if err := a.Submit(at(now), g); err != nil {
					b.Fatal(err)
				}
			}
			for n < 1024 {
				submit(0, 1)
			}
			dst, err := a.AppendStep(nil, at(0))
			if err != nil {
				b.Fatal(err)
			}
			for n < 11024 {
				submit(1, 2+n%7)
			}
			live := a.AppendJobs(nil, gang.Running)
			if dst, err = a.AppendStep(dst[:0], at(1)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for k := 2; b.Loop(); k++ {
				if err := a.Finish(at(k), live[k%len(live)], 0); err != nil {
					b.Fatal(err)
				}
				submit(k, 1)
				if dst, err = a.AppendStep(dst[:0], at(k)); err != nil {
					b.Fatal(err)
				}
				for _, x := range dst {
					if x.Kind == lockstep.ActionStart {
						live = append(live, x.Job)
					}
				}
			}
		})
	}
}
