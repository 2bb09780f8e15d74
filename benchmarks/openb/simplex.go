package main

import "math"

// simplex maximizes c y over A y <= b, y >= 0 with b >= 0. Columns of A need not
// be known ahead: whoever solves brings one that pays, time after time.
type simplex struct {
	inverse [][]float64 // of the basis; at first of the slack variables
	gain    []float64   // c of each variable of the basis
	level   []float64   // its value
	column  []float64
}

// entry is one number of a sparse column.
type entry struct {
	row   int
	value float64
}

func newSimplex(b []float64) *simplex {
	s := &simplex{gain: make([]float64, len(b)), column: make([]float64, len(b))}
	for i, v := range b {
		row := make([]float64, len(b))
		row[i] = 1
		s.inverse = append(s.inverse, row)
		// A little of its own for each row keeps steps from having no length.
		s.level = append(s.level, v+1e-6*float64(1+i%17))
	}
	return s
}

// prices returns the dual value of each row.
func (s *simplex) prices(into []float64) {
	clear(into)
	for i, g := range s.gain {
		if g == 0 {
			continue
		}
		for j, v := range s.inverse[i] {
			into[j] += g * v
		}
	}
}

// enter takes a column with the given gain into the basis. It reports false when
// nothing bounds it.
func (s *simplex) enter(column []entry, gain float64) bool {
	leaves, least := -1, math.Inf(1)
	for i, row := range s.inverse {
		sum := 0.0
		for _, e := range column {
			sum += row[e.row] * e.value
		}
		s.column[i] = sum
		if sum > 1e-9 {
			if q := s.level[i] / sum; q < least {
				least, leaves = q, i
			}
		}
	}
	if leaves < 0 {
		return false
	}
	row, by := s.inverse[leaves], s.column[leaves]
	for j := range row {
		row[j] /= by
	}
	s.level[leaves] = least
	for i, other := range s.inverse {
		f := s.column[i]
		if i == leaves || f == 0 {
			continue
		}
		for j, v := range row {
			if v != 0 {
				other[j] -= f * v
			}
		}
		s.level[i] = max(0, s.level[i]-f*least)
	}
	s.gain[leaves] = gain
	return true
}
