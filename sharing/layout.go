package sharing

import "iter"

// Pack appends to dst an instance for each of the profiles, by index and in that
// order, such that all of them fit into o together, and returns it with true. Of
// all ways it takes the one that leaves the most room, then the one with the
// lowest starts in the order of profiles. Where there is no way, it returns dst
// and false.
func (g *Geometry) Pack(dst []Instance, o Occupancy, profiles []int) ([]Instance, bool) {
	if len(profiles) > g.cfg.Slices-o.Slices() || !g.knows(o) {
		return dst, false
	}
	s := packing{g: g, profiles: profiles, most: -1}
	for _, p := range profiles {
		if !g.has(p) {
			return dst, false
		}
	}
	s.search(o, 0)
	if s.most < 0 {
		return dst, false
	}
	for i, p := range profiles {
		dst = append(dst, Instance{Profile: p, Start: int(s.found[i])})
	}
	return dst, true
}

// packing is a search for the starts of some profiles.
type packing struct {
	g        *Geometry
	profiles []int
	starts   [maxSlices]int8
	found    [maxSlices]int8
	most     int64 // room that found leaves; -1 while there is nothing
}

// search tries all starts for the profiles from index i on, in lexicographic order. Like instances are interchangeable,
// so later ones start later.
func (s *packing) search(o Occupancy, i int) {
	if i == len(s.profiles) {
		if room := s.g.room[o]; room > s.most {
			s.most, s.found = room, s.starts
		}
		return
	}
	p, from := s.profiles[i], 0
	for j := i - 1; j >= 0; j-- {
		if s.profiles[j] == p {
			from = int(s.starts[j]) + 1
			break
		}
	}
	for start := from; start < maxSlices; start++ {
		if m := s.g.masks[p][start]; m != 0 && m&o == 0 {
			s.starts[i] = int8(start)
			s.search(o|m, i+1)
		}
	}
}

// Layouts yields every set of instances that fits into o and to which none can be
// added, once, by start and then by profile; sets come in that order too. The
// slice is used again for the next set. On an empty device these are all the ways
// of dividing it; every other legal set is a part of one of them.
func (g *Geometry) Layouts(o Occupancy) iter.Seq[[]Instance] {
	return func(yield func([]Instance) bool) {
		if g.knows(o) {
			g.layouts(make([]Instance, 0, maxSlices), o, 0, yield)
		}
	}
}

// layouts goes on with instances that begin at from or later.
func (g *Geometry) layouts(held []Instance, o Occupancy, from int, yield func([]Instance) bool) bool {
	if g.room[o] == 0 {
		return yield(held)
	}
	for start := from; start < g.cfg.Slices; start++ {
		for p := range g.cfg.Profiles {
			m := g.masks[p][start]
			if m == 0 || m&o != 0 {
				continue
			}
			if !g.layouts(append(held, Instance{Profile: p, Start: start}), o|m, start+1, yield) {
				return false
			}
		}
	}
	return true
}
