package main

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/deadline"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

const second = int64(time.Second)

// outcome is what a replay came to.
type outcome struct {
	jobs, admitted, met, missed int     // missed of those that were admitted
	jct                         float64 // seconds, mean over those that ended
	latest                      float64 // seconds by which the latest of those that missed was late
	resizes                     int     // times that a running job was given another number of devices, or none
}

func (o outcome) ratio() float64 { return float64(o.met) / float64(max(o.jobs, 1)) }

// live is a job that runs or waits.
type live struct {
	*job
	left    int64 // whole units, rounded up
	sub     int64 // billionths of a unit that are done of them
	gpus    int
	rate    int64 // units a second
	pause   int64 // nanoseconds that it stands still yet
	service int64 // device-nanoseconds so far
	key     int64
}

// run lets a job go on for so long.
func (l *live) run(span int64) {
	still := min(span, l.pause)
	l.pause -= still
	hi, lo := bits.Mul64(uint64(l.rate), uint64(span-still))
	lo, carry := bits.Add64(lo, uint64(l.sub), 0)
	units, rest := bits.Div64(hi+carry, lo, uint64(second))
	l.left, l.sub = l.left-int64(units), int64(rest)
}

// ends returns how long it takes to its end.
func (l *live) ends() int64 {
	hi, lo := bits.Mul64(uint64(l.left), uint64(second))
	lo, borrow := bits.Sub64(lo, uint64(l.sub), 0)
	quo, rest := bits.Div64(hi-borrow, lo, uint64(l.rate))
	if rest > 0 {
		quo++
	}
	return int64(quo) + l.pause
}

// world is what a replay takes for granted.
type world struct {
	gpus int

	// slot is between decisions, in nanoseconds; 0 lets each event have its own.
	slot int64

	// pause is how long a job stands still after a decision that gives it so many devices, or leaves it as many; nil means not
	// at all.
	pause func(gpus int, resized bool) int64

	// allowance is how much before its deadline a job is to end by its plan, for pauses; planned lets it also be planned as
	// if it stood still in each slot for as long as one does that is not resized.
	allowance int64
	planned   bool

	spread elastic.Config
}

// round returns when the next decision is, not before t.
func (w *world) round(t int64) int64 {
	if w.slot == 0 || t > 1<<62 {
		return t
	}
	return (t + w.slot - 1) / w.slot * w.slot
}

// replay is the state of one under deadline.Elastic, with what is left over given out by policy/elastic.
type replay struct {
	world
	e      *deadline.Elastic
	spread *elastic.Allocator
	out    outcome
	active map[lockstep.JobID]*live
	list   []*live // active, by ID
	now    int64
	next   int64 // when something happens by itself
	sum    float64
	shares []deadline.Share
	ask    []elastic.Job
	given  []elastic.Share
}

