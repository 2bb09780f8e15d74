package view

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// order puts the pods of each role into rank order. A pod that was bound keeps the
// number it was bound with; of the others, those that say a number take it, and the
// rest fill the gaps by name. Then numbers close up.
func (d *draft) order() {
	for _, r := range d.roles {
		d.number(r)
	}
}

// numbered is a pod with its number; -1 while it has none.
type numbered struct {
	pod *pod
	at  int32
}

func (d *draft) number(r *role) {
	taken := make(map[int32]*pod, len(r.pods))
	all := make([]numbered, 0, len(r.pods))
	for _, p := range r.pods { // by name
		all = append(all, numbered{p, -1})
	}
	// Those that ended come last: where a pod that lives has their number, it is their
	// successor, and they do not count.
	slices.SortStableFunc(all, func(a, b numbered) int { return cmp.Compare(late(a.pod), late(b.pod)) })
	for i := range all {
		if p := all[i].pod; p.seat >= 0 && taken[p.seat] == nil {
			taken[p.seat], all[i].at = p, p.seat
		}
	}
	kept := all[:0]
	for _, n := range all {
		if n.at < 0 && n.pod.index >= 0 {
			switch other := taken[n.pod.index]; {
			case other == nil:
				taken[n.pod.index], n.at = n.pod, n.pod.index
			case n.pod.stage == ended:
				continue
			case other.index == n.pod.index:
				d.fault(n.pod, lockstep.ErrDuplicate, ourKeys[keyIndex], number(int(n.pod.index)), "pod "+other.name+" has that number")
			}
		}
		kept = append(kept, n)
	}
	slices.SortFunc(kept, func(a, b numbered) int { return byName(a.pod, b.pod) })
	next := int32(0)
	for i := range kept {
		if kept[i].at < 0 {
			for taken[next] != nil {
				next++
			}
			taken[next], kept[i].at = kept[i].pod, next
		}
	}
	slices.SortFunc(kept, func(a, b numbered) int { return cmp.Compare(a.at, b.at) })
	r.pods = r.pods[:0]
	for _, n := range kept {
		r.pods = append(r.pods, n.pod)
	}
}

func late(p *pod) int {
	if p.stage == ended {
		return 1
	}
	return 0
}
