package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	if err := run(ctx, os.Stdout, *fault, *keep); err != nil {
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

// serve runs something in the background until close.
func (w *world) serve(ctx context.Context, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
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

// start starts the job, from images if there are any.
func (w *world) start(steps uint64, images string) (*exec.Cmd, *bytes.Buffer, checkpoint.Target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, checkpoint.Target{}, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"=job", imagesVariable+"="+images, paceVariable+"="+pace.String(),
		fmt.Sprintf("%s=%d", stepsVariable, steps), cooperative.EnvSocket+"="+filepath.Join(w.dir, "hooks"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	root, err := w.tree.Start(cmd)
	return cmd, &out, root, err
}

// lead puts a leader over the ranks of a job that runs.
func (w *world) lead(ctx context.Context, term checkpoint.Term) (*checkpoint.Local, []checkpoint.Target, error) {
	targets := make([]checkpoint.Target, ranks)
	for r := range targets {
		var err error
		if targets[r], err = w.host.Target(ctx, r); err != nil {
			return nil, nil, err
		}
	}
	l, err := checkpoint.NewLocal(checkpoint.LocalConfig{
		Config:  checkpoint.Config{Job: "training", Term: term, Margin: margin, MaxAborts: 10, Backoff: 100 * time.Millisecond},
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

// save makes one checkpoint and prints it.
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
	return report, nil
}

// whole is the way without faults.
func (w *world) whole(ctx context.Context) error {
	job, out, root, err := w.start(1<<40, "")
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(job.Process.Pid, syscall.SIGKILL) }()
	l, _, err := w.lead(ctx, 1)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	first, err := w.save(ctx, l, checkpoint.Request{})
	if err != nil {
		return err
	}
	if err := w.advise(first); err != nil {
		return err
	}
	last, err := w.save(ctx, l, checkpoint.Request{StopAfter: true})
	if err != nil {
		return err
	}
	if !last.Stopped || first.Outcome != checkpoint.OutcomeCommitted {
		return fmt.Errorf("the job was not saved: %v; %v\n%s", first, last, out)
	}
	end, err := w.tree.Terminate(ctx, root, process.Grace{Period: 10 * time.Second})
	if err != nil && !errors.Is(err, checkpoint.ErrGone) {
		return err
	}
	fmt.Fprintf(w.out, "preempted: all ranks left after the commit, %d had to be killed\n", end.Killed)
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
	_, out, root, err := w.start(steps, images)
	if err != nil {
		return err
	}
	if err := w.tree.Wait(ctx, root); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	got := sorted(out)
	plain, err := uninterrupted(ctx, steps)
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

// uninterrupted runs the job without anybody to stop it.
func uninterrupted(ctx context.Context, steps uint64) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), roleVariable+"=job", imagesVariable+"=", paceVariable+"=0s", fmt.Sprintf("%s=%d", stepsVariable, steps), cooperative.EnvSocket+"=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, &out)
	}
	return sorted(&out), nil
}

// sorted returns the lines of a job in order; its ranks end as they like.
func sorted(b *bytes.Buffer) string {
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// fault saves once, kills a rank in the middle of the second checkpoint, and shows what is left.
func (w *world) fault(ctx context.Context) error {
	job, out, root, err := w.start(1<<40, "")
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(job.Process.Pid, syscall.SIGKILL) }()
	l, targets, err := w.lead(ctx, 1)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	first, err := w.save(ctx, l, checkpoint.Request{})
	if err != nil {
		return err
	}
	if first.Outcome != checkpoint.OutcomeCommitted {
		return fmt.Errorf("the first checkpoint: %v", first)
	}
	w.saver.before = func(r checkpoint.SaveRequest) {
		if r.Rank == 2 {
			_ = syscall.Kill(targets[2].PID, syscall.SIGKILL)
		}
	}
	report, err := w.save(ctx, l, checkpoint.Request{})
	if err != nil {
		return err
	}
	if report.Outcome == checkpoint.OutcomeCommitted {
		return fmt.Errorf("an epoch without rank 2 was committed: %v", report)
	}
	fmt.Fprintf(w.out, "rank 2 died while it was saved: epoch %d is void, to be killed: %v\n", report.Epoch, report.Kill)
	if _, err := w.tree.Terminate(ctx, root, process.Grace{Immediate: true}); err != nil && !errors.Is(err, checkpoint.ErrGone) {
		return err
	}
	m, ok, err := w.store.Latest(ctx, "training")
	if err != nil || !ok || m.Epoch != first.Epoch {
		return fmt.Errorf("the last whole epoch is %+v (%v), want %d", m, err, first.Epoch)
	}
	w.saver.before = nil
	return w.resume(ctx, first)
}
