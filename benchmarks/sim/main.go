package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// The parts of the program, in the order in which they run. The long life comes
// first, while the heap is small.
const (
	partLife    = "life"
	partSpeed   = "speed"
	partRestart = "restart"
	partLedger  = "ledger"
)

// The number of jobs of the long life, where -jobs does not say.
const (
	defaultJobs = 1_000_000
	quickJobs   = 40_000
	leastJobs   = 20_000 // a tenth is to be more than the scheduler remembers
)

// program is one run of all measurements.
type program struct {
	*harness.Bench
	meter   *meter
	jobs    int                      // of the long life
	parts   []string                 // to run
	profile string                   // file for a processor profile
	waits   map[string]time.Duration // when most jobs waited in the replays that restart is about, by workload
}

func main() {
	// One core: collecting garbage is part of what is measured.
	runtime.GOMAXPROCS(1)
	p, code := parse(os.Args[1:])
	if p == nil {
		os.Exit(code)
	}
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
	os.Exit(p.Close())
}

// parse returns the program that args ask for, or nil and the status to exit with.
func parse(args []string) (*program, int) {
	p := &program{waits: make(map[string]time.Duration)}
	only := ""
	var err error
	p.Bench, err = harness.New("sim", args, os.Stdout, func(f *flag.FlagSet) {
		f.IntVar(&p.jobs, "jobs", 0, fmt.Sprintf("how many `jobs` the long life submits, %d or more; 0 means %d, or %d with -quick", leastJobs, defaultJobs, quickJobs))
		f.StringVar(&only, "only", "", "which `parts` to run, separated by commas, of "+strings.Join(allParts(), ", ")+"; empty means all")
		f.StringVar(&p.profile, "cpuprofile", "", "`file` to write a processor profile to")
	})
	if err != nil {
		return nil, harness.ExitCode(err)
	}
	if p.parts, err = choose(only); err == nil {
		p.jobs, err = howMany(p.jobs, p.Quick)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return nil, 2
	}
	p.meter = newMeter()
	return p, 0
}

func allParts() []string { return []string{partLife, partSpeed, partRestart, partLedger} }

// choose returns the parts that a list names, in the order in which they run.
func choose(list string) ([]string, error) {
	if list == "" {
		return allParts(), nil
	}
	named := strings.Split(list, ",")
	for _, name := range named {
		if !slices.Contains(allParts(), name) {
			return nil, fmt.Errorf("-only %s: %q is none of %s", list, name, strings.Join(allParts(), ", "))
		}
	}
	return slices.DeleteFunc(allParts(), func(part string) bool { return !slices.Contains(named, part) }), nil
}

// howMany returns the number of jobs of the long life.
func howMany(jobs int, quick bool) (int, error) {
	switch {
	case jobs == 0 && quick:
		return quickJobs, nil
	case jobs == 0:
		return defaultJobs, nil
	case jobs < leastJobs:
		return 0, fmt.Errorf("-jobs %d: want %d or more", jobs, leastJobs)
	}
	return jobs, nil
}

func (p *program) run() (err error) {
	if p.profile != "" {
		f, err := os.Create(p.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	steps := map[string]func() error{
		partLife:    p.life,
		partSpeed:   p.speed,
		partRestart: p.restart,
		partLedger:  p.ledgers,
	}
	for _, part := range p.parts {
		p.Printf("\n## %s\n", part)
		if err := steps[part](); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}
