package pipeline

import (
	"math"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// replay counts what each row holds at most.
func (l *Line) replay() {
	l.peaks = make([][2]int, len(l.rows))
	for row, ops := range l.rows {
		flying, pending := 0, 0
		for i, op := range ops {
			switch op.Kind {
			case Forward:
				flying++
			case Backward:
				flying--
				if l.splitAt(l.base[row] + 1 + int32(i)) {
					pending++
				}
			case Weight:
				pending--
			}
			p := &l.peaks[row]
			p[0], p[1] = max(p[0], flying), max(p[1], pending)
		}
	}
}

// splitAt says whether the weights of the op at an index are split off.
func (l *Line) splitAt(at int32) bool {
	return l.holds[l.virt[at]][Weight]
}

// Peak returns how many micro-batches of chunks a stage has in flight at most: forwards that have begun and whose backward
// has not ended. It is 0 for a stage that there is not.
func (l *Line) Peak(stage int) int {
	if stage < 0 || stage >= len(l.peaks) {
		return 0
	}
	return l.peaks[stage][0]
}

// PeakWeights returns how many weight gradients a stage has put off at most: backwards that have ended and whose weight op
// has not.
func (l *Line) PeakWeights(stage int) int {
	if stage < 0 || stage >= len(l.peaks) {
		return 0
	}
	return l.peaks[stage][1]
}

// PeakBytes returns how much memory a stage holds at most for micro-batches in flight. A forward takes both what is in
// activations, which its backward gives back as it ends, and what is in weights, which the weight op gives back; where
// weights are not split off, the backward gives back both. Each has one entry for a virtual stage or for each micro-batch as
// well, as in [Costs]; nil means 0.
func (l *Line) PeakBytes(stage int, activations, weights []lockstep.Bytes) (lockstep.Bytes, error) {
	if stage < 0 || stage >= len(l.rows) {
		return 0, invalid("peak", "stage", strconv.Itoa(stage), "must be one of the stages")
	}
	first, err := l.amounts("activations", activations)
	if err != nil {
		return 0, err
	}
	second, err := l.amounts("weights", weights)
	if err != nil {
		return 0, err
	}
	held, peak := lockstep.Bytes(0), lockstep.Bytes(0)
	for i, op := range l.rows[stage] {
		at := l.base[stage] + 1 + int32(i)
		switch op.Kind {
		case Forward:
			a, w := first(at), second(at)
			if held > math.MaxInt64-a-w {
				return 0, invalid("peak", "activations", "", "their sum passes the range of Bytes")
			}
			held += a + w
		case Backward:
			held -= first(at)
			if !l.splitAt(at) {
				held -= second(at)
			}
		case Weight:
			held -= second(at)
		}
		peak = max(peak, held)
	}
	return peak, nil
}

// amounts checks entries of bytes and returns the one of an op by its index.
func (l *Line) amounts(field string, of []lockstep.Bytes) (func(at int32) lockstep.Bytes, error) {
	n := len(l.next)
	for i, b := range of {
		if b < 0 {
			return nil, invalid("peak", field+"["+strconv.Itoa(i)+"]", strconv.FormatInt(int64(b), 10), "must not be negative")
		}
	}
	switch len(of) {
	case n:
		return func(at int32) lockstep.Bytes { return of[l.virt[at]] }, nil
	case n * l.cfg.Micros:
		return func(at int32) lockstep.Bytes { return of[l.full[at]] }, nil
	}
	if of != nil {
		return nil, invalid("peak", field, strconv.Itoa(len(of))+" entries", "must have one for each virtual stage, "+strconv.Itoa(n)+", or micro-batch as well, "+
			strconv.Itoa(n*l.cfg.Micros))
	}
	return func(int32) lockstep.Bytes { return 0 }, nil
}
