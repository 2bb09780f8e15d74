package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// policy is a rule of the scheduler with the names it goes by here.
type policy struct {
	Flag  string
	Title string
	Rule  scheduler.Rule
}

// policies returns all policies in the order in which they are shown.
func policies() []policy {
	return []policy{
		{"fifo", "FIFO+EASY", scheduler.FIFO},
		{"srtf", "SRTF", scheduler.SRTF},
		{"las", "2D-LAS", scheduler.LAS},
		{"static", "Static quota", scheduler.Static},
		{"ltgf", "LTGF leases", scheduler.LTGF},
	}
}

// options are the flags.
type options struct {
	trace    string
	format   string
	weights  string
	nodes    int
	perNode  int
	days     float64
	seed     uint64
	lease    time.Duration
	save     time.Duration
	restore  time.Duration
	policies []policy

	json  bool
	check bool
	out   string
	job   lockstep.JobID
}

// Where the report goes unless -o names a file.
const (
	outDefault = "" // the system's folder for temporary files
	outNone    = "none"
)

func parse(args []string, out io.Writer) (options, error) {
	var o options
	var names, job string
	f := flag.NewFlagSet("cluster", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.trace, "trace", "", "replay the jobs of this `file`, plain or gzip (default: made up, see -seed and -days)")
	f.StringVar(&o.format, "format", formatAuto, "form of the trace: csv, philly (JSON), helios, or auto to look")
	f.StringVar(&o.weights, "weights", "", "CSV `file` with the columns tenant and weight, plain or gzip (default: 4 to 1 for made up tenants, else all alike)")
	f.IntVar(&o.nodes, "nodes", 24, "`number` of nodes")
	f.IntVar(&o.perNode, "gpus-per-node", 8, "`number` of GPUs of a node, at most 64")
	f.Float64Var(&o.days, "days", 3, "`days` over which made up jobs arrive")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of the made up jobs")
	f.DurationVar(&o.lease, "lease", scheduler.DefaultTerm, "how long a job holds GPUs before it competes for them (SRTF, 2D-LAS and LTGF)")
	f.DurationVar(&o.save, "checkpoint-cost", 5*time.Second, "how long a checkpoint takes; the GPUs are held meanwhile")
	f.DurationVar(&o.restore, "resume-cost", 20*time.Second, "how long a resume takes; the GPUs are held meanwhile")
	f.StringVar(&names, "policies", strings.Join(names0(), ","), "`list` of the policies to run")
	f.BoolVar(&o.json, "json", false, "print the result as JSON, and write a report only where -o names a file")
	f.BoolVar(&o.check, "check", false, "verify the books of every run; the status is 1 where they do not add up or a job did not complete")
	f.StringVar(&o.out, "o", outDefault, "write the report to this `file`, or nowhere: none (default: lockstep-report.html among temporary files)")
	f.StringVar(&job, "job", "", "the `job` whose story the report tells (default: the one that waited longest under LTGF)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.job = lockstep.JobID(job)
	var err error
	o.policies, err = choose(names)
	set := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	return o, errors.Join(err, o.validate(set))
}

// names0 are the flags' names of all policies.
func names0() (names []string) {
	for _, p := range policies() {
		names = append(names, p.Flag)
	}
	return names
}

// choose finds the policies of a comma separated list, in the order of policies.
func choose(list string) ([]policy, error) {
	all := policies()
	wanted := make([]bool, len(all))
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(all, func(p policy) bool { return p.Flag == strings.ToLower(name) })
		switch {
		case i < 0:
			return nil, fmt.Errorf("-policies: %q: want some of %s", name, strings.Join(names0(), ","))
		case wanted[i]:
			return nil, fmt.Errorf("-policies: %q occurs twice", name)
		}
		wanted[i] = true
	}
	var chosen []policy
	for i, p := range all {
		if wanted[i] {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

// validate reports every fault of o; set are the flags that were given.
func (o *options) validate(set map[string]bool) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.nodes < 1 || o.nodes > 1<<16 {
		bad("-nodes %d: want 1 to %d", o.nodes, 1<<16)
	}
	if o.perNode < 1 || o.perNode > 64 {
		bad("-gpus-per-node %d: want 1 to 64", o.perNode)
	}
	if !(o.days >= 1.0/24 && o.days <= 365) {
		bad("-days %v: want an hour to 365", o.days)
	}
	if o.lease < time.Second || o.lease > lockstep.MaxWalltime {
		bad("-lease %v: want 1s to %v", o.lease, lockstep.MaxWalltime)
	}
	if o.save < 0 || o.save > 24*time.Hour {
		bad("-checkpoint-cost %v: want 0 to 24h", o.save)
	}
	if o.restore < 0 || o.restore > 24*time.Hour {
		bad("-resume-cost %v: want 0 to 24h", o.restore)
	}
	if !slices.Contains([]string{formatAuto, formatCSV, formatPhilly, formatHelios}, o.format) {
		bad("-format %q: want auto, csv, philly or helios", o.format)
	}
	if o.trace != "" && (set["seed"] || set["days"]) {
		bad("-seed and -days make jobs up: they do not go with -trace")
	}
	if o.trace == "" && set["format"] {
		bad("-format goes with -trace")
	}
	return errors.Join(errs...)
}
