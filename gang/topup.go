package gang

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// cutCharge gives back the quota of the job of c, but for what it keeps. Whoever
// does so for good sets the job aside as well, which takes note of it.
func (a *Admission) cutCharge(c *cut) error {
	if !c.job.charged {
		return nil
	}
	if err := a.uncharge(c.job); err != nil {
		return err
	}
	c.uncharged = true
	if c.keep == nil {
		return nil
	}
	if err := a.charge(c.job, a.countsOf(c.keep, c.job)); err != nil {
		return errors.Join(err, a.recharge(c))
	}
	return nil
}

// recharge undoes cutCharge.
func (a *Admission) recharge(c *cut) error {
	if !c.uncharged {
		return nil
	}
	c.uncharged = false
	if err := a.uncharge(c.job); err != nil {
		return err
	}
	return a.charge(c.job, a.countsOf(c.job.plan.Members, c.job))
}

// quotaAfter reports whether j would have quota for counts members if cuts were made.
// A quota that cannot tell is asked with the charges given back for so long.
func (a *Admission) quotaAfter(j *job, counts []int, cuts []cut) (ok bool, err error) {
	if a.cfg.Quota == nil {
		return true, nil
	}
	if x, can := a.cfg.Quota.(AfterChecker); can {
		evictions := make([]lockstep.Eviction, 0, len(cuts))
		for i := range cuts {
			if c := &cuts[i]; c.job.charged {
				gone, _ := missing(c.job.plan.Members, c.keep)
				if c.keep == nil {
					gone = nil
				}
				evictions = append(evictions, lockstep.Eviction{Job: c.job.id, For: j.id, Ranks: gone})
			}
		}
		return x.CheckAfter(j.gang, counts, evictions).Feasible, nil
	}
	done := 0
	for ; done < len(cuts) && err == nil; done++ {
		err = a.cutCharge(&cuts[done])
	}
	if err == nil {
		ok = a.cfg.Quota.Check(j.gang, counts).Feasible
	}
	for i := range cuts[:done] {
		err = errors.Join(err, a.recharge(&cuts[i]))
	}
	return ok && err == nil, err
}

// topUp looks for victims so that j has quota.
type topUp struct {
	a     *Admission
	j     *job
	least *lockstep.Request
	cuts  []cut // so far
}

// coverQuota adds to cuts those candidates that must give up what they have so
// that j gets quota, and leaves out whoever is not needed then. Where the limits
// do not allow that, it begins again without those who were chosen for their room.
// False means that it found no way.
func (a *Admission) coverQuota(j *job, least *lockstep.Request, cuts []cut) ([]cut, bool, error) {
	t := &topUp{a: a, j: j, least: least}
	ok, err := t.run(cuts)
	if !ok && err == nil && len(cuts) > 0 {
		a.p.aim, t.cuts = nil, nil
		if ok, err = t.run(nil); ok && err == nil {
			ok, err = a.roomAfter(j, least, t.cuts)
		}
	}
	return t.cuts, ok, err
}

func (t *topUp) run(cuts []cut) (bool, error) {
	for _, c := range cuts {
		if !t.add(c) {
			return false, nil
		}
	}
	ok, err := t.enough()
	order := slices.Clone(t.a.scratch.from.Jobs)
	slices.SortStableFunc(order, func(x, y lockstep.Candidate) int { return cmp.Compare(x.Tier, y.Tier) })
	for _, whole := range []bool{false, true} { // shrinks first
		for i := 0; i < len(order) && !ok && err == nil; i++ {
			if t.offer(&order[i], whole) {
				ok, err = t.enough()
			}
		}
	}
	if !ok || err != nil {
		return false, err
	}
	return true, t.spareSome()
}

// enough reports whether j has quota once the cuts are made.
func (t *topUp) enough() (bool, error) { return t.a.quotaAfter(t.j, t.least.Min, t.cuts) }

