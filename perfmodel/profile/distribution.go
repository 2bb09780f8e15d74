package profile

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// maxSizes is how many sizes a distribution has at most.
const maxSizes = 1 << 16

// Distribution is an empirical distribution of how long jobs take, or of the service that
// they need, each counted the same. It is made by NewDistribution or taken from
// Durations, and read only; the zero Distribution is empty.
type Distribution struct {
	sizes []int64      // ascending, more than 0
	sums  []int128.Int // sums[i] is the sum of the first i sizes; nil if there are none
}

// distributionOf takes over sizes, all more than 0, which it sorts.
func distributionOf(sizes []int64) *Distribution {
	slices.Sort(sizes)
	d := &Distribution{sizes: sizes, sums: make([]int128.Int, len(sizes)+1)}
	for i, s := range sizes {
		d.sums[i+1] = d.sums[i].Add(int128.Of(s))
	}
	return d
}

// NewDistribution returns the distribution of sizes, in any order. A size that is not
// positive or above lockstep.MaxWalltime, none at all and more than 2¹⁶ are ErrInvalid.
func NewDistribution(sizes []time.Duration) (*Distribution, error) {
	f := faults{op: "profile: distribution"}
	if len(sizes) == 0 || len(sizes) > maxSizes {
		f.bad("sizes", strconv.Itoa(len(sizes)), "want 1 to 2¹⁶")
	}
	for i, s := range sizes[:min(len(sizes), maxSizes)] {
		if s <= 0 || s > lockstep.MaxWalltime {
			f.bad("sizes["+strconv.Itoa(i)+"]", s.String(), "want more than 0, up to ten years")
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	own := make([]int64, len(sizes))
	for i, s := range sizes {
		own[i] = int64(s)
	}
	return distributionOf(own), nil
}

// Len returns how many sizes there are; 0 for nil.
func (d *Distribution) Len() int {
	if d == nil {
		return 0
	}
	return len(d.sizes)
}

// Quantile returns the least size that at least that part of the sizes, in thousandths
// from 0 to 1000, does not exceed; outside of that the least or the greatest.
func (d *Distribution) Quantile(mille int64) time.Duration {
	if len(d.sizes) == 0 {
		return 0
	}
	n := int64(len(d.sizes))
	at := (n*min(max(mille, 0), 1000) + 999) / 1000
	return time.Duration(d.sizes[max(at, 1)-1])
}

// Mean returns the mean size, rounded.
func (d *Distribution) Mean() time.Duration { return mean(d.sizes) }

// Remaining returns the mean of what is left of the sizes above attained, rounded. Ok is
// false where there is none.
func (d *Distribution) Remaining(attained time.Duration) (left time.Duration, ok bool) {
	longer := d.sizes[d.above(attained):]
	if len(longer) == 0 {
		return 0, false
	}
	return mean(longer) - max(attained, 0), true
}

// above returns the first index of a size above attained.
func (d *Distribution) above(attained time.Duration) int {
	at, _ := slices.BinarySearchFunc(d.sizes, int64(max(attained, 0)), func(size, a int64) int {
		if size > a {
			return 1
		}
		return -1
	})
	return at
}

// Index is the Gittins index of a job: how many jobs like it end for the service that is
// given to them, if it is given for the best of all times. The zero Index is the least.
type Index struct {
	ends uint64
	work int128.Int // service, summed over the jobs
}

// Gittins returns the index of a job that has attained that much: over all amounts that
// it might be given next, the greatest of the probability that it ends within the amount
// over the service that it is expected to use of it. Unlike attained service it may rise
// again. Ok is false where the job has outlived all sizes; its index is then the least.
func (d *Distribution) Gittins(attained time.Duration) (x Index, ok bool) {
	a := int64(max(attained, 0))
	from := d.above(attained)
	sum := int128.Int{} // what the sizes up to the j-th have left
	for j := from; j < len(d.sizes); j++ {
		left := d.sizes[j] - a
		sum = sum.Add(int128.Of(left))
		y := Index{ends: uint64(j - from + 1), work: sum.Add(int128.Product(left, int64(len(d.sizes)-1-j)))}
		if !ok || x.Compare(y) > 0 {
			x, ok = y, true
		}
	}
	return x, ok
}

// GittinsWithin returns the index of a job that has attained that much and is given up to amount more, whatever is
// best: the probability that it ends within it over the service that it is expected to use of it. That is what a
// scheduler with a fixed quantum looks at. An amount that is not positive is none. Ok is false where the job has
// outlived all sizes, or amount is none; its index is then the least.
func (d *Distribution) GittinsWithin(attained, amount time.Duration) (x Index, ok bool) {
	a, amount := int64(max(attained, 0)), max(amount, 0)
	from := d.above(attained)
	longer := int64(len(d.sizes) - from)
	if longer == 0 || amount == 0 {
		return Index{}, false
	}
	to := d.above(lockstep.MaxWalltime)
	if int64(amount) < int64(lockstep.MaxWalltime)-a {
		to = d.above(time.Duration(a) + amount)
	}
	ends := int64(to - from)
	work := d.sums[to].Sub(d.sums[from]).Sub(int128.Product(a, ends)).Add(int128.Product(int64(amount), longer-ends))
	return Index{ends: uint64(ends), work: work}, true
}

// Compare orders indices by who is served first: the greater index. It is exact.
func (x Index) Compare(y Index) int {
	if x.ends == 0 || y.ends == 0 {
		switch {
		case x.ends > 0:
			return -1
		case y.ends > 0:
			return 1
		}
		return 0
	}
	return int128.CmpProducts(x.work, y.ends, y.work, x.ends)
}

// PerSecond returns the index as jobs that end for a second of service.
func (x Index) PerSecond() float64 {
	if x.ends == 0 {
		return 0
	}
	return float64(x.ends) / (x.work.Float64() / float64(time.Second))
}
