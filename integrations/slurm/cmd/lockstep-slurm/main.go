// Command lockstep-slurm plans the queue of a Slurm cluster with Lockstep and prints in which order, when and where
// jobs would start, and why the others wait. With -apply it gives Slurm that order, as priorities.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/integrations/slurm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are what the flags say.
type options struct {
	squeue, nodes, topology, config string
	now                             string
	json, apply, dry, all           bool
	client                          slurm.Client
	plan                            slurm.Config
	every                           time.Duration
	rule, tenant, weights, users    string
	explain                         string
	backfill                        int
	verbose                         bool
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("lockstep-slurm", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.squeue, "squeue", "", "`file` with the output of squeue --json; empty means to run it")
	f.StringVar(&o.nodes, "nodes", "", "`file` with the output of scontrol show nodes --json or sinfo --json; empty means to run it")
	f.StringVar(&o.topology, "topology", "", "topology.conf or topology.yaml `file`; empty means that all nodes are equally near")
	f.StringVar(&o.config, "config", "", "JSON `file` with a slurm.Config; flags that are given count before it")
	f.StringVar(&o.now, "now", "", "`time` of files, in RFC 3339; empty means when the squeue file was written")
	f.StringVar(&o.rule, "rule", "", "order: ltgf, fifo, srtf, las or slurm (default ltgf)")
	f.StringVar(&o.tenant, "tenant", "", "who is a tenant: account, user, qos or partition (default account)")
	f.StringVar(&o.weights, "weights", "", "weights of tenants, such as a=2,b=1")
	f.IntVar(&o.backfill, "backfill", 0, "how many blocked jobs have reservations: -1 none passes, 0 one (EASY)")
	f.DurationVar(&o.plan.Horizon, "horizon", 0, "how far ahead starts are planned (default 168h)")
	f.BoolVar(&o.plan.IgnoreMemory, "ignore-memory", false, "leave host memory out of account, as SelectTypeParameters=CR_Core does")
	f.BoolVar(&o.plan.IgnoreCPUs, "ignore-cpus", false, "leave processors out of account")
	f.StringVar(&o.explain, "explain", "", "numbers of jobs to explain at length, such as 17,23")
	f.StringVar(&o.users, "users", "", "whose jobs may get priorities, such as ann,bob (default: everybody's for root and SlurmUser, else one's own)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.apply, "apply", false, "set priorities with scontrol")
	f.BoolVar(&o.dry, "dry-run", false, "set nothing, which is the default; refuses -apply")
	f.BoolVar(&o.all, "everybody", false, "with -apply: set priorities of everybody's jobs although not root")
	f.DurationVar(&o.every, "every", 0, "plan again after this `time`, until interrupted; 0 means once")
	f.IntVar(&o.client.Rate, "rate", 0, "how many priorities to set in a second at most (default 10)")
	f.StringVar(&o.client.Bin, "bin", "", "`folder` of squeue, sinfo and scontrol; empty means PATH")
	f.DurationVar(&o.client.Timeout, "timeout", 0, "how long a command of Slurm may take (default 1m)")
	f.BoolVar(&o.verbose, "v", false, "log each priority that is set")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	return o, o.settle(given)
}

// settle checks what belongs together and puts flags over the configuration file.
func (o *options) settle(given map[string]bool) error {
	switch {
	case o.apply && o.dry:
		return errors.New("-apply and -dry-run exclude each other")
	case o.apply && (o.squeue != "" || o.nodes != ""):
		return errors.New("-apply works on the cluster itself, not on files")
	case (o.squeue == "") != (o.nodes == ""):
		return errors.New("-squeue and -nodes come together")
	case o.now != "" && o.squeue == "":
		return errors.New("-now is the time of files")
	case o.every < 0 || o.every > 0 && o.squeue != "":
		return errors.New("-every is for the cluster itself, and not below 0")
	}
	flags := o.plan
	o.plan = slurm.Config{}
	if err := o.file(); err != nil {
		return err
	}
	o.over(given, &flags)
	if err := o.lists(); err != nil {
		return err
	}
	return o.plan.Validate()
}

// file reads the configuration file, if there is one.
func (o *options) file() error {
	if o.config == "" {
		return nil
	}
	data, err := os.ReadFile(o.config)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields() // a name that is mistyped would leave its default
	if err := d.Decode(&o.plan); err != nil {
		return fmt.Errorf("%s: %w", o.config, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%s: more than one JSON value", o.config)
	}
	return nil
}

// over puts the flags that were given over the file.
func (o *options) over(given map[string]bool, flags *slurm.Config) {
	for name, set := range map[string]func(){ // each sets a field of its own, so order cannot matter
		"horizon":       func() { o.plan.Horizon = flags.Horizon },
		"ignore-memory": func() { o.plan.IgnoreMemory = flags.IgnoreMemory },
		"ignore-cpus":   func() { o.plan.IgnoreCPUs = flags.IgnoreCPUs },
		"backfill":      func() { o.plan.Backfill = gang.Backfill(o.backfill) },
		"rule":          func() { o.plan.Rule = slurm.Rule(o.rule) },
		"tenant":        func() { o.plan.Tenant = slurm.Tenant(o.tenant) },
	} {
		if given[name] {
			set()
		}
	}
	if o.plan.Rule == "ltgf" { // what the zero values are called, as flags and in the file
		o.plan.Rule = slurm.LTGF
	}
	if o.plan.Tenant == "account" {
		o.plan.Tenant = slurm.ByAccount
	}
}

func (o *options) lists() error {
	if o.weights != "" {
		o.plan.Weights = map[lockstep.TenantID]int64{}
		for item := range strings.SplitSeq(o.weights, ",") {
			t, w, _ := strings.Cut(strings.TrimSpace(item), "=")
			n, err := strconv.ParseInt(w, 10, 64)
			if _, twice := o.plan.Weights[lockstep.TenantID(t)]; err != nil || twice {
				return fmt.Errorf("-weights: %q: want tenant=weight, each tenant once", item)
			}
			o.plan.Weights[lockstep.TenantID(t)] = n
		}
	}
	if o.explain != "" {
		for item := range strings.SplitSeq(o.explain, ",") {
			n, err := strconv.ParseUint(strings.TrimSpace(item), 10, 32)
			if err != nil {
				return fmt.Errorf("-explain: %q: want the number of a job", item)
			}
			o.plan.Explain = append(o.plan.Explain, uint32(n))
		}
	}
	if o.users != "" {
		o.plan.Users = []string{}
		for name := range strings.SplitSeq(o.users, ",") {
			o.plan.Users = append(o.plan.Users, strings.TrimSpace(name))
		}
	}
	if o.plan.Users == nil && o.squeue == "" && !o.all {
		me, err := user.Current()
		if err != nil {
			return err
		}
		if me.Uid != "0" && me.Username != "slurm" {
			o.plan.Users = []string{me.Username, me.Uid}
		}
	}
	return nil
}

// view takes the view from files or from the cluster.
func (o *options) view(ctx context.Context) (*slurm.View, error) {
	v := &slurm.View{}
	var err error
	if o.squeue == "" {
		v, err = o.client.View(ctx)
	} else {
		err = o.files(v)
	}
	if err != nil || o.topology == "" {
		return v, err
	}
	f, err := os.Open(o.topology)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	v.Topology, err = slurm.ReadTopology(o.topology, f)
	return v, err
}

func (o *options) files(v *slurm.View) error {
	jobs, err := os.Open(o.squeue)
	if err != nil {
		return err
	}
	defer jobs.Close()
	if v.Jobs, v.Faults, err = slurm.ReadJobs(jobs); err != nil {
		return err
	}
	nodes, err := os.Open(o.nodes)
	if err != nil {
		return err
	}
	defer nodes.Close()
	list, faults, err := slurm.ReadNodes(nodes)
	if err != nil {
		return err
	}
	v.Nodes, v.Faults = list, append(v.Faults, faults...)
	if o.now != "" {
		v.Now, err = time.Parse(time.RFC3339, o.now)
		return err
	}
	st, err := jobs.Stat()
	if err == nil {
		v.Now = st.ModTime()
	}
	return err
}

// run does what the flags say and returns the exit status: 0, 1 where something failed, 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "lockstep-slurm:", err)
		return 2
	}
	if o.verbose {
		c := zap.NewProductionConfig()
		c.Sampling = nil // each of them, at any rate
		if l, err := c.Build(); err == nil {
			o.client.Logger = l
		}
	}
	status := 0
	for {
		status = o.once(ctx, stdout, stderr)
		if o.every == 0 {
			return status
		}
		select {
		case <-ctx.Done():
			return status
		case <-time.After(o.every):
		}
	}
}

// once plans, prints, and sets priorities where that is wanted.
func (o *options) once(ctx context.Context, stdout, stderr io.Writer) int {
	v, err := o.view(ctx)
	var r *slurm.Report
	if err == nil {
		r, err = slurm.Plan(v, o.plan)
	}
	if err == nil && o.json {
		err = r.WriteJSON(stdout)
	} else if err == nil {
		err = r.WriteText(stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "lockstep-slurm:", err)
		return 1
	}
	if !o.apply {
		return 0
	}
	applied, err := o.client.Apply(ctx, r.Changes())
	done := len(slices.DeleteFunc(slices.Clone(applied), func(a slurm.Applied) bool { return !a.Done }))
	fmt.Fprintf(stderr, "lockstep-slurm: %d of %d priorities set\n", done, len(r.Changes()))
	for _, a := range applied {
		if !a.Done {
			fmt.Fprintln(stderr, "lockstep-slurm:", a.Why)
			if !errors.Is(a.Why, lockstep.ErrStale) {
				err = errors.Join(err, a.Why)
			}
		}
	}
	if err != nil {
		return 1
	}
	return 0
}
