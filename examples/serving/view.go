package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// watch shows how sites are until the function that it returns is called: in place on a terminal, else a line a second.
func watch(out io.Writer, o options, sites []*site) (stop func()) {
	f, ok := out.(*os.File)
	live := ok && term.IsTerminal(int(f.Fd()))
	every := time.Second
	if live {
		every = 100 * time.Millisecond
	}
	end, over, start := make(chan struct{}), make(chan struct{}), time.Now()
	go func() {
		defer close(over)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for first, last := true, false; !last; first = false {
			select {
			case <-end:
				last = true
			case <-tick.C:
			}
			_, _ = io.WriteString(out, frame(o, sites, time.Since(start), live, first)) // what is not seen is in the table
		}
	}()
	return func() {
		close(end)
		<-over
	}
}

// frame is how sites are, in lines over those of the frame before, or in one line.
func frame(o options, sites []*site, at time.Duration, live, first bool) string {
	lines := []string{fmt.Sprintf("%4.1f s %4.0f/s", at.Seconds(), o.rate(at))}
	for _, s := range sites {
		n := s.state()
		_, share := s.tally.inTime()
		replicas := strings.Repeat("●", n.ready) + strings.Repeat("○", n.starting) + strings.Repeat("·", max(o.replicas-n.ready-n.starting, 0))
		lines = append(lines, fmt.Sprintf("%-11s %s %3d wait %5.1f %% in time", s.name, replicas, n.waiting, 100*share))
	}
	if !live {
		return strings.Join(lines, " | ") + "\n"
	}
	up := ""
	if !first {
		up = fmt.Sprintf("\x1b[%dA", len(lines))
	}
	return up + "\r\x1b[K" + strings.Join(lines, "\n\x1b[K") + "\n"
}

// table tells what came of it.
func table(out io.Writer, o options, sites []*site, sent int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d requests to each door, in time within %v\n", sent, o.slo)
	fmt.Fprintf(&b, "%-11s %9s %8s %6s %6s %6s %6s %9s %10s\n", "", "in time", "refused", "p50", "p95", "p99", "batch", "replicas", "replica-s")
	left := 0
	for _, s := range sites {
		n := &s.books
		_, share := s.tally.inTime()
		replicas := fmt.Sprint(n.least)
		if n.most > n.least {
			replicas += fmt.Sprint(" to ", n.most)
		}
		fmt.Fprintf(&b, "%-11s %7.1f %% %8d %4dms %4dms %4dms %6.2f %9s %10.1f\n", s.name, 100*share, n.refused,
			s.tally.quantile(.5), s.tally.quantile(.95), s.tally.quantile(.99), n.mean(), replicas, n.cost.Seconds())
		left += s.left
	}
	fmt.Fprintf(&b, "drained: %d requests were there when the doors closed, and were answered\n", left)
	_, err := io.WriteString(out, b.String())
	return err
}
