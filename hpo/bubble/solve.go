package bubble

import (
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Sizes of the grid over a window.
const (
	leastCells = 1 << 10
	mostCells  = 1 << 12
	exactCells = 1 << 18 // where nothing scatters, a grid that all quanta are multiples of may be as fine
	worthBits  = 30      // what a window can be worth has as many bits
)

// task is one window and what may run in it.
type task struct {
	length, resume, pause int64   // nanoseconds
	quanta                []int64 // of each choice, nanoseconds
	worth                 []int64 // of a quantum of each choice, scaled to worthBits
	may                   set
	ends                  []int64 // samples of windows, parts per million, sorted
	parts                 []part  // of steps
	stillEnds             bool    // all ends are alike
	aim                   int64   // misses of as many windows as there are samples and one, times whole
}

// policy says what to start at which time of a window.
type policy struct {
	cell  int64   // nanoseconds between entries of next, which begin when the bundle has resumed
	next  []uint8 // one more than the choice of the quantum to start; 0 for none
	worth int64   // expected, scaled to worthBits
	miss  int64   // expected, as task.aim
}

// step is where a quantum ends: that many cells on, with that weight of whole.
type step struct{ cells, weight int64 }

// solver works out policies and keeps the memory for it.
type solver struct {
	task
	cell  int64
	risk  []int64  // by cell, samples that say the window is over before a pause from there ends, and one
	steps [][]step // by choice; nil if it may not run
	gain  []int64  // by choice, what a quantum is worth as long as it is on the grid
	value []int64  // by cell, expected worth from there less price for misses
	miss  []int64  // by cell, expected risk times whole from there
	next  []uint8
	// strict has only such quanta started that no sample of steps makes one end past the shortest sample of windows.
	strict bool
}

// solve returns the policy of the highest expected worth whose expected misses are within t.aim, among those that
// trade worth for misses at one price everywhere.
//
// It is a dynamic programme over the time since the bundle has resumed. Stopping at a time costs the price for each
// sample, and one, of which the window is over before the pause is; a quantum earns its worth and leads to later times,
// by the spread of steps. The price is raised until misses are within the aim.
func (s *solver) solve(t task) policy {
	s.task, s.strict = t, false
	if !s.grid() {
		return policy{}
	}
	s.fillRisk()
	s.fillSteps()
	const top = worthBits + 1 // at this price no miss is worth what is earned
	price := int64(1) << top
	switch s.run(price); {
	case s.miss[0] > t.aim: // so few samples that nothing may come of chance
		price, s.strict = 0, true
		s.run(price)
	case !t.stillEnds:
		price = s.price(top)
		s.run(price)
	}
	if s.next[0] == 0 || s.miss[0] > t.aim {
		return policy{}
	}
	return policy{cell: s.cell, next: slices.Clone(s.next), worth: s.value[0] + int128.MulDiv(price, s.miss[0], whole), miss: s.miss[0]}
}

// certain is what a miss that is certain costs at least, in what the window is worth without misses, so that a quantum
// is hardly ever started that is likely to be long over the end, however rare the time at which that might pay.
const certain = 16

// price returns the lowest price found at which misses are within the aim; at 1<<top, for which s has just run, they are.
func (s *solver) price(top int) int64 {
	worth := s.value[0] + int128.MulDiv(1<<top, s.miss[0], whole)
	least := int128.MulDivUp(worth, certain, int64(len(s.ends))+1)
	low, high := min(bits.Len64(uint64(least)), top), top // powers of two; misses are within the aim at high
	for low < high {
		mid := (low + high) / 2
		if s.run(1 << mid); s.miss[0] <= s.aim {
			high = mid
		} else {
			low = mid + 1
		}
	}
	from, to := max(int64(1)<<high>>1, least), int64(1)<<high
	for range 5 {
		mid := from + (to-from)/2
		if s.run(mid); s.miss[0] <= s.aim {
			to = mid
		} else {
			from = mid
		}
	}
	return to
}

// grid sets the cells; false if no quantum fits.
func (s *solver) grid() bool {
	room := s.length - s.resume - s.pause
	if len(s.ends) > 0 { // the longest that the window has been
		room += int128.MulDiv(s.length, max(s.ends[len(s.ends)-1], 0), million)
	}
	shortest, common := int64(0), int64(0)
	for i, q := range s.quanta {
		if !s.may.has(i) {
			continue
		}
		if shortest == 0 || q < shortest {
			shortest = q
		}
		for _, p := range s.parts {
			common = gcd(max(int128.MulDivUp(q, p.ratio, million), 1), common)
		}
	}
	if shortest == 0 || room <= 0 {
		return false
	}
	cells := min(max(8*(room/shortest), leastCells), mostCells)
	s.cell = room/cells + 1
	limit := int64(mostCells)
	if s.stillEnds {
		limit = exactCells
	}
	if len(s.parts) == 1 && room/common < limit {
		s.cell = common
	}
	n := int(room/s.cell) + 1
	s.risk, s.value, s.miss, s.next = grow(s.risk, n), grow(s.value, n), grow(s.miss, n), grow(s.next, n)
	return true
}

func grow[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// fillRisk counts, for each cell, the samples by which the window is over before a pause from there ends.
func (s *solver) fillRisk() {
	k := 0
	for i := range s.risk {
		quiet := s.resume + int64(i)*s.cell + s.pause
		for k < len(s.ends) && s.length+mulDivFloor(s.length, s.ends[k]) < quiet {
			k++
		}
		s.risk[i] = int64(k) + 1
	}
}

// mulDivFloor returns length times parts per million, rounded down.
func mulDivFloor(length, ppm int64) int64 {
	if ppm < 0 {
		return -int128.MulDivUp(length, -ppm, million)
	}
	return int128.MulDiv(length, ppm, million)
}

// fillSteps lays the parts of each choice's quantum on the grid, to the nearest cell.
func (s *solver) fillSteps() {
	s.steps, s.gain = grow(s.steps, len(s.quanta)), grow(s.gain, len(s.quanta))
	for i, q := range s.quanta {
		s.steps[i], s.gain[i] = s.steps[i][:0], s.worth[i]
		if !s.may.has(i) {
			continue
		}
		for _, p := range s.parts {
			cells := s.cells(int128.MulDivUp(q, p.ratio, million))
			if n := len(s.steps[i]); n > 0 && s.steps[i][n-1].cells == cells {
				s.steps[i][n-1].weight += p.weight
			} else {
				s.steps[i] = append(s.steps[i], step{cells, p.weight})
			}
		}
		if q/s.cell < coarse && s.cell > 1 {
			s.gain[i] = s.worthOnGrid(i, q)
		}
	}
}

// cells returns how many cells a time is, to the nearest, at least 1. Past the grid it is all the same how far.
func (s *solver) cells(took int64) int64 {
	cells := took / s.cell
	if took%s.cell >= (s.cell+1)/2 {
		cells++
	}
	return min(max(cells, 1), int64(len(s.value)))
}

// coarse is below how many cells a quantum is worth as much more or less as it is longer or shorter on the grid: in windows
// of many hundred quanta several may end in a cell.
const coarse = 4

// worthOnGrid returns what a choice is worth in the time that a quantum of it takes on the grid.
func (s *solver) worthOnGrid(i int, q int64) int64 {
	cells, took := int64(0), int64(0)
	for _, x := range s.steps[i] {
		cells += x.weight * x.cells
	}
	for _, p := range s.parts {
		took += p.weight * min(int128.MulDivUp(q, p.ratio, million), 1<<50)
	}
	return max(int128.MulDiv(s.worth[i]*cells, s.cell, max(took, 1)), 1)
}

// run works out the best policy at a price for each sample by which a miss happens. Of equal ones it stops rather than
// starts, and takes the first choice.
func (s *solver) run(price int64) {
	n := len(s.value)
	lost := int64(len(s.ends)) + 1 // past the grid every sample says that the window is over
	for i := n - 1; i >= 0; i-- {
		best, next := -price*s.risk[i], -1
		for c, steps := range s.steps {
			if len(steps) == 0 {
				continue
			}
			sum := int64(0)
			for _, to := range steps {
				if j := i + int(to.cells); j < n {
					sum += to.weight * s.value[j]
				} else {
					sum -= to.weight * price * lost
				}
			}
			if v := s.gain[c] + sum/whole; v > best && !(s.strict && s.missOf(i, c, lost) > whole) {
				best, next = v, c
			}
		}
		s.value[i], s.next[i] = best, uint8(next+1)
		s.miss[i] = s.risk[i] * whole
		if next >= 0 {
			s.miss[i] = s.missOf(i, next, lost)
		}
	}
}

// missOf returns the expected risk, times whole, of a quantum of a choice from cell i.
func (s *solver) missOf(i, choice int, lost int64) int64 {
	sum := int64(0)
	for _, to := range s.steps[choice] {
		if j := i + int(to.cells); j < len(s.miss) {
			sum += to.weight * s.miss[j]
		} else {
			sum += to.weight * lost * whole
		}
	}
	return (sum + whole - 1) / whole
}

// scale returns by how many bits to shift what quanta are worth, so that no window is worth more than worthBits bits.
func scale(all []choice, quanta int, longest int64) int {
	most := int64(1)
	for i := range all {
		most = max(most, int128.MulDivUp(all[i].worth, longest/all[i].quantum(quanta, million)+1, 1))
	}
	return worthBits - bits.Len64(uint64(most))
}

// shift returns x times two to the power of by, at least 1.
func shift(x int64, by int) int64 {
	if by < 0 {
		return max(x>>-by, 1)
	}
	return x << by
}
