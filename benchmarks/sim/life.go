package main

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// The long life: how large the cluster is, how many jobs are in the system, and
// by how much the heap may grow after the first tenth and still count as flat.
const (
	lifeNodes   = 8
	lifeJobs    = 96
	lifeTenants = 11
	lifeTenths  = 10
	flat        = 1.1
)

// lifeSizes are the devices that jobs want, drawn evenly.
var lifeSizes = [...]int{1, 1, 1, 1, 2, 2, 4, 8, 16}

// life measures the live heap while jobs come and go.
func (p *program) life() error {
	p.Input("cluster", fmt.Sprintf("%d nodes x %d = %d GPUs, LTGF, term %v, %d tenants of weights 1 to 4", lifeNodes, perNode, lifeNodes*perNode, term, lifeTenants))
	p.Input("jobs", fmt.Sprintf("%d, of which %d are in the system at a time; of %v GPUs, drawn evenly, for 1 to 40 minutes", p.jobs, lifeJobs, lifeSizes))
	base := live()
	h, err := newLifeHost(p.jobs, p.Seed)
	if err != nil {
		return err
	}
	table := &harness.Table{Head: []string{"jobs left", "heap MB", "of the first", "jobs kept", "simulated days", "preempted", "jobs/s", "per CPU-s", "ref"}}
	heaps := make([]float64, 0, lifeTenths)
	var total cost
	var refs []float64
	for tenth := 1; tenth <= lifeTenths; tenth++ {
		want := p.jobs / lifeTenths * tenth
		if tenth == lifeTenths {
			want = p.jobs
		}
		before, next := h.left, 0
		w := p.meter.watch()
		for h.left < want {
			if err := h.turn(); err != nil {
				return err
			}
			// A tenth takes seconds, in which the machine does not stay as it is.
			if h.left >= before+next+(want-before)/8 {
				next = h.left - before
				w.calibrate()
			}
		}
		took := w.stop()
		total.wall += took.wall
		total.cpu += took.cpu
		took = took.per(h.left - before)
		refs = append(refs, took.ref())
		heaps = append(heaps, live()-base)
		table.Add(fmt.Sprint(h.left), harness.Number(heaps[tenth-1]/1e6), harness.Number(heaps[tenth-1]/heaps[0]), fmt.Sprint(h.sched.Len()), harness.Number(h.now.Sub(h.began).Hours()/24),
			fmt.Sprint(h.preempted), harness.Number(perSecond(took.wall)), harness.Number(perSecond(took.cpu)), harness.Number(perSecond(took.ref())))
		p.Result(fmt.Sprintf("life/heap-%d", tenth), heaps[tenth-1]/1e6, "MB")
	}
	p.Table(table)
	growth := growth(heaps)
	p.Result("life/jobs", float64(h.left), "jobs")
	p.Result("life/growth", growth, "x")
	p.Result("life/bytes-per-job", (heaps[lifeTenths-1]-heaps[0])/(float64(h.left)*(lifeTenths-1)/lifeTenths), "B/job")
	p.Result("life/rate", perSecond(total.per(h.left).wall), "jobs/s")
	p.Result("life/rate-cpu", perSecond(total.per(h.left).cpu), "jobs/CPU-s")
	p.Result("life/rate-ref", perSecond(harness.Median(refs)), "jobs/CPU-s")
	p.Result("life/simulated", h.now.Sub(h.began).Hours()/24/365, "years")
	p.Target(harness.Target{Name: "life/growth", Value: growth, Unit: "x", Limit: flat})
	return nil
}

// growth returns the greatest of the heaps over the first.
func growth(heaps []float64) float64 {
	most := 0.0
	for _, h := range heaps[1:] {
		most = max(most, h)
	}
	return most / heaps[0]
}

// lifeHost keeps a scheduler in work, and remembers nothing of jobs that left.
type lifeHost struct {
	sched     *scheduler.Scheduler
	rng       *rand.Rand
	began     time.Time
	now       time.Time
	jobs      int // to submit in all
	submitted int // or on their way
	arrived   int
	left      int
	preempted int
	present   map[lockstep.JobID]*lifeJob
	next      timetable
	seq       uint64
}

// lifeJob is a job in the system.
type lifeJob struct {
	id      lockstep.JobID
	work    time.Duration // what it has still to do
	since   time.Time     // when it began to do it; after its resume
	plan    *lockstep.Plan
	attempt lockstep.Attempt
	started bool
	version uint64 // of what will happen to it
}

// appointment is something that will happen, unless the job's version changed.
type appointment struct {
	at      time.Time
	seq     uint64
	kind    lockstep.EventKind
	job     *lifeJob
	version uint64
}

// timetable is a heap of appointments by time, then in the order they were made.
type timetable []appointment

func (t timetable) Len() int { return len(t) }
func (t timetable) Less(i, k int) bool {
	if c := t[i].at.Compare(t[k].at); c != 0 {
		return c < 0
	}
	return t[i].seq < t[k].seq
}
func (t timetable) Swap(i, k int) { t[i], t[k] = t[k], t[i] }
func (t *timetable) Push(x any)   { *t = append(*t, x.(appointment)) }
func (t *timetable) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = appointment{}
	*t = (*t)[:last]
	return x
}

