package pipeline

import (
	"strconv"
	"strings"
)

// Place is an op with where it is in the orders.
type Place struct {
	Stage int // the row of the order
	Index int // where it is in that row, from 0
	Op    Op  // the op
}

// String returns p as "stage 2 op 5 (B3)".
func (p Place) String() string {
	return "stage " + strconv.Itoa(p.Stage) + " op " + strconv.Itoa(p.Index) + " (" + p.Op.String() + ")"
}

// Wait is one link of a deadlock: an op that waits for another one.
type Wait struct {
	Blocked Place // the op its stage has come to
	For     Place // the op it waits for, which comes after the Blocked op of its own stage, or is it
}

// DeadlockError says that orders can never end, since stages wait for each other in a circle. errors.As finds a
// *lockstep.Error in it, of kind ErrInvalid.
type DeadlockError struct {
	Cycle []Wait // the circle; each For is in the stage of the next Blocked, and the last one's in that of the first
}

// Error names the ops that wait for each other.
func (e *DeadlockError) Error() string { return e.Unwrap().Error() }

// Unwrap returns e as a *lockstep.Error.
func (e *DeadlockError) Unwrap() error {
	var b strings.Builder
	b.WriteString("deadlock: ")
	for i, w := range e.Cycle {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(w.Blocked.String() + " waits for " + w.For.String())
	}
	return invalid("new", "Orders", "", b.String())
}

// deadlock finds the circle that the lowest stage which cannot go on is in or waits for.
func (l *Line) deadlock(head []int32) error {
	row := 0
	for head[row] == l.base[row+1] {
		row++
	}
	seen := make([]int, len(l.rows)) // by row: number of its link plus 1
	var links []Wait
	for seen[row] == 0 {
		seen[row] = len(links) + 1
		blocked, on := head[row], l.waits[head[row]].on
		links = append(links, Wait{Blocked: l.placeOf(blocked), For: l.placeOf(on)})
		row = int(l.row[on])
	}
	return &DeadlockError{Cycle: links[seen[row]-1:]}
}

// placeOf returns the place of the op with an index.
func (l *Line) placeOf(at int32) Place {
	row := int(l.row[at])
	return Place{Stage: row, Index: int(at - l.base[row] - 1), Op: l.ops[at]}
}
