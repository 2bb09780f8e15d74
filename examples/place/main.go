package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/lockstep-gpu/lockstep"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "place:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	file     string
	json     bool
	env      string
	rank     int
	nodes    int
	racks    int
	blocks   int
	gpus     int
	trace    string
	backfill string
	walltime string
	limit    int
	gangs    []*lockstep.Gang
}

// mapWidth is how wide the map may be, in characters.
const mapWidth = 110

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("place", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.file, "f", "", "read the cluster and the gangs from this JSON `file`")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.env, "env", "", "also print the environment and the hostfile of this `gang`")
	f.IntVar(&o.rank, "rank", 0, "the `rank` whose environment -env prints")
	f.IntVar(&o.nodes, "nodes", 0, "`number` of nodes in all (default: the file's, 24 with -trace)")
	f.IntVar(&o.racks, "racks", 0, "`number` of racks in all (default: the file's, else one for every 16 nodes)")
	f.IntVar(&o.blocks, "blocks", 0, "`number` of blocks of racks in all (default: the file's, else 1)")
	f.IntVar(&o.gpus, "gpus-per-node", 0, "`number` of devices of a node (default: the file's, 8 with -trace)")
	f.Func("gang", "place this gang in place of the file's, as `NAME=MEMBERSxGPUS[@LEVEL]`; may be repeated", func(s string) error {
		g, err := parseGang(s)
		o.gangs = append(o.gangs, g)
		return err
	})
	f.StringVar(&o.trace, "trace", "", "replay the jobs of this CSV `file`, plain or gzip")
	f.StringVar(&o.backfill, "backfill", "easy", "who may pass a blocked job of the trace: easy, conservative, none, or for how many `jobs` room is reserved")
	f.StringVar(&o.walltime, "walltime", "true", "what the admission is told of how long jobs run: true or none")
	f.IntVar(&o.limit, "limit", 0, "replay only the first so many `jobs` of the trace (default: all)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case min(o.nodes, o.racks, o.blocks, o.gpus, o.limit) < 0:
		return o, errors.New("numbers must not be negative")
	case o.trace != "" && (o.file != "" || o.env != "" || o.gangs != nil):
		return o, errors.New("-trace brings its own gangs: it does not go with -f, -env and -gang")
	}
	return o, nil
}

func run(args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	if o.trace != "" {
		return o.replay(out)
	}
	return o.place(out)
}

// place shows where the gangs of a file go.
func (o *options) place(out io.Writer) error {
	in, err := readInputFile(o.file)
	if err != nil {
		return err
	}
	if o.gangs != nil {
		in.Gangs = o.gangs
	}
	if o.nodes+o.racks+o.blocks+o.gpus > 0 && o.file == "" {
		// Another cluster than the built-in one has other names.
		in.Cluster.Labels, in.Cluster.Cordon = nil, nil
	}
	o.resize(&in.Cluster)
	state, err := in.Cluster.state()
	if err != nil {
		return err
	}
	result, err := placeAll(state, in.Gangs)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(out, &result)
	}
	if err := result.print(out, mapWidth); err != nil {
		return err
	}
	if o.env != "" {
		return result.printEnv(out, lockstep.JobID(o.env), o.rank)
	}
	return nil
}

// resize lets the flags overrule the cluster of the file.
func (o *options) resize(c *clusterSpec) {
	if o.nodes > 0 {
		c.Nodes, c.Racks, c.Blocks = o.nodes, 0, 0
	}
	if o.racks > 0 {
		c.Racks = o.racks
	}
	if o.blocks > 0 {
		c.Blocks = o.blocks
	}
	if o.gpus > 0 {
		c.GPUs = o.gpus
	}
}
