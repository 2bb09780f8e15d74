package liveness

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// List is who is at fault, as of one decision. All members that act on the same
// Epoch act on the same list.
type List struct {
	Epoch        uint64    `json:"epoch"`            // Epoch grows with each new list; 0 is the empty one at the start.
	At           time.Time `json:"at"`               // At is when it was decided; zero at the start.
	Participants int       `json:"participants"`     // Participants is how many ranks take part.
	Faults       []Member  `json:"faults,omitempty"` // Faults are the ranks that are Dead or Hung, in increasing order. Do not change them.
}

// Faults returns the list of now.
func (c *Coordinator) Faults() List { return c.lists[len(c.lists)-1] }

// FaultsAt returns the list of an epoch, which is false if it is not yet or no
// longer known. Members agree on an epoch, as by the word of one of them, and then
// all read that.
func (c *Coordinator) FaultsAt(epoch uint64) (List, bool) {
	i, ok := slices.BinarySearchFunc(c.lists, epoch, func(l List, e uint64) int { return cmp.Compare(l.Epoch, e) })
	if !ok {
		return List{}, false
	}
	return c.lists[i], true
}

// Raise makes the epoch of every list from now on higher than floor, of which what is
// above 2^62 does not count; a floor below that of the list of now changes nothing. It
// is for a coordinator that was restored from an older state than it had: raise it
// above all epochs that somebody was told.
func (c *Coordinator) Raise(floor uint64) { c.epoch = max(c.epoch, min(floor, maxCount)) }

// AppendParticipants appends the ranks that take part as of the list of now, in
// increasing order: those that are Alive, Hung or Suspect. Who is dead, has left or
// was not heard of yet does not.
func (c *Coordinator) AppendParticipants(dst []int) []int {
	from := len(dst)
	for number, r := range c.ranks { // in any order: sorted below
		if takesPart(r.told) {
			dst = append(dst, number)
		}
	}
	slices.Sort(dst[from:])
	return dst
}

func takesPart(s State) bool { return s == Alive || s == Hung || s == Suspect }

func listed(s State) bool { return s == Dead || s == Hung }

// relist makes a new list if the events, which are by rank, or the forgotten ranks
// change it.
func (c *Coordinator) relist(ns int64, events []Event, forgotten []int) {
	last := c.Faults()
	next := List{Epoch: c.epoch + 1, At: lockstep.FromNanos(ns), Participants: last.Participants}
	part, fault := false, len(forgotten) > 0 // whether it may be another in who takes part, and in who is at fault
	for rest := events; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Rank == rest[0].Rank {
			n++
		}
		from, to := takesPart(rest[0].From), takesPart(rest[n-1].To)
		if part = part || from != to; to && !from {
			next.Participants++
		} else if from && !to {
			next.Participants--
		}
		fault = fault || slices.ContainsFunc(rest[:n], func(e Event) bool { return listed(e.From) || listed(e.To) })
		rest = rest[n:]
	}
	if !part && !fault {
		return
	}
	next.Faults = c.merge(last.Faults, events, forgotten)
	if !part && slices.Equal(next.Faults, last.Faults) {
		return
	}
	c.epoch++
	c.lists = append(c.lists, next)
	if over := len(c.lists) - c.t.cfg.History; over > 0 {
		c.lists = slices.Delete(c.lists, 0, over)
	}
}

// merge returns faults without the ranks of events and of forgotten, and with those
// of events that are at fault now.
func (c *Coordinator) merge(faults []Member, events []Event, forgotten []int) []Member {
	out := make([]Member, 0, len(faults)+len(events))
	for len(faults) > 0 || len(events) > 0 {
		if len(events) == 0 || len(faults) > 0 && faults[0].Rank < events[0].Rank {
			if _, skip := slices.BinarySearch(forgotten, faults[0].Rank); !skip {
				out = append(out, faults[0])
			}
			faults = faults[1:]
			continue
		}
		number := events[0].Rank
		for len(events) > 0 && events[0].Rank == number {
			events = events[1:]
		}
		if len(faults) > 0 && faults[0].Rank == number {
			faults = faults[1:]
		}
		if r := c.ranks[number]; listed(r.told) {
			out = append(out, r.member())
		}
	}
	return out
}
