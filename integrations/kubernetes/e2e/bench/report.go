package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// The targets.
const (
	timesNative   = 4.0 // standalone over native, in gangs a second
	partOfFloor   = 0.9 // standalone over the floor
	pluginsNative = 1.2 // plugin over native
)

// median returns the middle of the rounds, by what of gives.
func median[T cmp.Ordered](list []sample, of func(sample) T) T {
	values := make([]T, len(list))
	for i, s := range list {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// report prints medians, and compares them with the targets.
func (b *bench) report() error {
	gangs := float64(b.gangs - b.absent)
	rate := make(map[string]float64)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nscheduler\tall bound after\tgangs/s\tpods/s\tgangs/s, first to last\tCPU\tpeak memory\tetcd + API server CPU\trange")
	for _, c := range b.contenders {
		list := b.took[c.name]
		all := median(list, func(s sample) time.Duration { return s.all })
		span := median(list, func(s sample) time.Duration { return s.span })
		fastest := slices.MinFunc(list, func(x, y sample) int { return cmp.Compare(x.all, y.all) })
		slowest := slices.MaxFunc(list, func(x, y sample) int { return cmp.Compare(x.all, y.all) })
		rate[c.name] = gangs / all.Seconds()
		fmt.Fprintf(w, "%s\t%.2f s\t%.1f\t%.0f\t%.1f\t%.2f s\t%d MiB\t%.2f s\t%.2f-%.2f s\n", c.name, all.Seconds(),
			rate[c.name], rate[c.name]*float64(b.members), gangs/span.Seconds(),
			median(list, func(s sample) time.Duration { return s.usage.CPU }).Seconds(),
			median(list, func(s sample) int64 { return s.usage.Peak })>>20,
			median(list, func(s sample) time.Duration { return s.server }).Seconds(), fastest.all.Seconds(), slowest.all.Seconds())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println()
	var missed error
	compare := func(a, of string, target float64) {
		if rate[a] == 0 || rate[of] == 0 {
			return
		}
		word, got := "met", rate[a]/rate[of]
		if got < target {
			word = "missed"
			missed = errors.Join(missed, fmt.Errorf("%s is %.2f times %s, want %.2f", a, got, of, target))
		}
		fmt.Printf("%s / %s: %.2f, target %.2f: %s\n", a, of, got, target, word)
	}
	compare("standalone", "native", timesNative)
	compare("standalone", "floor", partOfFloor)
	compare("plugin", "native", pluginsNative)
	if b.require {
		return missed
	}
	return nil
}
