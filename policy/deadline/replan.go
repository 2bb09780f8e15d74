package deadline

import "slices"

// fill plans jobs by progressive filling, earliest deadline first, into what free leaves, and takes the plans out of it.
// Jobs that could not end in time with all devices either come last, with what the others leave: they must not keep
// newcomers out.
func (e *Elastic) fill(list []*elastic, free *profile) (plans [][]stretch, late, ok bool) {
	ns := free.at[0]
	plans = make([][]stretch, len(list))
	var last []int
	for i, j := range list {
		if j.left.Sign() <= 0 {
			continue // has ended by its plan, and waits for Finish or Ran
		}
		if e.hopeless(j, ns) {
			last = append(last, i)
			continue
		}
		if plans[i] = e.least(j, free); plans[i] == nil {
			return nil, false, false
		}
		free.reserve(plans[i])
	}
	for _, i := range last {
		plans[i] = e.most(list[i], free)
		free.reserve(plans[i])
	}
	return plans, len(last) > 0, true
}

// hopeless reports whether a job misses its deadline even alone.
func (e *Elastic) hopeless(j *elastic, ns int64) bool {
	on, ok := within(j.points, e.gpus)
	return !ok || takes(j.left, on.Rate) > j.deadline-ns
}

// most plans a job on as many devices as it can use, for as long as it takes.
func (e *Elastic) most(j *elastic, free *profile) []stretch {
	return free.fit(e.speeds.of(j.points), j.points[len(j.points)-1].GPUs, j.left, never)
}

// least plans a job on the fewest devices with which it ends in time; nil if it does not. More devices never end it later,
// so that the fewest are searched for by halves; those that would not do alone are not tried.
func (e *Elastic) least(j *elastic, free *profile) []stretch {
	points := j.points
	for len(points) > 0 && points[len(points)-1].GPUs > e.gpus {
		points = points[:len(points)-1]
	}
	have := j.deadline - free.at[0]
	for len(points) > 0 && takes(j.left, points[0].Rate) > have {
		points = points[1:]
	}
	if len(points) == 0 {
		return nil
	}
	speeds := e.speeds.of(j.points)
	ends := func(i int) bool { return free.ends(speeds, points[i].GPUs, j.left, j.deadline) }
	first, last := 0, len(points)-1
	if !ends(first) {
		if first == last || !ends(last) {
			return nil
		}
		for last-first > 1 { // first does not do, last does
			if mid := (first + last) / 2; ends(mid) {
				last = mid
			} else {
				first = mid
			}
		}
		first = last
	}
	return free.fit(speeds, points[first].GPUs, j.left, j.deadline)
}

// admit finds room for n among e.jobs, whose plans it may make anew, and reports whether there is any.
func (e *Elastic) admit(n *elastic, fewest int) bool {
	at, _ := slices.BinarySearchFunc(e.jobs, n, byDeadline)
	own := e.least(n, &e.free)
	if widest(own) == fewest { // nobody has to move, and nothing would be gained by it
		e.join(at, n, own)
		return true
	}
	// Only those with later deadlines move.
	if at < len(e.jobs)/2 {
		e.spare.empty(e.now, e.gpus)
		for _, j := range e.jobs[:at] {
			e.spare.reserve(j.plan)
		}
	} else {
		e.spare.copyFrom(&e.free)
		for _, j := range e.jobs[at:] {
			e.spare.release(j.plan)
		}
	}
	list := append([]*elastic{n}, e.jobs[at:]...)
	if plans, _, ok := e.fill(list, &e.spare); ok {
		e.jobs = slices.Insert(e.jobs, at, n)
		e.adopt(e.jobs[at:], plans)
		return true
	}
	// Everyone moves. It comes to the same if all plans are those that fill makes.
	if !e.filled {
		list = slices.Insert(slices.Clone(e.jobs), at, n)
		e.spare.empty(e.now, e.gpus)
		if plans, late, ok := e.fill(list, &e.spare); ok {
			e.jobs, e.filled = list, !late
			e.adopt(list, plans)
			return true
		}
	}
	// Progressive filling may fail where the plans that there are still hold.
	if own != nil {
		e.join(at, n, own)
		return true
	}
	return false
}

// widest returns the most devices that a plan has at once.
func widest(plan []stretch) int {
	most := 0
	for _, s := range plan {
		most = max(most, s.gpus)
	}
	return most
}

// join adds n as job number at, with a plan that the others leave room for.
func (e *Elastic) join(at int, n *elastic, plan []stretch) {
	n.plan = plan
	e.free.reserve(plan)
	e.filled = at == len(e.jobs) && (at == 0 || e.filled) // as the last it would be planned last
	e.jobs = slices.Insert(e.jobs, at, n)
}

// adopt gives jobs their new plans, after which e.spare is what is free.
func (e *Elastic) adopt(list []*elastic, plans [][]stretch) {
	e.free, e.spare = e.spare, e.free
	for i, j := range list {
		j.plan = plans[i]
	}
}

// changed says that the plans are to be made anew before they are used.
func (e *Elastic) changed() { e.stale, e.filled = true, false }

// settle makes all plans anew if something has changed since they were made. If that does not work out the old plans are
// kept, as long as they hold; a job whose plan does not gets the most that the others leave.
func (e *Elastic) settle() {
	if !e.stale {
		return
	}
	e.stale = false
	e.spare.empty(e.now, e.gpus)
	plans, late, ok := e.fill(e.jobs, &e.spare)
	if e.filled = ok && !late; ok {
		e.adopt(e.jobs, plans)
		return
	}
	free := &e.free
	free.empty(e.now, e.gpus)
	var last []*elastic
	for _, j := range e.jobs {
		if j.left.Sign() <= 0 {
			j.plan = nil
			continue
		}
		if plan := trim(j.plan, j.left); plan != nil && free.has(plan) {
			j.plan = plan
			free.reserve(plan)
			continue
		}
		last = append(last, j)
	}
	for _, j := range last {
		if j.plan = e.least(j, free); j.plan == nil {
			j.plan = e.most(j, free)
		}
		free.reserve(j.plan)
	}
}
