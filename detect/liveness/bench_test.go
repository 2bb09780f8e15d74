package liveness

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// warm is a monitor of ranks that all live, and the time until which they beat.
func warm(t testing.TB, cfg Config, ranks int) (*Monitor, time.Duration) {
	m := newMonitor(t, cfg)
	for r := range ranks {
		require.NoError(t, m.Join(t0, r, 1))
	}
	now := time.Duration(0)
	for i := range 40 {
		now += sec
		all(t, m, now, ranks, uint64(i))
		_, err := m.Check(nil, at(now))
		require.NoError(t, err)
	}
	return m, now
}

func all(t testing.TB, m *Monitor, now time.Duration, ranks int, progress uint64) {
	for r := range ranks {
		if out, err := m.Beat(at(now), r, Beat{Incarnation: 1, Progress: progress}); err != nil || out != Accepted {
			t.Fatal(out, err)
		}
	}
}

var sizes = []int{1_000, 10_000, 100_000}

// BenchmarkCheck is one check in which nothing changed.
func BenchmarkCheck(b *testing.B) {
	for _, ranks := range sizes {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			m, now := warm(b, Config{}, ranks)
			b.ReportAllocs()
			for b.Loop() {
				if events, err := m.Check(nil, at(now)); err != nil || len(events) > 0 {
					b.Fatal(events, err)
				}
			}
		})
	}
}

// BenchmarkCheckAllSilent is one check that finds all ranks Suspect at once.
func BenchmarkCheckAllSilent(b *testing.B) {
	for _, ranks := range sizes {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			m, now := warm(b, Config{Method: Deadline, SuspectAfter: 5 * sec, DeadAfter: time.Hour, Settle: 1, Rules: []Rule{{Phase: PhaseStep, Gap: 24 * time.Hour, Fixed: true}}}, ranks)
			events := make([]Event, 0, ranks)
			b.ReportAllocs()
			for b.Loop() {
				now += 5 * sec
				var err error
				if events, err = m.Check(events[:0], at(now)); err != nil || len(events) != ranks {
					b.Fatal(len(events), err)
				}
				b.StopTimer()
				all(b, m, now, ranks, uint64(now))
				now += sec
				if back, err := m.Check(events[:0], at(now)); err != nil || len(back) != ranks {
					b.Fatal(len(back), err)
				}
				all(b, m, now, ranks, uint64(now))
				b.StartTimer()
			}
		})
	}
}

// BenchmarkBeat is one beat with progress, and the change of all that follows.
func BenchmarkBeat(b *testing.B) {
	for _, ranks := range sizes {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			m, now := warm(b, Config{}, ranks)
			b.ReportAllocs()
			rank, n := 0, uint64(100)
			for b.Loop() {
				if rank == 0 {
					now, n = now+sec, n+1
				}
				if out, err := m.Beat(at(now), rank, Beat{Incarnation: 1, Progress: n}); err != nil || out != Accepted {
					b.Fatal(out, err)
				}
				if rank++; rank == ranks {
					rank = 0
				}
			}
		})
	}
}

// fleet is a coordinator whose nodes of 8 ranks all live, and their next reports.
func fleet(t testing.TB, nodes int) (*Coordinator, []Report, time.Duration) {
	c, err := NewCoordinator(Config{})
	require.NoError(t, err)
	reports := make([]Report, nodes)
	for n := range nodes {
		r := Report{Node: nodeID(n), Incarnation: 1}
		for k := range 8 {
			r.Members = append(r.Members, Member{Rank: n*8 + k, Incarnation: 1, State: Alive, Reason: reasonBeating, Since: t0})
		}
		require.NoError(t, c.Join(t0, r.Node, 1, r.Members))
		reports[n] = r
	}
	now := time.Duration(0)
	for range 40 {
		now += sec
		for n := range reports {
			reports[n].Sequence++
			_, err := c.Report(at(now), reports[n])
			require.NoError(t, err)
		}
		_, err := c.Check(nil, at(now))
		require.NoError(t, err)
	}
	return c, reports, now
}

// BenchmarkCoordinator is one report, and one check, of nodes of 8 ranks.
func BenchmarkCoordinator(b *testing.B) {
	for _, nodes := range []int{125, 1_250, 12_500} {
		c, reports, now := fleet(b, nodes)
		b.Run(fmt.Sprintf("report/ranks=%d", nodes*8), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n == 0 {
					now += sec
				}
				reports[n].Sequence++
				if out, err := c.Report(at(now), reports[n]); err != nil || out != Accepted {
					b.Fatal(out, err)
				}
				if n++; n == nodes {
					n = 0
				}
			}
		})
		b.Run(fmt.Sprintf("check/ranks=%d", nodes*8), func(b *testing.B) {
			b.ReportAllocs()
			c, _, now := fleet(b, nodes)
			for b.Loop() {
				if events, err := c.Check(nil, at(now)); err != nil || len(events) > 0 {
					b.Fatal(events, err)
				}
			}
		})
	}
}

// TestTheSteadyStateAllocatesNothing: beats, reports and checks in which nothing changes.
func TestTheSteadyStateAllocatesNothing(t *testing.T) {
	m, now := warm(t, Config{}, 100)
	n := uint64(1000)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		now, n = now+sec, n+1
		all(t, m, now, 100, n)
		if events, err := m.Check(nil, at(now)); err != nil || len(events) > 0 {
			t.Fatal(events, err)
		}
		if _, ok := m.NextWake(at(now)); !ok {
			t.Fatal("no wake")
		}
	}))
	c, reports, now := fleet(t, 20)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		now += sec
		for i := range reports {
			reports[i].Sequence++
			if _, err := c.Report(at(now), reports[i]); err != nil {
				t.Fatal(err)
			}
		}
		if events, err := c.Check(nil, at(now)); err != nil || len(events) > 0 {
			t.Fatal(events, err)
		}
	}))
}

// BenchmarkCheckPartitions is one check while a tenth of all racks of 16 nodes is cut off.
func BenchmarkCheckPartitions(b *testing.B) {
	for _, nodes := range []int{1_600, 16_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			rack := func(id lockstep.NodeID) string { return string(id[:5]) }
			c, err := NewCoordinator(Config{Domain: rack})
			require.NoError(b, err)
			ids, now := make([]lockstep.NodeID, nodes), time.Duration(0)
			for n := range ids {
				ids[n] = lockstep.NodeID(fmt.Sprintf("r%04d-%02d", n/16, n%16))
				require.NoError(b, c.Join(t0, ids[n], 1, []Member{{Rank: n, Incarnation: 1}}))
			}
			beat := func(from int) {
				now += sec
				for _, id := range ids[from:] {
					_, err := c.Report(at(now), Report{Node: id, Incarnation: 1, Sequence: uint64(now)})
					require.NoError(b, err)
				}
			}
			for range 8 {
				beat(len(c.parts) * 16)
				_, err := c.Check(nil, at(now))
				require.NoError(b, err)
			}
			for range 8 {
				beat(nodes / 160 * 16)
				_, err := c.Check(nil, at(now))
				require.NoError(b, err)
			}
			require.Len(b, c.parts, nodes/160)
			b.ReportAllocs()
			for b.Loop() {
				if events, err := c.Check(nil, at(now)); err != nil || len(events) > 0 {
					b.Fatal(events, err)
				}
			}
		})
	}
}
