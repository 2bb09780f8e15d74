package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// program is one run.
type program struct {
	*harness.Bench
	traces string
}

var parts = []string{"elasticflow", "chronus"}

func main() {
	p, only, code := parse(os.Args[1:])
	if p == nil {
		os.Exit(code)
	}
	for _, part := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), part) {
			continue
		}
		p.Printf("\n## %s\n", part)
		run := map[string]func() error{"elasticflow": p.elasticFlow, "chronus": p.chronus}[part]
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "deadline:", err)
			os.Exit(1)
		}
	}
	os.Exit(p.Close())
}

// parse returns the program that args ask for, or nil and the status to exit with.
func parse(args []string) (p *program, only string, code int) {
	p = &program{}
	var err error
	p.Bench, err = harness.New("deadline", args, os.Stdout, func(f *flag.FlagSet) {
		f.StringVar(&p.traces, "traces", "../../shared/traces", "`folder` with the public traces; without them nothing is measured")
		f.StringVar(&only, "only", "", "which `parts` to run, separated by commas, of "+strings.Join(parts, ", ")+"; empty means all")
	})
	if err != nil {
		return nil, "", harness.ExitCode(err)
	}
	for _, part := range strings.Split(only, ",") {
		if only != "" && !slices.Contains(parts, part) {
			fmt.Fprintf(os.Stderr, "deadline: -only %s: %q is none of %s\n", only, part, strings.Join(parts, ", "))
			return nil, "", 2
		}
	}
	return p, only, 0
}

// absent says so where a folder of traces is not there.
func (p *program) absent(name string) bool {
	path := filepath.Join(p.traces, name)
	if _, err := os.Stat(path); err != nil {
		p.Note("the traces are absent at " + path + ": nothing is measured here (" + err.Error() + ")")
		return true
	}
	return false
}

// count formats a whole number.
func count(n int) string { return fmt.Sprint(n) }

// fraction formats a ratio.
func fraction(v float64) string { return fmt.Sprintf("%.4f", v) }
