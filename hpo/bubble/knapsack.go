package bubble

import "github.com/lockstep-gpu/lockstep/internal/int128"

// pack is the integer knapsack over one window without jitter.
type pack struct {
	best []int64 // by cell, the most that is worth that long
}

// packCells returns how fine a grid may be on which so many sets of choices are packed into a window: at most 2^26 steps
// for all of them.
func packCells(sets, choices int) int64 {
	return min(max((1<<26)/(int64(sets)*int64(max(choices, 1))), leastCells/4), exactCells)
}

// most returns the most that quanta of the choices in may are worth in room: exactly, if a grid of at most limit cells
// holds all quanta; else quanta are rounded up, for a figure that can be reached, or down, for a bound.
func (p *pack) most(room int64, quanta, worth []int64, may set, limit int64, up bool) int64 {
	if room <= 0 {
		return 0
	}
	common := int64(0)
	for i, q := range quanta {
		if may.has(i) {
			common = gcd(q, common)
		}
	}
	if common == 0 {
		return 0
	}
	cell, exact := common, true
	if room/common > limit {
		cell, exact = room/limit+1, false
	}
	if !up && !exact {
		if most, short := fraction(room, cell, quanta, worth, may); short {
			return most
		}
	}
	return p.fill(room/cell, cell, quanta, worth, may, up && !exact)
}

// fill returns the most that quanta are worth in n cells, each as many whole cells long as it fills, or takes if up.
func (p *pack) fill(n, cell int64, quanta, worth []int64, may set, up bool) int64 {
	p.best = grow(p.best, int(n+1))
	p.best[0] = 0
	for at := int64(1); at <= n; at++ {
		p.best[at] = p.best[at-1]
		for i, q := range quanta {
			if !may.has(i) {
				continue
			}
			d := q / cell
			if up && q%cell != 0 {
				d++
			}
			if d = max(d, 1); at >= d {
				p.best[at] = max(p.best[at], addSat(p.best[at-d], worth[i]))
			}
		}
	}
	return p.best[n]
}

// fraction returns the most that quanta are worth in room if they could be cut anywhere, and whether one is shorter
// than a cell, so that no grid tells more.
func fraction(room, cell int64, quanta, worth []int64, may set) (most int64, short bool) {
	for i, q := range quanta {
		if may.has(i) {
			most = max(most, int128.MulDivUp(worth[i], room, q))
			short = short || q < cell
		}
	}
	return most, short
}
