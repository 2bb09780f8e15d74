package serve

import (
	"container/heap"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// start is the instant of a run's zero: late enough for all that refuses times before 1970.
const start = int64(1_700_000_000) * int64(time.Second)

// clock is a time of the run as packages under it want it.
func clock(at time.Duration) time.Time { return lockstep.FromNanos(start + int64(at)) }

// since is the reverse of clock.
func since(t time.Time) time.Duration { return time.Duration(t.UnixNano() - start) }

// kind orders events of one instant; arrivals of requests come between settled and tick.
type kind uint8

const (
	iterated kind = iota // a replica's iteration is over
	loaded               // a replica is ready
	died                 // a replica is lost
	left                 // a job has left servers
	finished             // a job may be over
	came                 // a job comes
	settled              // a recall's deadline
	tick                 // the Scaler is told and asked
)

// event is something that happens. Events of one instant and kind go by when they were scheduled.
type event struct {
	at   time.Duration
	kind kind
	who  int    // replica, death or job
	gen  int    // of the job, where a change makes the event void
	seq  uint64 // of schedule
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	if e[i].kind != e[j].kind {
		return e[i].kind < e[j].kind
	}
	return e[i].seq < e[j].seq
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) schedule(at time.Duration, k kind, who, gen int) {
	w.seq++
	heap.Push(&w.events, event{at, k, who, gen, w.seq})
}
