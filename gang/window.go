package gang

import (
	"cmp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
)

// Window is a time in which nodes are kept free of gangs, such as for
// maintenance. A gang is not placed on them when its estimate, counted from the
// latest start that its hold allows, reaches into the window; one without an
// estimate is not placed on them until the window is over, however far ahead it is:
// a host that knows no estimates reserves no sooner than it has to. What runs there
// already stays until the host cancels it or calls it due: a due holder leaves a
// window that it meets by its estimate or, where that is over or unknown, one in force.
type Window struct {
	Name  string            `json:"name"`  // Name tells windows apart: any text in UTF-8.
	Nodes []lockstep.NodeID `json:"nodes"` // Nodes are kept free; at least one. The slice is copied.
	From  time.Time         `json:"from"`  // From is the first instant of the window.
	To    time.Time         `json:"to"`    // To is the first instant after it.

	from, to int64
}

// Reserve keeps w.Nodes free of gangs in w. A window of that name that is not
// over is lockstep.ErrDuplicate. A window that is over at once is no error.
func (a *Admission) Reserve(now time.Time, w Window) error {
	t, err := a.at("reserve", now)
	if err != nil {
		return err
	}
	var err1, err2 error
	w.from, err1 = lockstep.Nanos(w.From)
	w.to, err2 = lockstep.Nanos(w.To)
	if err1 != nil || err2 != nil || w.from >= w.to {
		return fault(lockstep.ErrInvalid, "reserve", "From", w.From.String(), "From and To must be in that order")
	}
	if err := w.named(); err != nil {
		return err
	}
	i, found := a.windowAt(w.Name)
	if found && a.windows[i].to > t {
		return fault(lockstep.ErrDuplicate, "reserve", "Name", strconv.Quote(w.Name), "a window of that name is not over")
	}
	a.now = t
	if found { // it is over, though no Step has seen that
		a.windows = slices.Delete(a.windows, i, i+1)
		a.opened()
	}
	if w.to <= t {
		return nil
	}
	w.Nodes = slices.Clone(w.Nodes)
	w.From, w.To = lockstep.FromNanos(w.from), lockstep.FromNanos(w.to)
	a.windows = slices.Insert(a.windows, i, w)
	a.timers.set(a, w.to, nil)
	// Nothing became free, but reservations may lie in the window.
	a.tight++
	a.flow++
	a.stale = true
	return nil
}

// named checks the names in w.
func (w *Window) named() error {
	if len(w.Nodes) == 0 {
		return fault(lockstep.ErrInvalid, "reserve", "Nodes", "[]", "want at least one")
	}
	for i, n := range w.Nodes {
		if n.Validate() != nil {
			return fault(lockstep.ErrInvalid, "reserve", "Nodes["+strconv.Itoa(i)+"]", strconv.Quote(string(n)), "not the name of a node")
		}
	}
	if !utf8.ValidString(w.Name) {
		return fault(lockstep.ErrInvalid, "reserve", "Name", strconv.Quote(w.Name), "not UTF-8")
	}
	return nil
}

// Unreserve ends the window of that name.
func (a *Admission) Unreserve(now time.Time, name string) error {
	t, err := a.at("unreserve", now)
	if err != nil {
		return err
	}
	i, found := a.windowAt(name)
	if !found {
		return fault(lockstep.ErrUnknown, "unreserve", "name", strconv.Quote(name), "no window of that name")
	}
	a.now = t
	a.windows = slices.Delete(a.windows, i, i+1)
	a.opened()
	return nil
}

// AppendWindows appends the windows that are not over, by name, and returns dst.
func (a *Admission) AppendWindows(dst []Window) []Window {
	for _, w := range a.windows {
		w.Nodes = slices.Clone(w.Nodes)
		dst = append(dst, w)
	}
	return dst
}

func (a *Admission) windowAt(name string) (int, bool) {
	return slices.BinarySearchFunc(a.windows, name, func(w Window, name string) int { return cmp.Compare(w.Name, name) })
}

// endWindows drops the windows that are over.
func (a *Admission) endWindows() {
	n := len(a.windows)
	a.windows = slices.DeleteFunc(a.windows, func(w Window) bool { return w.to <= a.now })
	if len(a.windows) < n {
		a.opened()
	}
}

// freed takes note that room may have become free.
func (a *Admission) freed() {
	a.flow++
	a.freedOnTime()
}

// freedOnTime takes note that room became free when it was expected to.
func (a *Admission) freedOnTime() {
	a.epoch++
	a.stale = true
}

// opened takes note that even an empty cluster may have grown.
func (a *Admission) opened() {
	a.opens++
	a.freed()
}
