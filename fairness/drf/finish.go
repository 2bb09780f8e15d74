package drf

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// App is a job that is to be ordered by its finish time.
type App struct {
	Job     lockstep.JobID `json:"job"`     // Job is which.
	Arrived time.Time      `json:"arrived"` // Arrived is when it was submitted, not before 1970.
	Left    time.Duration  `json:"left"`    // Left is how long it still takes, as it is served or, while it waits, as it asks to be; 0 or more.
	Ideal   time.Duration  `json:"ideal"`   // Ideal is how long all of it would have taken alone on its part of the cluster, such as IdealTime says; 0 or more.
}

// FinishTimes proposes jobs by finish-time fairness, those first that are worst off for
// sharing: greatest Rho, then the earlier arrival, then the lesser ID (Mahajan et al.,
// Themis, NSDI 2020, without its auction). It implements gang.Orderer. The zero
// FinishTimes is ready for use, and not safe for concurrent use.
type FinishTimes struct {
	apps map[lockstep.JobID]*app
	line []*app // line is what is left of the pass, next last.
}

type app struct {
	id          lockstep.JobID
	arrived     int64
	left, ideal time.Duration
	rho         Ratio // as of Begin
}

// Submit adds a job. An error is lockstep.ErrInvalid or, for a job that is there,
// ErrDuplicate.
func (f *FinishTimes) Submit(a App) error {
	x, err := newApp("submit", &a)
	if err != nil {
		return err
	}
	if f.apps[a.Job] != nil {
		return fault(lockstep.ErrDuplicate, "submit", "job", errtext.Quote(a.Job), "was submitted")
	}
	if f.apps == nil {
		f.apps = make(map[lockstep.JobID]*app)
	}
	f.apps[a.Job] = x
	return nil
}

func newApp(call string, a *App) (*app, error) {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, call, field, value, reason))
	}
	if err := a.Job.Validate(); err != nil {
		bad("Job", errtext.Quote(a.Job), reason(err))
	}
	arrived, err := instant.In("drf").SinceEpoch(call, "Arrived", a.Arrived)
	errs = append(errs, err)
	if a.Left < 0 {
		bad("Left", a.Left.String(), "must not be negative")
	}
	if a.Ideal < 0 {
		bad("Ideal", a.Ideal.String(), "must not be negative")
	}
	return &app{id: a.Job, arrived: arrived, left: a.Left, ideal: a.Ideal}, errors.Join(errs...)
}

// Progress says how long a job still takes from now on, and, where that has changed,
// what its ideal is. It counts from the next pass.
func (f *FinishTimes) Progress(job lockstep.JobID, left, ideal time.Duration) error {
	x := f.apps[job]
	switch {
	case x == nil:
		return fault(lockstep.ErrUnknown, "progress", "job", errtext.Quote(job), "was not submitted")
	case left < 0 || ideal < 0:
		return fault(lockstep.ErrInvalid, "progress", "left", min(left, ideal).String(), "must not be negative")
	}
	x.left, x.ideal = left, ideal
	return nil
}

// Finish forgets a job.
func (f *FinishTimes) Finish(job lockstep.JobID) error {
	if f.apps[job] == nil {
		return fault(lockstep.ErrUnknown, "finish", "job", errtext.Quote(job), "was not submitted")
	}
	delete(f.apps, job)
	return nil
}

// Rho returns the finish-time fairness of a job at time now; before it arrived, as
// if it just had.
func (f *FinishTimes) Rho(now time.Time, job lockstep.JobID) (Ratio, bool) {
	x := f.apps[job]
	if x == nil {
		return Ratio{}, false
	}
	return x.at(nanos(now)), true
}

func (x *app) at(now int64) Ratio {
	return Rho(time.Duration(max(now-x.arrived, 0)), x.left, x.ideal)
}

// nanos returns now, held in the range of times since 1970.
func nanos(now time.Time) int64 {
	n, err := lockstep.Nanos(now)
	switch {
	case err == nil:
		return max(n, 0)
	case now.Year() < 1970:
		return 0
	}
	return instant.Never
}

// Begin starts a pass at time now over all jobs.
func (f *FinishTimes) Begin(now time.Time) {
	at := nanos(now)
	f.line = f.line[:0]
	for _, x := range f.apps { // in any order: sorted below
		x.rho = x.at(at)
		f.line = append(f.line, x)
	}
	slices.SortFunc(f.line, func(a, b *app) int {
		return cmp.Or(a.rho.Cmp(b.rho), cmp.Compare(b.arrived, a.arrived), strings.Compare(string(b.id), string(a.id)))
	})
}

// Next proposes a job; false ends the pass.
func (f *FinishTimes) Next() (lockstep.JobID, bool) {
	for n := len(f.line); n > 0; n-- {
		x := f.line[n-1]
		f.line[n-1] = nil
		f.line = f.line[:n-1]
		if f.apps[x.id] == x { // it may have ended since
			return x.id, true
		}
	}
	return "", false
}

// Outcome does nothing: what became of one job is nothing to the others until the next pass.
func (f *FinishTimes) Outcome(lockstep.JobID, lockstep.Outcome) {}

// The format and version of the saved form; others are refused.
const (
	finishFormat  = "lockstep/drf-finish"
	finishVersion = 1
)

// appImage is the saved form of an app.
type appImage struct {
	Job     lockstep.JobID `json:"job"`
	Arrived int64          `json:"arrived"`
	Left    int64          `json:"left"`
	Ideal   int64          `json:"ideal"`
}

// Snapshot writes all jobs, but no pass: one line with format, version and SHA-256,
// then JSON. Equal states give equal bytes.
func (f *FinishTimes) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "drf: snapshot", finishFormat, finishVersion, f.image())
}

func (f *FinishTimes) image() []appImage {
	img := make([]appImage, 0, len(f.apps))
	for _, id := range slices.Sorted(maps.Keys(f.apps)) {
		x := f.apps[id]
		img = append(img, appImage{id, x.arrived, int64(x.left), int64(x.ideal)})
	}
	return img
}

// RestoreFinishTimes reads what Snapshot wrote. Bytes that are cut short, changed, of
// another version or of no possible state are ErrInvalid.
func RestoreFinishTimes(r io.Reader) (*FinishTimes, error) {
	const op = "drf: restore"
	var img []appImage
	body, err := snapshot.ReadJSON(r, op, finishFormat, finishVersion, &img)
	if err != nil {
		return nil, err
	}
	var f FinishTimes
	for _, x := range img {
		err := f.Submit(App{x.Job, lockstep.FromNanos(x.Arrived), time.Duration(x.Left), time.Duration(x.Ideal)})
		if err != nil {
			return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", err.Error())
		}
	}
	if err := snapshot.CheckJSON(op, body, f.image()); err != nil {
		return nil, err
	}
	return &f, nil
}
