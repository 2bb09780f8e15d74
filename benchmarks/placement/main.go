package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

func main() {
	// One core: what the program does beside deciding runs on it as well.
	runtime.GOMAXPROCS(1)
	release, fill := string(random), 70
	b, err := harness.New("placement", os.Args[1:], os.Stdout, func(f *flag.FlagSet) {
		f.StringVar(&release, "release", release, "who leaves when room is needed: random or oldest")
		f.IntVar(&fill, "fill", fill, "how much of the cluster may be held, in `percent` of the nodes; the targets are for 70")
	})
	if err != nil {
		os.Exit(harness.ExitCode(err))
	}
	if o := order(release); o != random && o != oldest {
		fmt.Fprintf(os.Stderr, "placement: -release %q: want random or oldest\n", release)
		os.Exit(2)
	}
	if fill < 1 || fill > 100 {
		fmt.Fprintf(os.Stderr, "placement: -fill %d: want 1 to 100\n", fill)
		os.Exit(2)
	}
	p := &program{Bench: b, meter: newMeter(), release: order(release), fill: fill}
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "placement:", err)
		os.Exit(1)
	}
	os.Exit(b.Close())
}

// program is one run of all measurements.
type program struct {
	*harness.Bench
	meter   *meter
	release order
	fill    int    // percent of the nodes held
	list    []line // what the table of targets will say
}

func (p *program) run() error {
	p.Input("cluster", fmt.Sprintf("nodes of %d devices, %d nodes a rack, %d racks a block", nodeGPUs, rackNodes, blockRacks))
	p.Input("gangs", "1, 2, 4, 8, 16, 32, 64 whole nodes, evenly at random; up to 16 require one rack, above one block")
	p.Input("load", fmt.Sprintf("%d%% of the nodes held, %s gang released first, measured after %dx turnover", p.fill, p.release, turnover))
	p.Result("clock-overhead", float64(p.meter.clock.Overhead()), "ns")
	for _, scenario := range []func() error{p.churnSizes, p.sharesSizes, p.victimsSizes} {
		if err := scenario(); err != nil {
			return err
		}
	}
	p.lines(p.list)
	for _, scenario := range []func() error{p.defragment, p.peers, p.reclaim} {
		if err := scenario(); err != nil {
			return err
		}
	}
	return nil
}
