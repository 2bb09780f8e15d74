package autoscale

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Fence stands before whatever starts and drains replicas, so that of two controllers only the later one acts. The
// zero Fence admits anything once. Its fields may be saved with what they guard.
type Fence struct {
	Term uint64 `json:"term"` // Term is the highest that was admitted.
	Seq  uint64 `json:"seq"`  // Seq is the last that was admitted of it.
}

// Admit takes note of d, which is about to be carried out. A decision of an older term, one made before the last
// that was admitted, or the same again is ErrStale, and must not be carried out.
func (f *Fence) Admit(d Decision) error {
	switch {
	case d.Term < f.Term:
		return fault(lockstep.ErrStale, "admit", "Term", strconv.FormatUint(d.Term, 10), "a controller of term "+strconv.FormatUint(f.Term, 10)+" has acted")
	case d.Term == f.Term && d.Seq <= f.Seq:
		return fault(lockstep.ErrStale, "admit", "Seq", strconv.FormatUint(d.Seq, 10), "decision "+strconv.FormatUint(f.Seq, 10)+" was carried out")
	}
	f.Term, f.Seq = d.Term, d.Seq
	return nil
}
