package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
)

// account measures a simulation: a ledger of its own beside whatever the
// scheduler has, so that all policies are held to the same measure.
type account struct {
	ledger   *fairness.Ledger
	capacity lockstep.MilliGPU
	tenants  []*tenant // by ID
	byTenant map[lockstep.TenantID]*tenant
	short    int  // tenants with jobs that wait
	changed  bool // the ledger changed since it was looked at last

	held     lockstep.MilliGPU // by all jobs now
	service  lockstep.GPUTime  // sum over jobs of amount × time held, counted apart from the ledger
	saving   lockstep.GPUTime  // of it in checkpoints
	resuming lockstep.GPUTime  // of it in resumes

	nodes      map[lockstep.NodeID]*node
	loose      lockstep.MilliGPU // free devices on nodes partly in use
	unused     lockstep.MilliGPU // free devices
	looseT     lockstep.GPUTime  // over time
	unusedT    lockstep.GPUTime
	waiting    int
	finished   int
	indices    []float64 // of jobs
	every      int       // finished jobs between two calls of Progress
	series     sampler
	statements []fairness.Statement
}

// tenant is what is measured of one.
type tenant struct {
	id      lockstep.TenantID
	weight  int64
	jobs    int
	waiting int
	held    lockstep.MilliGPU
	worst   lockstep.GPUTime
}

// node is what the host knows of a node: who may not share what.
type node struct {
	all, used lockstep.DeviceSet
	size      int64
}

func newAccount(h *host) (*account, error) {
	a := &account{capacity: h.cfg.Capacity, byTenant: make(map[lockstep.TenantID]*tenant), every: max(len(h.runs)/100, 1)}
	if err := a.openNodes(h); err != nil {
		return nil, err
	}
	var err error
	if a.ledger, err = fairness.New(fairness.Config{Capacity: a.capacity}); err != nil {
		return nil, err
	}
	for t := range h.cfg.Weights { // the order does not matter: sorted below
		a.byTenant[t] = nil
	}
	for _, r := range h.runs {
		a.byTenant[r.gang.Tenant] = nil
	}
	for _, id := range slices.Sorted(maps.Keys(a.byTenant)) {
		w, ok := h.cfg.Weights[id]
		if !ok {
			w = 1
		}
		t := &tenant{id: id, weight: w}
		a.byTenant[id] = t
		a.tenants = append(a.tenants, t)
		if err := a.ledger.Join(lockstep.FromNanos(h.now), id, w); err != nil {
			return nil, err
		}
	}
	for _, r := range h.runs {
		r.tenant = a.byTenant[r.gang.Tenant]
		r.tenant.jobs++
	}
	a.series.init(h, a)
	return a, nil
}

func (a *account) openNodes(h *host) error {
	tree := h.cfg.Tree
	if tree == nil {
		return nil
	}
	a.nodes = make(map[lockstep.NodeID]*node, tree.Nodes())
	devices := int64(0)
	for slot := range int32(tree.Slots()) {
		id, ok := tree.NodeAt(slot)
		if !ok {
			continue
		}
		n := tree.DeviceCount(slot)
		a.nodes[id] = &node{all: ^lockstep.DeviceSet(0) >> (64 - n), size: int64(n)}
		devices += int64(n)
	}
	a.unused = lockstep.WholeGPU.Mul(devices)
	if a.capacity == 0 {
		a.capacity = a.unused
	}
	return nil
}

// pass counts the time up to t, in which nothing happens.
func (a *account) pass(h *host, t int64) {
	a.looseT = a.looseT.Add(lockstep.GPUTimeOf(a.loose, dur(t-h.now)))
	a.unusedT = a.unusedT.Add(lockstep.GPUTimeOf(a.unused, dur(t-h.now)))
	a.series.pass(h, a, t)
}

func (a *account) submit(h *host, j *run) error {
	a.changed = true
	a.wait(j, 1)
	return a.ledger.Submit(lockstep.FromNanos(h.now), j.gang.ID, j.gang.Tenant, mostGPUs(j.gang))
}

// wait counts jobs that wait, and tenants that have any.
func (a *account) wait(j *run, n int) {
	t := j.tenant
	if t.waiting == 0 {
		a.short++
	}
	t.waiting += n
	a.waiting += n
	if t.waiting == 0 {
		a.short--
	}
}

// hold notes that j takes its devices, which nobody else may have.
func (a *account) hold(h *host, j *run) error {
	a.changed = true
	a.wait(j, -1)
	j.tenant.held += j.amount
	a.held += j.amount
	if a.nodes != nil {
		for i := range j.plan.Members {
			m := &j.plan.Members[i]
			n := a.nodes[m.Node]
			if n == nil || m.Devices&^n.all != 0 || m.Devices&n.used != 0 {
				return fault(lockstep.ErrConflict, "action", "Plan", string(m.Node)+" "+fmt.Sprint(m.Devices), "given to "+string(j.gang.ID)+", but not free")
			}
			a.use(n, n.used|m.Devices)
		}
	}
	if a.held > a.capacity {
		return fault(lockstep.ErrConflict, "action", "Plan", a.held.String(), "more than the capacity of "+a.capacity.String())
	}
	return a.ledger.Start(lockstep.FromNanos(h.now), j.gang.ID, j.amount)
}

