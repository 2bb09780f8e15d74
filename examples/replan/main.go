package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "replan:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	file string
	svg  string
	json bool
	dead []string
	slow []slow
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("replan", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.file, "f", "", "read job, devices and faults from this JSON `file` (default: a 7B model on 32 devices)")
	f.StringVar(&o.svg, "svg", "", "write a picture of the pipelines before and after to this `file`")
	f.BoolVar(&o.json, "json", false, "print the scenario as JSON, in the form that -f reads, and stop")
	f.Func("dead", "a `device` or node that is down; may be repeated", func(s string) error {
		o.dead = append(o.dead, s)
		return nil
	})
	f.Func("slow", "`device=speed`: a device or node that is slow, 1 being healthy; may be repeated", func(s string) error {
		v, err := parseSlow(s)
		o.slow = append(o.slow, v)
		return err
	})
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, nil
}

func run(args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	s := builtin()
	if o.file != "" {
		if s, err = load(o.file); err != nil {
			return err
		}
	}
	if len(o.dead)+len(o.slow) > 0 {
		s.Dead, s.Slow = o.dead, o.slow
	}
	if o.json {
		e := json.NewEncoder(out)
		e.SetIndent("", " ")
		return e.Encode(s)
	}
	r, err := replan(s)
	if err != nil {
		return err
	}
	if err := r.print(out); err != nil {
		return err
	}
	if o.svg == "" {
		return nil
	}
	var b bytes.Buffer
	if err := r.picture(&b); err != nil {
		return err
	}
	return os.WriteFile(o.svg, b.Bytes(), 0o644)
}

// replan plans the healthy job, and then again after the faults.
func replan(s scenario) (*result, error) {
	r := &result{scenario: s}
	var err error
	if r.faulty, err = s.faulty(); err != nil {
		return nil, err
	}
	if r.old, err = reconfig.Replan(s.Job, s.Devices, nil, reconfig.Options{}); err != nil {
		return nil, fmt.Errorf("the healthy job: %w", err)
	}
	if r.new, err = reconfig.Replan(s.Job, r.faulty, r.old, reconfig.Options{}); err != nil {
		return nil, err
	}
	if err := reconfig.Verify(s.Job, r.faulty, r.new); err != nil {
		return nil, err
	}
	if r.choices, err = alternatives(s.Job, r.faulty, r.old); err != nil {
		return nil, err
	}
	have, err := moves.Held(s.Job, r.old)
	if err != nil {
		return nil, err
	}
	r.moves, err = moves.Between(s.Job, r.faulty, have, r.new, moves.Options{})
	return r, err
}
