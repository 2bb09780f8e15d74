package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cooperative"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda"
	"github.com/lockstep-gpu/lockstep/checkpoint/imagestore"
	"github.com/lockstep-gpu/lockstep/checkpoint/interval"
	"github.com/lockstep-gpu/lockstep/checkpoint/process"
)

func main() {
	cuda.HelperMain() // does not return where this process is that helper
	role()
	fault := flag.Bool("fault", false, "kill a rank in the middle of a checkpoint")
	keep := flag.String("keep", "", "folder to leave the store in")
	flag.Parse()
	if runtime.GOOS != "linux" {
		fmt.Println("skipped: this example needs Linux")
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	err := run(ctx, os.Stdout, *fault, *keep)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkpoint:", err)
		os.Exit(1)
	}
}

// role does what a process of the job does, if this is one.
func role() {
	switch os.Getenv(roleVariable) {
	case "job":
		os.Exit(runJob())
	case "rank":
		os.Exit(runRank())
	}
}

// pace is how long a step of the job takes; margin is how many steps take half a second.
const (
	pace   = 5 * time.Millisecond
	margin = 100
)

const (
	name    = "training" // the job
	forever = 1 << 40    // as many steps as nobody waits for
	victim  = 2          // the rank that -fault kills
)

// world is all that a run has.
type world struct {
	out   io.Writer
	dir   string
	store *imagestore.Store
	saver *saver
	host  *cooperative.Host
	tree  *process.Driver
	stop  []func() error
}

// run shows the whole way, or the fault.
func run(ctx context.Context, out io.Writer, fault bool, keep string) (err error) {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if keep == "" {
		keep = filepath.Join(dir, "store")
	}
	w, err := newWorld(ctx, out, dir, keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	w.gpu(ctx)
	if fault {
		return w.fault(ctx)
	}
	return w.whole(ctx)
}

// newWorld opens the store and serves the hooks.
func newWorld(ctx context.Context, out io.Writer, dir, keep string) (*world, error) {
	w := &world{out: out, dir: dir}
	var err error
	if w.store, err = imagestore.Open(imagestore.Config{Dir: keep}); err != nil {
		return nil, err
	}
	if w.tree, err = process.New(process.Config{}); err != nil {
		return nil, errors.Join(err, w.store.Close())
	}
	cfg := cooperative.Config{Socket: filepath.Join(dir, "hooks")}
	for r := range ranks {
		cfg.Ranks = append(cfg.Ranks, checkpoint.Target{Rank: r})
	}
	if w.host, err = cooperative.New(cfg); err != nil {
		return nil, errors.Join(err, w.store.Close())
	}
	w.serve(ctx, w.host.Run)
	place := func(r checkpoint.SaveRequest) string {
		return filepath.Join(dir, fmt.Sprintf("%d.%d", r.Epoch, r.Rank))
	}
	w.saver = &saver{ranks: w.host.Saver(place), place: place, store: w.store, stats: make(map[checkpoint.Epoch]imagestore.Stats)}
	return w, nil
}

// serve runs something in the background until close. It outlives ctx: a checkpoint that is interrupted is to be given
// up in order, and who does that must still be there.
func (w *world) serve(ctx context.Context, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	w.stop = append(w.stop, func() error {
		cancel()
		return <-done
	})
}

// close ends what runs in the background, last first, and closes the store.
func (w *world) close() error {
	var errs []error
	for _, stop := range slices.Backward(w.stop) {
		errs = append(errs, stop())
	}
	return errors.Join(append(errs, w.store.Close())...)
}

// gpu says what the CUDA driver could do here.
func (w *world) gpu(ctx context.Context) {
	d, err := cuda.New(cuda.Config{})
	if err != nil {
		fmt.Fprintln(w.out, "cuda:", err)
		return
	}
	defer func() { _ = d.Close() }()
	caps, err := d.Probe(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrUnsupported) || err == nil && !caps.Can(checkpoint.CanSuspend):
		fmt.Fprintln(w.out, "cuda: no driver here that suspends processes; the job saves by itself")
	case err != nil:
		fmt.Fprintln(w.out, "cuda:", err)
	default:
		fmt.Fprintf(w.out, "cuda: driver API %s can %v\n", caps.Version, caps.Abilities)
	}
}

