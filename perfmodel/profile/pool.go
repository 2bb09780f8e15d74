package profile

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

const in instant.In = "profile"

// Defaults and bounds of a Pool.
const (
	defaultGPUs  = 8
	defaultLimit = 500 * time.Second
	waitLimits   = 4 // how many limits a job waits before it is passed on
	maxGPUs      = lockstep.MaxMembers
	maxJobs      = 1 << 20
)

// PoolConfig configures a Pool. The zero value is valid.
type PoolConfig struct {
	GPUs  int           `json:"gpus,omitempty"`  // GPUs is how many the pool has; 0 means 8.
	Most  int           `json:"most,omitempty"`  // Most is the most that one job may have in it, up to GPUs; 0 means all of them.
	Limit time.Duration `json:"limit,omitempty"` // Limit is how long one job may have them; 0 means 500 s.
	Wait  time.Duration `json:"wait,omitempty"`  // Wait is how long a job waits for them before it is passed on; 0 means four times Limit.
}

// PoolActionKind says what to do with a job.
type PoolActionKind string

// The kinds of actions.
const (
	PoolStart PoolActionKind = "start" // PoolStart: start it in the pool and measure it.
	PoolStop  PoolActionKind = "stop"  // PoolStop: its time is over; move it to its queue, then tell Leave.
	PoolPass  PoolActionKind = "pass"  // PoolPass: it waited too long; put it into its queue as it is. It has left the pool.
)

// PoolAction is what to do with a job.
type PoolAction struct {
	Job  lockstep.JobID `json:"job"`  // Job is which.
	Kind PoolActionKind `json:"kind"` // Kind is what.
}

// phase is where a job is in the pool.
type phase uint8

const (
	waiting phase = iota
	running
	stopping
)

// visit is a job in the pool.
type visit struct {
	id    lockstep.JobID
	gpus  int
	since int64 // when it came, or when it was started
	phase phase
}

// Pool is a small part of a cluster on which new jobs run for a bounded time, to be
// measured before they queue for the rest; what ends in that time never queues.
// Invariant: the jobs that were started and have not left have no more GPUs than there
// are; each is told to stop when it had its time. It is made by NewPool or RestorePool.
type Pool struct {
	cfg   PoolConfig // with defaults filled in
	given PoolConfig // as given, for Snapshot
	now   int64
	used  int
	queue []*visit // waiting: fewest GPUs, earliest, ID
	held  []*visit // running or stopping: earliest started, ID
	jobs  map[lockstep.JobID]*visit
}

// NewPool returns an empty pool.
func NewPool(cfg PoolConfig) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, given: cfg, jobs: make(map[lockstep.JobID]*visit)}
	p.cfg.GPUs = cmp.Or(cfg.GPUs, defaultGPUs)
	p.cfg.Most = cmp.Or(cfg.Most, p.cfg.GPUs)
	p.cfg.Limit = cmp.Or(cfg.Limit, defaultLimit)
	p.cfg.Wait = cmp.Or(cfg.Wait, min(p.cfg.Limit, lockstep.MaxWalltime/waitLimits)*waitLimits)
	return p, nil
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind ErrInvalid.
func (c PoolConfig) Validate() error {
	f := faults{op: "profile: pool"}
	f.count("GPUs", int64(c.GPUs), 0, maxGPUs)
	f.count("Most", int64(c.Most), 0, int64(cmp.Or(min(max(c.GPUs, 0), maxGPUs), defaultGPUs)))
	f.duration("Limit", c.Limit, 0)
	f.duration("Wait", c.Wait, 0)
	return f.err()
}

// Submit brings a job that is to be measured. Ok is false, and the job is not in, if it
// has more GPUs than the pool gives to one job: it goes to its queue as it is. An invalid
// ID or count is ErrInvalid, a job that is in ErrDuplicate, one more than 2²⁰
// ErrConflict, a time before one already seen ErrPast.
func (p *Pool) Submit(now time.Time, id lockstep.JobID, gpus int) (ok bool, err error) {
	const op = "submit"
	f := faults{op: "profile: " + op}
	f.wrap("id", id.Validate())
	f.count("gpus", int64(gpus), 1, maxGPUs)
	if p.jobs[id] != nil {
		f.errs = append(f.errs, fault(lockstep.ErrDuplicate, f.op, "id", errtext.Quote(id), "it is in the pool"))
	} else if len(p.jobs) == maxJobs {
		f.errs = append(f.errs, fault(lockstep.ErrConflict, f.op, "id", errtext.Quote(id), "there are 2²⁰ jobs in the pool"))
	}
	if err := f.err(); err != nil {
		return false, err
	}
	ns, err := p.at(op, now)
	if err != nil {
		return false, err
	}
	p.now = ns
	if gpus > p.cfg.Most {
		return false, nil
	}
	p.enter(&visit{id: id, gpus: gpus, since: ns})
	return true, nil
}

