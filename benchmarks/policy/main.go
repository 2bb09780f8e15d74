package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// program is one run of all measurements.
type program struct {
	*harness.Bench
	clock       harness.Clock
	calibration *harness.Calibration
	traces      string
}

var parts = []string{"lp", "assign", "decide", "trend"}

func main() {
	runtime.GOMAXPROCS(1) // collecting garbage is part of what is measured
	p, only, code := parse(os.Args[1:])
	if p == nil {
		os.Exit(code)
	}
	for _, part := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), part) {
			continue
		}
		p.Printf("\n## %s\n", part)
		run := map[string]func() error{"lp": p.programmes, "assign": p.assignments, "decide": p.decisions, "trend": p.trend}[part]
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "policy:", err)
			os.Exit(1)
		}
	}
	os.Exit(p.Close())
}

// parse returns the program that args ask for, or nil and the status to exit with.
func parse(args []string) (p *program, only string, code int) {
	p = &program{clock: harness.NewClock()}
	var err error
	p.Bench, err = harness.New("policy", args, os.Stdout, func(f *flag.FlagSet) {
		f.StringVar(&p.traces, "traces", "../../shared/traces", "`folder` with the public traces; what is missing is made up or left out")
		f.StringVar(&only, "only", "", "which `parts` to run, separated by commas, of "+strings.Join(parts, ", ")+"; empty means all")
	})
	if err != nil {
		return nil, "", harness.ExitCode(err)
	}
	for _, part := range strings.Split(only, ",") {
		if only != "" && !slices.Contains(parts, part) {
			fmt.Fprintf(os.Stderr, "policy: -only %s: %q is none of %s\n", only, part, strings.Join(parts, ", "))
			return nil, "", 2
		}
	}
	p.calibration = harness.NewCalibration(p.clock)
	return p, only, 0
}

// span returns the processor time of f, or the wall time where that is not known, as the reference core would have shown it.
func (p *program) span(f func() error) (time.Duration, error) {
	slow := p.calibration.Slowness()
	start := p.clock.Nanos()
	before, ok := harness.CPUTime()
	err := f()
	took := time.Duration(p.clock.Nanos() - start)
	if after, _ := harness.CPUTime(); ok {
		took = after - before
	}
	slow = (slow + p.calibration.Slowness()) / 2
	return time.Duration(float64(took) / slow), err
}

// median runs f so many times and returns the median of its span.
func (p *program) median(times int, f func() error) (time.Duration, error) {
	var spans []float64
	for range times {
		d, err := p.span(f)
		if err != nil {
			return 0, err
		}
		spans = append(spans, float64(d))
	}
	return time.Duration(harness.Median(spans)), nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