// lead puts a leader over the ranks of a job that runs. A store that was kept may have epochs of a run before: the
// leader is a newer one, and its epochs lie above those.
func (w *world) lead(ctx context.Context) (*checkpoint.Local, []checkpoint.Target, error) {
	targets := make([]checkpoint.Target, ranks)
	for r := range targets {
		var err error
		if targets[r], err = w.host.Target(ctx, r); err != nil {
			return nil, nil, err
		}
	}
	term, after := checkpoint.Term(1), checkpoint.Epoch(0)
	if m, ok, err := w.store.Latest(ctx, name); err != nil {
		return nil, nil, err
	} else if ok {
		term, after = m.Term+1, m.Epoch
	}
	l, err := checkpoint.NewLocal(checkpoint.LocalConfig{
		Config:  checkpoint.Config{Job: name, Term: term, After: after, Margin: margin, MaxAborts: 10, Backoff: 100 * time.Millisecond},
		Agent:   checkpoint.AgentConfig{NoSuspend: true}, // what stands still is saved where it stands
		Targets: targets, Driver: w.host, Saver: w.saver, Ledger: w.store, Kill: w.leave,
	})
	if err == nil {
		w.serve(ctx, l.Run)
	}
	return l, targets, err
}

// leave has a rank leave its loop and waits until its process has ended.
func (w *world) leave(ctx context.Context, t checkpoint.Target) error {
	if err := w.host.Terminate(ctx, t); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := process.Identify(t.PID)
		if errors.Is(err, checkpoint.ErrGone) || err == nil && now.Start != t.Start {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// save makes one checkpoint and prints it. That an epoch was aborted is no error.
func (w *world) save(ctx context.Context, l *checkpoint.Local, r checkpoint.Request) (*checkpoint.Report, error) {
	r.Cooperative, r.Attempts = true, 10
	done := w.progress(l)
	report, err := l.Checkpoint(ctx, r)
	done()
	if err != nil {
		return nil, err
	}
	if report.Outcome != checkpoint.OutcomeCommitted {
		return report, nil
	}
	st := w.saver.of(report.Epoch)
	fmt.Fprintf(w.out, "epoch %d at step %d: %d MiB of %d ranks, %.1f MiB of that new, %.1f MiB stored; paused for %v\n",
		report.Epoch, report.Manifest.Step, st.Raw>>20, ranks, float64(st.Raw-st.Reused)/(1<<20), float64(st.Stored)/(1<<20), report.Pause.Round(time.Millisecond))
	for _, r := range report.Manifest.Ranks {
		fmt.Fprintf(w.out, "  rank %d: %d MiB saved in %v\n", r.Rank, r.Bytes>>20, r.Took.Round(time.Millisecond))
	}
	return report, nil
}

// commit is save where nothing else than a commit will do.
func (w *world) commit(ctx context.Context, l *checkpoint.Local, r checkpoint.Request) (*checkpoint.Report, error) {
	report, err := w.save(ctx, l, r)
	if err == nil && report.Outcome != checkpoint.OutcomeCommitted {
		err = fmt.Errorf("the job was not saved: %v", report)
	}
	return report, err
}

// whole is the way without faults.
func (w *world) whole(ctx context.Context) error {
	job, err := w.start(forever, "", pace, true)
	if err != nil {
		return err
	}
	l, _, err := w.lead(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, job.text())
	}
	first, err := w.commit(ctx, l, checkpoint.Request{})
	if err != nil {
		return err
	}
	if err := w.advise(first); err != nil {
		return err
	}
	if _, err := w.commit(ctx, l, checkpoint.Request{}); err != nil {
		return err
	}
	last, err := w.commit(ctx, l, checkpoint.Request{StopAfter: true})
	if err != nil {
		return err
	}
	if !last.Stopped {
		return fmt.Errorf("the job was not stopped: %v\n%s", last, job.text())
	}
	end, err := w.tree.Terminate(ctx, job.root, process.Grace{Period: 10 * time.Second, Contract: process.Contract{
		Saved: []int{0},
		Image: func(ctx context.Context) (bool, error) {
			_, ok, err := w.store.Committed(ctx, last.Manifest.Job, last.Epoch)
			return ok, err
		},
	}})
	if err != nil {
		return err
	}
	if end.Killed > 0 || end.Verdict != process.Saved {
		return fmt.Errorf("the job did not end well: %v", &end)
	}
	fmt.Fprintf(w.out, "preempted: all ranks left after the commit, %d had to be killed; %s\n", end.Killed, end.Verdict)
	return w.resume(ctx, last)
}

// advise says how often to save and whether a warning of 30 s is enough.
func (w *world) advise(r *checkpoint.Report) error {
	longest := time.Duration(0)
	for _, image := range r.Manifest.Ranks {
		longest = max(longest, image.Took)
	}
	every, err := interval.Optimum(r.Pause, 6*time.Hour)
	if err != nil {
		return err
	}
	c, err := interval.Check([]interval.Link{{Name: "launcher", Grace: 30 * time.Second}}, interval.Need{Step: pace, Save: longest}, every)
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, "with a failure every 6h, save every %v; a warning of 30s is enough: %v\n", every.Round(time.Second), c.Feasible)
	return nil
}

