package astraea

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// world is a run under way. All times are in seconds.
type world struct {
	cfg              Config
	tick, term       int64
	starving, delays int64

	free    int64   // devices
	room    []int64 // free devices of each node
	tenants []*tenant
	events  []*job // not yet seen, by submission
	waiting int    // jobs that wait
	running []*job // in the order in which they started: what check walks along
	jobs    []*job // that were let in, by submission
	dropped []lockstep.JobID
}

// tenant is one tenant's queue and accounts.
type tenant struct {
	id      lockstep.TenantID
	quota   int64
	pending []*job // in the order in which they began to wait
	active  []*job // that run; in no order that counts

	starved []*job // that waited too long when the tick began
	delayed []*job // that may be stopped for a new job

	used            int64 // devices held, counted once a tick
	open            sums  // the hour under way
	hours           []sums
	last            sums // over the hours that count
	total           sums // over the whole run
	ratio, reported float64
}

// sums are service, what was deserved, and the quota, over time.
type sums struct{ used, deserved, weighted int64 }

func (a sums) add(b sums) sums {
	return sums{a.used + b.used, a.deserved + b.deserved, a.weighted + b.weighted}
}

// job is one job and its accounts, by the artifact's names where they differ.
type job struct {
	id               lockstep.JobID
	tenant           *tenant
	gpus             int64
	submit, duration int64

	running   bool
	seen      int64 // first_seen_time
	checked   int64 // last_check_time
	executed  int64 // total_executed_time
	lease     int64 // executed_time_in_last_lease
	pended    int64 // total_pending_time
	waited    int64 // last_pending_time
	life      int64 // total_life_time
	saved     int64 // last_checkpoint_time
	end       int64
	expiries  int
	resumes   int
	kills     int
	paying    bool // its present lease began with a resume
	nodes     []grant
	deserved  float64
	utilized  float64
	fairness  float64
	class     int
	finishing float64 // finish_time_fairness, for one sort
}

// grant is how many devices of a node a job holds.
type grant struct {
	node int
	n    int64
}

// Run runs jobs as the artifact's simulator does, and returns what came of them.
// Jobs are taken by Submit, those of one time in the order given; a job wider
// than its tenant's quota is dropped, and a tenant must be in Config.Shares.
func Run(cfg Config, jobs []trace.Job) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, err := newWorld(cfg.withDefaults(), jobs)
	if err != nil {
		return nil, err
	}
	for now := int64(0); len(w.events)+w.waiting+len(w.running) > 0; now += w.tick {
		w.pass(now)
	}
	return w.result(), nil
}

func newWorld(cfg Config, jobs []trace.Job) (*world, error) {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	w := &world{
		cfg: cfg, tick: seconds(cfg.Tick), term: seconds(cfg.Term), starving: seconds(cfg.Starvation), delays: seconds(cfg.Delay),
		free: int64(cfg.Nodes) * int64(cfg.GPUsPerNode), room: slices.Repeat([]int64{int64(cfg.GPUsPerNode)}, cfg.Nodes),
	}
	byID := make(map[lockstep.TenantID]*tenant, len(cfg.Shares))
	for i, q := range cfg.quotas() {
		t := &tenant{id: cfg.Shares[i].Tenant, quota: q}
		byID[t.id] = t
		w.tenants = append(w.tenants, t)
	}
	seen := make(map[lockstep.JobID]bool, len(jobs))
	for i := range jobs {
		j, field := &jobs[i], "jobs["+strconv.Itoa(i)+"]"
		t := byID[j.Tenant]
		switch {
		case t == nil:
			return nil, fault(lockstep.ErrUnknown, "run", field+".Tenant", strconv.Quote(string(j.Tenant)), "has no share")
		case seen[j.ID]:
			return nil, fault(lockstep.ErrDuplicate, "run", field+".ID", strconv.Quote(string(j.ID)), "occurs twice")
		case j.GPUs < 1 || j.GPUs > maxDevices:
			return nil, fault(lockstep.ErrInvalid, "run", field+".GPUs", strconv.Itoa(j.GPUs), "want 1 to 2^24")
		case j.Submit < 0 || j.Submit > maxTime || j.Submit%time.Second != 0:
			return nil, fault(lockstep.ErrInvalid, "run", field+".Submit", j.Submit.String(), "want 0 to 100 years, in whole seconds")
		case j.Duration <= 0 || j.Duration > maxTime || j.Duration%time.Second != 0:
			return nil, fault(lockstep.ErrInvalid, "run", field+".Duration", j.Duration.String(), "want more than 0, to 100 years, in whole seconds")
		}
		seen[j.ID] = true
		w.events = append(w.events, &job{id: j.ID, tenant: t, gpus: int64(j.GPUs), submit: seconds(j.Submit), duration: seconds(j.Duration)})
	}
	slices.SortStableFunc(w.events, func(a, b *job) int { return cmp.Compare(a.submit, b.submit) })
	return w, nil
}

