package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cooperative"
	"github.com/lockstep-gpu/lockstep/checkpoint/process"
)

// running is a job that was started.
type running struct {
	root checkpoint.Target
	out  string // the file with what it prints
}

// start starts the job, from images if there are any. Without hooks nobody can stop it but by a signal. Close ends it,
// and so does the end of this process, however that comes: its ranks read the lifeline.
func (w *world) start(steps uint64, images string, pace time.Duration, hooks bool) (running, error) {
	self, err := os.Executable()
	if err != nil {
		return running{}, err
	}
	// A file, since Start leaves no way to wait for the goroutine that would copy into a buffer.
	out, err := os.CreateTemp(w.dir, "output")
	if err != nil {
		return running{}, err
	}
	defer func() { _ = out.Close() }()
	in, lifeline, err := os.Pipe()
	if err != nil {
		return running{}, err
	}
	defer func() { _ = in.Close() }()
	socket := ""
	if hooks {
		socket = filepath.Join(w.dir, "hooks")
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"=job", imagesVariable+"="+images, paceVariable+"="+pace.String(),
		fmt.Sprintf("%s=%d", stepsVariable, steps), cooperative.EnvSocket+"="+socket)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	root, err := w.tree.Start(cmd)
	if err != nil {
		return running{}, errors.Join(err, lifeline.Close())
	}
	w.stop = append(w.stop, func() error {
		// Whoever is ended by its identity is met or nobody is: the pid may be another's by now.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err := w.tree.Terminate(ctx, root, process.Grace{Immediate: true})
		if errors.Is(err, checkpoint.ErrGone) {
			err = nil
		}
		return errors.Join(err, lifeline.Close())
	})
	return running{root: root, out: out.Name()}, nil
}

// text returns the lines of a job in order; its ranks end as they like.
func (r running) text() string {
	data, err := os.ReadFile(r.out)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// finish runs a job to its end and returns what it printed.
func (w *world) finish(ctx context.Context, steps uint64, images string) (string, error) {
	job, err := w.start(steps, images, 0, false)
	if err != nil {
		return "", err
	}
	if err := w.tree.Wait(ctx, job.root); err != nil {
		return "", fmt.Errorf("%w\n%s", err, job.text())
	}
	return job.text(), nil
}
