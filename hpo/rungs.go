package hpo

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/lockstep-gpu/lockstep"
)

// Levels returns least, least*eta, least*eta^2, ... up to most, by integer arithmetic. eta is at least 2, and
// 1 <= least <= most.
func Levels(least, most uint64, eta uint32) ([]uint64, error) {
	if err := checkRange("levels", least, most, eta); err != nil {
		return nil, err
	}
	var out []uint64
	for level := least; ; {
		out = append(out, level)
		hi, next := bits.Mul64(level, uint64(eta))
		if hi > 0 || next > most {
			return out, nil
		}
		level = next
	}
}

// Bracket is one bracket of Hyperband.
type Bracket struct {
	Trials int      // Trials begin in it.
	Levels []uint64 // Levels are its rungs; whoever passes the last is complete.
}

// maxBracket is the most trials that a bracket may have.
const maxBracket = 1 << 30

// Brackets returns the brackets of Hyperband for trials of least to most steps, the one with the fewest rungs first.
// With k the largest exponent for which least*eta^k <= most, the bracket with s+1 rungs begins with
// ceil((k+1)/(s+1)*eta^s) trials at floor(most/eta^s) steps. It refuses one of more than 2^30 trials.
func Brackets(least, most uint64, eta uint32) ([]Bracket, error) {
	all, err := Levels(least, most, eta)
	if err != nil {
		return nil, err
	}
	out := make([]Bracket, len(all))
	power := uint64(1)
	for s := range all {
		n := power // it has no fewer trials than that
		if n <= maxBracket {
			n = (uint64(len(all))*power + uint64(s)) / uint64(s+1)
		}
		if n > maxBracket {
			return nil, fault(lockstep.ErrInvalid, "brackets", "most", fmt.Sprint(most), "makes a bracket of more than 2^30 trials")
		}
		out[s].Trials = int(n)
		level := most / power
		for range s + 1 {
			out[s].Levels = append(out[s].Levels, level)
			level *= uint64(eta)
		}
		power *= uint64(eta)
	}
	return out, nil
}

func checkRange(op string, least, most uint64, eta uint32) error {
	switch {
	case eta < 2:
		return fault(lockstep.ErrInvalid, op, "Eta", fmt.Sprint(eta), "must be at least 2, or nothing is ever left out")
	case least < 1:
		return fault(lockstep.ErrInvalid, op, "Min", fmt.Sprint(least), "must be at least 1")
	case least > most:
		return fault(lockstep.ErrInvalid, op, "Min", fmt.Sprint(least), fmt.Sprintf("must not be above Max, %d", most))
	}
	return nil
}

// checkLevels says what is wrong with explicit levels.
func checkLevels(levels []uint64, most uint64) error {
	for i, level := range levels {
		field := fmt.Sprintf("Levels[%d]", i)
		switch {
		case level < 1:
			return fault(lockstep.ErrInvalid, "config", field, "0", "must be at least 1")
		case i > 0 && level <= levels[i-1]:
			return fault(lockstep.ErrInvalid, "config", field, fmt.Sprint(level), "must be above the one before")
		case level > most:
			return fault(lockstep.ErrInvalid, "config", field, fmt.Sprint(level), fmt.Sprintf("must not be above Max, %d", most))
		}
	}
	return nil
}

// count returns ceil(n*fraction) for a fraction in millionths, held at half of n.
func count(n int, millionths uint64) int {
	c := (uint64(n)*millionths + million - 1) / million
	return int(min(c, uint64(n/2)))
}

const million = 1_000_000

// quantise returns a fraction in [0, 1] in millionths.
func quantise(fraction float64) uint64 { return uint64(math.Round(fraction * million)) }
