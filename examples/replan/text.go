package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// result is a replanned job.
type result struct {
	scenario
	faulty   []reconfig.Device
	old, new *reconfig.Plan
	choices  []choice
	moves    *moves.Sequence
}

// print writes the result for people.
func (r *result) print(w io.Writer) error {
	l := r.Job.Layout
	fmt.Fprintf(w, "job: %d layers as TP %d x PP %d x DP %d on %d devices, %d micro-batches a step, %s\n",
		r.Job.Model.Layers, l.TP, l.PP, l.DP, len(r.Devices), r.Job.Micros, r.Job.Schedule)
	for _, name := range r.Dead {
		fmt.Fprintf(w, "down: %s\n", name)
	}
	for _, s := range r.Slow {
		fmt.Fprintf(w, "slow: %s, %g times as fast as a healthy one\n", s.Device, s.Speed)
	}
	r.printLayout(w)
	if err := r.printChoices(w); err != nil {
		return err
	}
	r.printMoves(w)
	fmt.Fprintf(w, "\nplan %d, digest %s\n", r.new.Version, r.new.Digest)
	return nil
}

// printLayout writes the stages of the new plan, those that changed with a star and what they were.
func (r *result) printLayout(w io.Writer) {
	before := map[int]reconfig.Replica{}
	splits := map[int]int{}
	for i, rep := range r.old.Replicas {
		before[rep.Number], splits[rep.Number] = rep, r.old.Split[i]
	}
	for i, rep := range r.new.Replicas {
		was, ok := before[rep.Number]
		delete(before, rep.Number)
		fmt.Fprintf(w, "\nreplica %d, %d micro-batches", rep.Number, r.new.Split[i])
		if ok && splits[rep.Number] != r.new.Split[i] {
			fmt.Fprintf(w, " (was %d)", splits[rep.Number])
		}
		fmt.Fprintln(w)
		for s, stage := range rep.Stages {
			mark, note := " ", ""
			switch {
			case s >= len(was.Stages):
				mark = "*"
			case !slices.Equal(was.Stages[s].Devices, stage.Devices) || !slices.Equal(was.Stages[s].Spans, stage.Spans):
				mark, note = "*", fmt.Sprintf("   was %s on %s", layers(was.Stages[s]), devices(was.Stages[s].Devices))
			}
			fmt.Fprintf(w, "%s stage %d: %s on %s%s\n", mark, s, layers(stage), devices(stage.Devices), note)
		}
		for s := len(rep.Stages); s < len(was.Stages); s++ {
			fmt.Fprintf(w, "* stage %d is gone: it was %s on %s\n", s, layers(was.Stages[s]), devices(was.Stages[s].Devices))
		}
	}
	for _, rep := range r.old.Replicas {
		if _, gone := before[rep.Number]; gone {
			fmt.Fprintf(w, "\nreplica %d is dropped\n", rep.Number)
		}
	}
	if len(r.new.Standby) > 0 {
		fmt.Fprintf(w, "\nstandby: %s\n", devices(r.new.Standby))
	}
}

// layers tells the layers of a stage.
func layers(s reconfig.Stage) string {
	var parts []string
	for _, span := range s.Spans {
		if span.Layers == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d-%d", span.First, span.End()-1))
	}
	if len(parts) == 0 {
		return "no layers"
	}
	return fmt.Sprintf("layers %-7s", strings.Join(parts, ","))
}

// devices tells a list of devices.
func devices(ids []lockstep.DeviceID) string {
	var out []string
	for _, id := range ids {
		out = append(out, string(id))
	}
	return strings.Join(out, " ")
}

// printChoices writes how long a step takes under each choice.
func (r *result) printChoices(w io.Writer) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "step\tof healthy\tdevices\t  \n")
	healthy := r.old.Estimate.Iteration
	row := func(name string, step time.Duration, devices string) {
		fmt.Fprintf(t, "%s\t%.3f\t%s\t  %s\n", step.Round(time.Microsecond), float64(healthy)/float64(step), devices, name)
	}
	row("healthy", healthy, fmt.Sprint(r.old.Estimate.Devices))
	for _, c := range r.choices {
		if c.why != "" {
			fmt.Fprintf(t, "-\t0\t\t  %s: %s\n", c.name, c.why)
			continue
		}
		row(c.name, c.estimate.Iteration, fmt.Sprint(c.estimate.Devices))
	}
	row("this plan", r.new.Estimate.Iteration, fmt.Sprint(r.new.Estimate.Devices))
	row("bound: all work spread by speed, nothing ever waits", r.new.Estimate.Fluid, "")
	return t.Flush()
}

// printMoves writes what has to move.
func (r *result) printMoves(w io.Writer) {
	m := r.moves
	fmt.Fprintf(w, "\nstate: %.1f GB stays where it is, in %d phases %.1f GB move in nodes, %.1f GB in leaves, %.1f GB between leaves, %.1f GB from a checkpoint; at most %.1f GB on a device\n",
		gb(m.Kept), len(m.Phases), gb(m.Traffic.Node), gb(m.Traffic.Leaf), gb(m.Traffic.Fabric), gb(m.Traffic.Store), gb(m.Peak))
}

func gb(b lockstep.Bytes) float64 { return float64(b) / 1e9 }
