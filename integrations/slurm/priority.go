package slurm

import (
	"slices"
	"sort"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// spacing is how far apart priorities are put where there is room, so that later ones fit between.
const spacing = 1 << 16

// prioritise gives priorities to the rows that have a turn and may start now: as few as possible change.
func (r *Report) prioritise(cfg *Config) {
	var at []int
	var have []uint32
	for i := range r.Rows {
		w := &r.Rows[i]
		switch w.Reason {
		case ReasonHeld, ReasonLimit, ReasonDependency, ReasonBegin, ReasonUnreadable:
			continue
		}
		if w.Turn == 0 || w.Current == 0 || cfg.Users != nil && !slices.Contains(cfg.Users, w.User) {
			continue
		}
		at, have = append(at, i), append(have, w.Current)
	}
	want, ok := relabel(have, cfg.Low, cfg.High)
	if !ok {
		r.Faults = append(r.Faults, fault(lockstep.ErrInvalid, "plan", "Config.High", strconv.FormatUint(uint64(cfg.High), 10), "leaves no room for "+strconv.Itoa(len(have))+" priorities above Config.Low"))
		return
	}
	for k, i := range at {
		r.Rows[i].Priority = want[k]
	}
}

// relabel returns numbers from low to high that fall strictly, with as few as possible different from have. It keeps
// the most of have that fall with room between them for those in between (a longest subsequence of have[i]+i that does
// not rise) and spreads the others over the gaps. False where there is not enough room for all. O(n log n).
func relabel(have []uint32, low, high uint32) ([]uint32, bool) {
	n := len(have)
	if n > 0 && (low > high || uint64(n-1) > uint64(high-low)) {
		return nil, false
	}
	kept := keep(have, low, high)
	out := make([]uint32, n)
	lo, hi := int64(low), int64(high)
	for k := 0; k <= len(kept); k++ {
		from, to := -1, n
		if k > 0 {
			from = kept[k-1]
			out[from] = have[from]
		}
		if k < len(kept) {
			to = kept[k]
		}
		m := int64(to - from - 1) // how many lie between
		if m == 0 {
			continue
		}
		var first, step int64
		switch {
		case from < 0 && to == n:
			step = max(min(spacing, (hi-lo)/m), 1)
			first = min((lo+hi)/2+step*(m/2), hi)
			first = max(first, lo+step*(m-1))
		case from < 0:
			below := int64(have[to])
			step = min(spacing, (hi-below)/m)
			first = below + step*m
		case to == n:
			above := int64(have[from])
			step = min(spacing, (above-lo)/m)
			first = above - step
		default:
			above, below := int64(have[from]), int64(have[to])
			step = (above - below) / (m + 1)
			first = above - step
		}
		for i := range m {
			out[from+1+int(i)] = uint32(first - i*step)
		}
	}
	return out, true
}

// keep returns which of have stay, rising.
func keep(have []uint32, low, high uint32) []int {
	n := len(have)
	var tails []int // tails[l] is the index with the greatest key at which a chain of l+1 ends
	prev := make([]int, n)
	key := func(i int) int64 { return int64(have[i]) + int64(i) }
	for i := range have {
		if v := int64(have[i]); v > int64(high)-int64(i) || v < int64(low)+int64(n-1-i) {
			continue // no room for those before it, or behind it
		}
		at := sort.Search(len(tails), func(l int) bool { return key(tails[l]) < key(i) })
		prev[i] = -1
		if at > 0 {
			prev[i] = tails[at-1]
		}
		if at == len(tails) {
			tails = append(tails, i)
		} else {
			tails[at] = i
		}
	}
	out := make([]int, len(tails))
	if len(tails) > 0 {
		for i, k := tails[len(tails)-1], len(tails)-1; k >= 0; i, k = prev[i], k-1 {
			out[k] = i
		}
	}
	return out
}
