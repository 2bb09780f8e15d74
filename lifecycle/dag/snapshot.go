package dag

import (
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/lifecycle/dag"
	version = 1
)

// image is the saved form of a Tracker. What is ready and what waits for how many follow from it.
type image struct {
	Config  Config           `json:"config"`
	Steps   []stepImage      `json:"steps"`
	Last    lockstep.Attempt `json:"last"`
	Stopped bool             `json:"stopped,omitempty"`
}

type stepImage struct {
	Status  Status           `json:"status"`
	Used    int              `json:"used,omitempty"`
	Attempt lockstep.Attempt `json:"attempt,omitempty"`
	Outputs []Output         `json:"outputs,omitempty"`
}

func (t *Tracker) image() image {
	img := image{Config: t.cfg, Steps: make([]stepImage, len(t.steps)), Last: t.last, Stopped: t.stopped}
	for i, s := range t.steps {
		img.Steps[i] = stepImage{s.status, s.used, s.attempt, s.outputs}
	}
	return img
}

// Snapshot writes the whole run: one line with format, version and SHA-256, then JSON. Equal runs give equal bytes.
func (t *Tracker) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "dag: snapshot", format, version, t.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that Snapshot did not write, and runs that cannot
// be, are ErrInvalid.
func Restore(r io.Reader) (*Tracker, error) {
	const op = "dag: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	t, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	if err := t.load(&img); err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, t.image()); err != nil {
		return nil, err
	}
	return t, nil
}

// load puts a saved run in place of a new one.
func (t *Tracker) load(img *image) error {
	bad := func(i int, reason string) error {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "dag: restore", Field: "steps[" + strconv.Itoa(i) + "]", Reason: reason}
	}
	if len(img.Steps) != len(t.steps) {
		return bad(len(img.Steps), "are not as many as the workflow has")
	}
	t.last, t.stopped, t.left, t.ready = img.Last, img.Stopped, 0, newSet(len(t.steps))
	started := lockstep.Attempt(0)
	attempts := make(map[lockstep.Attempt]bool)
	for i, s := range img.Steps {
		if err := s.check(t.cfg.Steps[i], img); err != "" {
			return bad(i, err)
		}
		if s.Attempt != 0 && attempts[s.Attempt] {
			return bad(i, "has the attempt of another step")
		}
		attempts[s.Attempt] = true
		if started += lockstep.Attempt(s.Used); started > img.Last {
			return bad(i, "has more attempts than the run")
		}
		t.steps[i] = state{status: s.Status, handles: t.steps[i].handles, used: s.Used, attempt: s.Attempt, outputs: s.Outputs}
		if s.Status == Ready {
			t.ready.add(i)
		}
		if !s.Status.Over() {
			t.left++
		}
		if s.Status == Failed && !t.cfg.Steps[i].Optional && t.cfg.OnFailure == FailFast {
			t.failed = true
		}
	}
	if started != img.Last {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "dag: restore", Field: "last", Value: strconv.FormatUint(uint64(img.Last), 10), Reason: "is not how many attempts the steps have"}
	}
	for i := range t.steps {
		if err := t.settle(i); err != "" {
			return bad(i, err)
		}
	}
	return nil
}

// check returns what is wrong with a saved step by itself.
func (s stepImage) check(step Step, img *image) string {
	began := s.Used > 0
	switch {
	case s.Used < 0 || s.Used-1 > step.Retries || began != (s.Attempt > 0) || s.Attempt > img.Last || s.Attempt < lockstep.Attempt(s.Used):
		return "has attempts that cannot be"
	case len(s.Outputs) > 0 && s.Status != Succeeded:
		return "puts something out without a success"
	}
	for i, o := range s.Outputs {
		if o.Step != step.ID || (i > 0 && o.Name <= s.Outputs[i-1].Name) {
			return "has outputs out of order"
		}
	}
	if err := checkEnd(Success, s.Outputs); err != nil {
		return err.Error()
	}
	switch s.Status {
	case Waiting:
		if began {
			return "waits though it began"
		}
	case Running, Succeeded, Failed, Cancelled:
		if !began {
			return "never began"
		}
	case Ready:
		if s.Used > step.Retries {
			return "has no retry left"
		}
	case Skipped:
	default:
		return "has the status " + strconv.Quote(string(s.Status))
	}
	return ""
}

// settle counts what a step waits for and returns why its status cannot be, or "".
func (t *Tracker) settle(i int) string {
	s := &t.steps[i]
	s.waits = 0
	broken := false
	for _, e := range t.cfg.Steps[i].After {
		before := t.steps[t.index[e.Step]].status
		switch {
		case !before.Over():
			s.waits++
		case !holds(e.When, before):
			broken = true
		}
	}
	halted := t.halted(i)
	switch {
	case s.status == Waiting && (s.waits == 0 || broken || halted),
		s.status == Ready && halted:
		return "is " + string(s.status) + " though it cannot start any more"
	case s.status == Skipped && !broken && !halted:
		return "is skipped though it may start"
	case s.status != Skipped && s.status != Waiting && (s.waits > 0 || broken):
		return "began before it could"
	}
	return ""
}