// use changes which devices of a node are in use.
func (a *account) use(n *node, used lockstep.DeviceSet) {
	count := func(sign int64) {
		free := lockstep.WholeGPU.Mul(sign * (n.size - int64(n.used.Len())))
		a.unused += free
		if n.used != 0 {
			a.loose += free
		}
	}
	count(-1)
	n.used = used
	count(1)
}

// free notes that j, which has ended or waits again, gives its devices back.
func (a *account) free(h *host, j *run) error {
	a.changed = true
	a.service = a.service.Add(lockstep.GPUTimeOf(j.amount, dur(h.now-j.since)))
	j.tenant.held -= j.amount
	a.held -= j.amount
	if a.nodes != nil {
		for i := range j.plan.Members {
			m := &j.plan.Members[i]
			n := a.nodes[m.Node]
			a.use(n, n.used&^m.Devices)
		}
	}
	if j.state == ended {
		return a.end(h, j)
	}
	a.wait(j, 1)
	return a.ledger.Stop(lockstep.FromNanos(h.now), j.gang.ID)
}

// finish notes that j has ended without devices.
func (a *account) finish(h *host, j *run) error {
	a.changed = true
	a.wait(j, -1)
	return a.end(h, j)
}

// end closes the account of a job.
func (a *account) end(h *host, j *run) error {
	now := lockstep.FromNanos(h.now)
	if err := a.ledger.Finish(now, j.gang.ID); err != nil {
		return err
	}
	st, err := a.ledger.JobStatement(now, j.gang.ID)
	if err != nil {
		return err
	}
	j.rec.End, j.rec.Service, j.rec.Done = dur(h.now-h.zero), st.Service, j.rec.Rejected == ""
	if index, ok := st.Index(); ok && j.rec.Done {
		j.rec.Index = index
		a.indices = append(a.indices, index)
	}
	a.finished++
	if h.cfg.Progress != nil && (a.finished%a.every == 0 || h.left == 0) {
		h.cfg.Progress(Progress{Now: j.rec.End, Jobs: len(h.runs), Finished: a.finished})
	}
	return a.ledger.Forget(j.gang.ID)
}

func (a *account) save(j *run, cost int64) {
	a.saving = a.saving.Add(lockstep.GPUTimeOf(j.amount, dur(cost)))
}

func (a *account) resume(j *run, cost int64) {
	a.resuming = a.resuming.Add(lockstep.GPUTimeOf(j.amount, dur(cost)))
}

func (a *account) unresume(j *run, rest int64) {
	a.resuming = a.resuming.Sub(lockstep.GPUTimeOf(j.amount, dur(rest)))
}

// contested reports whether at least two tenants have jobs that wait.
func (a *account) contested() bool { return a.short >= 2 }

// look takes the greatest lag of each tenant. Lags are continuous and, between
// changes of the ledger, straight: looking at the changes finds the greatest.
func (a *account) look(h *host, before bool) error {
	if !a.changed {
		return nil
	}
	a.changed = false
	if !before && !a.contested() {
		return nil
	}
	var err error
	if a.statements, err = a.ledger.AppendStatements(a.statements[:0], lockstep.FromNanos(h.now)); err != nil {
		return err
	}
	for i := range a.statements {
		if lag := a.statements[i].Lag(); lag.Cmp(a.tenants[i].worst) > 0 {
			a.tenants[i].worst = lag
		}
	}
	return nil
}

// close settles the accounts of jobs that have not ended.
func (a *account) close(h *host) error {
	a.changed = h.left > 0 // nothing did, but lags grew until now
	if err := a.look(h, a.contested()); err != nil {
		return err
	}
	for i, j := range h.runs {
		switch {
		case i >= h.submitted:
			j.rec.Unfinished = Unsubmitted
			continue
		case j.state == ended:
			continue
		case j.state == waiting:
			j.rec.Unfinished = Waiting
			j.rec.Wait += dur(h.now - j.waits)
		default:
			j.rec.Unfinished = Holding
			a.service = a.service.Add(lockstep.GPUTimeOf(j.amount, dur(h.now-j.since)))
			j.rec.Held += dur(h.now - j.since)
		}
		if rest := j.from - h.now; rest > 0 && j.state == working { // it has not paid all of it
			a.unresume(j, rest)
		} else if rest > 0 && j.state == leaving {
			a.save(j, -rest)
		}
		st, err := a.ledger.JobStatement(lockstep.FromNanos(h.now), j.gang.ID)
		if err != nil {
			return err
		}
		j.rec.Service = st.Service
	}
	a.series.pass(h, a, h.now)
	return nil
}

// mostGPUs returns the devices that g takes with as many members as it may have.
func mostGPUs(g *lockstep.Gang) lockstep.MilliGPU {
	var sum lockstep.MilliGPU
	for i := range g.Roles {
		d := &g.Roles[i].Demand
		sum = sum.Add(d.DeviceShare().Mul(int64(d.GPUs)).Mul(int64(g.Roles[i].Limit())))
	}
	return sum
}

func dur(ns int64) time.Duration { return time.Duration(ns) }
