package deadline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// crowd returns an Elastic with so many admitted jobs on as few devices as will do for them, within two in a hundred, and
// jobs that are like them.
func crowd(b *testing.B, jobs int) (*Elastic, func(id string) ElasticJob) {
	b.Helper()
	e, err := NewElastic(8 * jobs)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	job := func(id string) ElasticJob {
		seconds := int64(3600 + rng.IntN(20*3600))
		return ElasticJob{
			ID: lockstep.JobID(id), Left: seconds * (60 + rng.Int64N(200)), Deadline: t0.Add(time.Duration(seconds) * time.Second),
			Points: []Point{{1, 60}, {2, 110}, {4, 200}, {8, 340}},
		}
	}
	for i := range jobs {
		if d, err := e.Admit(t0, job("j"+strconv.Itoa(i))); err != nil || !d.Feasible {
			b.Fatal(d, err)
		}
	}
	last := e.gpus - e.free.free[0]
	for gpus := last; len(e.AppendAtRisk(nil)) == 0 && (e.filled || e.gpus == 8*jobs); gpus -= max(jobs/25, 1) {
		last = e.gpus
		if err := e.SetGPUs(t0, gpus); err != nil {
			b.Fatal(err)
		}
	}
	if err := e.SetGPUs(t0, last); err != nil {
		b.Fatal(err)
	}
	if len(e.AppendAtRisk(nil)) > 0 || !e.filled {
		b.Fatal("not all fit")
	}
	return e, job
}

// BenchmarkElasticAdmit is one job more beside so many, where devices are scarce: it is either admitted or refused.
func BenchmarkElasticAdmit(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		for _, outcome := range []string{"admitted", "refused"} {
			b.Run(fmt.Sprintf("jobs=%d/%s", n, outcome), func(b *testing.B) {
				e, job := crowd(b, n)
				var free profile
				free.copyFrom(&e.free)
				plans := make([][]stretch, len(e.jobs))
				list := slices.Clone(e.jobs)
				for i, j := range list {
					plans[i] = j.plan
				}
				undo := func() {
					delete(e.byID, "n")
					e.jobs = append(e.jobs[:0], list...)
					e.free.copyFrom(&free)
					for i, j := range list {
						j.plan = plans[i]
					}
				}
				var asks []ElasticJob
				for range 1000 {
					if len(asks) == 16 {
						break
					}
					j := job("n")
					d, err := e.Admit(t0, j)
					if err != nil {
						b.Fatal(err)
					}
					undo()
					if d.Feasible == (outcome == "admitted") && d.Reason != TooLate {
						asks = append(asks, j)
					}
				}
				if len(asks) == 0 {
					b.Skip("none of 1000 is " + outcome)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if _, err := e.Admit(t0, asks[i%len(asks)]); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					undo()
					i++
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkElasticShares is a decision after one job has told what it did: all plans are made anew.
func BenchmarkElasticShares(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run("jobs="+strconv.Itoa(n), func(b *testing.B) {
			e, _ := crowd(b, n)
			var shares []Share
			b.ReportAllocs()
			for b.Loop() {
				e.changed()
				var err error
				if shares, _, _, _, err = e.AppendShares(shares[:0], t0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkElasticPlain is what BenchmarkElasticAdmit would be if all were planned anew, step by step.
func BenchmarkElasticPlain(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run("jobs="+strconv.Itoa(n), func(b *testing.B) {
			e, job := crowd(b, n)
			j := job("n")
			deadline, err := in.SinceEpoch("", "", j.Deadline)
			if err != nil {
				b.Fatal(err)
			}
			asked := &elastic{id: j.ID, points: j.Points, left: workOf(j.Left), deadline: deadline}
			for b.Loop() {
				e.plainly(asked)
			}
		})
	}
}