// pass is one tick, in the artifact's order.
func (w *world) pass(now int64) {
	if now%3600 == 0 {
		w.closeHour()
	}
	w.lapse(now)
	w.accountJobs()
	w.accountTenants()
	w.check(now)
	w.count()
	w.dispatch(now)
	if w.free > 0 || w.delays > 0 { // otherwise nothing can come of it
		w.allocate(now)
	}
}

// lapse lets the time since the last tick pass for all jobs.
func (w *world) lapse(now int64) {
	for _, t := range w.tenants {
		t.starved = t.starved[:0]
		for _, j := range t.pending {
			d := now - j.checked
			j.pended += d
			j.waited += d
			j.life += d
			j.checked = now
			if j.waited >= w.starving {
				t.starved = append(t.starved, j)
			}
		}
		slices.SortStableFunc(t.starved, func(a, b *job) int { return cmp.Compare(a.submit, b.submit) })
	}
	for _, j := range w.running {
		d := now - j.checked
		j.executed += d
		j.life += d
		j.lease += d
		j.checked = now
	}
}

// check ends jobs that are done and leases that are over. It walks along the
// list that it takes them from, so that the job behind one that is taken is
// passed over until the next tick: the artifact's.
func (w *world) check(now int64) {
	for i := 0; i < len(w.running); i++ {
		j := w.running[i]
		switch {
		case j.executed >= j.duration:
			w.stop(j)
			w.finish(j)
		case j.lease >= w.term:
			w.stop(j)
			w.expire(j, now)
		}
	}
	for _, t := range w.tenants {
		t.delayed = t.delayed[:0]
	}
	if w.delays == 0 {
		return
	}
	for _, j := range w.running {
		if j.lease < w.delays && (j.expiries > 0 || j.lease >= 120) {
			j.rate(j.gpus * (j.executed - j.lease))
			j.tenant.delayed = append(j.tenant.delayed, j)
		}
	}
}

// stop takes j off the running jobs and frees its devices.
func (w *world) stop(j *job) {
	i := slices.Index(w.running, j)
	w.running = slices.Delete(w.running, i, i+1)
	i = slices.Index(j.tenant.active, j)
	j.tenant.active = slices.Delete(j.tenant.active, i, i+1)
	j.running = false
	for _, g := range j.nodes {
		w.room[g.node] += g.n
	}
	j.nodes = j.nodes[:0]
	w.free += j.gpus
}

// queue makes j wait.
func (w *world) queue(j *job) {
	w.waiting++
	j.tenant.pending = append(j.tenant.pending, j)
}

func (w *world) finish(j *job) {
	j.rate(j.gpus * j.executed) // overrun included: the artifact's
	j.end = j.checked + j.duration - j.executed
	j.executed = j.duration
	j.settle()
}

func (w *world) expire(j *job, now int64) {
	w.queue(j)
	j.expiries++
	j.waited = 0
	j.saved = now
	j.settle()
}

// settle counts the resume that the lease that ends began with.
func (j *job) settle() {
	if j.paying {
		j.resumes++
	}
	j.paying = false
}

// kill stops j in the middle of its lease, whose work is lost, and returns the
// devices that it frees.
func (w *world) kill(j *job) {
	w.stop(j)
	w.queue(j)
	j.executed -= j.lease
	j.pended += j.lease
	j.lease = 0
	j.kills++
	j.paying = false
	j.tenant.used -= j.gpus
}

// dispatch lets jobs in that were submitted by now.
func (w *world) dispatch(now int64) {
	for len(w.events) > 0 && w.events[0].submit <= now {
		j := w.events[0]
		w.events = w.events[1:]
		if j.gpus > j.tenant.quota {
			w.dropped = append(w.dropped, j.id)
			continue
		}
		w.jobs = append(w.jobs, j)
		w.queue(j)
		j.checked, j.seen, j.saved = now, now, now
		j.pended, j.life, j.waited = now-j.submit, now-j.submit, now-j.submit
	}
}
