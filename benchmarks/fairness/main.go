package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// program is one run of all measurements.
type program struct {
	*harness.Bench
	clock       harness.Clock
	calibration *harness.Calibration
	events      int // of drift
	traces      string
}

// The number of events of drift.
const (
	defaultEvents = 10_000_000
	quickEvents   = 100_000
)

var parts = []string{"quality", "drift", "cost"}

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
		run := map[string]func() error{"quality": p.quality, "drift": p.drift, "cost": p.cost}[part]
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "fairness:", err)
			os.Exit(1)
		}
	}
	os.Exit(p.Close())
}

// parse returns the program that args ask for, or nil and the status to exit with.
func parse(args []string) (p *program, only string, code int) {
	p = &program{clock: harness.NewClock()}
	var err error
	p.Bench, err = harness.New("fairness", args, os.Stdout, func(f *flag.FlagSet) {
		f.IntVar(&p.events, "events", 0, fmt.Sprintf("how many `events` drift is measured over; 0 means %d, or %d with -quick", defaultEvents, quickEvents))
		f.StringVar(&p.traces, "traces", "../../shared/traces", "`folder` with the public traces; what is missing is left out")
		f.StringVar(&only, "only", "", "which `parts` to run, separated by commas, of "+strings.Join(parts, ", ")+"; empty means all")
	})
	if err != nil {
		return nil, "", harness.ExitCode(err)
	}
	for _, part := range strings.Split(only, ",") {
		if only != "" && !slices.Contains(parts, part) {
			fmt.Fprintf(os.Stderr, "fairness: -only %s: %q is none of %s\n", only, part, strings.Join(parts, ", "))
			return nil, "", 2
		}
	}
	if p.events < 0 {
		fmt.Fprintf(os.Stderr, "fairness: -events %d: want 0 or more\n", p.events)
		return nil, "", 2
	}
	if p.events == 0 {
		p.events = defaultEvents
		if p.Quick {
			p.events = quickEvents
		}
	}
	p.calibration = harness.NewCalibration(p.clock)
	return p, only, 0
}
