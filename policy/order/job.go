package order

import (
	"math/bits"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Job is one job of a queue: what was submitted, and what became of it, for an
// Order to read.
type Job struct {
	ID       lockstep.JobID    // ID names it.
	Priority lockstep.Priority // Priority is for Priority and Aging: higher first.
	GPUs     lockstep.MilliGPU // GPUs is what it runs on, or would.
	Duration time.Duration     // Duration is how long it is expected to run in all, at most lockstep.MaxWalltime; 0 means unknown.
	Deadline time.Time         // Deadline is when it should have ended; the zero time means none, which comes after all others.

	// First is when it first came, for a job that was dropped and comes back, so that it keeps its place; the zero
	// time means now. It is not after now.
	First time.Time

	phase    phase
	submit   int64
	deadline int64 // never if there is none
	since    int64 // when it was submitted or last stopped running; while it competes, the start of the pass
	at       int64 // until when it is settled; only while it runs
	executed int64 // time it ran
	service  lockstep.GPUTime

	// What LAS keeps.
	level int
	gauge lockstep.GPUTime // service since it last came to the first queue
	spent int64            // time it ran since then
	place place
	timer int64 // when its queue changes by itself; never if it does not
}

// phase is what a job does.
// Invariant: waiting and competing jobs are in the tree, the others are not.
type phase int8

const (
	waiting   phase = iota
	granted         // holds devices and does not run yet
	running         // attains service
	competing       // runs, and is in the order
)

// place is where a job stands in its LAS queue: see doc.go.
type place struct {
	class class
	major int64 // let: counts up; stopped in pass p: -p; arrived: when
	minor int64 // of those stopped in one pass: major before; else 0
}

// class is how a job came to its place in a LAS queue.
type class int8

const (
	let     class = iota // to run
	stopped              // while it was let
	arrived              // and was not let since
)

// slack returns the deadline less what is left to run: as long as the job does not run, its laxity is that less now.
func (j *Job) slack() int64 {
	if j.deadline == never {
		return never
	}
	return j.deadline - int64(j.Remaining())
}

// JobOf returns what a gang asks for at the least: its members' minimum and its walltime.
func JobOf(g *lockstep.Gang) Job {
	return Job{ID: g.ID, Priority: g.Priority, GPUs: g.GPUs(nil), Duration: g.Walltime}
}

// Submitted returns when j was submitted.
func (j *Job) Submitted() time.Time { return lockstep.FromNanos(j.submit) }

// Executed returns how long j has run, up to the present pass.
func (j *Job) Executed() time.Duration { return time.Duration(j.executed) }

// Remaining returns what is left of Duration: 0 when it is used up or unknown.
func (j *Job) Remaining() time.Duration { return max(j.Duration-j.Executed(), 0) }

// Level returns the LAS queue of j, from 0.
func (j *Job) Level() int { return j.level }

// settle books the time until ns.
func (j *Job) settle(ns int64) {
	if j.phase != running && j.phase != competing {
		return
	}
	d := ns - j.at
	j.at = ns
	j.executed += d
	j.spent += d
	g := lockstep.GPUTimeOf(j.GPUs, time.Duration(d))
	j.service = j.service.Add(g)
	j.gauge = j.gauge.Add(g)
}

// let puts j among those that run.
func (j *Job) let(seq *int64) {
	if j.place.class != let {
		*seq++
		j.place = place{class: let, major: *seq}
	}
}

// arrive puts j at the end of its LAS queue. Those that arrive at one instant are
// in the order of submission.
func (j *Job) arrive(ns int64) { j.place = place{class: arrived, major: ns} }

// until returns how long g devices need from s to limit, rounded up to the
// nanosecond; never if that is out of reach.
func until(s, limit lockstep.GPUTime, g lockstep.MilliGPU) time.Duration {
	left := limit.Sub(s)
	if left.Sign() <= 0 {
		return 0
	}
	hi, lo := int128.Int(left).Words()
	if g <= 0 || hi >= uint64(g) {
		return never
	}
	quo, rem := bits.Div64(hi, lo, uint64(g))
	if rem != 0 {
		quo++
	}
	return time.Duration(min(quo, never))
}
