package main

import (
	"cmp"
	"slices"
)

// priceOne is 1 in the fixed point of the prices.
const (
	priceBits = 24
	priceOne  = 1 << priceBits
)

const (
	pricedSizes = 64            // sizes of shares that are told apart
	pricePivots = 400           // the most steps of a solution; some 40 do for 20 sizes
	priceMost   = 64 * priceOne // entries of the inverse beyond it end the search
)

// worths returns what a device with 0 to 1000 milli left is worth, in priceOne for
// a whole one, given how many shares of each size are wanted (counts[m] for m
// milli, m < 1000).
//
// The worth of a remainder is the most that shares in it can be worth, and what a
// share is worth is its dual price in the cutting stock problem of the counts: cut
// as few devices as do into shares of the wanted sizes (Gilmore and Gomory,
// Operations Research 9(6), 1961). So a remainder that only scarce sizes can fill
// is worth nothing, and of two ways to place a share the one that loses less worth
// leaves what others can use. All of it is integer arithmetic: the same counts give
// the same worths on every machine, and a solution that is cut short is still one
// that no pattern of shares can beat.
func worths(counts *[milli]int64) *[milli + 1]int64 {
	s := newStock(counts)
	for range pricePivots {
		s.price()
		s.fill()
		if s.worth[milli] <= priceOne+priceOne/2048 || !s.pivot() {
			break
		}
	}
	if top := s.worth[milli]; top > priceOne {
		for r := range s.worth {
			s.worth[r] = s.worth[r] * priceOne / top
		}
	}
	s.worth[milli] = priceOne
	return &s.worth
}

// stock is the simplex method on the cutting stock problem; a column is a pattern
// of shares that fit into one device.
type stock struct {
	sizes   []int64   // largest first
	inverse [][]int64 // of the basis
	level   []int64   // devices cut by each pattern of the basis
	prices  []int64   // of each size
	worth   [milli + 1]int64
	choice  [milli + 1]int // the size that worth is reached by; -1: none
	pattern []int64        // how many of each size
	column  []int64
}

func newStock(counts *[milli]int64) *stock {
	s := &stock{}
	for m := milli - 1; m > 0; m-- {
		if counts[m] > 0 {
			s.sizes = append(s.sizes, int64(m))
		}
	}
	if len(s.sizes) > pricedSizes {
		slices.SortStableFunc(s.sizes, func(a, b int64) int { return cmp.Compare(counts[b]*b, counts[a]*a) })
		s.sizes = s.sizes[:pricedSizes]
		slices.SortFunc(s.sizes, func(a, b int64) int { return cmp.Compare(b, a) })
	}
	total := int64(0)
	for _, m := range s.sizes {
		total += counts[m]
	}
	n := len(s.sizes)
	s.prices, s.pattern, s.column = make([]int64, n), make([]int64, n), make([]int64, n)
	for i, m := range s.sizes { // the first basis cuts each size alone
		row := make([]int64, n)
		row[i] = priceOne / (milli / m)
		s.inverse = append(s.inverse, row)
		s.level = append(s.level, counts[m]*priceOne/total*16/(milli/m)) // total > 0: there is a size
	}
	return s
}

// price sets the dual prices of the basis.
func (s *stock) price() {
	for j := range s.prices {
		sum := int64(0)
		for i := range s.inverse {
			sum += s.inverse[i][j]
		}
		s.prices[j] = max(sum, 0)
	}
}

// fill finds the worth of every remainder: a knapsack with all sizes at hand.
func (s *stock) fill() {
	for r := 1; r <= milli; r++ {
		s.worth[r], s.choice[r] = s.worth[r-1], -1
		for i, m := range s.sizes {
			if m > int64(r) {
				continue
			}
			if v := s.worth[int64(r)-m] + s.prices[i]; v > s.worth[r] {
				s.worth[r], s.choice[r] = v, i
			}
		}
	}
}

// pivot takes the most worthy pattern into the basis; false when none can leave.
func (s *stock) pivot() bool {
	clear(s.pattern)
	for r := int64(milli); r > 0; {
		if i := s.choice[r]; i >= 0 {
			s.pattern[i]++
			r -= s.sizes[i]
		} else {
			r--
		}
	}
	leaves := -1
	for i, row := range s.inverse {
		sum := int64(0)
		for j, k := range s.pattern {
			sum += row[j] * k
		}
		if s.column[i] = sum; max(sum, -sum) > priceMost {
			return false
		}
		if sum > priceOne/4096 && (leaves < 0 || s.level[i]*s.column[leaves] < s.level[leaves]*sum) {
			leaves = i
		}
	}
	if leaves < 0 {
		return false
	}
	row, by, small := s.inverse[leaves], s.column[leaves], true
	s.level[leaves] = s.level[leaves] * priceOne / by
	for j := range row {
		row[j] = row[j] * priceOne / by
		small = small && max(row[j], -row[j]) <= priceMost
	}
	if !small || s.level[leaves] > priceMost {
		return false
	}
	for i, other := range s.inverse {
		if i == leaves {
			continue
		}
		for j, v := range row {
			other[j] -= s.column[i] * v >> priceBits
			small = small && max(other[j], -other[j]) <= priceMost
		}
		s.level[i] = max(0, s.level[i]-s.column[i]*s.level[leaves]>>priceBits)
	}
	return small
}
