package hpo

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSearch runs whole searches on 1000 places: each report comes at the step that Start names, and each place that
// falls free is filled by Next. Metrics are random. ns/report is the median of stretches of 1000 reports, of Report
// and Next together; B/trial is what the scheduler holds at the end.
func BenchmarkSearch(b *testing.B) {
	kinds := []struct {
		name string
		cfg  Config
	}{
		{"promotion", Config{ASHA: &ASHA{Max: 81, Eta: 3}}},
		{"stopping", Config{ASHA: &ASHA{Variant: Stopping, Max: 81, Eta: 3}}},
		{"ray", Config{ASHA: &ASHA{Variant: Ray, Max: 81, Eta: 3}}},
		{"optuna/brackets=5", Config{ASHA: &ASHA{Variant: Optuna, Max: 81, Eta: 3, Brackets: 5}}},
		{"sha", Config{SHA: &SHA{Max: 81}}},
		{"hyperband", Config{Hyperband: &Hyperband{Max: 81}}},
		{"median", Config{Median: &Median{Max: 4}}},
		{"pbt", Config{PBT: &PBT{Max: 4}}},
	}
	for _, kind := range kinds {
		for _, n := range []int{10_000, 1_000_000} {
			ids := make([]TrialID, n)
			for i := range ids {
				ids[i] = TrialID(fmt.Sprintf("trial-%07d", i))
			}
			b.Run(fmt.Sprintf("%s/trials=%d", kind.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					var stretches []time.Duration
					was := held()
					s, reports := run(b, kind.cfg, ids, &stretches)
					size := held() - was
					slices.Sort(stretches)
					b.ReportMetric(float64(stretches[len(stretches)/2].Nanoseconds())/1000, "ns/report")
					b.ReportMetric(float64(stretches[len(stretches)*99/100].Nanoseconds())/1000, "p99-ns/report")
					b.ReportMetric(float64(reports), "reports")
					b.ReportMetric(float64(size)/float64(n), "B/trial")
					runtime.KeepAlive(s)
					b.StartTimer()
				}
			})
		}
	}
}

// held returns the bytes of the heap that are in use.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// run plays a search, and appends the times that stretches of 1000 reports took.
func run(b *testing.B, cfg Config, ids []TrialID, stretches *[]time.Duration) (*Scheduler, int) {
	s, err := New(cfg)
	require.NoError(b, err)
	for _, id := range ids {
		if err := s.Add(id); err != nil {
			b.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	type proc struct {
		id    TrialID
		until uint64
	}
	var on []proc
	count := 0
	b.StartTimer()
	from := b.Elapsed()
	for {
		starts, _ := s.Next(1000 - len(on))
		for _, x := range starts {
			on = append(on, proc{x.Trial, x.Until})
		}
		if len(on) == 0 {
			break
		}
		i := rng.IntN(len(on))
		x := &on[i]
		d, err := s.Report(Report{Trial: x.id, Step: x.until, Value: rng.Float64()})
		if err != nil {
			b.Fatal(err)
		}
		switch d[0].Action {
		case Continue, Copy:
			x.until = s.rule.until(s.index[x.id])
		default:
			on[i] = on[len(on)-1]
			on = on[:len(on)-1]
		}
		if count++; count%1000 == 0 {
			now := b.Elapsed()
			*stretches = append(*stretches, now-from)
			from = now
		}
	}
	b.StopTimer()
	if len(*stretches) == 0 {
		*stretches = append(*stretches, b.Elapsed()-from)
	}
	return s, count
}
