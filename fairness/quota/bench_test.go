package quota

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// deep is a tree of n leaves, 32 to an inner queue, on three levels; every leaf has
// jobs jobs that run, and the last as many that wait.
func deep(t testing.TB, n, jobs int) *Quota {
	cfg := Config{Capacity: lockstep.Resources{"gpu": int64(1000 * n * jobs), "cpu": 1 << 50, "memory": 1 << 55, "slots": int64(2 * n * jobs)}}
	for i := range (n + 31) / 32 {
		mid := lockstep.QueueID(fmt.Sprint("m", i))
		top := lockstep.QueueID(fmt.Sprint("t", i/32))
		if i%32 == 0 {
			cfg.Queues = append(cfg.Queues, Queue{Name: top, Weight: 1})
		}
		cfg.Queues = append(cfg.Queues, Queue{Name: mid, Parent: top, Weight: int64(1 + i%3)})
	}
	for i := range n {
		cfg.Queues = append(cfg.Queues, Queue{Name: lockstep.QueueID(fmt.Sprint("q", i)), Parent: lockstep.QueueID(fmt.Sprint("m", i/32)), Weight: int64(1 + i%5)})
	}
	q, err := New(cfg)
	require.NoError(t, err)
	for i := range n {
		for k := range jobs {
			g := in(lockstep.QueueID(fmt.Sprint("q", i)), lockstep.JobID(fmt.Sprint("j", i, "-", k)), 1)
			require.NoError(t, q.Charge(g, nil))
		}
	}
	for k := range jobs {
		require.NoError(t, q.Demand(in(lockstep.QueueID(fmt.Sprint("q", n-1)), lockstep.JobID(fmt.Sprint("w", k)), 1), nil))
	}
	return q
}

func TestCheckAllocatesNothing(t *testing.T) {
	q := build(t, Config{Capacity: gpus(64), Tenants: []Tenant{{"a", 1}, {"b", 2}}})
	g := gang("j", "a", 4, 8)
	counts := []int{80}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if q.Check(g, nil).Feasible == q.Check(g, counts).Feasible {
			t.Fatal("wrong")
		}
	}))

	// Nor where shares have to be divided again.
	q = deep(t, 200, 2)
	short, long := in("q199", "new", 1), in("q199", "new", 500)
	require.NoError(t, q.Demand(short, nil))
	want := q.jobs["new"].want
	require.Zero(t, testing.AllocsPerRun(100, func() {
		q.ask(q.jobs["new"].queue, want, 1)
		if q.Check(long, nil).Feasible {
			t.Fatal("wrong")
		}
		q.ask(q.jobs["new"].queue, want, -1)
		if q.Check(long, nil).Feasible {
			t.Fatal("wrong")
		}
	}))
}

func BenchmarkCheckChargeRefund(b *testing.B) {
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("tenants=%d", n), func(b *testing.B) {
			cfg := Config{Capacity: lockstep.Resources{"gpu": 64_000_000, "cpu": 1 << 40}}
			for i := range n {
				cfg.Tenants = append(cfg.Tenants, Tenant{lockstep.TenantID(fmt.Sprint(i)), 1})
			}
			q, err := New(cfg)
			require.NoError(b, err)
			g := gang("j", "7", 4, 8)
			b.ReportAllocs()
			for b.Loop() {
				if !q.Check(g, nil).Feasible || q.Charge(g, nil) != nil || q.Refund("j") != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}

var sizes = []int{100, 1_000, 10_000}

func BenchmarkCheck(b *testing.B) {
	for _, n := range sizes {
		q := deep(b, n, 2)
		short, long := in("q1", "new", 1), in("q1", "new", 1000000)
		for name, g := range map[string]*lockstep.Gang{"fits": short, "refused": long} { // order does not matter: each is on its own
			b.Run(fmt.Sprintf("queues=%d/depth=3/resources=4/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = q.Check(g, nil)
				}
			})
		}
	}
}

func BenchmarkCharge(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("queues=%d/depth=3/resources=4", n), func(b *testing.B) {
			q := deep(b, n, 2)
			g := in("q1", "new", 1)
			b.ReportAllocs()
			for b.Loop() {
				if q.Charge(g, nil) != nil || q.Refund("new") != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkDemand tells of a job and asks for the share that follows, with everyone
// backlogged: 32 siblings to a queue, or all beside each other.
func BenchmarkDemand(b *testing.B) {
	for _, n := range sizes {
		flat := Config{Capacity: lockstep.Resources{"gpu": int64(1000 * n)}}
		for i := range n {
			flat.Tenants = append(flat.Tenants, Tenant{lockstep.TenantID(fmt.Sprint("q", i)), int64(1 + i%5)})
		}
		wide, err := New(flat)
		require.NoError(b, err)
		for i := range n {
			queue, job := lockstep.QueueID(fmt.Sprint("q", i)), lockstep.JobID(fmt.Sprint("w", i))
			require.NoError(b, wide.Demand(in(queue, job, 1+i%7), nil))
			require.NoError(b, wide.Charge(in(queue, job, 1), nil))
		}
		for name, q := range map[string]*Quota{"deep": deep(b, n, 2), "flat": wide} { // order does not matter: each is on its own
			b.Run(fmt.Sprintf("queues=%d/%s", n, name), func(b *testing.B) {
				g, more := in("q1", "new", 1), in("q1", "new", 50)
				b.ReportAllocs()
				for b.Loop() {
					if q.Demand(g, nil) != nil || q.Check(more, nil).Feasible || q.Withdraw("new") != nil {
						b.Fatal("wrong")
					}
				}
			})
		}
	}
}

func BenchmarkReclaim(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("queues=%d/jobs=%d", n, 2*n), func(b *testing.B) {
			q := deep(b, n, 2)
			require.NoError(b, q.SetQueue(Queue{Name: "new", Weight: 1000}))
			g := in("new", "new", 8)
			var out lockstep.Candidates
			b.ReportAllocs()
			for b.Loop() {
				q.Reclaim(g, nil, &out)
				if len(out.Jobs) == 0 {
					b.Fatal("nobody")
				}
			}
		})
	}
}
