package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// program is one run of all measurements.
type program struct{ *harness.Bench }

var parts = []string{"still", "jitter", "change"}

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
		run := map[string]func() error{"still": p.still, "jitter": p.jitter, "change": p.change}[part]
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "bubblepack:", err)
			os.Exit(1)
		}
	}
	os.Exit(p.Close())
}

// parse returns the program that args ask for, or nil and the status to exit with.
func parse(args []string) (p *program, only string, code int) {
	b, err := harness.New("bubblepack", args, os.Stdout, func(f *flag.FlagSet) {
		f.StringVar(&only, "only", "", "which `parts` to run, separated by commas, of "+strings.Join(parts, ", ")+"; empty means all")
	})
	if err != nil {
		return nil, "", harness.ExitCode(err)
	}
	for _, part := range strings.Split(only, ",") {
		if only != "" && !slices.Contains(parts, part) {
			fmt.Fprintf(os.Stderr, "bubblepack: -only %s: %q is none of %s\n", only, part, strings.Join(parts, ", "))
			return nil, "", 2
		}
	}
	return &program{b}, only, 0
}
