package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // who interrupts twice does not want to wait
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "serving:", err)
		os.Exit(1)
	}
}

// The model behind each door, whatever the flags.
const (
	batch = 4                      // most requests of a batch
	load  = 600 * time.Millisecond // how long a replica takes to start
)

// options are the flags.
type options struct {
	calm, burst     float64
	length, slo     time.Duration
	replicas, fixed int
	seed            uint64
	file            string
	check           bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	f := flag.NewFlagSet("serving", flag.ContinueOnError)
	f.SetOutput(out)
	f.Float64Var(&o.calm, "calm", 30, "requests a second before and after the burst, 1 to -burst")
	f.Float64Var(&o.burst, "burst", 220, "requests a second in the burst, -calm to 1000")
	f.DurationVar(&o.length, "for", 13*time.Second, "how long requests come, 100ms to 1h")
	f.DurationVar(&o.slo, "slo", 200*time.Millisecond, "within what a request is to be answered, 150ms to 1m")
	f.IntVar(&o.replicas, "replicas", 4, "most replicas of a door, 1 to 40")
	f.IntVar(&o.fixed, "fixed", 3, "replicas of the door where their number is fixed, 1 to -replicas")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the requests")
	f.StringVar(&o.file, "out", "", "`file` for the histogram (HTML); empty means none")
	f.BoolVar(&o.check, "check", false, "fail if something does not add up")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	for _, c := range []struct {
		ok   bool
		text string
	}{
		{f.NArg() == 0, "there are no arguments but flags"},
		{1 <= o.calm && o.calm <= o.burst && o.burst <= 1000, "-calm must be from 1 to -burst, and -burst at most 1000"},
		{100*time.Millisecond <= o.length && o.length <= time.Hour, "-for must be from 100ms to 1h"},
		{150*time.Millisecond <= o.slo && o.slo <= time.Minute, "-slo must be from 150ms to 1m"},
		{1 <= o.fixed && o.fixed <= o.replicas && o.replicas <= 40, "-fixed must be from 1 to -replicas, and -replicas at most 40"},
	} {
		if !c.ok {
			err = errors.Join(err, errors.New(c.text))
		}
	}
	return o, err
}

// rate is how many requests a second come at a time: calm, then more and more, the burst, and calm again.
func (o options) rate(at time.Duration) float64 {
	x := float64(at) / float64(o.length)
	rise := min((x-0.25)/0.1, (0.65-x)/0.05, 1)
	return o.calm + max(rise, 0)*(o.burst-o.calm)
}

// times returns when requests come, at random.
func (o options) times() (list []time.Duration) {
	rnd := rand.New(rand.NewPCG(o.seed, 0))
	for at := time.Duration(0); ; {
		at += time.Duration(rnd.ExpFloat64() / o.burst * float64(time.Second))
		if at >= o.length {
			return list
		}
		if rnd.Float64()*o.burst < o.rate(at) {
			list = append(list, at)
		}
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	before, times := runtime.NumGoroutine(), o.times()
	curve := measure(squares, batch)
	_, _ = fmt.Fprintf(out, "a batch of one takes %v, of %d %v, as measured; a replica starts in %v\n",
		curve[0].Time.Round(time.Millisecond), batch, curve[batch-1].Time.Round(time.Millisecond), load)
	both := doorConfig{name: "autoscaled", infer: squares, curve: curve, batch: batch, min: 1, max: o.replicas, slo: o.slo, load: load}
	single, fixed := both, both
	single.name, single.batch = "no batches", 1
	fixed.name, fixed.min, fixed.max = fmt.Sprint("fixed at ", o.fixed), o.fixed, o.fixed
	sites, err := open(both, single, fixed)
	sent := 0
	if err == nil {
		stop := watch(out, o, sites)
		sent = play(ctx, sites, times)
		stop()
	}
	if err := errors.Join(err, shut(sites, sent)); err != nil {
		return err
	}
	if err := table(out, o, sites, sent); err != nil {
		return err
	}
	if o.file != "" {
		if err := os.WriteFile(o.file, page(o, sites), 0o644); err != nil {
			return err
		}
	}
	if o.check {
		return check(out, sites, sent, before)
	}
	return nil
}

// check fails if something does not add up, whatever the machine.
func check(out io.Writer, sites []*site, sent, goroutines int) error {
	var errs []error
	for _, s := range sites {
		errs = append(errs, s.check(sent))
		if c, err := net.Dial("tcp", s.address); err == nil {
			errs = append(errs, fmt.Errorf("%s: still listens", s.name), c.Close())
		}
	}
	for range 1000 { // what was told to end may need a moment
		if runtime.NumGoroutine() <= goroutines {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 0 {
		errs = append(errs, fmt.Errorf("%d goroutines are left", n))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "check: each of %d requests was answered or refused by each door, once; no batch and no number of replicas\nwas out of bounds; no goroutine and no listener is left\n", sent)
	return err
}
