package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

func main() {
	err := execute(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// execute does what the arguments say.
func execute(args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	w, err := o.load()
	if err != nil {
		return err
	}
	began := time.Now()
	bar := newBar(errOut, len(o.runs())*len(w.Trace.Jobs))
	outcomes, err := o.replay(w, bar.add)
	bar.close()
	if err != nil {
		return err
	}
	findings := findings(w, outcomes)
	var report string
	if o.out != outNone && (!o.json || o.out != outDefault) {
		if report, err = o.report(w, outcomes, findings); err != nil {
			return err
		}
	}
	checks, wrong := verifyAll(w, outcomes)
	if o.json {
		err = printJSON(out, o.newResult(w, outcomes, findings, wrong, time.Since(began)))
	} else {
		err = o.print(out, w, outcomes, findings, checks, wrong, report, time.Since(began))
	}
	if o.check && wrong != nil {
		return errors.Join(err, errors.New("the check failed, see above"))
	}
	return err
}

// print writes the comparison for people.
func (o *options) print(out io.Writer, w *workload, outcomes []outcome, findings, checks []string, wrong error, report string, wall time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n\n", o.describe(w), o.costs())
	t := newTable(outcomes)
	if err := t.print(&b); err != nil {
		return err
	}
	if len(outcomes) > 1 {
		b.WriteString("* best of its row\n")
	}
	b.WriteString("\n")
	for _, f := range findings {
		b.WriteString(wrap(f, 100) + "\n")
	}
	if o.check {
		b.WriteString("\n")
		for _, line := range checks {
			b.WriteString("check ok: " + line + "\n")
		}
	}
	if wrong != nil {
		fmt.Fprintf(&b, "\ncheck FAILED: %v\n", wrong)
	}
	fmt.Fprintf(&b, "\n%.1f s in all", wall.Seconds())
	if report != "" {
		fmt.Fprintf(&b, "; report: %s", report)
	}
	b.WriteString("\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// describe says in words what is replayed on what.
func (o *options) describe(w *workload) string {
	capacity := float64(o.nodes*o.perNode) * w.Trace.Span().Hours()
	return fmt.Sprintf("%s of %s (%s) arriving over %s, on %s of %s; they ask for %s of the GPU-time until the last arrives",
		plural(len(w.Trace.Jobs), "job"), plural(len(w.Trace.Tenants()), "tenant"), w.Name, days(w.Trace.Span()), plural(o.nodes, "node"), plural(o.perNode, "GPU"), percentWhole(w.Trace.Work().Hours()/max(capacity, 1)))
}

// costs says in words what every run is charged.
func (o *options) costs() string {
	return fmt.Sprintf("Every run pays %s for a checkpoint and %s for a resume; leases of %s (SRTF, 2D-LAS, LTGF); schedulers know how long jobs run",
		short(o.save), short(o.restore), short(o.lease))
}

// bar is a progress bar where there is a terminal to show it.
type bar struct{ *progressbar.ProgressBar }

func newBar(w io.Writer, jobs int) bar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return bar{}
	}
	return bar{progressbar.NewOptions(jobs,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("replaying"),
		progressbar.OptionSetItsString("jobs"),
		progressbar.OptionShowIts(), progressbar.OptionShowCount(),
		progressbar.OptionFullWidth(), progressbar.OptionUseANSICodes(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
}

// add counts jobs that have ended; any goroutine may call it.
func (b bar) add(jobs int) {
	if b.ProgressBar != nil {
		_ = b.Add(jobs) // a bar that cannot be drawn is no reason to stop
	}
}

func (b bar) close() {
	if b.ProgressBar != nil {
		_ = b.Finish()
	}
}
