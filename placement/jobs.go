package placement

import (
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// job is what one gang holds. Records are used again once freed.
type job struct {
	id     lockstep.JobID
	gang   *lockstep.Gang
	seats  []seat // members in rank order, then spares
	ranks  int32  // how many are members
	port   int
	lost   int32  // seats whose node left
	digest digest // for Victims
}

// seat is one member. Invariant: a seat with slot >= 0 is in the list of that
// slot; else it is in the list of gone[^slot].
type seat struct {
	slot    int32
	role    int16
	start   int8 // of its MIG instance
	fresh   bool // was detached by the Rebase at hand
	devices lockstep.DeviceSet
	next    ref // of the same node
}

// departed is a node that left while members sat on it.
type departed struct {
	id   lockstep.NodeID
	head ref
}

// newJob returns a record with n seats, all of them zero and members'.
func (s *State) newJob(n int) int32 {
	size := bits.Len(uint(n - 1))
	if list := s.spare[size]; len(list) > 0 {
		rec := list[len(list)-1]
		s.spare[size] = list[:len(list)-1]
		j := &s.jobs[rec]
		j.seats, j.ranks = j.seats[:n], int32(n)
		return rec
	}
	s.jobs = append(s.jobs, job{seats: make([]seat, n, 1<<size), ranks: int32(n)})
	return int32(len(s.jobs) - 1)
}

func (s *State) freeJob(rec int32) {
	j := &s.jobs[rec]
	seats := j.seats
	*j = job{seats: seats[:0]}
	size := bits.Len(uint(cap(seats) - 1))
	s.spare[size] = append(s.spare[size], rec)
}

// occupy takes the room of seat i of a job on its node.
func (s *State) occupy(rec, i int32) {
	j := &s.jobs[rec]
	t := &j.seats[i]
	if t.slot < 0 {
		g := &s.gone[^t.slot]
		t.next, g.head = g.head, ref{rec, i}
		j.lost++
		return
	}
	c, d := &s.slots[t.slot], &j.gang.Roles[t.role].Demand
	if simple(d) { // take, without the call
		c.free &^= t.devices
		c.spend(d)
	} else {
		s.take(c, t, d)
	}
	t.next = c.head
	c.head = ref{rec, i}
	s.push(t.slot)
}

// vacate gives the room of seat i of a job back.
func (s *State) vacate(rec, i int32) {
	j := &s.jobs[rec]
	t := &j.seats[i]
	if t.slot < 0 {
		s.unlink(&s.gone[^t.slot].head, ref{rec, i})
		j.lost--
		s.settleGone(^t.slot)
		return
	}
	c, d := &s.slots[t.slot], &j.gang.Roles[t.role].Demand
	if simple(d) { // give, without the call
		c.free |= t.devices
		c.earn(d)
	} else {
		s.give(c, t, d)
	}
	s.unlink(&c.head, ref{rec, i})
	s.push(t.slot)
}

func (s *State) unlink(head *ref, r ref) {
	for *head != r {
		head = &s.jobs[head.rec].seats[head.idx].next
	}
	*head = s.jobs[r.rec].seats[r.idx].next
}

// unseat takes a job out of the cluster and keeps its record.
func (s *State) unseat(rec int32) {
	j := &s.jobs[rec]
	for i := range j.seats {
		s.vacate(rec, int32(i))
	}
	s.countTerms(j, -1)
	delete(s.byID, j.id)
}

// reseat undoes unseat.
func (s *State) reseat(rec int32) {
	j := &s.jobs[rec]
	for i := range j.seats {
		s.occupy(rec, int32(i))
	}
	s.countTerms(j, 1)
	s.byID[j.id] = rec
}

// Jobs returns the jobs that hold room, sorted. O(jobs·log jobs).
func (s *State) Jobs() []lockstep.JobID {
	out := make([]lockstep.JobID, 0, len(s.byID))
	for id := range s.byID { // the order does not matter: sorted below
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// Plan writes what a job holds into out, whose memory is used again, with the
// present version; ok is false, and out unchanged, where it holds nothing.
// Members whose node left are among them, under that node's ID.
func (s *State) Plan(id lockstep.JobID, out *lockstep.Plan) (ok bool) {
	rec, ok := s.byID[id]
	if !ok || out == nil {
		return false
	}
	j := &s.jobs[rec]
	out.Reset()
	out.Job, out.Gang, out.Version, out.Port, out.Inventory = j.id, j.gang, s.version, j.port, s.tree
	for i := range j.seats {
		if m := s.memberOf(&j.seats[i]); i < int(j.ranks) {
			out.Members = append(out.Members, m)
		} else {
			out.Spares = append(out.Spares, m)
		}
	}
	out.Level = s.levelOf(j.seats[:j.ranks])
	return true
}

func (s *State) nodeOf(t *seat) lockstep.NodeID {
	if t.slot < 0 {
		return s.gone[^t.slot].id
	}
	return s.ids[t.slot]
}

// levelOf returns the finest level of which one domain holds all seats, and
// none where a node left.
func (s *State) levelOf(seats []seat) lockstep.Level {
	lo, hi := seats[0].slot, seats[0].slot
	for i := range seats {
		lo, hi = min(lo, seats[i].slot), max(hi, seats[i].slot)
	}
	if lo < 0 {
		return ""
	}
	return s.tree.LevelAt(s.tree.LCA(lo, hi)).Name
}
