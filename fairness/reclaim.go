package fairness

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// AppendReclaim appends the running jobs that may be stopped so that a waiting job
// gets need, in the order in which to take them, and returns dst: of the tenant with
// the least claim first, and of a tenant the job that it would itself propose last.
// It stops once they hold need, in the ledger's unit; which of them help, and whether
// fewer do, is for the placer to find out.
//
// A job is left out if its tenant could turn round and reclaim: claims are compared
// as a pass compares them, and as they would be after the swap. If q gives up g for
// p's d, q's claim rises by g·horizon and p's falls by d·horizon, and q's must still
// not come before p's. To take it back q would have to come behind p after the swap
// back, which is the order before the first, in which p came before q: so it cannot,
// until new service or demand changes the claims. Jobs of p itself are not taken.
//
// It returns ErrUnknown and ErrConflict for a job that is not there, or does not
// wait, and changes nothing. O(jobs log jobs).
func (l *Ledger) AppendReclaim(dst []lockstep.JobID, now time.Time, job lockstep.JobID, need lockstep.MilliGPU) ([]lockstep.JobID, error) {
	ns, err := l.read("reclaim", now)
	if err != nil {
		return dst, err
	}
	j := l.jobs[job]
	switch {
	case j == nil:
		return dst, fault(lockstep.ErrUnknown, "reclaim", "job", errtext.Quote(job), "was not submitted")
	case j.done || j.running:
		return dst, fault(lockstep.ErrConflict, "reclaim", "job", errtext.Quote(job), "does not wait")
	}
	if l.recent != nil {
		l, j = l.recent, l.recent.jobs[job]
	}
	o := l.outlook(ns)
	return o.reclaim(dst, j, need), nil
}

// giver is a tenant from which jobs may be taken.
type giver struct {
	seat seat   // seat is as things would stand.
	jobs []*job // jobs are its running ones, the first to give up first.
}

func (o *outlook) reclaim(dst []lockstep.JobID, j *job, need lockstep.MilliGPU) []lockstep.JobID {
	taker := o.standing(j.tenant)
	for _, due := range o.l.due {
		if due.tenant == j.tenant {
			taker.lag = taker.lag.Add(rated(due.grant, o.horizon))
		}
	}
	taker.lag = taker.lag.Sub(rated(j.demand, o.horizon))
	heap := o.givers(j.tenant)
	for i := len(heap)/2 - 1; i >= 0; i-- {
		o.down(heap, i)
	}
	for need > 0 && len(heap) > 0 {
		g := heap[0]
		victim := g.jobs[0]
		after := g.seat
		if !victim.due { // what it holds does not count as held if it is
			after.lag = after.lag.Add(rated(victim.grant, o.horizon))
		}
		if !o.ahead(&after, &taker) {
			g.seat = after
			dst = append(dst, victim.id)
			need -= victim.grant
		}
		if g.jobs = g.jobs[1:]; len(g.jobs) == 0 {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		}
		o.down(heap, 0)
	}
	return dst
}

// down restores the heap below i, whose top is who comes last in a pass.
func (o *outlook) down(heap []*giver, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if right := child + 1; right < len(heap) && o.ahead(&heap[child].seat, &heap[right].seat) {
			child = right
		}
		if !o.ahead(&heap[i].seat, &heap[child].seat) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// standing returns t's place among tenants, as a pass at o would have it but for
// what its due jobs hold.
func (o *outlook) standing(t *tenant) seat {
	k := t.rank()
	gain := rated(t.demand, o.horizon)
	if !o.levels[k].satisfied(uint64(t.demand), t.pull()) {
		gain = o.gains[k].Mul(t.pull()).Near()
	}
	lag := o.l.entitled(t, &o.view).Near().Sub(t.served(&o.view)).Add(o.l.extra(t, &o.view, &o.window))
	return seat{lag: lag.Add(gain).Sub(rated(t.rate, o.horizon)), guest: k == 1, tenant: t}
}

// ahead is seat.ahead outside a pass.
func (o *outlook) ahead(s, r *seat) bool {
	if s.guest != r.guest {
		return r.guest
	}
	if c := s.lag.Cmp(r.lag); c != 0 {
		return c > 0
	}
	t, u := s.tenant, r.tenant
	if c := int128.CmpProducts(t.served(&o.view), u.pull(), u.served(&o.view), t.pull()); c != 0 {
		return c < 0
	}
	return t.id < u.id
}

// givers returns the tenants but one that have running jobs, in any order: ahead
// tells any two apart.
func (o *outlook) givers(but *tenant) []*giver {
	var list []*giver
	at := make(map[*tenant]*giver)
	for _, j := range o.l.jobs { // in any order: sorted below
		if !j.running || j.tenant == but || j.grant == 0 {
			continue
		}
		g := at[j.tenant]
		if g == nil {
			g = &giver{seat: o.standing(j.tenant)}
			at[j.tenant] = g
			list = append(list, g)
		}
		g.jobs = append(g.jobs, j)
		if j.due {
			g.seat.lag = g.seat.lag.Add(rated(j.grant, o.horizon))
		}
	}
	for _, g := range list {
		o.lastFirst(g.jobs)
	}
	return list
}

// lastFirst sorts a tenant's running jobs, the one that it would propose last first.
func (o *outlook) lastFirst(jobs []*job) {
	list, each := make([]ranking, len(jobs)), o.l.perJob(jobs[0].tenant, &o.view, o.quantum)
	for i, j := range jobs {
		list[i] = o.l.ranking(j, &o.view, each, o.quantum)
	}
	slices.SortFunc(list, func(a, b ranking) int { return compareRankings(b, a) })
	for i := range list {
		jobs[i] = list[i].job
	}
}
