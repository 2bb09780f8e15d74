package scheduler

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/policy/order"
)

// floored is LTGF with a floor under what each job is to expect.
//
// A job's expected index is its service over what it deserves (see rations) as
// it would stand if it ran on for a quantum. It falls as long as the job waits,
// and a job that is started and runs for a quantum or more ends with no less. So
// a job that waits is let be until its expected index falls below the floor. Then
// it is urgent: it goes before all others, and holders whose term is over make
// room for it, if theirs is above its own also when it is cut by the hysteresis.
// Nobody else displaces anybody; what is free goes to the others by what their
// tenants are owed.
type floored struct {
	*within
	rations    *rations
	quantum    int64 // milliseconds
	floor      int64 // millionths
	hysteresis int64 // millionths
	band       time.Duration
	review     int64                     // milliseconds
	fallback   int64                     // weight
	free       func() int                // devices that nobody has
	keeps      func(lockstep.JobID) bool // whether a job still has its room in the pass

	rivals map[lockstep.JobID]*ration // holders that compete

	turns   []*ration  // of the pass: urgent jobs and holders that compete, in order
	others  []*portion // of the pass: tenants with other jobs that wait
	started bool       // their turn has come
}

func newFloored(cfg *Config, l *fairness.Ledger, devices int) (*floored, error) {
	w, err := newWithin(l, cfg.Horizon, order.FIFO{})
	if err != nil {
		return nil, err
	}
	w.weights = cfg.Weights
	return &floored{
		within: w, rations: newRations(lockstep.WholeGPU.Mul(int64(devices))),
		quantum: max(cfg.Quantum.Milliseconds(), 1), floor: int64(cfg.Floor), hysteresis: int64(cfg.Hysteresis), band: cfg.Band,
		review: max(cfg.Round.Milliseconds(), 1), fallback: cfg.DefaultWeight, rivals: make(map[lockstep.JobID]*ration),
	}, nil
}

func (f *floored) open(now time.Time) error {
	if err := f.within.open(now); err != nil {
		return err
	}
	for _, t := range slices.Sorted(maps.Keys(f.weights)) {
		f.rations.join(millis(now), t, f.weights[t])
	}
	return nil
}

func (f *floored) setCapacity(now time.Time, amount lockstep.MilliGPU) error {
	if err := f.within.setCapacity(now, amount); err != nil {
		return err
	}
	f.rations.capacity = amount
	f.rations.divide(millis(now))
	return nil
}

// Submit is that of Policy.
func (f *floored) Submit(now time.Time, g *lockstep.Gang) error {
	if err := f.within.Submit(now, g); err != nil {
		return err
	}
	p := f.rations.tenants[g.Tenant]
	if p == nil {
		p = f.rations.join(millis(now), g.Tenant, f.fallback)
	}
	f.rations.submit(millis(now), p, g, mostGPUs(g))
	return nil
}

// Start is that of Policy.
func (f *floored) Start(now time.Time, id lockstep.JobID, held lockstep.MilliGPU) error {
	if err := f.within.Start(now, id, held); err != nil {
		return err
	}
	f.rival(id)
	j := f.rations.jobs[id]
	j.start(millis(now))
	j.resize(millis(now), held)
	return nil
}

// Resize is that of Policy.
func (f *floored) Resize(now time.Time, id lockstep.JobID, held lockstep.MilliGPU) error {
	if err := f.within.Resize(now, id, held); err != nil {
		return err
	}
	f.rations.jobs[id].resize(millis(now), held)
	return nil
}

// Stop is that of Policy.
func (f *floored) Stop(now time.Time, id lockstep.JobID) error {
	if err := f.within.Stop(now, id); err != nil {
		return err
	}
	f.rival(id)
	f.rations.jobs[id].stop(millis(now))
	return nil
}

// Finish is that of Policy.
func (f *floored) Finish(now time.Time, id lockstep.JobID) error {
	if err := f.within.Finish(now, id); err != nil {
		return err
	}
	f.rival(id)
	f.rations.finish(millis(now), f.rations.jobs[id])
	return nil
}

// presses reports whether some job that waits is urgent.
func (f *floored) presses(now time.Time) bool {
	at := millis(now)
	for _, p := range f.rations.byID {
		for _, j := range p.waiting {
			if f.asks(j) && j.expected(at, f.quantum) < f.floor {
				return true
			}
		}
	}
	return false
}

// asks reports whether j waits for room and has not been promised any.
func (f *floored) asks(j *ration) bool {
	m := f.jobs[j.id]
	return m != nil && m.stage == stageWaiting
}

// NextWake returns when the next job that waits is urgent. While some is, it may
// be that a holder will have got enough to make room for it: that is looked at on
// the grid of Config.Round.
func (f *floored) NextWake(now time.Time) (time.Time, bool) {
	at := millis(now)
	next, ok := int64(0), false
	for _, p := range f.rations.byID {
		for _, j := range p.waiting {
			if !f.asks(j) {
				continue
			}
			t, some := j.urgentAt(at, f.quantum, f.floor)
			if some && t <= at {
				t = at - at%f.review + f.review
			}
			if some && (!ok || t < next) {
				next, ok = t, true
			}
		}
	}
	return time.UnixMilli(next).UTC(), ok
}

