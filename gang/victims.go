package gang

import (
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// cut is what becomes of a soft holder so that another gets in: it keeps these
// members where they are, or none.
type cut struct {
	job  *job
	keep []lockstep.Member

	spares    []lockstep.Member // that it had; it keeps their room, or other as good, where it keeps members
	uncharged bool              // its job is charged for what it keeps only
}

// appendKept appends the room that c's job keeps.
func (c *cut) appendKept(dst []lockstep.Busy) []lockstep.Busy {
	if c.keep == nil {
		return dst
	}
	return appendBusy(appendBusy(dst, c.job.gang, c.keep), c.job.gang, c.spares)
}

// displace looks for room for j in what soft holders have, takes no more from
// them than it must, and leaves the room in the scratch plan; settleCuts is to
// follow once j has it. Where that does not help nothing changes. Who
// loses: the holders that deserve least, as few of them as will do, and of those
// none without need: j would not fit if any one of them kept all.
func (a *Admission) displace(j *job, quota *lockstep.Request) (bool, error) {
	if a.p.soft == 0 || j.shape.hopeless == a.pass || a.cfg.Backfill == Strict && len(a.res) > 0 {
		return false, nil
	}
	var soft []*job
	for _, h := range a.due {
		if h.soft && h != j {
			soft = append(soft, h)
		}
	}
	if len(soft) == 0 {
		return false, nil
	}
	slices.SortFunc(soft, a.standing())
	slices.Reverse(soft)
	a.p.aim = nil
	mark := a.what.Mark()
	cuts, err := a.chooseCuts(j, quota, soft)
	err = a.rollback(mark, err)
	if err != nil || len(cuts) == 0 {
		return false, err
	}
	for _, c := range cuts {
		c.job.waitFor = j.id
		if err := a.setAside(c.job); err != nil {
			return false, err
		}
	}
	a.p.cuts = cuts
	// The what-if has shown that this fits. Should the placer see it otherwise,
	// those set aside get their places back at their own turns.
	return a.fitDisplacing(j, quota, cuts)
}

// standing is the order of due holders, most deserving first.
func (a *Admission) standing() func(x, y *job) int {
	r, ok := a.cfg.Orderer.(Ranker)
	if !ok {
		return byStanding
	}
	return func(x, y *job) int {
		switch {
		case r.Ahead(x.id, y.id):
			return -1
		case r.Ahead(y.id, x.id):
			return 1
		}
		return byStanding(x, y)
	}
}

// chooseCuts finds who of soft, least deserving first, must give up what for j.
// Nobody is stopped where it is enough that some shrink.
func (a *Admission) chooseCuts(j *job, quota *lockstep.Request, soft []*job) ([]cut, error) {
	kept, err := a.shrinkSome(j, quota, soft)
	if kept == nil && err == nil {
		kept, err = a.stopSome(j, quota, soft)
	}
	if err != nil {
		return nil, err
	}
	var cuts []cut
	for i := range kept { // most deserving first
		if err := a.raise(j, quota, kept, i); err != nil {
			return nil, err
		}
		if len(kept[i].keep) < len(kept[i].job.plan.Members) {
			cuts = append(cuts, kept[i])
		}
	}
	return cuts, nil
}

// shrinkSome lets all of soft keep what they must, or all if they cannot shrink,
// and returns that if j then fits; else nil and the state as before.
func (a *Admission) shrinkSome(j *job, quota *lockstep.Request, soft []*job) ([]cut, error) {
	if !slices.ContainsFunc(soft, func(h *job) bool { return h.gang.Capabilities.Resizable }) {
		return nil, nil
	}
	mark := a.what.Mark()
	var kept []cut
	for _, h := range slices.Backward(soft) {
		if err := a.release(h); err != nil {
			return nil, err
		}
		keep := h.plan.Members
		if h.gang.Capabilities.Resizable {
			keep = h.lowest(h.gang.MinMembers())
		}
		kept = append(kept, cut{job: h, keep: keep, spares: h.plan.Spares})
	}
	ok, err := a.fitDisplacing(j, quota, kept)
	if ok && err == nil {
		return a.spare(j, quota, kept)
	}
	err = a.rollback(mark, err)
	return nil, err
}

// spare lets all keep everything whom the room found for j does not touch, if
// that is right all at once.
func (a *Admission) spare(j *job, quota *lockstep.Request, kept []cut) ([]cut, error) {
	spared := slices.Clone(kept)
	for i := range spared {
		if h := spared[i].job; !overlaps(room(&a.scratch.plan), room(h.plan)) {
			spared[i].keep = h.plan.Members
		}
	}
	ok, err := a.fitDisplacing(j, quota, spared)
	if err != nil {
		return nil, err
	}
	if !ok { // a constraint needs a member gone that sits elsewhere
		return kept, nil
	}
	return spared, nil
}

// stopSome stops the fewest of soft, from the least deserving on, for which j
// fits, and then lets each of those keep what it still can; nil where it does
// not help that all of them stop.
func (a *Admission) stopSome(j *job, quota *lockstep.Request, soft []*job) ([]cut, error) {
	release := func(i int) error { return a.release(soft[i]) }
	n, err := a.fewest(0, len(soft), release, func(int) (bool, error) { return a.fitDisplacing(j, quota, nil) })
	if err != nil {
		return nil, err
	}
	if n == 0 {
		if !j.shape.affinity && len(a.windows) == 0 && len(j.refused) == 0 {
			j.shape.hopeless = a.pass // the soft only get fewer in a pass
		}
		return nil, nil
	}
	var kept []cut
	for _, h := range slices.Backward(soft[:n]) {
		kept = append(kept, cut{job: h, spares: h.plan.Spares})
	}
	if kept, err = a.spare(j, quota, kept); err != nil {
		return nil, err
	}
	for i := range kept {
		if kept[i].keep == nil {
			if err := a.floor(j, quota, kept, i); err != nil {
				return nil, err
			}
		}
	}
	return kept, nil
}

// floor lets the holder kept[i] keep all, or, if it bears that, its lowest
// ranks, or what j leaves it, where j then still fits.
func (a *Admission) floor(j *job, quota *lockstep.Request, kept []cut, i int) error {
	h := kept[i].job
	tries := []func() []lockstep.Member{func() []lockstep.Member { return h.plan.Members }}
	if h.gang.Capabilities.Resizable {
		tries = append(tries,
			func() []lockstep.Member { return h.lowest(h.gang.MinMembers()) },
			func() []lockstep.Member { return h.without(room(&a.scratch.plan)) })
	}
	for n, try := range tries {
		if n == 2 { // only now the scratch plan shows what j takes without h
			kept[i].keep = nil
			if ok, err := a.fitDisplacing(j, quota, kept); !ok || err != nil {
				return err
			}
		}
		if kept[i].keep = try(); kept[i].keep == nil {
			break
		}
		if ok, err := a.fitDisplacing(j, quota, kept); ok || err != nil {
			return err
		}
	}
	kept[i].keep = nil
	return nil
}

// raise lets the holder kept[i], if it keeps anything, keep the most for which j
// still fits.
func (a *Admission) raise(j *job, quota *lockstep.Request, kept []cut, i int) error {
	h := kept[i].job
	all := h.plan.Members
	least := kept[i].keep
	if least == nil || len(least) == len(all) {
		return nil
	}
	fits := func(keep []lockstep.Member) (bool, error) {
		kept[i].keep = keep
		return a.fitDisplacing(j, quota, kept)
	}
	if ok, err := fits(all); ok || err != nil {
		return err
	}
	lo, hi := len(least), len(all) // lo fits, hi is too many
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		keep := h.lowest(mid)
		ok, err := fits(keep)
		if err != nil {
			return err
		}
		if ok && len(keep) >= len(least) {
			least, lo = keep, mid
		} else {
			hi = mid
		}
	}
	kept[i].keep = least
	return nil
}

