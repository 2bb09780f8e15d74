package fairness

import (
	"cmp"
	"slices"
	"strings"
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
		return l.recent.reclaimWarped(dst, &l.warp, ns, l.cfg.Horizon, job, need), nil
	}
	o := l.outlook(ns)
	return o.reclaim(dst, j, need), nil
}

// reclaimWarped is AppendReclaim of a recent.
func (l *Ledger) reclaimWarped(dst []lockstep.JobID, w *warp, ns int64, horizon time.Duration, job lockstep.JobID, need lockstep.MilliGPU) []lockstep.JobID {
	tau, kept := w.at(ns), l.cfg.Horizon
	l.cfg.Horizon = max(w.over(horizon, tau), 1)
	o := l.outlook(tau)
	l.cfg.Horizon = kept
	return o.reclaim(dst, l.jobs[job], need)
}

// giver is a tenant from which jobs may be taken.
type giver struct {
	seat seat   // seat is as things would stand.
	jobs []*job // jobs are its running ones, the first to give up first.
}

func (o *outlook) reclaim(dst []lockstep.JobID, j *job, need lockstep.MilliGPU) []lockstep.JobID {
	taker := o.standing(j.tenant)
	taker.lag = taker.lag.Sub(rated(j.demand, o.horizon))
	givers := o.givers(j.tenant)
	for need > 0 && len(givers) > 0 {
		least := 0
		for i := range givers {
			if o.ahead(&givers[least].seat, &givers[i].seat) {
				least = i
			}
		}
		g := &givers[least]
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
			givers = slices.Delete(givers, least, least+1)
		}
	}
	return dst
}

// standing returns t's place among tenants, as a pass at o would have it.
func (o *outlook) standing(t *tenant) seat {
	k := t.rank()
	gain := rated(t.demand, o.horizon)
	if !o.levels[k].satisfied(uint64(t.demand), t.pull()) {
		gain = o.gains[k].Mul(t.pull()).Near()
	}
	lag := o.l.entitled(t, &o.view).Near().Sub(t.served(&o.view)).Add(o.l.extra(t, &o.view, &o.window))
	lag = lag.Add(gain).Sub(rated(t.rate, o.horizon))
	for _, j := range o.l.due {
		if j.tenant == t {
			lag = lag.Add(rated(j.grant, o.horizon))
		}
	}
	return seat{lag: lag, guest: k == 1, tenant: t}
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

// givers returns the tenants but one that have running jobs, by ID.
func (o *outlook) givers(but *tenant) []giver {
	var list []giver
	at := make(map[*tenant]int)
	for _, j := range o.l.jobs { // in any order: sorted below
		if !j.running || j.tenant == but || j.grant == 0 {
			continue
		}
		i, ok := at[j.tenant]
		if !ok {
			i = len(list)
			at[j.tenant] = i
			list = append(list, giver{seat: o.standing(j.tenant)})
		}
		list[i].jobs = append(list[i].jobs, j)
	}
	slices.SortFunc(list, func(a, b giver) int {
		return strings.Compare(string(a.seat.tenant.id), string(b.seat.tenant.id))
	})
	for i := range list {
		o.lastFirst(list[i].jobs)
	}
	return list
}

// lastFirst sorts a tenant's running jobs, the one that it would propose last first.
func (o *outlook) lastFirst(jobs []*job) {
	l, v := o.l, &o.view
	if l.cfg.JobOrder.ranked() {
		each := l.perJob(jobs[0].tenant, v)
		slices.SortFunc(jobs, func(a, b *job) int {
			return compareRankings(l.ranking(b, v, each), l.ranking(a, v, each))
		})
		return
	}
	key := func(j *job) int128.Int {
		service, _ := j.at(v.now)
		if l.cfg.JobOrder == LeastRun {
			return j.ranAt(v.now)
		}
		return l.keyOf(j, service)
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(key(b).Cmp(key(a)), cmp.Compare(b.submitted, a.submitted), strings.Compare(string(b.id), string(a.id)))
	})
}