// resume verifies the store, starts the job from the epoch, and compares its end with that of one that nobody stopped.
func (w *world) resume(ctx context.Context, r *checkpoint.Report) error {
	if err := w.verify(ctx); err != nil {
		return err
	}
	steps := r.Manifest.Step + 40
	images, err := fetch(ctx, w.store, r.Manifest, w.dir)
	if err != nil {
		return err
	}
	got, err := w.finish(ctx, steps, images)
	if err != nil {
		return err
	}
	plain, err := w.finish(ctx, steps, "")
	if err != nil {
		return err
	}
	if got != plain || strings.Count(got, "rank") != ranks {
		return fmt.Errorf("the resumed job came to\n%s\nand not to\n%s", got, plain)
	}
	fmt.Fprintf(w.out, "resumed at step %d and run to its end: all %d ranks hold what they hold without any stop\n", r.Manifest.Step, ranks)
	return nil
}

// verify reads the whole store.
func (w *world) verify(ctx context.Context) error {
	v, err := w.store.Verify(ctx)
	if err != nil {
		return err
	}
	if len(v.Damage) > 0 {
		return fmt.Errorf("the store is damaged: %v", v.Damage)
	}
	fmt.Fprintf(w.out, "verified: %d epochs, %d images, %.1f MiB in all\n", v.Epochs, v.Images, float64(v.Bytes)/(1<<20))
	return nil
}

// fault saves once, kills a rank in the middle of the second checkpoint, and shows what is left.
func (w *world) fault(ctx context.Context) error {
	job, err := w.start(forever, "", pace, true)
	if err != nil {
		return err
	}
	l, targets, err := w.lead(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, job.text())
	}
	first, err := w.commit(ctx, l, checkpoint.Request{})
	if err != nil {
		return err
	}
	w.saver.before = func(r checkpoint.SaveRequest) {
		if r.Rank == victim {
			_ = syscall.Kill(targets[victim].PID, syscall.SIGKILL)
		}
	}
	report, err := w.save(ctx, l, checkpoint.Request{})
	if err != nil {
		return err
	}
	if report.Outcome != checkpoint.OutcomeAborted || len(report.Broken) != 1 || report.Broken[0].Rank != victim {
		return fmt.Errorf("want an epoch aborted for rank %d alone: %v", victim, report)
	}
	if err := w.nobodyIsHeld(ctx, targets); err != nil {
		return err
	}
	fmt.Fprintf(w.out, "rank %d died while it was saved: epoch %d is void, nobody is held, to be killed: %v\n", victim, report.Epoch, report.Kill)
	if _, err := w.tree.Terminate(ctx, job.root, process.Grace{Immediate: true}); err != nil {
		return err
	}
	m, ok, err := w.store.Latest(ctx, name)
	if err != nil || !ok || m.Epoch != first.Epoch {
		return fmt.Errorf("the last whole epoch is %+v (%v), want %d", m, err, first.Epoch)
	}
	return w.resume(ctx, first)
}

// nobodyIsHeld looks whether all ranks have been let go. Those that go on without the one that died find that out in
// the next sum and end, which is as well.
func (w *world) nobodyIsHeld(ctx context.Context, targets []checkpoint.Target) error {
	for r, t := range targets {
		s, err := w.host.State(ctx, t)
		if err != nil {
			return err
		}
		if s != checkpoint.Running && s != checkpoint.Gone {
			return fmt.Errorf("rank %d is %s after the abort", r, s)
		}
	}
	return nil
}