func at(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// admission replays a trace.
func admission(all []*job, w world) (outcome, error) {
	r := &replay{world: w, out: outcome{jobs: len(all)}, active: make(map[lockstep.JobID]*live)}
	var err error
	if r.e, err = deadline.NewElastic(w.gpus); err != nil {
		return r.out, err
	}
	if r.spread, err = elastic.New(w.spread); err != nil {
		return r.out, err
	}
	for len(all) > 0 || len(r.active) > 0 {
		to := w.round(r.next)
		if len(all) > 0 {
			if arrival := w.round(all[0].submit * second); len(r.active) == 0 || arrival < to {
				to = max(arrival, r.now)
			}
		}
		if err := r.pass(to); err != nil {
			return r.out, err
		}
		for ; len(all) > 0 && all[0].submit*second <= r.now; all = all[1:] {
			if err := r.submit(all[0]); err != nil {
				return r.out, err
			}
		}
		if err := r.share(); err != nil {
			return r.out, err
		}
	}
	r.out.jct = r.sum / float64(max(r.out.met+r.out.missed, 1))
	return r.out, nil
}

// pass lets time go on.
func (r *replay) pass(to int64) error {
	span := to - r.now
	from := r.now
	if r.now = to; span == 0 {
		return nil
	}
	kept := r.list[:0]
	for _, l := range r.list {
		if l.gpus == 0 {
			kept = append(kept, l)
			continue
		}
		if l.ends() > span {
			l.run(span)
			kept = append(kept, l)
			hi, lo := bits.Mul64(uint64(l.rate), uint64(l.pause))
			still, _ := bits.Div64(hi, lo, uint64(second)) // what it would have done instead of standing still
			if err := r.e.Ran(at(to), l.id, l.left+int64(still)); err != nil {
				return err
			}
			continue
		}
		if err := r.e.Finish(at(to), l.id); err != nil {
			return err
		}
		delete(r.active, l.id)
		end := from + l.ends()
		r.sum += float64(end)/1e9 - float64(l.submit)
		if end <= l.deadline*second {
			r.out.met++
		} else {
			r.out.missed++
			r.out.latest = max(r.out.latest, float64(end-l.deadline*second)/1e9)
		}
	}
	r.list = kept
	return nil
}

// submit asks for a job.
func (r *replay) submit(j *job) error {
	d, err := r.e.Admit(at(r.now), deadline.ElasticJob{ID: j.id, Left: j.work, Points: r.plan(j.points), Deadline: at(j.deadline*second - r.allowance)})
	if err != nil || !d.Feasible {
		return err
	}
	r.out.admitted++
	l := &live{job: j, left: j.work}
	r.active[j.id] = l
	i, _ := slices.BinarySearchFunc(r.list, j.id, func(l *live, id lockstep.JobID) int { return cmp.Compare(l.id, id) })
	r.list = slices.Insert(r.list, i, l)
	return nil
}

// plan is how fast a job is to be planned.
func (w *world) plan(points []deadline.Point) []deadline.Point {
	if !w.planned {
		return points
	}
	slower := slices.Clone(points)
	for i, p := range points {
		hi, lo := bits.Mul64(uint64(p.Rate), uint64(w.slot-w.pause(p.GPUs, false)))
		rate, _ := bits.Div64(hi, lo, uint64(w.slot))
		slower[i].Rate = int64(rate)
	}
	return slower
}

// share gives the devices out: to each job what it must have, and the rest by marginal return.
func (r *replay) share() error {
	shares, _, until, ok, err := r.e.AppendShares(r.shares[:0], at(r.now))
	if err != nil {
		return err
	}
	r.shares = shares
	r.next = 1<<63 - 1
	if ok {
		r.next = until.UnixNano()
	}
	r.ask = r.ask[:0]
	for i, s := range shares {
		l := r.active[s.ID]
		j := elastic.Job{ID: s.ID, Sizes: l.sizes, Work: l.left/micro + 1, Held: l.gpus, Capabilities: lockstep.Capabilities{Resizable: true, Preemptible: true}}
		if s.GPUs == 0 {
			j.Rank = int64(1 + i) // what is not promised now, by deadline
		}
		for len(j.Sizes) > 0 && j.Sizes[0].GPUs < s.GPUs {
			j.Sizes = j.Sizes[1:]
		}
		if len(j.Sizes) == 0 {
			return fmt.Errorf("%s: %d devices are none of its sizes", s.ID, s.GPUs)
		}
		if r.pause != nil {
			j.Capabilities.Restore = time.Duration(r.pause(j.Sizes[len(j.Sizes)-1].GPUs, true))
		}
		r.ask = append(r.ask, j)
	}
	if r.given, err = r.spread.Append(r.given[:0], r.gpus, r.ask); err != nil {
		return err
	}
	for _, g := range r.given {
		l := r.active[g.ID]
		if l.gpus > 0 && l.gpus != g.GPUs {
			r.out.resizes++
		}
		if r.pause != nil && g.GPUs > 0 {
			l.pause = max(l.pause, r.pause(g.GPUs, l.gpus != g.GPUs))
		}
		l.gpus, l.rate = g.GPUs, l.all[g.GPUs]
		if g.GPUs > 0 {
			r.next = min(r.next, r.now+l.ends())
		}
	}
	return nil
}
