package profile

import "math"

// maxKeep is the most measurements that are kept of one thing.
const maxKeep = 64

// toSigma makes of a median absolute deviation the standard deviation of a normal
// distribution, and toMedian of the standard error of its mean that of its median.
const (
	toSigma  = 1.4826
	toMedian = 1.2533
)

// belief is what measurements say of a figure: that it is mid, give or take half with a
// probability of 95 %.
type belief struct {
	mid, half float64
	n         int
}

// believe returns the median of xs, of which there are at most maxKeep, and how sure it
// is. The spread of few is not trusted: prior, the usual one, counts like two more. It
// allocates nothing.
func believe(xs []float64, prior float64) belief {
	var space [maxKeep]float64
	n := len(xs)
	if n == 0 {
		return belief{}
	}
	s := space[:n]
	copy(s, xs)
	mid := middle(s)
	for i, x := range xs {
		s[i] = math.Abs(x - mid)
	}
	spread := toSigma * small(n) * middle(s)
	variance := (float64(float64(n-1)*spread*spread) + float64(2*prior*prior)) / float64(n+1)
	return belief{mid: mid, half: student(n) * toMedian * math.Sqrt(variance/float64(n)), n: n}
}

// small returns by how much the median absolute deviation of n measurements falls short on
// average (Croux and Rousseeuw, 1992).
func small(n int) float64 {
	few := [...]float64{2: 1.196, 1.495, 1.363, 1.206, 1.2, 1.14, 1.129, 1.107}
	if n < len(few) {
		return few[n]
	}
	return float64(n) / (float64(n) - .8)
}

// middle sorts xs and returns its median, the mean of two.
func middle(xs []float64) float64 {
	for i := 1; i < len(xs); i++ { // few, and a sort that allocates nothing
		for j := i; j > 0 && xs[j] < xs[j-1]; j-- {
			xs[j], xs[j-1] = xs[j-1], xs[j]
		}
	}
	n := len(xs)
	return (xs[(n-1)/2] + xs[n/2]) / 2
}

// student returns the quantile .975 of Student's distribution with that many degrees of
// freedom, from 2, rounded up to the next line of the table.
func student(freedom int) float64 {
	for _, line := range [...]struct {
		freedom int
		t       float64
	}{{40, 2.021}, {30, 2.042}, {20, 2.086}, {15, 2.131}, {12, 2.179}, {10, 2.228}, {9, 2.262}, {8, 2.306}, {7, 2.365}, {6, 2.447}, {5, 2.571}, {4, 2.776}, {3, 3.182}} {
		if freedom >= line.freedom {
			return line.t
		}
	}
	return 4.303
}

// rising makes mids rise along the list: neighbours that fall are given their mean,
// weighted by how sure they are (pool adjacent violators), and share a block from then
// on. It works in place and says which block each is in.
func rising(bs []belief, block []int) {
	type pool struct {
		sum, weight float64
		from, to    int
	}
	var space [maxLevels]pool
	pools := space[:0]
	for i, b := range bs {
		w := 1 / (float64(b.half*b.half) + 1e-18)
		pools = append(pools, pool{sum: w * b.mid, weight: w, from: i, to: i + 1})
		for k := len(pools) - 1; k > 0 && pools[k-1].sum/pools[k-1].weight >= pools[k].sum/pools[k].weight; k-- {
			pools[k-1].sum += pools[k].sum
			pools[k-1].weight += pools[k].weight
			pools[k-1].to = pools[k].to
			pools = pools[:k]
		}
	}
	for k, p := range pools {
		for i := p.from; i < p.to; i++ {
			block[i] = k
			bs[i].mid = p.sum / p.weight
			if p.to-p.from > 1 {
				bs[i].half = math.Sqrt(1 / p.weight)
			}
		}
	}
}