// enter puts v where its phase belongs.
func (p *Pool) enter(v *visit) {
	p.jobs[v.id] = v
	if v.phase == waiting {
		at, _ := slices.BinarySearchFunc(p.queue, v, byTurn)
		p.queue = slices.Insert(p.queue, at, v)
		return
	}
	at, _ := slices.BinarySearchFunc(p.held, v, byStart)
	p.held = slices.Insert(p.held, at, v)
	p.used += v.gpus
}

func byTurn(a, b *visit) int {
	return cmp.Or(cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
}

func byStart(a, b *visit) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id)) }

// at returns now in nanoseconds, or why it cannot be.
func (p *Pool) at(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, p.now)
}

// Leave says that a job is gone from the pool: it ended, was withdrawn, or was told to
// stop and has. A job that is not in is ErrUnknown, a time before one already seen
// ErrPast.
func (p *Pool) Leave(now time.Time, id lockstep.JobID) error {
	const op = "leave"
	v := p.jobs[id]
	if v == nil {
		return fault(lockstep.ErrUnknown, "profile: "+op, "id", errtext.Quote(id), "it is not in the pool")
	}
	ns, err := p.at(op, now)
	if err != nil {
		return err
	}
	p.now = ns
	p.remove(v)
	return nil
}

func (p *Pool) remove(v *visit) {
	delete(p.jobs, v.id)
	is := func(w *visit) bool { return w == v }
	if v.phase == waiting {
		p.queue = slices.DeleteFunc(p.queue, is)
		return
	}
	p.held = slices.DeleteFunc(p.held, is)
	p.used -= v.gpus
}

// Step appends to dst what is to be done now and returns it: jobs to stop, those started
// first at first; jobs to pass on, fewest GPUs first; then jobs to start, fewest GPUs
// first, of equals the one that came first, then by ID. What is to be started counts as
// started. A time before one already seen is ErrPast.
func (p *Pool) Step(now time.Time, dst []PoolAction) ([]PoolAction, error) {
	ns, err := p.at("step", now)
	if err != nil {
		return dst, err
	}
	p.now = ns
	for _, v := range p.held {
		if v.phase == running && instant.Add(v.since, p.cfg.Limit) <= ns {
			v.phase = stopping
			dst = append(dst, PoolAction{Job: v.id, Kind: PoolStop})
		}
	}
	p.queue = slices.DeleteFunc(p.queue, func(v *visit) bool {
		if instant.Add(v.since, p.cfg.Wait) > ns {
			return false
		}
		delete(p.jobs, v.id)
		dst = append(dst, PoolAction{Job: v.id, Kind: PoolPass})
		return true
	})
	start := 0
	for ; start < len(p.queue) && p.queue[start].gpus <= p.cfg.GPUs-p.used; start++ {
		v := p.queue[start]
		v.phase, v.since = running, ns
		p.enter(v)
		dst = append(dst, PoolAction{Job: v.id, Kind: PoolStart})
	}
	p.queue = slices.Delete(p.queue, 0, start)
	return dst, nil
}

// NextWake returns when Step has something to do next if nothing else happens, now at
// the earliest. Ok is false if it never will, and for a time that cannot be kept.
func (p *Pool) NextWake(now time.Time) (at time.Time, ok bool) {
	ns, err := in.SinceEpoch("next wake", "now", now)
	if err != nil {
		return time.Time{}, false
	}
	next := int64(instant.Never)
	if len(p.queue) > 0 && p.queue[0].gpus <= p.cfg.GPUs-p.used {
		next = ns
	}
	for _, v := range p.queue {
		next = min(next, instant.Add(v.since, p.cfg.Wait))
	}
	for _, v := range p.held {
		if v.phase == running { // the first one that runs was started first
			next = min(next, instant.Add(v.since, p.cfg.Limit))
			break
		}
	}
	if next == instant.Never {
		return time.Time{}, false
	}
	return lockstep.FromNanos(max(next, ns)), true
}

// Len returns how many jobs wait and how many have GPUs.
func (p *Pool) Len() (waiting, held int) { return len(p.queue), len(p.held) }

// Free returns the GPUs that no job has.
func (p *Pool) Free() int { return p.cfg.GPUs - p.used }
