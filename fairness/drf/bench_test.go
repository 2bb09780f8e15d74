package drf

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// backlog is n tenants with two jobs each, beside each other or 32 below each.
func backlog(t testing.TB, n int, deep bool) *Queue {
	cfg := Config{Capacity: cluster(int64(n), int64(8*n))}
	for i := range n {
		x := Tenant{ID: lockstep.TenantID(fmt.Sprint("t", i)), Weight: int64(1 + i%3)}
		if deep {
			x.Parent = lockstep.TenantID(fmt.Sprint("o", i/32))
			if i%32 == 0 {
				cfg.Tenants = append(cfg.Tenants, Tenant{ID: x.Parent, Weight: 1})
			}
		}
		cfg.Tenants = append(cfg.Tenants, x)
	}
	q := build(t, cfg)
	for i := range n {
		for k := range 2 {
			require.NoError(t, q.Submit(task(lockstep.TenantID(fmt.Sprint("t", i)), k, 1+i%4, int64(1+i%7)), nil, nil))
		}
	}
	return q
}

func TestPassAllocatesNothing(t *testing.T) {
	for _, deep := range []bool{false, true} {
		q := backlog(t, 200, deep)
		require.Zero(t, testing.AllocsPerRun(20, func() {
			q.Begin(time.Time{})
			for id, ok := q.Next(); ok; id, ok = q.Next() {
				q.Outcome(id, lockstep.Granted)
			}
		}))
	}
}

// BenchmarkPass grants every proposal; the time is for each of 2n proposals.
func BenchmarkPass(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		for _, deep := range []bool{false, true} {
			q := backlog(b, n, deep)
			b.Run(fmt.Sprintf("tenants=%d/resources=2/deep=%t", n, deep), func(b *testing.B) {
				b.ReportAllocs()
				proposals := 0
				for b.Loop() {
					q.Begin(time.Time{})
					for id, ok := q.Next(); ok; id, ok = q.Next() {
						q.Outcome(id, lockstep.Granted)
						proposals++
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(proposals), "ns/proposal")
			})
		}
	}
}

func BenchmarkStartStop(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d/resources=2", n), func(b *testing.B) {
			q := backlog(b, n, false)
			b.ReportAllocs()
			for b.Loop() {
				if q.Start("t7.0", nil) != nil || q.Stop("t7.0") != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkFluid(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("users=%d/resources=2", n), func(b *testing.B) {
			users := make([]User, n)
			for i := range users {
				users[i] = User{Demand: lockstep.Vector{int64(1 + i%5), int64(1 + i%7)}, Weight: int64(1 + i%3), Tasks: int64(i % 4)}
			}
			b.ReportAllocs()
			for b.Loop() {
				Fluid(lockstep.Vector{1000, 1000}, users)
			}
		})
	}
}
