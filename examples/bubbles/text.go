package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen shows how the job goes.
type screen struct {
	out   io.Writer
	job   *job
	live  bool // out is a terminal
	lines int  // of the table that is there
}

func newScreen(out io.Writer, j *job) *screen {
	f, ok := out.(*os.File)
	return &screen{out: out, job: j, live: ok && term.IsTerminal(int(f.Fd()))}
}

// run shows it until ctx ends.
func (s *screen) run(ctx context.Context) {
	every := time.Second
	if s.live {
		every = 100 * time.Millisecond
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		s.show()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// show writes a line, or the table over the one before. What cannot be written is not missed: the summary tells.
func (s *screen) show() {
	line, table := s.job.lines()
	if !s.live {
		_, _ = fmt.Fprintln(s.out, line)
		return
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	for _, l := range append(table, line) {
		fmt.Fprintf(&b, "\r\x1b[K%s\n", l)
	}
	s.lines = len(table) + 1
	_, _ = io.WriteString(s.out, b.String())
}

// lines returns how the job is, in a line and as a table of its stages.
func (j *job) lines() (line string, table []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.packer.View()
	phase := "alone"
	if len(j.children) > 0 {
		phase = "filled"
		if !v.Armed {
			phase = "not filled: " + string(v.Reason)
		}
	}
	line = fmt.Sprintf("%5.1fs  iteration %d, %s: %d windows, %d used, %d quanta, %d overruns",
		j.now().Seconds(), len(j.starts), phase, v.Windows, v.Filled, j.quanta(), v.Overruns)
	table = append(table, fmt.Sprintf("%-6s %-8s %-8s %s", "stage", "job", "trial", "quanta done"))
	for i, state := range j.state {
		op, trial := state, ""
		if state == "" || state[0] != 'F' && state[0] != 'B' {
			op, trial = "-", state
		}
		var done []string
		for _, t := range j.children {
			if state := t.gate.Status(); t.stage == i && !state.Over {
				done = append(done, fmt.Sprintf("%s x%d: %d (pid %d)", t.Bundle, t.Fused, t.quanta.Load(), state.PID))
			}
		}
		table = append(table, fmt.Sprintf("%-6d %-8s %-8s %s", i, op, trial, strings.Join(done, ", ")))
	}
	return line, table
}

// quanta returns how many all trials have done.
func (j *job) quanta() (sum uint64) {
	for _, t := range j.children {
		sum += t.quanta.Load()
	}
	return sum
}

// summary tells what came of it.
func (j *job) summary(out io.Writer) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.packer.View()
	steps, expired := 0.0, uint64(0)
	for _, t := range j.children {
		steps += float64(t.quanta.Load()) * float64(t.Fused) / quanta
		expired += t.expired.Load()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\njob         %d stages, %d micro-batches, an iteration takes %v; %d alone, %d with %d trials\n",
		len(j.stages), j.micros, j.length.Round(time.Millisecond), len(j.starts)-j.rounds, j.rounds, len(j.children))
	fmt.Fprintf(&b, "windows     %d, of which %d were used\n", v.Windows, v.Filled)
	fmt.Fprintf(&b, "quanta      %d were started, %d done; %d times one ended after its lease\n", v.Quanta, j.quanta(), expired)
	fmt.Fprintf(&b, "overruns    %d; the job waited %v in all\n", v.Overruns, v.Harm.Round(10*time.Microsecond))
	if bound := j.bound * float64(j.rounds); bound > 0 {
		fmt.Fprintf(&b, "steps       %.1f of at most %.1f by the linear programme: %.0f %%\n", steps, bound, 100*steps/bound)
	}
	if m, ok := j.packer.Margin(); ok {
		fmt.Fprintf(&b, "margin      %.1f %% of a window, for overruns in %.0f %% of them at most\n", 100*m, 100*miss)
	}
	for _, why := range slices.Sorted(maps.Keys(j.stopped)) {
		fmt.Fprintf(&b, "packer      %s, %d times\n", why, j.stopped[why])
	}
	_, err := io.WriteString(out, b.String())
	return err
}
