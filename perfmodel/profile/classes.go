package profile

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// How a rate on a class is inferred from that of like kinds.
const (
	nearest = 3  // kinds that are asked
	strange = .2 // how unlike a kind is thought before two classes say so
)

// ObserveRate takes how fast a kind progressed on a class of device, in a unit of its own
// such as steps a second. An invalid kind, class or rate is ErrInvalid; one class more
// than 64 is ErrConflict.
func (s *Store) ObserveRate(k Kind, c lockstep.DeviceClass, rate float64) error {
	f := faults{op: "profile: observe rate"}
	f.kind("k", k)
	f.wrap("c", c.Validate())
	f.figure("rate", rate, 1/maxRate, maxRate)
	if err := f.err(); err != nil {
		return err
	}
	if e := s.kinds.get(k); e != nil && len(e.classes) == maxClasses && e.class(c) == nil {
		return fault(lockstep.ErrConflict, f.op, "c", errtext.Quote(c), "64 classes are known of it")
	}
	e := s.touch(k)
	at, ok := slices.BinarySearchFunc(e.classes, c, byName)
	if !ok {
		e.classes = slices.Insert(e.classes, at, class{name: c})
	}
	e.classes[at].rates = push(e.classes[at].rates, math.Log(rate), s.cfg.Keep)
	return nil
}

func byName(c class, name lockstep.DeviceClass) int {
	return strings.Compare(string(c.name), string(name))
}

// class returns the rates on a class, nil if there are none.
func (e *known) class(c lockstep.DeviceClass) []float64 {
	if at, ok := slices.BinarySearchFunc(e.classes, c, byName); ok {
		return e.classes[at].rates
	}
	return nil
}

// Rate returns how fast kind k is on a class of device, in its own unit. On a class where
// it was never measured it is Inferred from the kinds that are most like it on the
// classes that both were measured on, scaled to its rates there; without such kinds it
// is Unknown.
func (s *Store) Rate(k Kind, c lockstep.DeviceClass) Estimate {
	e := s.kinds.get(k)
	if e == nil {
		return Estimate{}
	}
	if rates := e.class(c); rates != nil {
		return believe(rates, usual).spread(Measured)
	}
	likes := s.likes(k, e, c)
	if len(likes) == 0 {
		return Estimate{}
	}
	sum, weight := 0.0, 0.0
	for _, l := range likes {
		w := 1 / l.distance
		sum += float64(w * l.rate)
		weight += w
	}
	b := belief{mid: sum / weight, half: 2 * likes[0].distance}
	for _, l := range likes {
		b.half = max(b.half, math.Abs(l.rate-b.mid))
	}
	return b.spread(Inferred)
}

// like is what a kind says of the rate of another, which it is like but for distance.
type like struct {
	kind           Kind
	distance, rate float64
}

// likes returns the kinds most like k of those whose rate on c is known, nearest first.
func (s *Store) likes(k Kind, e *known, c lockstep.DeviceClass) []like {
	var out []like
	s.kinds.all(func(other Kind, o *known) {
		target := o.class(c)
		if other == k || target == nil {
			return
		}
		var space [maxClasses]float64
		common := space[:0]
		for _, mine := range e.classes {
			if theirs := o.class(mine.name); theirs != nil {
				common = append(common, believe(mine.rates, usual).mid-believe(theirs, usual).mid)
			}
		}
		if len(common) == 0 {
			return
		}
		mean, squares := 0.0, 0.0
		for _, d := range common {
			mean += d / float64(len(common))
		}
		for _, d := range common {
			squares += float64((d - mean) * (d - mean))
		}
		distance := math.Sqrt((squares + strange*strange) / float64(len(common)))
		out = append(out, like{kind: other, distance: distance, rate: mean + believe(target, usual).mid})
	})
	slices.SortFunc(out, func(a, b like) int {
		return cmp.Or(cmp.Compare(math.Round(a.distance*1e6), math.Round(b.distance*1e6)), cmp.Compare(a.kind, b.kind))
	})
	return out[:min(len(out), nearest)]
}

// AppendSpeeds appends how fast kind k is on those of classes on which its rate is
// measured or inferred, as a request to a placer wants it: in thousandths of the fastest
// of them, but at least 1, in the order of classes.
func (s *Store) AppendSpeeds(dst []lockstep.ClassSpeed, k Kind, classes []lockstep.DeviceClass) []lockstep.ClassSpeed {
	rates, fastest := make([]float64, len(classes)), 0.0
	for i, c := range classes {
		rates[i] = s.Rate(k, c).Value
		fastest = max(fastest, rates[i])
	}
	for i, c := range classes {
		if rates[i] > 0 {
			dst = append(dst, lockstep.ClassSpeed{Class: c, PerMille: max(1, int32(mille(rates[i]/fastest)))})
		}
	}
	return dst
}

// Explore returns the class on which it is best to try kind k next: the first of classes
// of which nothing is known, then the first that is only inferred. Ok is false where all
// were measured or k was measured on as many as Config.Explore.
func (s *Store) Explore(k Kind, classes []lockstep.DeviceClass) (c lockstep.DeviceClass, ok bool) {
	if e := s.kinds.get(k); e != nil && len(e.classes) >= s.cfg.Explore {
		return "", false
	}
	for _, name := range classes {
		switch s.Rate(k, name).Source {
		case Unknown:
			return name, true
		case Inferred:
			if !ok {
				c, ok = name, true
			}
		}
	}
	return c, ok
}
