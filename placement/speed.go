package placement

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// readSpeeds checks the speeds of a request and sorts them, the fastest first; of like
// ones the class with most devices in the cluster, then the lowest name.
func (s *State) readSpeeds(call string, r *lockstep.Request, q *query) error {
	q.speeds = q.speeds[:0]
	for i, o := range r.Speeds {
		field := at("Request.Speeds", i)
		if o.PerMille < 1 {
			return fault(lockstep.ErrInvalid, call, field+".PerMille", strconv.Itoa(int(o.PerMille)), "want at least 1")
		}
		if !plainName(string(o.Class)) {
			if err := o.Class.Validate(); err != nil {
				return fault(lockstep.ErrInvalid, call, field+".Class", strconv.Quote(string(o.Class)), "want the name of a class")
			}
		}
		for k := range i {
			if r.Speeds[k].Class == o.Class {
				return fault(lockstep.ErrDuplicate, call, field+".Class", strconv.Quote(string(o.Class)), "named twice")
			}
		}
	}
	if len(r.Speeds) == 0 {
		return nil
	}
	q.speeds = append(q.speeds, r.Speeds...)
	s.takeStock()
	for i := 1; i < len(q.speeds); i++ { // few, and without a closure
		for k := i; k > 0 && s.faster(&q.speeds[k], &q.speeds[k-1]); k-- {
			q.speeds[k], q.speeds[k-1] = q.speeds[k-1], q.speeds[k]
		}
	}
	return nil
}

func (s *State) faster(a, b *lockstep.ClassSpeed) bool {
	return cmp.Or(cmp.Compare(b.PerMille, a.PerMille), cmp.Compare(s.inStock(b.Class), s.inStock(a.Class)), cmp.Compare(a.Class, b.Class)) < 0
}

// stock is how many devices the cluster has of each class.
type stock struct {
	epoch   uint64
	counted bool
	classes []lockstep.DeviceClass // sorted
	devices []int64
}

// takeStock counts devices anew where hardware may have changed.
func (s *State) takeStock() {
	w := &s.work.stock
	if w.counted && w.epoch == s.epoch {
		return
	}
	*w = stock{epoch: s.epoch, counted: true, classes: w.classes[:0], devices: w.devices[:0]}
	for x := range s.slots {
		if s.slots[x].flags&vacant != 0 {
			continue
		}
		class := s.specs[x].node.Class
		i, ok := slices.BinarySearch(w.classes, class)
		if !ok {
			w.classes, w.devices = slices.Insert(w.classes, i, class), slices.Insert(w.devices, i, 0)
		}
		w.devices[i] += int64(s.slots[x].all.Len())
	}
}

func (s *State) inStock(class lockstep.DeviceClass) int64 {
	if i, ok := slices.BinarySearch(s.work.stock.classes, class); ok {
		return s.work.stock.devices[i]
	}
	return 0
}

// tiers returns how many sets of classes are tried at each level: each class by itself
// and with all that come before it, since a gang goes at the pace of its slowest member;
// and last, whatever will do.
func (q *query) tiers() int { return max(1, 2*len(q.speeds)) }

// tierUp readies the views for one of the tiers. It reports whether every role may use
// some class of it.
func (s *State) tierUp(q *query, tier int) bool {
	last := len(q.speeds) - 1
	if tier == q.tiers()-1 {
		s.aim(q, q.penalty)
		return true
	}
	from, to := (tier+1)/2, (tier+1)/2 // {0}, {1}, {0,1}, {2}, {0,1,2} ...
	if tier%2 == 0 {
		from = 0
	}
	if to > last {
		return false
	}
	s.work.views = s.work.views[:0]
	for i := range q.gang.Roles {
		r := q.gang.Roles[i]
		if r.Demand.GPUs > 0 {
			q.classes = q.classes[:0]
			for _, o := range q.speeds[from : to+1] {
				if len(r.Demand.Classes) == 0 || slices.Contains(r.Demand.Classes, o.Class) {
					q.classes = append(q.classes, o.Class)
				}
			}
			if len(q.classes) == 0 {
				return false
			}
			r.Demand.Classes = q.classes
		}
		s.work.views = append(s.work.views, s.viewFor(q.gang, &r, q.inner[i], q.penalty))
	}
	return true
}
