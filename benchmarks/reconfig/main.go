package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// program is one run.
type program struct {
	*harness.Bench
	only string
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	p := &program{}
	var err error
	p.Bench, err = harness.New("reconfig", args, os.Stdout, func(f *flag.FlagSet) {
		f.StringVar(&p.only, "only", "", "run one `part`: matrix, failstop or time; empty means all")
	})
	if err != nil {
		return harness.ExitCode(err)
	}
	parts := []struct {
		name string
		run  func() error
	}{{"matrix", p.matrix}, {"failstop", p.failstop}, {"time", p.time}}
	if p.only != "" && !slices.ContainsFunc(parts, func(part struct {
		name string
		run  func() error
	},
	) bool {
		return part.name == p.only
	}) {
		fmt.Fprintf(os.Stderr, "reconfig: -only %q: want matrix, failstop or time\n", p.only)
		return 2
	}
	for _, part := range parts {
		if p.only != "" && p.only != part.name {
			continue
		}
		if err := part.run(); err != nil {
			fmt.Fprintln(os.Stderr, "reconfig:", err)
			return 1
		}
	}
	return p.Close()
}

// time prints how long plans take.
func (p *program) time() error {
	clock := harness.NewClock()
	calibration := harness.NewCalibration(clock)
	t := &harness.Table{Head: []string{"devices", "plans", "p50 raw", "p99 raw", "p50 ref", "p99 ref", "target"}}
	for _, s := range sizes() {
		n := s.devices()
		limit := map[int]float64{256: 10, 4096: 100, 16384: 1000}[n]
		if limit == 0 || (p.Quick && n > 4096) {
			continue
		}
		plans := map[int]int{256: 200, 4096: 60, 16384: 20}[n]
		if p.Quick {
			plans = 10
		}
		job, devs := s.job(), fleet(n)
		healthy, err := reconfig.Replan(job, devs, nil, reconfig.Options{})
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(p.Seed, uint64(n)))
		var raw, ref, slow []float64
		for i := range plans {
			dead := []int{1, 1, 2, max(2, n/100), max(3, n/20)}[i%5]
			hurt := slowed(devs, 0, rng.Perm(n)[:dead]...)
			slow = append(slow, calibration.Slowness())
			start, wall := processor()
			_, err := reconfig.Replan(job, hurt, healthy, reconfig.Options{})
			took := since(start, wall)
			if err != nil {
				return err
			}
			raw = append(raw, took.Seconds()*1e3)
		}
		slices.Sort(raw)
		for _, v := range raw { // by the median: one reading is less sure than what it corrects
			ref = append(ref, v/median(slow))
		}
		p99 := ref[(len(ref)*99+99)/100-1]
		t.Add(fmt.Sprint(n), fmt.Sprint(plans), ms(raw[len(raw)/2]), ms(raw[(len(raw)*99+99)/100-1]), ms(ref[len(ref)/2]), ms(p99), ms(limit))
		name := fmt.Sprintf("time/%d/p99", n)
		p.Result(name, p99, "ms")
		p.Target(harness.Target{Name: name, Value: p99, Unit: "ms", Limit: limit})
	}
	p.Table(t)
	p.Note("one core; processor time, garbage collection included; published for ResiHP: up to 1.44 s on 64 devices")
	return nil
}

func ms(x float64) string { return fmt.Sprintf("%.2f ms", x) }

// processor returns the processor time used so far, if the system tells it, and the time on the wall.
func processor() (time.Duration, time.Time) {
	cpu, ok := harness.CPUTime()
	if !ok {
		cpu = -1
	}
	return cpu, time.Now()
}

// since returns the processor time since processor, or the wall time.
func since(cpu time.Duration, wall time.Time) time.Duration {
	if now, ok := harness.CPUTime(); ok && cpu >= 0 {
		return now - cpu
	}
	return time.Since(wall)
}
