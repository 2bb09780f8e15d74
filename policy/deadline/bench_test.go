package deadline_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/deadline"
)

var benchStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// benchTable returns a table of 10,000 devices with so many admitted jobs. Tight deadlines leave little room.
func benchTable(b *testing.B, jobs int) *deadline.Table {
	b.Helper()
	t, err := deadline.New(deadline.Config{GPUs: 10_000})
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; t.Len() < jobs; i++ {
		run := time.Duration(1+rng.IntN(40)) * 20 * time.Minute
		_, err := t.Admit(benchStart, deadline.Job{
			ID: lockstep.JobID("j" + strconv.Itoa(i)), GPUs: 1 << rng.IntN(4), Remaining: run,
			Deadline: benchStart.Add(run*2 + time.Duration(rng.IntN(40))*20*time.Minute),
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return t
}

// BenchmarkTableAdmit admits and drops one job beside those of the table; one that needs all devices for long is refused after a look at all.
func BenchmarkTableAdmit(b *testing.B) {
	for _, c := range []struct {
		name string
		gpus int
		run  time.Duration
	}{{"room", 1, time.Hour}, {"refused", 10_000, 39 * time.Hour}} {
		b.Run("gpus=10000/jobs=5000/"+c.name, func(b *testing.B) {
			t := benchTable(b, 5000)
			b.ReportAllocs()
			for b.Loop() {
				d, err := t.Admit(benchStart, deadline.Job{ID: "n", GPUs: c.gpus, Remaining: c.run, Deadline: benchStart.Add(40 * time.Hour)})
				if err != nil {
					b.Fatal(err)
				}
				if d.Feasible {
					if err := t.Finish(benchStart, "n"); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkTableStep gives out one slot.
func BenchmarkTableStep(b *testing.B) {
	b.Run("gpus=10000/jobs=5000", func(b *testing.B) {
		t := benchTable(b, 5000)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := t.Step(benchStart); err != nil {
				b.Fatal(err)
			}
		}
	})
}
