package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/lockstep-gpu/lockstep/hpo/bubble"
	"github.com/lockstep-gpu/lockstep/hpo/gate"
)

// trialEnv makes the program a trial; it holds how long a quantum takes.
const trialEnv = "LOCKSTEP_BUBBLES_QUANTUM"

// patience is how long anything that must not fail may take.
const patience = 30 * time.Second

// beTrial is the child: it makes quanta for as long as there is a supervisor.
func beTrial() int {
	d, err := time.ParseDuration(os.Getenv(trialEnv))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bubbles: trial:", err)
		return 1
	}
	// Standard input ends with the supervisor, and only then.
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if _, _, ok := gate.Socket(); !ok {
		for ctx.Err() == nil {
			work(d)
		}
		return 0
	}
	h, err := gate.Dial(ctx, gate.HookConfig{})
	if err != nil {
		return 1
	}
	for h.Next(ctx, most(d)) == nil {
		work(d)
	}
	return 0
}

// most is what a quantum takes at most, as a trial says.
func most(d time.Duration) time.Duration { return d * 5 / 4 }

// work makes a quantum.
func work(d time.Duration) {
	start := time.Now()
	var block [4096]byte
	for time.Since(start) < d/8 {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
	time.Sleep(d - time.Since(start))
}

// trial is a child as its supervisor sees it. One goroutine uses it at a time.
type trial struct {
	bubble.Resident
	stage   int
	hook    bool
	gate    *gate.Gate
	reports chan gate.Report
	quit    func()        // ends it
	ended   chan struct{} // Run has returned
	err     error         // what it returned; read after ended
	epoch   uint64
	open    bool
	quanta  atomic.Uint64 // that were done
	expired atomic.Uint64 // leases after whose end a quantum ended
}

// nursery starts trials.
type nursery struct {
	dir      string // of sockets
	leash    *os.File
	end      *os.File
	signals  bool
	children []*trial
}

func newNursery(signals bool) (*nursery, error) {
	dir, err := os.MkdirTemp("", "bubbles")
	if err != nil {
		return nil, err
	}
	n := &nursery{dir: dir, signals: signals}
	if n.leash, n.end, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return n, nil
}

// close waits for all trials, whose context has ended.
func (n *nursery) close() error {
	var errs []error
	for _, t := range n.children {
		<-t.ended
		errs = append(errs, t.err)
	}
	return errors.Join(append(errs, n.leash.Close(), n.end.Close(), os.RemoveAll(n.dir))...)
}

// start starts a trial whose quantum takes d, and waits until it is there and still.
func (n *nursery) start(ctx context.Context, stage int, r bubble.Resident, d time.Duration) (*trial, error) {
	t := &trial{Resident: r, stage: stage, hook: !n.signals, reports: make(chan gate.Report, 64), ended: make(chan struct{})}
	name := fmt.Sprintf("%d-%s-%d", stage, r.Bundle, r.Fused)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), trialEnv+"="+d.String())
	cmd.Stdin, cmd.Stderr = n.leash, os.Stderr
	cfg := gate.Config{Name: name, Command: cmd, Watch: t.watch}
	if t.hook {
		cfg.Socket = filepath.Join(n.dir, name)
	}
	var err error
	if t.gate, err = gate.New(cfg); err != nil {
		return nil, err
	}
	n.children = append(n.children, t)
	inner, cancel := context.WithCancel(ctx)
	t.quit = cancel
	go func() {
		defer close(t.ended)
		defer cancel()
		t.err = t.gate.Run(inner)
	}()
	late := time.After(patience)
	for {
		// A trial that has not connected has to be stopped to be still; one with a hook comes by itself.
		if s := t.gate.Status(); s.Quiesced && !s.Over && (s.Connected || !t.hook) {
			return t, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.ended:
			return nil, errors.Join(fmt.Errorf("trial %s has ended", name), t.err)
		case <-late:
			return nil, fmt.Errorf("trial %s does not come up", name)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// watch takes in what the trial says. It runs in the gate's goroutine.
func (t *trial) watch(r gate.Report) {
	t.quanta.Add(r.Quanta)
	if r.Overrun > 0 {
		t.expired.Add(1)
	}
	select {
	case t.reports <- r:
	default: // whoever waits sees that the trial is quiet
	}
}

// quantum lets the trial make one quantum, which takes d, and returns when it is done or will not be, or over is.
func (t *trial) quantum(ctx context.Context, d time.Duration, over <-chan struct{}) error {
	if !t.open {
		t.epoch++
		t.open = true
	}
	// The lease has room for one quantum that starts late, and not for two.
	if err := t.gate.Open(t.epoch, time.Now().Add(2*d)); err != nil {
		return err
	}
	var done <-chan time.Time // a trial without a hook says nothing
	if !t.hook {
		done = time.After(d)
	}
	// A lease that came too late, or to a trial that was stopped before it could answer, is not reported.
	lapse := time.NewTicker(2 * d)
	defer lapse.Stop()
	for {
		select {
		case r := <-t.reports:
			if r.Epoch == t.epoch {
				return nil
			}
		case <-lapse.C:
			if still, err := t.gate.Quiesced(); still || err != nil {
				return err
			}
		case <-done:
			t.quanta.Add(1)
			return nil
		case <-over:
			return nil
		case <-t.ended:
			return errors.Join(errors.New("a trial has ended"), t.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop takes the lease back and waits until the trial is still.
func (t *trial) stop(ctx context.Context) error {
	t.open = false
	if err := t.gate.Close(t.epoch); err != nil {
		return err
	}
	for late := time.After(patience); ; {
		still, err := t.gate.Quiesced()
		if still || err != nil {
			return err
		}
		select {
		case <-t.reports:
		case <-time.After(200 * time.Microsecond):
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return errors.New("a trial cannot be stopped")
		}
	}
}