// Due is that of Policy.
func (f *floored) Due(now time.Time, id lockstep.JobID) error {
	if err := f.within.Due(now, id); err != nil {
		return err
	}
	f.rival(id)
	return nil
}

// rival notes whether a job competes for what it holds.
func (f *floored) rival(id lockstep.JobID) {
	if m := f.jobs[id]; m != nil && m.stage == stageDue {
		f.rivals[id] = f.rations.jobs[id]
	} else {
		delete(f.rivals, id)
	}
}

// Begin is that of gang.Orderer.
func (f *floored) Begin(now time.Time) {
	f.now, f.heap = now, f.heap[:0]
	f.measureAll(now)
	f.turns, f.others, f.started = f.turns[:0], f.others[:0], false
	at := millis(now)
	for _, p := range f.rations.byID {
		p.queue = p.queue[:0]
		for _, j := range p.waiting {
			if !f.asks(j) {
				continue
			}
			if j.key = j.expected(at, f.quantum); j.key < f.floor {
				f.turns = append(f.turns, j)
			} else {
				p.queue = append(p.queue, j)
			}
		}
		if len(p.queue) > 0 {
			f.others = append(f.others, p)
		}
	}
	for _, j := range f.rivals { // sorted below, so the order does not matter
		j.key = scale(j.expected(at, f.quantum), f.hysteresis)
		f.turns = append(f.turns, j)
	}
	slices.SortFunc(f.turns, byExpected)
}

// scale returns n times a fraction in millionths.
func scale(n, fraction int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(fraction))
	q, _ := bits.Div64(hi, lo, millionth) // a fraction is at most one, so it fits
	return int64(q)
}

// byExpected is the order of urgency: less expected first; of equals, who holds
// devices, so that nobody is stopped for an equal; then submission, then ID.
func byExpected(a, b *ration) int {
	holds := func(j *ration) int {
		if j.since != never {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(holds(a), holds(b)), cmp.Compare(a.submitted, b.submitted), compare(a.id, b.id))
}

// Next is that of gang.Orderer.
func (f *floored) Next() (lockstep.JobID, bool) {
	for len(f.turns) > 0 {
		j := f.turns[0]
		f.turns = f.turns[1:]
		// A holder that lost its room to another has no turn, in which it could
		// take that of a third. Behind the pass it gets what is left, or goes.
		if j.since == never || f.keeps(j.id) {
			return j.id, true
		}
	}
	if !f.started {
		f.started = true
		for _, p := range f.others {
			p.lead = f.within.tenants[p.id]
			for i := len(p.queue)/2 - 1; i >= 0; i-- {
				p.down(i)
			}
		}
	}
	free := f.free()
	for {
		p := f.foremost()
		if p == nil {
			return "", false
		}
		if j := p.pop(); j.devices <= free { // it would find none, and need not have any kept for it before it is urgent
			return j.id, true
		}
	}
}

// foremost returns the tenant whose turn it is: of those that are owed nearly as
// much as the one that is owed most the one whose first job expects least.
func (f *floored) foremost() *portion {
	var most, best *portion
	for _, p := range f.others {
		if len(p.queue) > 0 && (most == nil || f.within.ahead(p.lead, most.lead)) {
			most = p
		}
	}
	if most == nil {
		return nil
	}
	least := most.lead.lag.Sub(lockstep.GPUTimeOf(most.quota, f.band))
	for _, p := range f.others {
		if len(p.queue) == 0 || p.lead.lag.Cmp(least) < 0 || (p.weight == 0) != (most.weight == 0) {
			continue
		}
		if best == nil || byExpected(p.queue[0], best.queue[0]) < 0 {
			best = p
		}
	}
	return best
}

// pop takes the job that expects least out of the queue of p.
func (p *portion) pop() *ration {
	j, last := p.queue[0], len(p.queue)-1
	p.queue[0] = p.queue[last]
	p.queue = p.queue[:last]
	p.down(0)
	return j
}

func (p *portion) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(p.queue) {
			return
		}
		if right := child + 1; right < len(p.queue) && byExpected(p.queue[right], p.queue[child]) < 0 {
			child = right
		}
		if byExpected(p.queue[child], p.queue[i]) >= 0 {
			return
		}
		p.queue[i], p.queue[child] = p.queue[child], p.queue[i]
		i = child
	}
}

// Outcome is that of gang.Orderer.
func (f *floored) Outcome(id lockstep.JobID, outcome lockstep.Outcome) {
	f.within.Outcome(id, outcome)
	f.rival(id)
}

// Ahead is that of gang.Ranker: who is to be stopped later. The widest goes
// first, since it makes room for many at the price of one, and of equally wide
// ones the one that expects most.
func (f *floored) Ahead(a, b lockstep.JobID) bool {
	x, y := f.rations.jobs[a], f.rations.jobs[b]
	if x == nil || y == nil {
		return x == nil && y != nil
	}
	if x.amount != y.amount {
		return x.amount < y.amount
	}
	return byExpected(x, y) < 0
}
