package scheduler

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// A ration is what one job deserves: over its whole life, at each moment, the
// lesser of the devices that it wants and an equal part of its tenant's quota
// among that tenant's jobs that wait or run. A quota is the tenant's weight's
// part of the devices, whether others use theirs or not. (Ye et al., ASTRAEA,
// IEEE TPDS 2022: the job's deserved service.)
//
// Amounts are in MilliGPU-milliseconds. Times are cut to whole milliseconds
// before they are subtracted, so that it makes no difference how often anything
// is looked at.

// rations keeps the accounts of all jobs.
type rations struct {
	capacity lockstep.MilliGPU
	weights  int64 // of all tenants
	tenants  map[lockstep.TenantID]*portion
	byID     []*portion
	jobs     map[lockstep.JobID]*ration
}

// portion is what a tenant's jobs have in common.
type portion struct {
	id      lockstep.TenantID
	weight  int64
	quota   lockstep.MilliGPU
	live    int64 // jobs that wait or run
	at      int64 // widths are up to date to here
	widths  []width
	waiting []*ration // in no order

	lead  *account  // of the pass: what it is owed
	queue []*ration // of the pass: a heap, least expected first
}

// width is what a job of one amount deserved so far, since the tenant's first.
type width struct {
	amount lockstep.MilliGPU
	total  uint64
}

// ration is the account of one job.
type ration struct {
	id        lockstep.JobID
	portion   *portion
	amount    lockstep.MilliGPU // that it wants, or holds
	devices   int               // that it needs free, at the least
	offset    uint64            // its width's total when it came, less what it deserved at other widths
	used      uint64            // devices × time run, so far
	run       int64             // time run, so far
	since     int64             // running since; never while it waits
	late      int64             // of that, time that it restores
	stopped   bool              // it will have to restore
	walltime  int64             // 0 is unknown
	restore   int64
	save      int64
	submitted int64
	place     int // in portion.waiting; -1 while it is not there

	key int64 // expected index, in the pass
}

// never is a ration's since while the job waits.
const never = math.MinInt64

func newRations(capacity lockstep.MilliGPU) *rations {
	return &rations{capacity: capacity, tenants: make(map[lockstep.TenantID]*portion), jobs: make(map[lockstep.JobID]*ration)}
}

// millis returns a time, cut to milliseconds.
func millis(t time.Time) int64 { return t.UnixMilli() }

// settle brings the widths of p up to now.
func (p *portion) settle(now int64) {
	if d := now - p.at; d > 0 {
		for i := range p.widths {
			w := &p.widths[i]
			w.total = add(w.total, mul(p.rate(w.amount), d))
		}
	}
	p.at = max(p.at, now)
}

// rate is what a job of an amount deserves at present.
func (p *portion) rate(amount lockstep.MilliGPU) lockstep.MilliGPU {
	return min(amount, p.quota/lockstep.MilliGPU(max(p.live, 1)))
}

// total returns what a job of an amount would have deserved up to now since the
// tenant's first. Invariant: now is no earlier than settled.
func (p *portion) total(amount lockstep.MilliGPU, now int64) uint64 {
	w := p.widths[p.width(amount)]
	return add(w.total, mul(p.rate(amount), max(now-p.at, 0)))
}

// width returns the place of the width of an amount, making it if it is not there.
func (p *portion) width(amount lockstep.MilliGPU) int {
	i, found := slices.BinarySearchFunc(p.widths, amount, func(w width, a lockstep.MilliGPU) int { return cmp.Compare(w.amount, a) })
	if !found {
		p.widths = slices.Insert(p.widths, i, width{amount: amount})
	}
	return i
}

// join adds a tenant, or changes its weight.
func (r *rations) join(now int64, id lockstep.TenantID, weight int64) *portion {
	p := r.tenants[id]
	if p == nil {
		p = &portion{id: id, at: now}
		r.tenants[id] = p
		i, _ := slices.BinarySearchFunc(r.byID, id, func(p *portion, id lockstep.TenantID) int { return compare(p.id, id) })
		r.byID = slices.Insert(r.byID, i, p)
	}
	r.weights += weight - p.weight
	p.weight = weight
	r.divide(now)
	return p
}

// divide gives all tenants their quotas anew.
func (r *rations) divide(now int64) {
	for _, p := range r.byID {
		p.settle(now)
		p.quota = 0
		if r.weights > 0 {
			hi, lo := bits.Mul64(uint64(max(r.capacity, 0)), uint64(p.weight))
			q, _ := bits.Div64(hi%uint64(r.weights), lo, uint64(r.weights))
			p.quota = lockstep.MilliGPU(q)
		}
	}
}

