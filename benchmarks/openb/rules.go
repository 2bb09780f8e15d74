package main

import (
	"cmp"
	"math"
	"slices"
)

// firstFit takes the first node.
type firstFit struct{}

func (firstFit) grain() uint                      { return 0 }
func (firstFit) begin(*cluster, *list)            {}
func (firstFit) arrive(int) int                   { return 0 }
func (firstFit) cost(_, _ *state, _, _ int) int64 { return 0 }

// bestFit leaves least free, a core weighing as much as the largest node has of
// them for each of its devices: the rule of the published comparison.
type bestFit struct{}

func (bestFit) grain() uint           { return 0 }
func (bestFit) begin(*cluster, *list) {}
func (bestFit) arrive(int) int        { return 0 }

func (bestFit) cost(_, to *state, _, _ int) int64 {
	sum := int64(0)
	for _, f := range to.free {
		sum += f
	}
	return to.cpu + 16*sum // 128 cores and 8 devices weigh the same
}

// gradient is fragmentation gradient descent (Weng et al., USENIX ATC 2023,
// section 4) with the score of the published runs: whole numbers of 0 to 100, ties
// to the first node. It knows the mix of the whole list ahead, as they did: the
// most popular shapes that make up 95% of the tasks.
type gradient struct {
	shapes  []shape
	typical []int
	total   int64 // tasks of the typical shapes
	counts  []int64
}

func (g *gradient) begin(_ *cluster, l *list) {
	g.shapes, g.counts = l.shapes, l.counts
	all := make([]int, len(l.shapes))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(l.counts[b], l.counts[a]) })
	for _, i := range all {
		g.typical = append(g.typical, i)
		if g.total += l.counts[i]; g.total*100 >= int64(len(l.tasks))*95 {
			break
		}
	}
}

func (*gradient) arrive(int) int { return 0 }
func (*gradient) grain() uint    { return 0 }

// fragmented returns the milli that the typical shapes cannot use, times g.total.
func (g *gradient) fragmented(s *state) int64 {
	if s.known == 0 {
		return s.memo
	}
	sum, lost := int64(0), int64(0)
	for _, f := range s.free {
		sum += f
	}
	for _, i := range g.typical {
		p := &g.shapes[i]
		if p.devices == 0 || !s.fits(p) {
			lost += g.counts[i] * sum
			continue
		}
		for d := s.devices - 1; d >= 0 && s.free[d] < p.milli; d-- {
			lost += g.counts[i] * s.free[d]
		}
	}
	s.memo, s.known = lost, 0
	return lost
}

func (g *gradient) cost(from, to *state, _, _ int) int64 {
	grown := float64(g.fragmented(to)-g.fragmented(from)) / float64(g.total)
	return -int64(100/(1+math.Exp(grown/milli)) + 1e-9)
}
