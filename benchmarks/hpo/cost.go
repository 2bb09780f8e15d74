package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/hpo/search"
)

// costSlots is how many bundles of 16 run at once: 1024 trials.
const costSlots = 64

// spent is what a search of many trials took.
type spent struct {
	reports int
	bytes   int64
	raw     []float64 // microseconds a report, by stretches of some 1000
	ref     []float64 // as the reference core would have shown it
}

// measure plays a search of so many trials with metrics at random.
func measure(rule hpo.Config, trials int, seed uint64, clock harness.Clock, calibration *harness.Calibration) (*spent, error) {
	was := held()
	cfg := search.Config{Rule: rule, Transfer: &search.Transfer{}, Classes: []search.Class{
		{Name: "exclusive", Profiles: []search.Profile{{Points: exclusive()}}},
		{Name: "bubble", Kind: search.Bubble, Profiles: []search.Profile{{Points: slowed(exclusive(), 1/share)}}},
	}, SlackFraction: 0.001}
	s, err := search.New(cfg)
	if err != nil {
		return nil, err
	}
	for i := range costSlots {
		class := search.ClassName("bubble")
		if i%8 == 0 {
			class = "exclusive"
		}
		if err := s.AddSlot(search.SlotID(fmt.Sprintf("slot-%02d", i)), class); err != nil {
			return nil, err
		}
	}
	for i := range trials {
		if err := s.Add(hpo.TrialID(fmt.Sprintf("trial-%07d", i)), fusion.Key(fmt.Sprint("batch=", 128<<(i%3)))); err != nil {
			return nil, err
		}
	}
	out := &spent{}
	rng := rand.New(rand.NewPCG(seed, 1))
	var on []search.Action
	from, count, slow := processor(clock), 0, calibration.Slowness()
	for rounds := 0; ; rounds++ {
		actions, _ := s.Next()
		for _, a := range actions {
			switch a.Do {
			case search.Start:
				on = append(on, a)
			case search.Stop:
				on = slices.DeleteFunc(on, func(o search.Action) bool { return o.Bundle == a.Bundle })
			case search.Target:
				if err := s.TargetEnded(a.Trial); err != nil {
					return nil, err
				}
			}
		}
		if len(on) == 0 {
			if s.Quiescent() {
				break
			}
			continue
		}
		a := &on[rng.IntN(len(on))]
		values := make([]float64, len(a.Members))
		for i := range values {
			values[i] = rng.Float64()
		}
		if _, err := s.Report(search.Report{Bundle: a.Bundle, Step: a.Until, Values: values}); err != nil {
			return nil, err
		}
		if until, ok := s.Until(a.Bundle); ok {
			a.Until = until
		}
		count += len(values)
		out.reports += len(values)
		if count >= 1000 {
			took := float64(processor(clock)-from) / 1000 / float64(count)
			out.raw, out.ref = append(out.raw, took), append(out.ref, took/slow)
			if len(out.raw)%64 == 0 {
				slow = calibration.Slowness()
			}
			from, count = processor(clock), 0
		}
	}
	out.bytes = held() - was
	runtime.KeepAlive(s)
	return out, nil
}

// processor returns the processor time used so far in nanoseconds, of all threads and so with the collection of garbage,
// or the time on the wall where the system does not tell.
func processor(clock harness.Clock) int64 {
	if t, ok := harness.CPUTime(); ok {
		return t.Nanoseconds()
	}
	return clock.Nanos()
}

// held returns the bytes of the heap that are in use.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cost prints what a report costs in searches of up to a million trials.
func (p *program) cost() error {
	p.Input("search", fmt.Sprintf("%d slots, an eighth of them exclusive, bundles of up to 16, three keys, up to 81 epochs, random metrics, transfers on", costSlots))
	clock := harness.NewClock()
	calibration := harness.NewCalibration(clock)
	t := &harness.Table{Head: []string{"rule", "trials", "reports", "p50 raw", "p50 ref", "p99 ref", "B/trial", "target"}}
	for _, r := range []struct {
		name string
		rule hpo.Config
	}{
		{"promotion", hpo.Config{ASHA: &hpo.ASHA{Max: 81}}},
		{"stopping", hpo.Config{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 81}}},
		{"sha", hpo.Config{SHA: &hpo.SHA{Max: 81, Trials: 1024}}},
	} {
		sizes := []int{10_000, 1_000_000}
		if p.Quick {
			sizes = []int{10_000, 100_000}
		}
		for _, n := range sizes {
			x, err := measure(r.rule, n, p.Seed, clock, calibration)
			if err != nil {
				return err
			}
			slices.Sort(x.raw)
			slices.Sort(x.ref)
			p50 := harness.Percentile(x.ref, 50)
			t.Add(r.name, fmt.Sprint(n), fmt.Sprint(x.reports), us(harness.Percentile(x.raw, 50)), us(p50), us(harness.Percentile(x.ref, 99)), fmt.Sprint(x.bytes/int64(n)), "2 us")
			name := fmt.Sprintf("cost/%s/%d/p50", r.name, n)
			p.Result(name, p50, "us")
			if n > 10_000 {
				p.Target(harness.Target{Name: name, Value: p50, Unit: "us", Limit: 2})
			}
		}
	}
	p.Table(t)
	p.Note("a report is one of a member; Report, Next and the host's part are in it, in processor time with the collection of garbage")
	return nil
}

func us(x float64) string { return fmt.Sprintf("%.2f us", x) }