// lowest returns n members of h, in rank order: the least of each role, then the
// lowest ranks, in whole groups.
func (h *job) lowest(n int) []lockstep.Member {
	have := make([]int, len(h.minima))
	spare := n - h.gang.MinMembers()
	out := make([]lockstep.Member, 0, n)
	for _, m := range h.plan.Members {
		r := m.Role
		size := max(h.gang.Roles[r].Inner.Size, 1)
		switch {
		case have[r] < h.minima[r]:
		case have[r]%size != 0: // the rest of a group that was begun
			spare--
		case spare >= size:
			spare--
		default:
			continue
		}
		have[r]++
		out = append(out, m)
	}
	return out
}

// without returns the members of h that sit apart from others, in whole groups,
// or nil if they are fewer than it needs.
func (h *job) without(others []lockstep.Member) []lockstep.Member {
	taken := make(map[lockstep.NodeID]lockstep.DeviceSet, len(others))
	for i := range others {
		taken[others[i].Node] |= others[i].Devices
	}
	var out []lockstep.Member
	have := make([]int, len(h.minima))
	members := h.plan.Members
	for i := 0; i < len(members); {
		r := members[i].Role
		size := min(max(h.gang.Roles[r].Inner.Size, 1), len(members)-i)
		free := true
		for _, m := range members[i : i+size] {
			devices, on := taken[m.Node]
			free = free && (!on || m.Devices != 0 && devices&m.Devices == 0)
		}
		if free {
			out = append(out, members[i:i+size]...)
			have[r] += size
		}
		i += size
	}
	for r := range have {
		if have[r] < h.minima[r] {
			return nil
		}
	}
	return out
}

