package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// errNoFit is what run returns, after its report, when no layout fits.
var errNoFit = errors.New("no layout fits")

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "estimate:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	name   string
	config string
	shape  perfmodel.Model // what the flags overrule of the named shape
	json   bool

	precision string
	zero      int
	recompute perfmodel.Recompute
	flash     bool
	sequence  bool
	schedule  pipeline.Schedule
	chunks    int

	seq, batch, micro int
	gpus, max, node   int
	tp, pp            int
	memory, context   lockstep.Bytes
	headroom          float64

	tflops     float64
	fast, slow perfmodel.Link
}

// text registers a flag of a type that reads itself.
func text[T any](f *flag.FlagSet, v *T, name, initial, usage string, parse func(string) (T, error)) {
	set := func(s string) error {
		got, err := parse(s)
		if err == nil {
			*v = got
		}
		return err
	}
	_ = set(initial) // the defaults are sound
	f.Func(name, usage+" (default "+initial+")", set)
}

func parseFlags(args []string, out io.Writer) (options, error) {
	o := options{fast: perfmodel.Link{Latency: 2 * time.Microsecond}, slow: perfmodel.Link{Latency: 8 * time.Microsecond}}
	f := flag.NewFlagSet("estimate", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.name, "model", "llama2-7b", "built-in `shape`; list prints them")
	f.StringVar(&o.config, "config", "", "read the shape from this config.json `file` instead")
	f.IntVar(&o.shape.Layers, "layers", 0, "`number` of layers, in place of the shape's; so the others")
	f.IntVar(&o.shape.Hidden, "hidden", 0, "`width` of the model")
	f.IntVar(&o.shape.Heads, "heads", 0, "`number` of query heads")
	f.IntVar(&o.shape.KVHeads, "kv-heads", 0, "`number` of key and value heads")
	f.IntVar(&o.shape.FFN, "ffn", 0, "inner `width` of feed-forward blocks")
	f.IntVar(&o.shape.Vocab, "vocab", 0, "`number` of tokens in the vocabulary")
	f.BoolVar(&o.json, "json", false, "print JSON")

	f.StringVar(&o.precision, "precision", "bf16", "bf16, bf16-fp32-grad, bf16-no-master or fp32")
	f.IntVar(&o.zero, "zero", 1, "`stage` of ZeRO, 0 to 3")
	text(f, &o.recompute, "recompute", "none", "what the backward pass computes again: none, selective or full", parseRecompute)
	f.BoolVar(&o.flash, "flash", true, "attention does not store its scores")
	f.BoolVar(&o.sequence, "sequence-parallel", true, "tensor-parallel ranks divide what they have in common along the tokens")
	text(f, &o.schedule, "schedule", "1f1b", "of the pipeline: 1f1b, gpipe, interleaved or zb-h1", parseSchedule)
	f.IntVar(&o.chunks, "chunks", 1, "model `chunks` of a stage, with -schedule interleaved")

	f.IntVar(&o.seq, "seq", 4096, "`tokens` of a sequence")
	f.IntVar(&o.batch, "batch", 256, "`sequences` of a step, over all replicas")
	f.IntVar(&o.micro, "micro", 1, "`sequences` of a micro-batch")
	f.IntVar(&o.gpus, "gpus", 0, "`number` of GPUs (default: the smallest that fits)")
	f.IntVar(&o.max, "max-gpus", 4096, "most `GPUs` to try")
	f.IntVar(&o.node, "node", 8, "`GPUs` of a node")
	f.IntVar(&o.tp, "tp", 0, "tensor-parallel `degree` (default: searched)")
	f.IntVar(&o.pp, "pp", 0, "pipeline `stages` (default: searched)")
	text(f, &o.memory, "memory", "80GB", "`bytes` of a device", lockstep.ParseBytes)
	text(f, &o.context, "context", "1GiB", "`bytes` that driver and libraries take of it", lockstep.ParseBytes)
	f.Float64Var(&o.headroom, "headroom", 0.1, "`fraction` of a device that is to stay free")

	f.Float64Var(&o.tflops, "tflops", 400, "`10^12 operations` a second that a GPU reaches")
	text(f, &o.fast.Bandwidth, "nvlink", "450GB/s", "`bandwidth` of a GPU inside a node, one way", lockstep.ParseBandwidth)
	text(f, &o.slow.Bandwidth, "network", "50GB/s", "`bandwidth` of a GPU between nodes, one way", lockstep.ParseBandwidth)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.validate()
}

func (o *options) validate() error {
	for _, c := range []struct {
		name     string
		v        int
		low, top int
	}{
		{"seq", o.seq, 1, 1 << 30},
		{"batch", o.batch, 1, 1 << 20},
		{"micro", o.micro, 1, 1 << 16},
		{"chunks", o.chunks, 1, 1 << 10},
		{"gpus", o.gpus, 0, 1 << 17},
		{"max-gpus", o.max, 1, 1 << 17},
		{"node", o.node, 1, 1 << 10},
		{"zero", o.zero, 0, 3},
		{"tp", o.tp, 0, 1 << 17},
		{"pp", o.pp, 0, 1 << 14},
	} {
		if c.v < c.low || c.v > c.top {
			return fmt.Errorf("-%s %d: want %d to %d", c.name, c.v, c.low, c.top)
		}
	}
	switch {
	case o.memory < 1 || o.context < 0 || o.context >= o.memory:
		return errors.New("-memory and -context: want a device that has more than its context")
	case !(o.headroom >= 0 && o.headroom < 1):
		return fmt.Errorf("-headroom %v: want 0 to less than 1, a fraction of the device", o.headroom)
	case !(o.tflops > 0 && o.tflops < 1e9):
		return fmt.Errorf("-tflops %v: want more than 0", o.tflops)
	case o.fast.Bandwidth < 1 || o.slow.Bandwidth < 1:
		return errors.New("-nvlink and -network: want more than 0")
	case o.chunks > 1 != (o.schedule == pipeline.Interleaved):
		return errors.New("-chunks above 1 and -schedule interleaved go together")
	}
	return nil
}

func parseRecompute(s string) (perfmodel.Recompute, error) {
	for r := perfmodel.RecomputeNone; r <= perfmodel.RecomputeFull; r++ {
		if s == r.String() {
			return r, nil
		}
	}
	return 0, errors.New("want none, selective or full")
}

func parseSchedule(s string) (pipeline.Schedule, error) {
	switch strings.ToLower(s) {
	case "1f1b":
		return pipeline.OneFOneB, nil
	case "gpipe":
		return pipeline.GPipe, nil
	case "interleaved":
		return pipeline.Interleaved, nil
	case "zb-h1":
		return pipeline.ZBH1, nil
	}
	return 0, errors.New("want 1f1b, gpipe, interleaved or zb-h1")
}

func run(args []string, out io.Writer) error {
	o, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	if o.config == "" && o.name == "list" {
		return printShapes(out)
	}
	job, err := o.job()
	if err != nil {
		return err
	}
	bill, err := job.bill()
	if err != nil {
		return err
	}
	if o.json {
		err = bill.printJSON(out)
	} else {
		err = bill.print(out)
	}
	if err == nil && bill.Best == nil {
		err = errNoFit
	}
	return err
}
