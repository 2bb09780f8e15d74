package reconfig

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"
)

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestZZ(t *testing.T) {
	for _, c := range []struct{ tp, pp, dp, rounds int }{{4, 2, 2, 60},{8, 4, 2, 60},{8, 8, 4, 100}, {8, 16, 32, 30}, {8, 16, 128, 12}} {
		n := c.tp * c.pp * c.dp
		job := jobOf(c.tp, c.dp, c.pp, 80, 32*c.dp)
		devs := fleet(n, 8)
		prev := healthy(t, job, devs)
		for _, dead := range []int{1, max(2, n/100), max(3, n/20)} {
			r := rand.New(rand.NewPCG(1, 2))
			var took []time.Duration
			q := 0.0
			for range c.rounds {
				hurt := with(devs, 0, r.Perm(n)[:dead]...)
				at := cpu()
				p, err := Replan(job, hurt, prev, Options{})
				took = append(took, cpu()-at)
				if err != nil { t.Fatal(err) }
				q += float64(prev.Estimate.Iteration) / float64(p.Estimate.Iteration)
			}
			slices.Sort(took)
			t.Logf("%6d %5d p50 %v p99 %v quality %.4f", n, dead, took[len(took)/2], took[len(took)*99/100], q/float64(len(took)))
		}
	}
}