// settleCuts gives the holders that were cut down what they keep, now that who
// they made room for has it. They remain soft.
func (a *Admission) settleCuts() error {
	cuts := a.p.cuts
	a.p.cuts = nil
	for i, c := range cuts {
		if c.keep == nil {
			continue
		}
		counts := a.countsOf(c.keep, c.job)
		prefer := lockstep.Plan{Job: c.job.id, Gang: c.job.gang, Members: c.keep, Spares: c.spares}
		r := &a.scratch.request
		*r = lockstep.Request{Gang: c.job.gang, Min: counts, Max: counts, Prefer: &prefer}
		a.scratch.busy = a.scratch.busy[:0]
		for _, o := range cuts[i+1:] {
			a.scratch.busy = o.appendKept(a.scratch.busy)
		}
		r.Busy = a.scratch.busy
		ok, err := a.keep(&c, r)
		if err != nil {
			return err
		}
		if !ok {
			continue // it is placed at its own turn
		}
		c.job.plan = own(&a.scratch.plan, c.job)
		a.grants++
		if c.job.moved = false; !c.job.victim {
			a.soften(c.job, true)
		}
		a.setEnd(c.job, later(c.job.start, c.job.wall()))
	}
	return nil
}

// keep gives the job of c what it keeps, as r asks for it, and leaves that in the
// scratch plan. False where the placer does not do so, and then nothing has changed.
func (a *Admission) keep(c *cut, r *lockstep.Request) (bool, error) {
	v, err := a.fit(r, &a.scratch.plan)
	if err != nil {
		return false, err
	}
	if v.Feasible && slices.Equal(a.scratch.plan.Members, c.keep) {
		if err := a.cfg.Placer.Apply(&a.scratch.plan); err != nil {
			return false, fmt.Errorf("gang: apply %s: %w", c.job.id, err)
		}
		return true, nil
	}
	k, ok := a.cfg.Placer.(Keeper)
	return ok && k.Adopt(r.Prefer) == nil && k.Plan(c.job.id, &a.scratch.plan), nil
}

// fitDisplacing fits j clear of what kept holders keep and of all reservations.
func (a *Admission) fitDisplacing(j *job, quota *lockstep.Request, kept []cut) (bool, error) {
	busy := a.appendReserved(a.scratch.busy[:0], a.now, forever, false)
	for _, c := range kept {
		busy = c.appendKept(busy)
	}
	a.scratch.busy = busy
	r := a.request(j, a.now, a.latestEnd(j))
	r.Min, r.Max, r.Busy = quota.Min, quota.Max, busy
	if j.moved {
		r.Prefer = &lockstep.Plan{Job: j.id, Gang: j.gang, Members: j.was}
	} else if a.p.aim != nil {
		r.Prefer = a.p.aim
	}
	v, err := a.fit(r, &a.scratch.plan)
	return v.Feasible, err
}

// rollback ends what was tried since mark, which came to err. Its own failure
// counts for more.
func (a *Admission) rollback(mark lockstep.Mark, err error) error {
	if undo := a.what.Rollback(mark); undo != nil {
		return fmt.Errorf("gang: rollback: %w", undo)
	}
	return err
}

func (a *Admission) release(j *job) error {
	if err := a.cfg.Placer.Release(j.id); err != nil {
		return fmt.Errorf("gang: release %s: %w", j.id, err)
	}
	return nil
}
