package fusion

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Result is what a trial of the surrogate came to.
type Result struct {
	ID    TrialID // unique
	Key   Key     // of its bundle
	Score float64 // larger is better; one that is no finite number is never selected
}

// SelectTransfers returns up to k trials to train at full size: the best of each key, best first, and then the best of
// the rest. With fewer places than keys the best keys have them.
func SelectTransfers(results []Result, k int) ([]TrialID, error) {
	if k < 0 {
		return nil, fault(lockstep.ErrInvalid, "select", "k", fmt.Sprint(k), "must not be negative")
	}
	seen := make(map[TrialID]bool, len(results))
	var sorted []Result
	for i, r := range results {
		if r.ID == "" {
			return nil, fault(lockstep.ErrInvalid, "select", fmt.Sprintf("results[%d].ID", i), "", "must be given")
		}
		if seen[r.ID] {
			return nil, fault(lockstep.ErrDuplicate, "select", fmt.Sprintf("results[%d].ID", i), errtext.Quote(string(r.ID)), "stands twice")
		}
		seen[r.ID] = true
		if !math.IsNaN(r.Score) && !math.IsInf(r.Score, 0) {
			sorted = append(sorted, r)
		}
	}
	slices.SortFunc(sorted, func(a, b Result) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID)) })
	first := map[Key]bool{}
	var out, rest []TrialID
	for _, r := range sorted {
		if first[r.Key] {
			rest = append(rest, r.ID)
			continue
		}
		first[r.Key] = true
		out = append(out, r.ID)
	}
	out = append(out, rest...)
	return out[:min(k, len(out))], nil
}
