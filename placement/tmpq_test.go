package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

func TestTmpQuantiles(t *testing.T) {
	for _, n := range []int{1000, 10000, 100000} {
		c := newChurn(t, n)
		var d []time.Duration
		for range 200000 {
			a := time.Now()
			c.decide(t)
			d = append(d, time.Since(a))
		}
		slices.Sort(d)
		fmt.Println(n, "p50", d[len(d)/2], "p90", d[len(d)*9/10], "p99", d[len(d)*99/100], "p999", d[len(d)*999/1000])
	}
}

func TestTmpMixed(t *testing.T) {
	for _, n := range []int{1000, 10000, 100000} {
		c := newChurn(t, n)
		for _, id := range c.s.Jobs() {
			c.s.Release(id)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		gpus := []int{1, 1, 2, 4, 8, 8}
		req := []lockstep.Level{"", "rack", "block", "rack"}
		used := 0
		cap := n * 8 * 7 / 10
		var held []*lockstep.Gang
		pool := make([]*lockstep.Gang, 0)
		for i := range n * 8 {
			pool = append(pool, &lockstep.Gang{ID: lockstep.JobID(fmt.Sprint("m", i)), Roles: make([]lockstep.Role, 1)})
		}
		var plan lockstep.Plan
		var d []time.Duration
		var ref, rt time.Duration
		refused := 0
		for i := range 400000 {
			g := pool[len(pool)-1]
			g.Roles[0].Demand.GPUs = gpus[rng.IntN(len(gpus))]
			g.Roles[0].Demand.CPU = lockstep.MilliCPU(rng.IntN(2))
			g.Roles[0].Min = 1 << rng.IntN(6)
			g.Required = req[rng.IntN(4)]
			g.Strategy = lockstep.Pack
			if rng.IntN(8) == 0 {
				g.Strategy = lockstep.Spread
			}
			a := time.Now()
			v, err := c.s.Fit(&lockstep.Request{Gang: g}, &plan)
			if err != nil {
				t.Fatal(err)
			}
			if v.Feasible {
				c.s.Apply(&plan)
				used += g.Roles[0].Min * g.Roles[0].Demand.GPUs
				held = append(held, g)
				pool = pool[:len(pool)-1]
			} else {
				refused++
				ref += time.Since(a)
			}
			for used > cap {
				k := rng.IntN(len(held))
				o := held[k]
				held[k] = held[len(held)-1]
				held = held[:len(held)-1]
				c.s.Release(o.ID)
				pool = append(pool, o)
				used -= o.Roles[0].Min * o.Roles[0].Demand.GPUs
			}
			if i > 200000 {
				d = append(d, time.Since(a))
				rt += time.Since(a)
			}
		}
		slices.Sort(d)
		fmt.Println("mixed", n, "mean", rt/time.Duration(len(d)), "p50", d[len(d)/2], "p90", d[len(d)*9/10], "p99", d[len(d)*99/100], "p999", d[len(d)*999/1000], "refused", refused, "mean", ref/time.Duration(max(1, refused)), "views", len(c.s.views.list))
	}
}
