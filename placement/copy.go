package placement

import (
	"maps"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// View returns a copy of the state as it is now, which shares no memory with it
// that either changes: another goroutine may ask it, or play with it. A plan that
// it makes while unchanged is one of the state's version, and may be applied to
// the state until that changes; a view that was changed gives out versions that
// the state never does. It has no open marks, and indexes demands anew.
// O(nodes + members).
func (s *State) View() *State {
	c := &State{cfg: s.cfg, byID: maps.Clone(s.byID), away: maps.Clone(s.away), version: s.version, epoch: s.epoch}
	if s.tree == nil {
		return c
	}
	c.views.byHash = make(map[uint64]*view)
	c.tree, c.depth, c.broad, c.roomy = s.tree, s.depth, s.broad, slices.Clone(s.roomy)
	c.slots, c.ids, c.specs, c.ranks = slices.Clone(s.slots), slices.Clone(s.ids), slices.Clone(s.specs), slices.Clone(s.ranks)
	c.gone, c.unused = slices.Clone(s.gone), slices.Clone(s.unused)
	c.layouts, c.models = slices.Clone(s.layouts), slices.Clone(s.models)
	c.learner, c.market, c.markets = s.learner.clone(), s.market, s.markets
	c.blocks = make([]block, len(s.blocks))
	for i := range s.blocks {
		c.blocks[i] = block{s.blocks[i].set, slices.Clone(s.blocks[i].portions)}
	}
	for n := range s.rest {
		c.rest[n] = slices.Clone(s.rest[n])
	}
	c.changed = make([]int32, len(s.changed))
	c.jobs = make([]job, len(s.jobs)) // those that hold nothing stay empty
	for _, rec := range s.byID {      // in any order: each by itself
		c.jobs[rec] = s.jobs[rec]
		c.jobs[rec].seats = slices.Clone(s.jobs[rec].seats)
	}
	c.issued = foreign(s.issued)
	return c
}

// foreign returns a version beyond all that a state will issue.
func foreign(v lockstep.Version) lockstep.Version { return (v>>32 + 1) << 32 }
