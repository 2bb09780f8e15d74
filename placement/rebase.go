package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Displaced is a member whose node, or devices, left the tree.
type Displaced struct {
	Job  lockstep.JobID  `json:"job"`  // Job is whose member it is.
	Rank int             `json:"rank"` // Rank is its number in the job's plan.
	Node lockstep.NodeID `json:"node"` // Node is where it sat.
}

// Rebase goes over to another tree, as nodes join, leave and move. Allocations
// stay with their node's ID. A member whose node leaves, or loses the devices
// that it holds, is displaced: its job goes on holding the rest, and it takes
// its devices again as soon as a later tree has them. Rebase returns the
// members that it displaced, by job and rank.
//
// What a node offers is taken from nodes; one that nodes do not name offers
// what it did, or Node{ID: id} where it is new. Cordons, health and penalties
// stay with nodes that stay, and end with those that leave. All marks go stale.
//
// It returns ErrInvalid for a nil tree, and every fault of nodes, joined, as New
// does. O(changed) where tree.Changes of the present tree knows them, else
// O(slots + members).
func (s *State) Rebase(tree *topology.Tree, nodes []Node) ([]Displaced, error) {
	if s.tree == nil {
		return nil, zeroState("rebase")
	}
	if err := checkTree("rebase", tree); err != nil {
		return nil, err
	}
	named, err := checkNodes("rebase", tree, nodes, s.cfg.Layouts)
	if err != nil {
		return nil, err
	}
	s.forget()
	offer := func(id lockstep.NodeID) (Node, bool) {
		i, ok := named[id]
		if !ok {
			return Node{ID: id}, false
		}
		return nodes[i], true
	}
	var out []Displaced
	if slots, ok := tree.Changes(s.tree); ok {
		for i := range nodes { // also where the tree is as it was
			x, _ := tree.Slot(nodes[i].ID)
			slots = append(slots, x)
		}
		slices.Sort(slots)
		out = s.move(tree, slices.Compact(slots), offer)
	} else {
		out = s.relay(tree, offer)
	}
	s.epoch++
	s.advance()
	slices.SortFunc(out, func(a, b Displaced) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank))
	})
	return out, nil
}

// offering says what a node is given; ok is false where it is not named.
type offering func(lockstep.NodeID) (n Node, ok bool)

// past is what a slot had before a rebase.
type past struct {
	spec  spec
	flags uint8
}

// move changes some slots within one layout.
func (s *State) move(tree *topology.Tree, slots []int32, offer offering) []Displaced {
	was := make(map[lockstep.NodeID]past, len(slots))
	var fresh []ref
	for _, x := range slots {
		if id := s.ids[x]; id != "" {
			was[id] = past{s.specs[x], s.slots[x].flags}
			fresh = append(fresh, s.detach(x)...)
		}
	}
	s.tree = tree
	s.work.hint = s.work.hint[:0]
	for _, x := range slots {
		s.join(x, was, offer)
	}
	for _, x := range slots {
		for _, c := range s.classes {
			s.refreshClass(c, x)
		}
		s.push(x)
	}
	return s.settled(fresh)
}

// relay goes over to a tree of another layout.
func (s *State) relay(tree *topology.Tree, offer offering) []Displaced {
	was := make(map[lockstep.NodeID]past, s.tree.Nodes())
	var fresh []ref
	for x, id := range s.ids {
		if id != "" {
			was[id] = past{s.specs[x], s.slots[x].flags}
			fresh = append(fresh, s.detach(int32(x))...)
		}
	}
	s.lay(tree)
	s.work.hint = s.work.hint[:0]
	for x := range s.slots {
		s.join(int32(x), was, offer)
	}
	return s.settled(fresh)
}

// settled ends a rebase for the seats that it detached, and lists those that are away.
func (s *State) settled(fresh []ref) []Displaced {
	for _, r := range fresh {
		s.jobs[r.rec].seats[r.idx].fresh = false
	}
	return s.displaced(fresh)
}