// submit opens the account of a job.
func (r *rations) submit(now int64, p *portion, g *lockstep.Gang, amount lockstep.MilliGPU) *ration {
	p.settle(now)
	p.live++
	c := &g.Capabilities
	j := &ration{
		id: g.ID, portion: p, amount: amount, devices: leastDevices(g), since: never, submitted: now, place: -1,
		walltime: g.Walltime.Milliseconds(), restore: c.Restore.Milliseconds(), save: c.Save.Milliseconds(),
	}
	j.offset = p.widths[p.width(amount)].total
	r.jobs[g.ID] = j
	j.await()
	return j
}

// await puts j among those that wait.
func (j *ration) await() {
	if j.place < 0 {
		j.place = len(j.portion.waiting)
		j.portion.waiting = append(j.portion.waiting, j)
	}
}

// leave takes j from those that wait.
func (j *ration) leave() {
	if j.place < 0 {
		return
	}
	p := j.portion
	last := len(p.waiting) - 1
	p.waiting[j.place] = p.waiting[last]
	p.waiting[j.place].place = j.place
	p.waiting[last] = nil
	p.waiting = p.waiting[:last]
	j.place = -1
}

// start says that j runs from now on.
func (j *ration) start(now int64) {
	j.leave()
	j.since, j.late = now, 0
	if j.stopped {
		j.late = j.restore
	}
}

// stop says that j does not run any more, having saved its work.
func (j *ration) stop(now int64) {
	if j.since == never {
		return
	}
	run := max(now-j.since-j.late-j.save, 0)
	j.run += run
	j.used = add(j.used, mul(j.amount, run))
	j.since, j.stopped = never, true
	j.await()
}

// resize says that j holds another amount from now on.
func (j *ration) resize(now int64, amount lockstep.MilliGPU) {
	if amount == j.amount {
		return
	}
	j.portion.settle(now)
	had := j.deserved(now)
	if j.since != never {
		run := max(now-j.since-j.late, 0)
		j.run += run
		j.used = add(j.used, mul(j.amount, run))
		j.since, j.late = now, max(j.late-(now-j.since), 0)
	}
	j.amount = amount
	j.offset = j.portion.widths[j.portion.width(amount)].total - had // may wrap around, and back
}

// finish closes the account of j.
func (r *rations) finish(now int64, j *ration) {
	j.portion.settle(now)
	j.portion.live--
	j.leave()
	delete(r.jobs, j.id)
}

// deserved returns what j deserved up to now.
func (j *ration) deserved(now int64) uint64 { return j.portion.total(j.amount, now) - j.offset }

// expected returns the index that j would have, in millionths, if it ran from now
// on for a quantum, or for what its walltime leaves it: service over deserved.
// It falls while j waits.
func (j *ration) expected(now, quantum int64) int64 {
	service, deserved := j.ahead(now, quantum)
	hi, lo := bits.Mul64(service, millionth)
	if hi >= deserved {
		return math.MaxInt64 // it deserves nothing
	}
	e, _ := bits.Div64(hi, lo, deserved)
	return int64(min(e, math.MaxInt64))
}

// millionth is how many of them make one.
const millionth = 1_000_000

// ahead returns what j would have got, and deserved, if it ran from now on for a
// quantum, or for what its walltime leaves it.
func (j *ration) ahead(now, quantum int64) (service, deserved uint64) {
	run, used := j.run, j.used
	if j.since != never {
		d := max(now-j.since-j.late, 0)
		run += d
		used = add(used, mul(j.amount, d))
	}
	q := quantum
	if j.walltime > run {
		q = j.walltime - run
	}
	stay := q
	if j.since == never && j.stopped {
		stay += j.restore
	}
	return add(used, mul(j.amount, q)), add(j.deserved(now), mul(j.portion.rate(j.amount), stay))
}

// urgentAt returns the first millisecond at which the expected index of the
// waiting job j is below floor, in millionths, if nothing else happens; false
// means never.
func (j *ration) urgentAt(now, quantum, floor int64) (int64, bool) {
	rate := uint64(j.portion.rate(j.amount))
	service, deserved := j.ahead(now, quantum)
	hi, lo := bits.Mul64(service, millionth)
	if rate == 0 || floor <= 0 || hi >= uint64(floor) {
		return 0, false
	}
	most, _ := bits.Div64(hi, lo, uint64(floor)) // that it may deserve without being urgent
	if deserved > most {
		return now, true
	}
	wait := (most-deserved)/rate + 1
	if wait > uint64(lockstep.MaxWalltime.Milliseconds()) {
		return 0, false
	}
	return now + int64(wait), true
}

// add and mul stay at the end of 64 bits.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func mul(amount lockstep.MilliGPU, ms int64) uint64 {
	hi, lo := bits.Mul64(uint64(max(amount, 0)), uint64(max(ms, 0)))
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// leastDevices returns how many whole devices g takes at the least; 0 where some
// of it may do with less.
func leastDevices(g *lockstep.Gang) int {
	n := 0
	for i := range g.Roles {
		d := &g.Roles[i].Demand
		if d.Share != 0 || d.Profile != "" {
			return 0
		}
		n += d.GPUs * g.Roles[i].Min
	}
	return n
}
