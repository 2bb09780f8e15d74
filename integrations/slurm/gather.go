package slurm

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// gather makes entries and rows of all jobs, and says when each came or began.
func (p *planner) gather() (others []*lockstep.Plan) {
	jobs := p.jobs()
	room := p.c.room()
	hets := make(map[uint32][]*Job)
	for _, j := range jobs {
		if j.State == Running || j.State == Suspended || j.State == Ending {
			p.holder(j, room)
		}
		if j.State == Pending && j.Het != 0 {
			hets[j.Het] = append(hets[j.Het], j)
		}
		if j.State == Ended {
			for _, id := range numbers(j) {
				p.open[id] += 0 // it is known, and over
			}
		}
	}
	for _, parts := range hets { // each is sorted by itself, so order cannot matter
		slices.SortStableFunc(parts, func(a, b *Job) int { return cmp.Compare(a.HetOffset, b.HetOffset) })
	}
	ranks := ranksOf(jobs)
	for _, j := range jobs {
		if j.State != Pending {
			continue
		}
		parts := []*Job{j}
		if j.Het != 0 {
			parts = hets[j.Het]
			if parts[0] != j {
				continue
			}
		}
		p.waiter(parts, ranks[j.Priority])
	}
	p.release()
	return p.c.others(room)
}

// jobs returns those of the view by number, each once.
func (p *planner) jobs() []*Job {
	all := make([]*Job, 0, len(p.c.view.Jobs))
	for i := range p.c.view.Jobs {
		all = append(all, &p.c.view.Jobs[i])
	}
	slices.SortStableFunc(all, func(a, b *Job) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b *Job) bool {
		if a.ID == b.ID {
			p.c.faults = append(p.c.faults, fault(lockstep.ErrDuplicate, "plan", "job "+label(b.ID)+".job_id", label(b.ID), "was there before"))
		}
		return a.ID == b.ID
	})
}

// ranksOf maps priorities to small numbers in the same order.
func ranksOf(jobs []*Job) map[uint32]lockstep.Priority {
	var all []uint32
	for _, j := range jobs {
		all = append(all, j.Priority)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	out := make(map[uint32]lockstep.Priority, len(all))
	for i, p := range all {
		out[p] = lockstep.Priority(i)
	}
	return out
}

// holder takes in a job that holds nodes.
func (p *planner) holder(j *Job, room []left) {
	e, bad := p.c.running(j, room)
	if bad != nil {
		p.c.faults = append(p.c.faults, bad)
	}
	if e == nil {
		return
	}
	if e.start.IsZero() || e.start.After(p.now) {
		e.start = p.now
	}
	p.enter(e)
	if a := p.arrayOf(j); a != nil {
		a.active++
	}
	p.add(later(e.start, p.now.Add(-p.c.cfg.History)), runs, e)
	switch limit := e.start.Add(j.Limit); {
	case j.State == Ending:
		p.add(p.round(p.now.Add(time.Second)), ends, e)
	case j.Limit > 0 && j.State == Running:
		p.add(p.round(later(limit, p.now.Add(time.Second))), ends, e) // past its limit it goes any moment
	}
}

func (p *planner) enter(e *entry) {
	p.entries[e.gang.ID] = e
	for _, id := range numbers(e.job) {
		p.open[id]++
	}
}

// arrayOf returns the count of an array with a limit; nil where there is none.
func (p *planner) arrayOf(j *Job) *array {
	if j.Array == 0 || j.TaskLimit == 0 {
		return nil
	}
	a := p.arrays[j.Array]
	if a == nil {
		a = &array{limit: j.TaskLimit}
		p.arrays[j.Array] = a
	}
	return a
}

// waiter takes in a job that waits, with a gang for each of the tasks that are planned.
func (p *planner) waiter(parts []*Job, rank lockstep.Priority) {
	j := parts[0]
	r := newRow(parts)
	p.rows = append(p.rows, r)
	unreadable := func(bad *lockstep.Error) {
		p.c.faults = append(p.c.faults, bad)
		r.Reason, r.Detail = ReasonUnreadable, bad.Error()
		p.keep(j, 1)
	}
	for _, part := range parts {
		if bad := part.check(); bad != nil {
			unreadable(bad)
			return
		}
	}
	p.arrayOf(j)
	if j.Held || withheld(j.Reason) {
		if r.Reason = ReasonHeld; !j.Held {
			r.Reason = ReasonLimit
		}
		r.Detail = j.Reason
		p.keep(j, 1)
		return
	}
	for task := range min(j.Tasks, p.c.cfg.ArrayTasks) {
		g, bad := p.c.gang(parts, task)
		if bad != nil {
			unreadable(bad)
			return
		}
		if p.c.cfg.Rule == Slurm {
			g.Priority = rank
		}
		e := &entry{gang: g, row: r, job: j, needs: needsOf(j)}
		if r.first == nil {
			r.first = e
		}
		r.known++
		p.enter(e)
		p.waiting = append(p.waiting, e)
	}
	p.keep(j, j.Tasks-r.known)
}

// keep counts tasks of which no end is planned, so that who waits for them waits on.
func (p *planner) keep(j *Job, tasks int) {
	for _, id := range numbers(j) {
		p.open[id] += tasks
	}
}

// limits are how Slurm's words begin for why it does not start a job, of what is not looked at here.
var limits = []string{
	"Assoc", "QOS", "Max", "License", "Partition", "Reservation", "BadConstraints", "DependencyNeverSatisfied", "Account", "InvalidAccount", "InvalidQOS",
	"BurstBuffer", "DeadLine", "FedJobLock", "FrontEndDown", "Prolog", "SystemFailure", "InactiveLimit", "JobHoldMaxRequeue",
}

// withheld says whether Slurm gives such a reason.
func withheld(reason string) bool {
	return slices.ContainsFunc(limits, func(l string) bool { return strings.HasPrefix(reason, l) })
}

// release lets those come that wait for no other job.
func (p *planner) release() {
	kept := p.waiting[:0]
	for _, e := range p.waiting {
		j := e.job
		at := j.Eligible
		if at.IsZero() {
			at = p.now // Slurm has yet to look at it
		}
		at = later(at, p.now.Add(-p.c.cfg.History))
		switch {
		case !p.free(e):
			e.row.Reason, e.row.Detail = ReasonDependency, j.Dependency
			kept = append(kept, e)
			continue
		case at.After(p.now):
			e.row.Reason, e.row.Detail = ReasonBegin, at.Format(time.RFC3339)
			at = p.round(at)
		}
		p.add(at, comes, e)
	}
	p.waiting = kept
}
