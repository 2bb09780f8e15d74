package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	if os.Getenv(trialEnv) != "" {
		os.Exit(beTrial())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bubbles:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	stages   int
	micros   int
	forward  time.Duration
	backward time.Duration
	jitter   float64
	seed     uint64
	warm     int
	length   time.Duration
	signals  bool
	svg      string
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bubbles", flag.ContinueOnError)
	f.SetOutput(out)
	f.IntVar(&o.stages, "stages", 4, "stages of the pipeline, 2 to 16")
	f.IntVar(&o.micros, "micros", 8, "micro-batches of an iteration, 1 to 64")
	f.DurationVar(&o.forward, "forward", 16*time.Millisecond, "what a forward pass takes")
	f.DurationVar(&o.backward, "backward", 32*time.Millisecond, "what a backward pass takes")
	f.Float64Var(&o.jitter, "jitter", 0.01, "standard deviation of what ops take, as a share of it, 0 to 0.2")
	f.Uint64Var(&o.seed, "seed", 1, "seed of that")
	f.IntVar(&o.warm, "warm", 4, "iterations to learn from before trials run, 1 to 1000")
	f.DurationVar(&o.length, "for", 6*time.Second, "how long trials run; the iteration that has begun is ended")
	f.BoolVar(&o.signals, "signals", false, "trials have no hook and are stopped by signals")
	f.StringVar(&o.svg, "svg", "", "write a picture of the last iterations to this `file`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.check()
}

func (o options) check() error {
	var errs []error
	for _, c := range []struct {
		ok   bool
		text string
	}{
		{2 <= o.stages && o.stages <= 16, "-stages must be from 2 to 16"},
		{1 <= o.micros && o.micros <= 64, "-micros must be from 1 to 64"},
		{time.Millisecond <= o.forward && o.forward <= time.Second, "-forward must be from 1ms to 1s"},
		{time.Millisecond <= o.backward && o.backward <= time.Second, "-backward must be from 1ms to 1s"},
		{0 <= o.jitter && o.jitter <= 0.2, "-jitter must be from 0 to 0.2"},
		{1 <= o.warm && o.warm <= 1000, "-warm must be from 1 to 1000"},
		{0 < o.length && o.length <= time.Hour, "-for must be over 0 and at most 1h"},
	} {
		if !c.ok {
			errs = append(errs, errors.New(c.text))
		}
	}
	return errors.Join(errs...)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("stopping trials needs Linux, and this is %s", runtime.GOOS)
	}
	p, err := newPlan(o)
	if err != nil {
		return err
	}
	j, err := newJob(p)
	if err != nil {
		return err
	}
	screen := newScreen(out, j)
	err = j.run(ctx, screen)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil // interrupted: what was done is told all the same
	}
	if err == nil {
		err = j.summary(out)
	}
	if err == nil && o.svg != "" {
		err = os.WriteFile(o.svg, j.picture(), 0o644)
	}
	return err
}
