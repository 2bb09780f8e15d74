package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// Numbers of jobs in a cell, where -jobs does not say.
const (
	defaultJobs = 400
	quickJobs   = 60
)

// program is one run.
type program struct {
	*harness.Bench
	params
	jobs, cores int
	cells       []cell
	list        []entry
	scores      []*score
	cost        bool
	rungs       bool // print them too
}

func main() {
	p, code := parse(os.Args[1:])
	if p == nil {
		os.Exit(code)
	}
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "detect:", err)
		os.Exit(1)
	}
	os.Exit(p.Close())
}

// parse returns the program that args ask for, or nil and the status to exit with.
func parse(args []string) (*program, int) {
	p := &program{params: defaults(), list: entries()}
	only := ""
	var err error
	p.Bench, err = harness.New("detect", args, os.Stdout, func(f *flag.FlagSet) {
		f.IntVar(&p.jobs, "jobs", 0, fmt.Sprintf("`jobs` of a cell, every other one with a fault; 0 means %d, or %d with -quick", defaultJobs, quickJobs))
		f.StringVar(&only, "cells", "", "parts of the `names` of the cells to run, separated by commas; empty means all")
		f.IntVar(&p.cores, "cores", runtime.NumCPU(), "jobs at once; results do not depend on it")
		f.BoolVar(&p.cost, "cost", true, "measure what a sample costs as well")
		f.BoolVar(&p.rungs, "rungs", false, "print how ours does at each of the rates that it is compared at as well")
		p.params.flags(f)
	})
	if err != nil {
		return nil, harness.ExitCode(err)
	}
	p.cells = allCells()
	if p.Quick {
		p.cells = quickCells()
	}
	if p.jobs == 0 {
		p.jobs = defaultJobs
		if p.Quick {
			p.jobs = quickJobs
		}
	}
	p.cells = choose(p.cells, only)
	if err := p.params.check(); err != nil || p.jobs < 2 || p.cores < 1 || len(p.cells) == 0 {
		if err == nil {
			err = fmt.Errorf("-jobs %d -cores %d -cells %q: want 2 jobs, a core and a cell or more", p.jobs, p.cores, only)
		}
		fmt.Fprintln(os.Stderr, "detect:", err)
		return nil, 2
	}
	return p, 0
}

// flags defines a flag for each parameter.
func (p *params) flags(f *flag.FlagSet) {
	f.IntVar(&p.Stages, "stages", p.Stages, "pipeline stages")
	f.IntVar(&p.Micros, "micros", p.Micros, "micro-batches of a replica")
	f.IntVar(&p.Iterations, "iterations", p.Iterations, "iterations of a job, 130 or more; onsets are from 50 to 50 before the last one")
	f.IntVar(&p.Layers, "layers", p.Layers, "layers of a stage")
	f.Float64Var(&p.Median, "median", p.Median, "median document length, in tokens")
	f.Float64Var(&p.Sigma, "sigma", p.Sigma, "standard deviation of the logarithm of document lengths")
	f.Float64Var(&p.Chunk, "chunk-noise", p.Chunk, "noise of each chunk")
	f.Float64Var(&p.Place, "place-noise", p.Place, "noise of each stage of each replica, over iterations")
	f.Float64Var(&p.Bias, "bias", p.Bias, "error of the model of each stage")
	f.Float64Var(&p.Whole, "noise", p.Whole, "noise of the iteration")
	f.Float64Var(&p.Keep, "keep", p.Keep, "part of a deviation that the next iteration keeps")
	f.Float64Var(&p.Pauses, "pauses", p.Pauses, "share of iterations with a pause of 5 to 40 %")
	f.Float64Var(&p.Attention, "attention", p.Attention, "speed of attention relative to matrix products")
	f.Float64Var(&p.Transfer, "transfer", p.Transfer, "time of a transfer relative to a stage's forward pass")
	f.IntVar(&p.Ramp, "ramp", p.Ramp, "iterations that a ramp takes")
	f.IntVar(&p.Window, "window", p.Window, "iterations from the onset within which a fault is to be found")
}

func (p *params) check() error {
	switch {
	case p.Stages < 2 || p.Micros < 1 || p.Layers < 1:
		return fmt.Errorf("want two stages, one micro-batch and one layer or more")
	case p.Iterations < 130 || p.Ramp < 1 || p.Window < 1:
		return fmt.Errorf("want 130 iterations, a ramp and a window of one or more")
	case !(p.Median >= 1 && p.Attention > 0 && p.Keep >= 0 && p.Keep < 1 && p.Transfer >= 0):
		return fmt.Errorf("a parameter is out of range")
	}
	return nil
}

func (p *program) run() error {
	p.Input("jobs", fmt.Sprintf("%d a cell, every other one with a fault; %d iterations, onset from 50", p.jobs, p.Iterations))
	p.Input("pipeline", fmt.Sprintf("1F1B, %d stages of %d layers of a 7B model, %d micro-batches a replica, attention at %g of the speed of matrix products", p.Stages, p.Layers, p.Micros, p.Attention))
	p.Input("documents", fmt.Sprintf("log-normal, median %g, sigma %g, cut at the context, packed full", p.Median, p.Sigma))
	p.Input("noise", fmt.Sprintf("chunk %g, place %g and iteration %g with memory %g, stage bias %g, pauses %g", p.Chunk, p.Place, p.Whole, p.Keep, p.Bias, p.Pauses))
	all := allCells()
	for _, c := range p.cells {
		// The jobs of a cell are the same whichever others run.
		i := slices.Index(all, c)
		s, err := measure(p.params, p.list, c, p.jobs, p.Seed<<20|uint64(i)<<40, p.cores)
		if err != nil {
			return err
		}
		p.scores = append(p.scores, s)
		p.show(s)
	}
	p.judge()
	if p.cost {
		return p.costs()
	}
	return nil
}

// show prints the table of a cell.
func (p *program) show(s *score) {
	p.Printf("\n## %s\n", s.name())
	line := fmt.Sprintf("mean effect on the iteration %.3f, factor %.3f, of %d faults %d show by %g", s.Effect, s.Mean, s.Faulty-s.Unseen, s.Large, large-1)
	if s.Unseen > 0 {
		line += fmt.Sprintf("; %d jobs where no factor could be found", s.Unseen)
	}
	p.Note(line)
	t := &harness.Table{Head: []string{"detector", "told", "false alarms", "recall", "of those that show", "precision", "delay", "top-1", "ten later", "replica", "ns/sample"}}
	for i, e := range p.list {
		if e.rung && !p.rungs {
			continue
		}
		told := "times"
		if e.sees == chunks {
			told = "chunks"
		}
		t.Add(e.name, told, fixed(s.falseAlarms(i)), fixed(s.recall(i)), fixed(share(s.Tallies[i].Large, s.Large)), fixed(s.precision(i)),
			strconv.Itoa(int(s.delay(i))), fixed(s.top(i)), fixed(s.later(i)), fixed(s.side(i)), strconv.Itoa(int(s.Tallies[i].Nanos)))
	}
	p.Table(t)
	if s.Kind == double {
		i := find(p.list, "ours-chunks")
		p.Result(s.name()+"/second-found", share(s.Tallies[i].Second, s.Faulty), "share")
	}
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