// offer takes from the candidate x what it can spare, or all, and reports whether
// that is more than before.
func (t *topUp) offer(x *lockstep.Candidate, whole bool) bool {
	h := t.a.jobs[x.Job]
	c := cut{job: h, spares: h.plan.Spares}
	if !whole {
		if x.Min == nil {
			return false
		}
		c.keep = h.lowest(h.gang.MinMembers())
	}
	i := slices.IndexFunc(t.cuts, func(c cut) bool { return c.job == h })
	if i < 0 {
		return t.add(c)
	}
	old := t.cuts[i]
	if len(old.keep) <= len(c.keep) {
		return false
	}
	t.cuts = slices.Delete(t.cuts, i, i+1)
	ok := t.add(c)
	if !ok { // the limits allow no more than before
		t.cuts = append(t.cuts, old)
	}
	return ok
}

// add adds c to the cuts; false where a limit forbids it.
func (t *topUp) add(c cut) bool {
	if most := t.a.scratch.from.Max; most > 0 && len(t.cuts) >= most || !t.allows(&c) {
		return false
	}
	t.cuts = append(t.cuts, c)
	return true
}

// allows reports whether the limits of the candidates allow that c is taken as well.
func (t *topUp) allows(c *cut) bool {
	from := &t.a.scratch.from
	for _, l := range t.a.candidate(c.job).Limits {
		if l < 0 || int(l) >= len(from.Limits) {
			return false
		}
		spent := c.gives(t.a)
		for i := range t.cuts {
			if slices.Contains(t.a.candidate(t.cuts[i].job).Limits, l) {
				addTo(spent, t.cuts[i].gives(t.a))
			}
		}
		for name, limit := range from.Limits[l] { // the order does not matter: all must hold
			if spent[name] > limit {
				return false
			}
		}
	}
	return true
}

// addTo adds the amounts of r to sum, held at the end of int64.
func addTo(sum, r lockstep.Resources) {
	for name, n := range r { // the order does not matter: sums
		sum[name] = int64(lockstep.Bytes(sum[name]).Add(lockstep.Bytes(n)))
	}
}

// gives is what c takes from its job, by name, with the spares of one that goes whole.
func (c *cut) gives(a *Admission) lockstep.Resources {
	counts, kept := a.countsOf(c.job.plan.Members, c.job), a.countsOf(c.keep, c.job)
	spares := a.countsOf(c.spares, c.job)
	sum := lockstep.Resources{}
	for i := range counts {
		n := counts[i] - kept[i]
		if c.keep == nil {
			n += spares[i]
		}
		one := c.job.gang.Roles[i].Demand.Resources()
		for name, amount := range one { // the order does not matter: each is changed by itself
			one[name] = int64(lockstep.Bytes(amount).Mul(int64(n)))
		}
		addTo(sum, one)
	}
	return sum
}

// spareSome lets go of whoever is not needed, the last first, neither for quota
// nor for room.
func (t *topUp) spareSome() error {
	for i := len(t.cuts) - 1; i >= 0; i-- {
		c := t.cuts[i]
		t.cuts = slices.Delete(t.cuts, i, i+1)
		ok, err := t.enough()
		if ok && err == nil {
			ok, err = t.a.roomAfter(t.j, t.least, t.cuts)
		}
		if err != nil {
			return err
		}
		if !ok {
			t.cuts = slices.Insert(t.cuts, i, c)
		}
	}
	return nil
}

// roomAfter reports whether j fits once cuts are made.
func (a *Admission) roomAfter(j *job, least *lockstep.Request, cuts []cut) (bool, error) {
	mark := a.what.Mark()
	var err error
	for i := 0; i < len(cuts) && err == nil; i++ {
		err = a.release(cuts[i].job)
	}
	ok := false
	if err == nil {
		ok, err = a.fitDisplacing(j, least, cuts)
	}
	return ok, a.rollback(mark, err)
}
