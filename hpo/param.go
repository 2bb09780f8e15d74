package hpo

import "math/bits"

// Param is a hyperparameter that PBT changes: a whole number in units of the host's choice, such as a learning rate in
// 10^-9, or the index of a choice.
type Param struct {
	Name   string `json:"name"`             // Name is unique.
	Low    int64  `json:"low"`              // Low is the least value.
	High   int64  `json:"high"`             // High is the largest, at least Low.
	Choice bool   `json:"choice,omitempty"` // Choice says that values are names, which have neighbours and no size.
}

// Turn is a change of one hyperparameter.
type Turn struct {
	Param    string // Param is the name.
	Resample bool   // Resample says to draw a new value.
	Draw     uint64 // Draw is what decides: the new value, or in which direction.
}

// Apply returns what becomes of v, which is brought within Low and High first, and stays there: the value that was
// drawn, or 6/5 or 4/5 of v, by at least 1, or of a choice the one after or before it.
func (p Param) Apply(v int64, t Turn) int64 {
	v = min(max(v, p.Low), p.High)
	if t.Resample {
		return p.pick(t.Draw)
	}
	by := uint64(1)
	if !p.Choice {
		size := uint64(v)
		if v < 0 {
			size = -size
		}
		by = max(size/5, 1)
	}
	up := t.Draw>>63 == 1
	if v < 0 && !p.Choice {
		up = !up // 6/5 of a negative number is less than it
	}
	if up {
		return v + int64(min(by, uint64(p.High)-uint64(v)))
	}
	return v - int64(min(by, uint64(v)-uint64(p.Low)))
}

// pick returns a value, all about as likely.
func (p Param) pick(draw uint64) int64 {
	span := uint64(p.High) - uint64(p.Low) + 1 // 0 for all of int64
	if span == 0 {
		return int64(draw)
	}
	at, _ := bits.Mul64(draw, span)
	return int64(uint64(p.Low) + at)
}
