package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// program is one run of all measurements.
type program struct{ *harness.Bench }

var parts = []string{"ends", "replay", "cost"}

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

// run does what args ask for and returns the status to exit with.
func run(args []string, out io.Writer) int {
	only := ""
	b, err := harness.New("hpo", args, out, func(f *flag.FlagSet) {
		f.StringVar(&only, "only", "", "which `parts` to run, separated by commas, of "+strings.Join(parts, ", ")+"; empty means all")
	})
	if err != nil {
		return harness.ExitCode(err)
	}
	for _, part := range strings.Split(only, ",") {
		if only != "" && !slices.Contains(parts, part) {
			fmt.Fprintf(os.Stderr, "hpo: -only %s: %q is none of %s\n", only, part, strings.Join(parts, ", "))
			return 2
		}
	}
	p := &program{b}
	for _, part := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), part) {
			continue
		}
		p.Printf("\n## %s\n", part)
		run := map[string]func() error{"ends": p.ends, "replay": p.replay, "cost": p.cost}[part]
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "hpo:", err)
			return 1
		}
	}
	return p.Close()
}
