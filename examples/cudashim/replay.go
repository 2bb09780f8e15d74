package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lockstep-gpu/lockstep/checkpoint/cudalog"
)

// replay reads the job's log and makes its objects again, here.
func replay(w io.Writer, b *built, weights uint64) error {
	f, err := os.Open(b.log)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	l, _, err := cudalog.Read(f)
	if err != nil {
		return err
	}
	records := l.Len()
	dropped := l.Compact()
	fmt.Fprintf(w, "the job made %d calls that matter; %d are left after compaction\n", records, records-dropped)
	if limits := l.Limits(); len(limits) > 0 {
		fmt.Fprintf(w, "not restorable: it uses %s\n", strings.Join(limits, ", "))
		return nil
	}
	taken, err := ownRanges()
	if err != nil {
		return err
	}
	plan, err := cudalog.Reserve(l.Memory(), cudalog.Granule, taken)
	if err != nil {
		return err
	}
	d, err := open(b.library)
	if err != nil {
		return err
	}
	if err := l.Replay(func(r *cudalog.Record, real func(cudalog.Handle) uint64) (uint64, error) {
		return d.again(w, plan, r, real)
	}); err != nil {
		return err
	}
	const text = "weights from the image"
	got, err := d.roundTrip(weights, text)
	if err != nil {
		return err
	}
	if got != text {
		return fmt.Errorf("read back %q", got)
	}
	fmt.Fprintln(w, "the weights are at their old address and can be written and read")
	return nil
}

// ownRanges returns what this process has at its addresses.
func ownRanges() ([]cudalog.Range, error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	var out []cudalog.Range
	for line := range strings.Lines(string(text)) {
		var lo, hi uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &lo, &hi); err != nil {
			return nil, fmt.Errorf("memory map: %q: %w", line, err)
		}
		out = append(out, cudalog.Range{Addr: lo, Size: hi - lo})
	}
	return out, nil
}

// again makes one call of the log again. Memory comes back with its context, by the plan.
func (d *driver) again(w io.Writer, plan []cudalog.Reservation, r *cudalog.Record, real func(cudalog.Handle) uint64) (uint64, error) {
	if r.Op == cudalog.Destroy {
		return 0, fmt.Errorf("a log of this shim has no object that is needed and gone: %+v", r)
	}
	var flags uint32
	if len(r.Args) > 0 {
		if _, err := fmt.Sscanf(string(r.Args), "flags=%d", &flags); err != nil {
			return 0, fmt.Errorf("arguments %q: %w", r.Args, err)
		}
	}
	switch r.Kind {
	case cudalog.Context:
		h, err := d.newContext(flags)
		if err != nil {
			return 0, err
		}
		for _, res := range plan {
			if err := d.restore(res); err != nil {
				return 0, err
			}
			fmt.Fprintf(w, "reserved %d MiB at the old address and mapped %d piece\n", res.Size>>20, len(res.Maps))
		}
		return h, nil
	case cudalog.Stream:
		fmt.Fprintf(w, "stream %d in context %d, flags %d\n", r.Handle, r.Owner, flags)
		return d.newStream(flags)
	case cudalog.Event:
		return d.newEvent(flags)
	case cudalog.Memory:
		return r.Addr, nil
	}
	return 0, fmt.Errorf("kind %d of which this shim knows nothing, in context %#x", r.Kind, real(r.Owner))
}
