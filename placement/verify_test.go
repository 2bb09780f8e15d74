package placement

import (
	"fmt"
	"slices"
)

// verify recomputes every counter of a state from its jobs and compares.
func (s *State) verify() error {
	want := make([]slot, len(s.slots))
	for x := range want {
		want[x] = s.slots[x]
		if s.slots[x].flags&vacant == 0 {
			want[x] = s.empty(int32(x))
		}
	}
	for _, rec := range s.byID { // in any order: sums
		j := &s.jobs[rec]
		for i := range j.seats {
			t := &j.seats[i]
			if t.slot < 0 {
				continue
			}
			d := &j.gang.Roles[t.role].Demand
			c := &want[t.slot]
			if c.free&t.devices != t.devices {
				return fmt.Errorf("devices %v of slot %d held twice", t.devices, t.slot)
			}
			c.free &^= t.devices
			c.cpu -= int64(d.CPU)
			c.memory -= int64(d.Memory)
			c.rdma -= int32(d.RDMA)
			c.slots--
			c.members++
		}
	}
	for x := range want {
		got := s.slots[x]
		n := int32(0)
		for r := got.head; r.rec >= 0; r = s.jobs[r.rec].seats[r.idx].next {
			n++
		}
		got.head, want[x].head = nowhere(), nowhere()
		if got != want[x] || n != got.members {
			return fmt.Errorf("slot %d: %+v, want %+v", x, got, want[x])
		}
	}
	for _, t := range s.terms {
		counts, total := make([]int32, len(t.counts)), int32(0)
		for _, rec := range s.byID { // in any order: sums
			j := &s.jobs[rec]
			for i := range j.seats {
				if x := j.seats[i].slot; x >= 0 && matches(t.match, j.gang.Labels) {
					counts[s.tree.DomainOf(t.level, x)]++
					total++
				}
			}
		}
		if !slices.Equal(counts, t.counts) || total != t.total {
			return fmt.Errorf("term %v: %v, want %v", t.match, t.counts, counts)
		}
	}
	for _, v := range s.views.list {
		if err := s.verifyView(v); err != nil {
			return err
		}
	}
	return nil
}

// verifyView compares a view with one built anew.
func (s *State) verifyView(v *view) error {
	s.sync(v)
	fresh := &view{kind: v.kind, class: v.class, terms: v.terms, per: v.per, bound: v.bound}
	s.build(fresh)
	for x := range v.units {
		if v.units[x] != fresh.units[x] || v.mood[x] != fresh.mood[x] {
			return fmt.Errorf("slot %d: units %d mood %d, want %d %d", x, v.units[x], v.mood[x], fresh.units[x], fresh.mood[x])
		}
	}
	for l := range v.sums {
		for d := range v.sums[l] {
			if v.sums[l][d] != fresh.sums[l][d] {
				return fmt.Errorf("level %d domain %d: %d, want %d", l, d, v.sums[l][d], fresh.sums[l][d])
			}
		}
		if l > 0 {
			if err := sameSet(&v.sets[l], &fresh.sets[l]); err != nil {
				return fmt.Errorf("level %d: %w", l, err)
			}
		}
	}
	if v.free != fresh.free {
		return fmt.Errorf("free %d, want %d", v.free, fresh.free)
	}
	for i := range v.open {
		o := &v.open[i]
		f := s.opening(fresh, o.units)
		if !slices.Equal(o.counts, f.counts) || !slices.Equal(o.listed, f.listed) {
			return fmt.Errorf("opening of %d units: %v, want %v", o.units, o.counts, f.counts)
		}
		if err := sameSet(&o.set, &f.set); err != nil {
			return fmt.Errorf("opening of %d units: %w", o.units, err)
		}
	}
	return sameSet(&v.nodes, &fresh.nodes)
}

func sameSet(a, b *ordset) error {
	for k := uint64(0); ; k++ {
		x, ok := a.next(k)
		y, yes := b.next(k)
		if x != y || ok != yes {
			return fmt.Errorf("set has %d %v, want %d %v from %d", x, ok, y, yes, k)
		}
		if !ok {
			return nil
		}
		k = x
	}
}
