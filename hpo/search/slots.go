package search

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// SlotID names a slot: an exclusive device, or the bubbles of one.
type SlotID string

// slot is a place for one bundle or target.
type slot struct {
	id     SlotID
	class  int32
	lost   bool
	bundle *bundle
	target int32 // trial, -1 for none
}

func (x *slot) free() bool { return !x.lost && x.bundle == nil && x.target < 0 }

// AddSlot puts a slot of a class into service.
func (s *Search) AddSlot(id SlotID, class ClassName) error {
	n, ok := s.names[string(class)]
	switch {
	case id == "":
		return fault(lockstep.ErrInvalid, "add slot", "id", "", "must be given")
	case s.at[id] != nil:
		return fault(lockstep.ErrDuplicate, "add slot", "id", errtext.Quote(id), "is there already")
	case !ok:
		return fault(lockstep.ErrUnknown, "add slot", "class", errtext.Quote(class), "is not there")
	}
	x := &slot{id: id, class: n, target: -1}
	s.at[id] = x
	s.slots = append(s.slots, x)
	s.order()
	return nil
}

// order sorts slots into the order in which they are served: exclusive ones first, faster ones first.
func (s *Search) order() {
	slices.SortFunc(s.slots, func(a, b *slot) int {
		ta, tb := &s.tables[a.class], &s.tables[b.class]
		return cmp.Or(cmp.Compare(ta.kind, tb.kind), cmp.Compare(tb.rate, ta.rate), cmp.Compare(a.id, b.id))
	})
}

// Lose takes a slot out of service until Free: the device failed, or the other job has no bubbles now. The trials on it
// are started again elsewhere from what they reported last, and so is a target. Of a slot that is lost it is nothing.
func (s *Search) Lose(id SlotID) ([]hpo.Decision, error) {
	x, ok := s.at[id]
	if !ok {
		return nil, fault(lockstep.ErrUnknown, "lose", "id", errtext.Quote(id), "is not there")
	}
	x.lost = true
	if x.target >= 0 {
		s.pending = slices.Insert(s.pending, 0, x.target)
		x.target = -1
	}
	if x.bundle == nil {
		return nil, nil
	}
	return s.end(x.bundle, hpo.Preempted), nil
}

// Free takes a slot that was lost back into service. Of one that was not it is nothing.
func (s *Search) Free(id SlotID) error {
	x, ok := s.at[id]
	if !ok {
		return fault(lockstep.ErrUnknown, "free", "id", errtext.Quote(id), "is not there")
	}
	x.lost = false
	return nil
}

// Remove loses a slot for good. Its ID may be added again.
func (s *Search) Remove(id SlotID) ([]hpo.Decision, error) {
	out, err := s.Lose(id)
	if err != nil {
		return nil, err
	}
	delete(s.at, id)
	s.slots = slices.DeleteFunc(s.slots, func(x *slot) bool { return x.id == id })
	return out, nil
}

// Fail tells that a bundle came to an end by itself, or with a trial given that this one of its members did. The others
// are fused anew, from what they reported last.
func (s *Search) Fail(id fusion.BundleID, who hpo.TrialID, kind hpo.FailKind) ([]hpo.Decision, error) {
	b, ok := s.bundles[id]
	if !ok {
		return nil, fault(lockstep.ErrUnknown, "fail", "id", errtext.Quote(id), "does not run")
	}
	switch kind {
	case hpo.Crashed, hpo.Preempted, hpo.Invalid, hpo.Ended:
	default:
		return nil, fault(lockstep.ErrInvalid, "fail", "kind", errtext.Quote(kind), "is none")
	}
	if who == "" {
		return s.end(b, kind), nil
	}
	i := slices.IndexFunc(b.members, func(n int32) bool { return s.trials[n].id == who })
	if i < 0 {
		return nil, fault(lockstep.ErrUnknown, "fail", "who", errtext.Quote(who), "is no member")
	}
	n := b.members[i]
	out, err := s.rule.Failed(who, s.trials[n].attempt, kind)
	if err != nil {
		return nil, err
	}
	b.members = slices.Delete(b.members, i, i+1)
	s.leave(n)
	s.dissolve(b)
	s.others(out)
	return out, nil
}

// end takes a bundle off its slot, whose members all failed.
func (s *Search) end(b *bundle, kind hpo.FailKind) []hpo.Decision {
	var out []hpo.Decision
	for _, n := range b.members {
		d, err := s.rule.Failed(s.trials[n].id, s.trials[n].attempt, kind)
		if err != nil {
			panic("search: " + err.Error()) // invariant: members run under the rule, and kind was checked
		}
		s.leave(n)
		out = append(out, d...)
	}
	b.slot.bundle = nil
	delete(s.bundles, b.id())
	s.safe = slices.DeleteFunc(s.safe, func(x *bundle) bool { return x == b })
	s.others(out)
	return out
}

// leave takes a trial back to the rule.
func (s *Search) leave(n int32) { s.trials[n].state = away }

// dissolve ends a bundle of which somebody left; what is left of it keeps the slot until it is fused anew.
func (s *Search) dissolve(b *bundle) {
	s.queue = append(s.queue, Action{Do: Stop, Bundle: b.id(), Key: s.keys[b.key], Slot: b.slot.id})
	delete(s.bundles, b.id())
	if len(b.members) == 0 {
		b.slot.bundle = nil
		return
	}
	s.safe = append(s.safe, b)
}

// others notes what decisions say, of trials that may be anywhere.
func (s *Search) others(decisions []hpo.Decision) {
	for _, d := range decisions {
		if n, ok := s.index[d.Trial]; ok && d.Action == hpo.Stop {
			s.over(n)
		}
	}
}

// over notes that a trial was paused at a rung or is over.
func (s *Search) over(n int32) {
	if t := &s.trials[n]; !t.ended {
		t.ended = true
		s.ended++
	}
}
