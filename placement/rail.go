package placement

import (
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

// RailCost returns how many devices of a plan find no partner on their own rail: for
// each role and each two nodes that follow one another in its ranks, in one unit of the
// tree's rail level, the devices of the one with more that have none on the other. 0 is
// best: whatever a ring over those nodes sends takes one hop. Devices whose rail is not
// known have no partner. Nodes that are not in the tree do not count, and where the tree
// has no rails it is 0. O(members·devices).
func (s *State) RailCost(p *lockstep.Plan) (cost int) {
	if s.tree == nil || p == nil {
		return 0
	}
	level, ok := s.tree.RailLevel()
	if !ok {
		return 0
	}
	var last, here railSet
	for i := range p.Members {
		m := &p.Members[i]
		x, known := s.tree.Slot(m.Node)
		if i > 0 && p.Members[i-1].Role != m.Role {
			cost += last.missing(&here, s.tree, level)
			last, here = railSet{}, railSet{}
		}
		if !known {
			continue
		}
		if here.n == 0 || here.x != x {
			cost += last.missing(&here, s.tree, level)
			last, here = here, railSet{x: x}
		}
		here.add(s.tree.Shape(x), m.Devices)
	}
	return cost + last.missing(&here, s.tree, level)
}

// railSet is the rails of some devices of one node, as often as they have devices.
type railSet struct {
	x     int32
	n     int
	rails [lockstep.MaxDevicesPerNode]int32
}

func (r *railSet) add(shape *topology.Shape, set lockstep.DeviceSet) {
	for d := range set.All {
		if r.n < len(r.rails) {
			r.rails[r.n] = int32(shape.Rail(d))
			r.n++
		}
	}
}

// missing returns how many rails of the greater of two sets the other lacks; none
// where they are of different units.
func (r *railSet) missing(o *railSet, tree *topology.Tree, level int) int {
	if r.n == 0 || o.n == 0 || tree.DomainOf(level, r.x) != tree.DomainOf(level, o.x) {
		return 0
	}
	paired := 0
	var used [lockstep.MaxDevicesPerNode]bool
	for _, rail := range r.rails[:r.n] {
		for k, other := range o.rails[:o.n] {
			if rail >= 0 && rail == other && !used[k] {
				used[k] = true
				paired++
				break
			}
		}
	}
	return max(r.n, o.n) - paired
}

// rails is the memory of alignRails.
type rails struct {
	taken []lockstep.DeviceSet // by slot: devices of picks
	age   []uint32             // by slot: the call that wrote taken
	now   uint32
	runs  []nodeRun
	tries []railSet
}

// nodeRun is the picks of one role on one node.
type nodeRun struct {
	part
	x    int32
	all  lockstep.DeviceSet // their devices
	free lockstep.DeviceSet // those they may choose among
}

// maxPatterns is how many sets of rails are tried in a unit.
const maxPatterns = 8

// alignRails exchanges the devices of the picks, where another choice on a node is as
// close and leaves as close a rest, such that RailCost is the least, in each unit, that
// the rails of some node of a role give for all of them that can have them. Members
// with a part of their devices keep theirs.
func (s *State) alignRails(q *query) {
	level, ok := s.tree.RailLevel()
	if !ok {
		return
	}
	w := &s.work
	r := &w.rails
	for len(r.age) < len(s.slots) {
		r.age, r.taken = append(r.age, 0), append(r.taken, 0)
	}
	if r.now++; r.now == 0 {
		clear(r.age)
		r.now = 1
	}
	for _, t := range w.picks {
		if r.age[t.slot] != r.now {
			r.age[t.slot], r.taken[t.slot] = r.now, 0
		}
		r.taken[t.slot] |= t.devices
	}
	for role, p := range w.parts {
		d := &q.gang.Roles[role].Demand
		if p.from == p.to || d.GPUs == 0 || modeOf(d) != takesWhole {
			continue
		}
		r.runs = r.runs[:0]
		unit := int32(-1)
		for i := p.from; i < p.to; {
			o := s.runFrom(i, p.to)
			if u := s.tree.DomainOf(level, o.x); u != unit {
				s.alignUnit(d.GPUs, level)
				r.runs, unit = r.runs[:0], u
			}
			r.runs = append(r.runs, o)
			i = o.to
		}
		s.alignUnit(d.GPUs, level)
	}
}

// runFrom returns the picks from i on that are on one node.
func (s *State) runFrom(i, end int32) nodeRun {
	w := &s.work
	o := nodeRun{part: part{i, i}, x: w.picks[i].slot}
	for ; o.to < end && w.picks[o.to].slot == o.x; o.to++ {
		o.all |= w.picks[o.to].devices
	}
	o.free = s.wholes(o.x, &s.slots[o.x]) &^ (w.rails.taken[o.x] &^ o.all)
	return o
}

// alignUnit aligns the runs at hand, which are in one unit of a level.
func (s *State) alignUnit(gpus, level int) {
	r := &s.work.rails
	choice := false
	r.tries = r.tries[:0]
	for i := range r.runs {
		choice = choice || r.runs[i].free != r.runs[i].all
	}
	if len(r.runs) < 2 || !choice {
		return
	}
	for i := range r.runs {
		var p railSet
		p.add(s.tree.Shape(r.runs[i].x), r.runs[i].all)
		if s.newPattern(&p) && len(r.tries) < maxPatterns {
			r.tries = append(r.tries, p)
		}
	}
	best, least := -1, s.unitCost(nil, gpus, level)
	for k := range r.tries {
		if cost := s.unitCost(&r.tries[k], gpus, level); cost < least {
			best, least = k, cost
		}
	}
	if best < 0 {
		return
	}
	for i := range r.runs {
		if set, ok := s.onRails(&r.runs[i], &r.tries[best], gpus); ok && set != r.runs[i].all {
			s.rewire(&r.runs[i], set, gpus)
		}
	}
}

// rewire gives the picks of a run the devices of a set.
func (s *State) rewire(o *nodeRun, set lockstep.DeviceSet, gpus int) {
	taken := &s.work.rails.taken[o.x]
	*taken = *taken&^o.all | set
	shape := s.tree.Shape(o.x)
	for k := o.from; k < o.to; k++ {
		t := &s.work.picks[k]
		t.devices = shape.Closest(set, gpus)
		set &^= t.devices
	}
}

// unitCost is what RailCost would be of the runs at hand, were those that can on the
// rails of a pattern; nil means as they are.
func (s *State) unitCost(p *railSet, gpus, level int) (cost int) {
	var last, here railSet
	for i := range s.work.rails.runs {
		o := &s.work.rails.runs[i]
		set := o.all
		if p != nil {
			if on, ok := s.onRails(o, p, gpus); ok {
				set = on
			}
		}
		last, here = here, railSet{x: o.x}
		here.add(s.tree.Shape(o.x), set)
		cost += last.missing(&here, s.tree, level)
	}
	return cost
}

// newPattern reports whether no pattern at hand has the same rails.
func (s *State) newPattern(p *railSet) bool {
	for k := range s.work.rails.tries {
		o := &s.work.rails.tries[k]
		if o.n == p.n && o.rails == p.rails {
			return false
		}
	}
	return true
}

// onRails returns devices of a run's node on the rails of a pattern, where they are
// free and as good for its members as those that they have.
func (s *State) onRails(o *nodeRun, p *railSet, gpus int) (set lockstep.DeviceSet, ok bool) {
	shape := s.tree.Shape(o.x)
	if o.all.Len() != p.n {
		return 0, false
	}
	for _, rail := range p.rails[:p.n] {
		found := false
		for d := range (o.free &^ set).All {
			if rail >= 0 && int32(shape.Rail(d)) == rail {
				set |= 1 << uint(d)
				found = true
				break
			}
		}
		if !found {
			return 0, false
		}
	}
	return set, set == o.all || s.asClose(o, set, gpus)
}

// asClose reports whether the members of a run are as close with the devices of set,
// and leave as close a rest.
func (s *State) asClose(o *nodeRun, set lockstep.DeviceSet, gpus int) bool {
	shape := s.tree.Shape(o.x)
	var links [256]int16 // by link: how many more the members at hand have
	rest := set
	for k := o.from; k < o.to; k++ {
		countLinks(&links, shape, s.work.picks[k].devices, 1)
		mine := shape.Closest(rest, gpus)
		countLinks(&links, shape, mine, -1)
		rest &^= mine
	}
	if links != [256]int16{} {
		return false
	}
	countLinks(&links, shape, o.free&^o.all, 1)
	countLinks(&links, shape, o.free&^set, -1)
	return links == [256]int16{}
}

func countLinks(links *[256]int16, shape *topology.Shape, set lockstep.DeviceSet, by int16) {
	for a := range set.All {
		for b := range (set >> uint(a) >> 1 << uint(a) << 1).All {
			links[shape.Link(a, b)] += by
		}
	}
}