// detach empties a slot and hands its seats to the departed.
func (s *State) detach(x int32) []ref {
	c := &s.slots[x]
	var out []ref
	if c.head.rec >= 0 {
		g := s.departed(s.ids[x])
		for c.head.rec >= 0 {
			r := c.head
			j := &s.jobs[r.rec]
			t := &j.seats[r.idx]
			c.head = t.next
			for _, term := range s.terms {
				if matches(term.match, j.gang.Labels) {
					s.countSeat(term, x, -1)
				}
			}
			t.slot, t.fresh = ^g, true
			t.next, s.gone[g].head = s.gone[g].head, r
			j.lost++
			out = append(out, r)
		}
	}
	s.ranks[c.class]--
	s.dropBlock(c)
	*c = slot{flags: vacant, head: nowhere()}
	s.ids[x], s.specs[x] = "", spec{}
	return out
}

// departed returns the entry for a node that is away.
func (s *State) departed(id lockstep.NodeID) int32 {
	g, ok := s.away[id]
	if ok {
		return g
	}
	if n := len(s.unused); n > 0 {
		g, s.unused = s.unused[n-1], s.unused[:n-1]
	} else {
		g = int32(len(s.gone))
		s.gone = append(s.gone, departed{})
	}
	s.gone[g] = departed{id: id, head: nowhere()}
	s.away[id] = g
	return g
}

// settleGone forgets a departed node without members, unless a mark is open:
// then a job may come back to it.
func (s *State) settleGone(g int32) {
	if d := &s.gone[g]; d.id != "" && d.head.rec < 0 && len(s.journal.marks) == 0 && !s.work.frozen {
		delete(s.away, d.id)
		d.id = ""
		s.unused = append(s.unused, g)
	}
}

// join settles the node that the tree has in a slot, if it has one, with the
// members that held devices on it.
func (s *State) join(x int32, was map[lockstep.NodeID]past, offer offering) {
	id, ok := s.tree.NodeAt(x)
	if !ok {
		return
	}
	n, named := offer(id)
	p, stayed := was[id]
	if stayed && !named {
		n = p.spec.node
	}
	s.settle(x, n)
	if stayed {
		s.slots[x].flags = p.flags
		if p.spec.penalty > 0 {
			s.penalize(x, p.spec.penalty)
		}
	}
	if g, ok := s.away[id]; ok {
		s.reclaim(g, x)
	}
}

// reclaim seats the departed members of a node in the slot where it is now, those
// that its devices can have: first those that sat on it until now, then the others,
// by job and rank, where there is room for them.
func (s *State) reclaim(g, x int32) {
	var list []ref
	for r := s.gone[g].head; r.rec >= 0; r = s.jobs[r.rec].seats[r.idx].next {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b ref) int {
		j, k := &s.jobs[a.rec], &s.jobs[b.rec]
		fresh := boolCount(k.seats[b.idx].fresh) - boolCount(j.seats[a.idx].fresh)
		return cmp.Or(int(fresh), cmp.Compare(j.id, k.id), int(a.idx-b.idx))
	})
	s.gone[g].head = nowhere()
	for _, r := range list {
		j := &s.jobs[r.rec]
		t := &j.seats[r.idx]
		d, c := &j.gang.Roles[t.role].Demand, &s.slots[x]
		j.lost--
		if !s.bears(c, t, d) || !t.fresh && !s.accepts(x, c, t, d) {
			s.occupy(r.rec, r.idx) // still away
			continue
		}
		t.slot = x
		s.occupy(r.rec, r.idx)
		for _, term := range s.terms {
			if matches(term.match, j.gang.Labels) {
				s.countSeat(term, x, 1)
			}
		}
	}
	s.settleGone(g)
}

// displaced lists those of the seats that are still away.
func (s *State) displaced(list []ref) (out []Displaced) {
	for _, r := range list {
		j := &s.jobs[r.rec]
		if t := &j.seats[r.idx]; t.slot < 0 && r.idx < j.ranks {
			out = append(out, Displaced{Job: j.id, Rank: int(r.idx), Node: s.gone[^t.slot].id})
		}
	}
	return out
}

// Lost returns the members whose node or devices are away, by job and rank.
func (s *State) Lost() []Displaced {
	var list []ref
	for i := range s.gone {
		for r := s.gone[i].head; r.rec >= 0; r = s.jobs[r.rec].seats[r.idx].next {
			list = append(list, r)
		}
	}
	out := s.displaced(list)
	slices.SortFunc(out, func(a, b Displaced) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank))
	})
	return out
}
