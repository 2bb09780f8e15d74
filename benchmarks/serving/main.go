package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

func main() { os.Exit(run(os.Args[1:])) }

// run does the parts that args ask for and returns the exit status.
func run(args []string) int {
	var folder, only, loads string
	b, err := harness.New("serving", args, os.Stdout, func(f *flag.FlagSet) {
		f.StringVar(&folder, "traces", "../../shared/traces", "`folder` with the public traces; without it a made-up load is replayed")
		f.StringVar(&only, "only", "", "which `parts` to run, separated by commas, of scaling, mixed; empty means all")
		f.StringVar(&loads, "loads", "", "which `loads` of scaling to replay, separated by commas, of conv, code; empty means all")
	})
	if err != nil {
		return harness.ExitCode(err)
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{{"scaling", func() error { return scaling(b, folder, loads) }}, {"mixed", func() error { return mixed(b) }}} {
		if !named(only, part.name) {
			continue
		}
		b.Printf("\n## %s\n", part.name)
		if err := part.run(); err != nil {
			fmt.Fprintln(os.Stderr, "serving:", err)
			return 1
		}
	}
	return b.Close()
}

// named says whether a name is in a list with commas; an empty list has all.
func named(list, name string) bool {
	return list == "" || strings.Contains(","+list+",", ","+name+",")
}