func newLifeHost(jobs int, seed uint64) (*lifeHost, error) {
	tree, err := cluster(lifeNodes)
	if err != nil {
		return nil, err
	}
	weights := make(map[lockstep.TenantID]int64)
	for i := range lifeTenants {
		weights[lifeTenant(i)] = int64(1 + i%4)
	}
	h := &lifeHost{
		rng: rand.New(rand.NewPCG(seed, 0)), began: time.Unix(0, 0), now: time.Unix(0, 0),
		jobs: jobs, present: make(map[lockstep.JobID]*lifeJob),
	}
	if h.sched, err = scheduler.New(scheduler.Config{Tree: tree, Weights: weights, Term: term}); err != nil {
		return nil, err
	}
	for range min(lifeJobs, jobs) {
		h.submitted++
		h.soon(lockstep.EventSubmit, h.pause(), nil)
	}
	return h, nil
}

func lifeTenant(i int) lockstep.TenantID { return lockstep.TenantID("t" + strconv.Itoa(i)) }

// pause draws how long it takes until the next job comes.
func (h *lifeHost) pause() time.Duration { return time.Duration(h.rng.Int64N(int64(time.Minute))) }

// soon makes an appointment.
func (h *lifeHost) soon(kind lockstep.EventKind, in time.Duration, j *lifeJob) {
	h.seq++
	a := appointment{at: h.now.Add(in), seq: h.seq, kind: kind, job: j}
	if j != nil {
		a.version = j.version
	}
	heap.Push(&h.next, a)
}

// turn lets time pass until something happens, tells the scheduler, and does what
// it says.
func (h *lifeHost) turn() error {
	wake, some := h.sched.NextWake(h.now)
	if len(h.next) > 0 && (!some || h.next[0].at.Before(wake)) {
		wake, some = h.next[0].at, true
	}
	if !some {
		return fmt.Errorf("nothing will happen, and %d of %d jobs have left", h.left, h.jobs)
	}
	if wake.After(h.now) {
		h.now = wake
	}
	for len(h.next) > 0 && !h.next[0].at.After(h.now) {
		if err := h.happen(heap.Pop(&h.next).(appointment)); err != nil {
			return err
		}
	}
	actions, err := h.sched.Step(h.now)
	if err != nil {
		return err
	}
	for i := range actions {
		if err := h.do(&actions[i]); err != nil {
			return err
		}
	}
	return nil
}

// happen tells the scheduler of what was to happen.
func (h *lifeHost) happen(a appointment) error {
	j := a.job
	if j == nil {
		return h.submit()
	}
	if a.version != j.version {
		return nil
	}
	e := lockstep.Event{Kind: a.kind, Time: h.now, Job: j.id, Attempt: j.attempt}
	switch a.kind {
	case lockstep.EventConfirm:
		for e.Rank = range j.plan.Members {
			if err := h.sched.Apply(e); err != nil {
				return err
			}
		}
		return nil
	case lockstep.EventFinish:
		delete(h.present, j.id)
		h.left++
		if h.submitted < h.jobs {
			h.submitted++
			h.soon(lockstep.EventSubmit, h.pause(), nil)
		}
	}
	return h.sched.Apply(e)
}

// submit makes up a job and tells the scheduler of it.
func (h *lifeHost) submit() error {
	h.arrived++
	gpus := lifeSizes[h.rng.IntN(len(lifeSizes))]
	j := &lifeJob{work: time.Minute + time.Duration(h.rng.Int64N(int64(39*time.Minute)))}
	j.id = lockstep.JobID("job-" + strconv.Itoa(h.arrived))
	g := &lockstep.Gang{
		ID: j.id, Tenant: lifeTenant(h.rng.IntN(lifeTenants)), Walltime: j.work,
		Roles:        []lockstep.Role{{Min: (gpus + perNode - 1) / perNode, Demand: lockstep.Demand{GPUs: min(gpus, perNode)}}},
		Capabilities: lockstep.Capabilities{Preemptible: true, Save: checkpoint, Restore: resume},
	}
	h.present[j.id] = j
	return h.sched.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: h.now, Job: j.id, Gang: g})
}

// do carries out an action.
func (h *lifeHost) do(a *lockstep.Action) error {
	j := h.present[a.Job]
	if j == nil {
		return fmt.Errorf("%s %s: the job is not there", a.Kind, a.Job)
	}
	switch a.Kind {
	case lockstep.ActionReserve:
		j.plan, j.attempt = a.Plan, a.Attempt
		j.version++
		h.soon(lockstep.EventConfirm, time.Second, j)
	case lockstep.ActionStart:
		wait := time.Duration(0)
		if j.started {
			wait = resume
		}
		j.started, j.since = true, h.now.Add(wait)
		j.version++
		h.soon(lockstep.EventFinish, wait+j.work, j)
	case lockstep.ActionRelease:
		j.version++
	case lockstep.ActionExtend:
	case lockstep.ActionEvict, lockstep.ActionMove:
		if done := h.now.Sub(j.since); done > 0 {
			j.work = max(j.work-done, 0)
		}
		h.preempted++
		j.version++
		h.soon(lockstep.EventEvicted, checkpoint, j)
	default:
		return fmt.Errorf("%s %s: not expected", a.Kind, a.Job)
	}
	return nil
}
