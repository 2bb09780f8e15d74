package main

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// ledger checks a run from outside: it keeps its own books of who holds which
// device since when, knows nothing of the library's state, and collects what it
// finds wrong.
type ledger struct {
	devices   map[lockstep.NodeID]lockstep.DeviceSet // what each node has
	held      map[lockstep.NodeID]lockstep.DeviceSet // what of it is held
	running   map[lockstep.JobID]tenure
	started   int
	ended     int
	busy      int       // devices held
	scattered int       // free devices on nodes partly held
	since     time.Time // until when service is accounted for
	service   amount    // device-nanoseconds given, summed over the intervals between events
	asked     amount    // device-nanoseconds asked for by the jobs that ended
	faults    []string
	more      int // faults beyond those kept
}

// tenure is one job's hold.
type tenure struct {
	job   job
	start time.Time
	plan  *lockstep.Plan
}

// amount is an unsigned 128-bit sum: devices times nanoseconds leave 64 bits on
// a large cluster within weeks.
type amount struct{ hi, lo uint64 }

func (a *amount) add(devices int, d time.Duration) {
	hi, lo := bits.Mul64(uint64(devices), uint64(d))
	var carry uint64
	a.lo, carry = bits.Add64(a.lo, lo, 0)
	a.hi, _ = bits.Add64(a.hi, hi, carry)
}

// seconds returns a as device-seconds, for people.
func (a amount) seconds() float64 {
	return (float64(a.hi)*0x1p64 + float64(a.lo)) / float64(time.Second)
}

func newLedger(devices map[lockstep.NodeID]lockstep.DeviceSet, zero time.Time) *ledger {
	return &ledger{
		devices: devices,
		held:    make(map[lockstep.NodeID]lockstep.DeviceSet, len(devices)),
		running: make(map[lockstep.JobID]tenure),
		since:   zero,
	}
}

func (l *ledger) fault(format string, args ...any) {
	const kept = 20
	if len(l.faults) == kept {
		l.more++
		return
	}
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// advance accounts for the service given until now.
func (l *ledger) advance(now time.Time) {
	if now.Before(l.since) {
		l.fault("time went back from %v to %v", l.since, now)
		return
	}
	l.service.add(l.busy, now.Sub(l.since))
	l.since = now
}

// start books that j runs on plan from now on.
func (l *ledger) start(now time.Time, j job, submit time.Time, plan *lockstep.Plan) {
	l.advance(now)
	if now.Before(submit) {
		l.fault("%s started %v before it was submitted", j.ID, submit.Sub(now))
	}
	if _, ok := l.running[j.ID]; ok {
		l.fault("%s started twice", j.ID)
		return
	}
	got := 0
	for _, m := range plan.Members {
		got += m.Devices.Len()
		if alien := m.Devices &^ l.devices[m.Node]; alien != 0 {
			l.fault("%s holds devices %v of %s, which has none such", j.ID, alien, m.Node)
		}
		if twice := m.Devices & l.held[m.Node]; twice != 0 {
			l.fault("%s holds devices %v of %s, which are held already", j.ID, twice, m.Node)
		}
		l.set(m.Node, l.held[m.Node]|m.Devices)
	}
	if got != j.GPUs {
		l.fault("%s asked for %d devices and holds %d", j.ID, j.GPUs, got)
	}
	l.checkShape(j, plan)
	l.started++
	l.running[j.ID] = tenure{job: j, start: now, plan: plan}
}

// set notes who is held on a node now.
func (l *ledger) set(node lockstep.NodeID, now lockstep.DeviceSet) {
	old := l.held[node]
	l.busy += now.Len() - old.Len()
	l.scattered += l.broken(node, now) - l.broken(node, old)
	l.held[node] = now
}

// broken returns the free devices of a node when held of it is, unless it is
// empty.
func (l *ledger) broken(node lockstep.NodeID, held lockstep.DeviceSet) int {
	if held == 0 {
		return 0
	}
	return (l.devices[node] &^ held).Len()
}

// checkShape checks that every member is of the size that its role asks for.
func (l *ledger) checkShape(j job, plan *lockstep.Plan) {
	if plan.Gang == nil {
		l.fault("%s: its plan names no gang", j.ID)
		return
	}
	for role, count := range plan.AppendCounts(nil, len(plan.Gang.Roles)) {
		if r := &plan.Gang.Roles[role]; count < r.Min || count > r.Limit() {
			l.fault("%s: role %q has %d members, not %d to %d", j.ID, r.Name, count, r.Min, r.Limit())
		}
	}
	for rank, m := range plan.Members {
		if want := plan.Gang.Roles[m.Role].Demand.GPUs; m.Devices.Len() != want {
			l.fault("%s: rank %d holds %d devices, not %d", j.ID, rank, m.Devices.Len(), want)
		}
	}
}

// finish books that the job gives its devices back now.
func (l *ledger) finish(now time.Time, id lockstep.JobID) {
	l.advance(now)
	t, ok := l.running[id]
	if !ok {
		l.fault("%s finished without having started", id)
		return
	}
	if ran := now.Sub(t.start); ran != t.job.Duration {
		l.fault("%s ran %v, not %v", id, ran, t.job.Duration)
	}
	for _, m := range t.plan.Members {
		if m.Devices&^l.held[m.Node] != 0 {
			l.fault("%s gives back devices of %s that it did not hold", id, m.Node)
		}
		l.set(m.Node, l.held[m.Node]&^m.Devices)
	}
	l.asked.add(t.job.GPUs, t.job.Duration)
	l.ended++
	delete(l.running, id)
}

// close books the end of a run in which jobs were submitted and rejected of them
// turned away, and reports whether all was well.
func (l *ledger) close(jobs, rejected int) bool {
	if l.started+rejected != jobs || l.ended != l.started || len(l.running) != 0 || l.busy != 0 {
		l.fault("of %d jobs %d started, %d ended and %d were rejected, which leaves %d; %d devices are still held",
			jobs, l.started, l.ended, rejected, jobs-l.started-rejected, l.busy)
	}
	for _, node := range slices.Sorted(maps.Keys(l.held)) {
		if set := l.held[node]; set != 0 {
			l.fault("devices %v of %s are still held", set, node)
		}
	}
	if l.service != l.asked {
		l.fault("service given %.3f GPU-s, asked for %.3f GPU-s", l.service.seconds(), l.asked.seconds())
	}
	return len(l.faults) == 0
}
