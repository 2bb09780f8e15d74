package quota

import "github.com/lockstep-gpu/lockstep"

// CheckAfter reports whether g may use counts members in place of what evictions
// name. It is Check once that was given back, and one rule more: nobody is evicted so that
// somebody may borrow. No queue of g, from its own up, may come to hold more by the swap than
// it is entitled to, unless it held as much before. Jobs that are not charged are
// passed over; without evictions it is Check. It changes nothing.
func (q *Quota) CheckAfter(g *lockstep.Gang, counts []int, evictions []lockstep.Eviction) lockstep.Verdict {
	leaf := q.leaf(g)
	if leaf == nil || !fits(g, counts) {
		return q.Check(g, counts)
	}
	w := newWay(q, leaf)
	var before [MaxDepth]lockstep.Vector
	for i, n := range w.nodes[:w.length] {
		before[i] = n.load
	}
	gone := q.giveBack(evictions)
	v := q.Check(g, counts)
	if v.Feasible && len(gone) > 0 {
		v = q.swap(g, counts, &w, &before, v)
	}
	for i := range gone {
		q.charge(gone[i].queue, &gone[i].amount, 1)
	}
	return v
}

// refund is what was given back for the time of a call.
type refund struct {
	queue  *node
	amount lockstep.Vector
}

// giveBack takes what evictions name off what queues use, but not off what they
// demand, since who is evicted waits.
func (q *Quota) giveBack(evictions []lockstep.Eviction) []refund {
	gone := make([]refund, 0, len(evictions))
	seen := make(map[lockstep.JobID]bool, len(evictions))
	for i := range evictions {
		e := &evictions[i]
		j := q.jobs[e.Job]
		if j == nil || j.parts == nil || seen[e.Job] {
			continue
		}
		seen[e.Job] = true
		b := refund{j.queue, j.charged()}
		if len(e.Ranks) != 0 {
			b.amount = j.of(e.Ranks)
		}
		q.charge(b.queue, &b.amount, -1)
		gone = append(gone, b)
	}
	return gone
}

// swap returns v, which is feasible, unless a node of w would come to hold more than
// it is entitled to and more than before.
func (q *Quota) swap(g *lockstep.Gang, counts []int, w *way, before *[MaxDepth]lockstep.Vector, v lockstep.Verdict) lockstep.Verdict {
	need, _ := q.total(g, counts)
	var asked resources
	for r := range q.schema.Len() {
		if need[r] > 0 {
			asked.add(r)
		}
	}
	boosted := q.boost(w, asked)
	defer q.calm(w.nodes[0], boosted)
	for i, n := range w.nodes[:w.length] {
		after := q.grown(w, i, &need)
		for r := range q.schema.Len() {
			if most := max(before[i][r], n.deserves(r, true)); asked.has(r) && after[r] > most {
				return lockstep.Verdict{
					Reason: lockstep.ReasonQuota, Want: v.Want, Resource: q.schema.Name(r), Level: LevelQueue, Domain: string(n.spec.Name),
					Requested: need[r], Available: max(need[r]-(after[r]-most), 0),
				}
			}
		}
	}
	return v
}
