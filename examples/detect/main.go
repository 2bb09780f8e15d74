package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "detect:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	file       string
	plot       string
	demo       string
	all        bool
	iterations int
	seed       uint64
	fault      fault
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("detect", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.file, "f", "", "read this log `file`, - for standard input (default: a made up job)")
	f.StringVar(&o.plot, "plot", "", "write a picture (SVG) of observed over expected time to this `file`")
	f.StringVar(&o.demo, "demo", "", "write the log of the made up job to this `file`, and stop")
	f.BoolVar(&o.all, "v", false, "print every iteration")
	f.IntVar(&o.iterations, "iterations", 300, "`number` of iterations of the made up job")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of the made up job")
	f.Float64Var(&o.fault.Factor, "factor", 1.2, "`factor` by which a stage of the made up job becomes slower; 1 for a healthy job")
	f.IntVar(&o.fault.At, "at", 150, "first slow `iteration`")
	f.IntVar(&o.fault.Last, "last", 250, "last slow `iteration`")
	f.IntVar(&o.fault.Replica, "replica", 1, "`replica` of the slow stage, 0 or 1")
	f.IntVar(&o.fault.Stage, "stage", 2, "the slow `stage`, 0 to 3")
	f.BoolVar(&o.fault.TimeOnly, "times-only", false, "the made up log has no chunk times")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.iterations < 1 || o.iterations > 100_000:
		return o, fmt.Errorf("-iterations %d: must lie between 1 and 100000", o.iterations)
	case !(o.fault.Factor >= 1 && o.fault.Factor <= 100):
		return o, fmt.Errorf("-factor %v: must lie between 1 and 100", o.fault.Factor)
	case o.fault.Replica < 0 || o.fault.Replica >= demoReplicas || o.fault.Stage < 0 || o.fault.Stage >= demoStages:
		return o, fmt.Errorf("-replica %d -stage %d: the made up job has no such place", o.fault.Replica, o.fault.Stage)
	case o.file != "" && o.demo != "":
		return o, errors.New("-f and -demo exclude each other")
	}
	return o, nil
}

func run(args []string, in io.Reader, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	if o.demo != "" {
		return writeFile(o.demo, func(w io.Writer) error { return demo(w, o.iterations, o.seed, o.fault) })
	}
	source := in
	switch o.file {
	case "-":
	case "":
		var b bytes.Buffer
		if err := demo(&b, o.iterations, o.seed, o.fault); err != nil {
			return err
		}
		source = &b
		if o.fault.Factor > 1 {
			fmt.Fprintf(out, "a made up job: %d stages, %d replicas, contexts of %d tokens; stage %d of replica %d is %g times as slow in iterations %d to %d\n",
				demoStages, demoReplicas, demoContext, o.fault.Stage, o.fault.Replica, o.fault.Factor, o.fault.At, o.fault.Last)
		}
	default:
		file, err := os.Open(o.file)
		if err != nil {
			return err
		}
		defer file.Close()
		source = file
	}
	w, err := newWatcher(out, o.all)
	if err != nil {
		return err
	}
	if err := w.read(source); err != nil {
		return err
	}
	w.summary()
	if o.plot == "" {
		return nil
	}
	return writeFile(o.plot, func(dst io.Writer) error { return picture(dst, w.points) })
}

// writeFile makes a file of what write writes.
func writeFile(name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}
