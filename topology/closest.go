package topology

import (
	"math"
	"math/bits"

	"github.com/lockstep-gpu/lockstep"
)

// Sizes at which the search for a closest set changes its way.
const (
	nearDevices  = 8  // up to so many devices in a shape every answer is laid up
	exactDevices = 16 // up to so many free devices the search is exact
)

// near holds every answer for a shape of at most nearDevices devices that are
// not all joined alike. It takes 3 KiB.
type near struct {
	closest [1 << nearDevices][nearDevices]uint8 // by free devices and how many are wanted; wanting all needs no entry
	order   [1 << nearDevices]uint32             // by devices: four bits for each in turn, the first lowest
}

func newNear(s *Shape) *near {
	x := new(near)
	for set := range lockstep.DeviceSet(1) << uint(s.n) {
		for k := 1; k < set.Len(); k++ {
			x.closest[set][k] = uint8(s.search(set, k))
		}
		var path pathSearch
		path.run(s, set)
		for i, d := range path.best[:path.m] {
			x.order[set] |= uint32(d) << (4 * i)
		}
	}
	return x
}

// Closest returns the k devices of free that are closest to each other: those
// with the least sum over their pairs of what each link costs, about the inverse
// of its bandwidth. Among equals those win that leave the rest of free closest
// by the same sum, which breaks up no island where a part of one will do, and
// then the lowest indices. Devices that s does not have are not free; the set is
// empty where k is less than 1 or more than are free.
//
// The answer is exact where the shape has at most 8 devices or at most 16 are
// free; otherwise the set is grown from each device in turn by what is closest
// to it, and the best kept. Allocates nothing. O(1) for shapes of at most 8
// devices and for those that are joined alike throughout, else exponential up
// to 16 free devices, C(16, 8) sets at the most, and O(k × free²) beyond.
func (s *Shape) Closest(free lockstep.DeviceSet, k int) lockstep.DeviceSet {
	free &= s.All()
	n := free.Len()
	switch {
	case k <= 0 || k > n:
		return 0
	case k == n:
		return free
	case s.uniform:
		return lowest(free, k)
	case s.near != nil:
		return lockstep.DeviceSet(s.near.closest[free][k])
	}
	return s.search(free, k)
}

// lowest returns the k lowest devices of set.
func lowest(set lockstep.DeviceSet, k int) lockstep.DeviceSet {
	rest := set
	for range k {
		rest &= rest - 1
	}
	return set &^ rest
}

// subset is a candidate for a closest set, with what decides.
type subset struct {
	set lockstep.DeviceSet
	in  int32 // sum over its pairs
	row int32 // sum over its devices of their cost to all that are free
}

// better reports whether a wins over b. The pairs of the rest sum up to those of
// all that are free, less a.row, plus a.in; so with equal in, more row is less
// rest. No sum exceeds the 64×63 ordered pairs of SYS, which int32 holds.
func (a *subset) better(b *subset) bool {
	if a.in != b.in {
		return a.in < b.in
	}
	if a.row != b.row {
		return a.row > b.row
	}
	differ := a.set ^ b.set
	return a.set&differ&-differ != 0 // a has the lowest device that one of them lacks
}

// closestSearch is a search for the closest k of n free devices. Positions are
// those of the free devices in increasing order.
type closestSearch struct {
	k, n   int
	device [lockstep.MaxDevicesPerNode]uint8
	row    [lockstep.MaxDevicesPerNode]int32
	least  int32 // the least cost of any pair
	best   subset
	shape  *Shape
}

// search finds the closest k of free, 0 < k < free.Len().
func (s *Shape) search(free lockstep.DeviceSet, k int) lockstep.DeviceSet {
	c := closestSearch{k: k, least: math.MaxInt32, best: subset{in: math.MaxInt32}, shape: s}
	for d := range free.All {
		c.device[c.n] = uint8(d)
		c.n++
	}
	for i := range c.n {
		for j := range c.n {
			if i != j {
				cost := c.cost(i, j)
				c.row[i] += cost
				c.least = min(c.least, cost)
			}
		}
	}
	c.greedy()
	if c.n <= exactDevices {
		c.exact(0, subset{}, 0, [exactDevices]int32{})
	}
	return c.best.set
}

func (c *closestSearch) cost(i, j int) int32 {
	return c.shape.costs[int(c.device[i])*c.shape.n+int(c.device[j])]
}

// greedy grows a set from each device by the nearest to it.
func (c *closestSearch) greedy() {
	for seed := range c.n {
		var to [lockstep.MaxDevicesPerNode]int32 // cost of each device to the set
		var s subset
		taken := uint64(0)
		for next, m := seed, 1; ; m++ {
			s.in += to[next]
			s.row += c.row[next]
			s.set |= 1 << c.device[next]
			taken |= 1 << next
			if m == c.k {
				break
			}
			last := next
			next = -1
			for i := range c.n {
				to[i] += c.cost(last, i)
				if taken>>i&1 == 0 && (next < 0 || to[i] < to[next] || to[i] == to[next] && c.row[i] > c.row[next]) {
					next = i
				}
			}
		}
		if s.better(&c.best) {
			c.best = s
		}
	}
}

// exact tries all sets that extend s, of m devices, by positions from pos on; to
// is the cost of each position to s. It leaves out those whose pairs must sum up
// to more than the best.
func (c *closestSearch) exact(pos int, s subset, m int, to [exactDevices]int32) {
	if m == c.k {
		if s.better(&c.best) {
			c.best = s
		}
		return
	}
	more := int32(c.k - m)
	least := int32(math.MaxInt32)
	for i := pos; i < c.n; i++ {
		least = min(least, to[i])
	}
	if s.in+more*least+more*(more-1)/2*c.least > c.best.in {
		return
	}
	for i := pos; i <= c.n-int(more); i++ {
		next := to
		for j := i + 1; j < c.n; j++ {
			next[j] += c.cost(i, j)
		}
		c.exact(i+1, subset{set: s.set | 1<<c.device[i], in: s.in + to[i], row: s.row + c.row[i]}, m+1, next)
	}
}

// pathSearch is a search for the shortest path over the devices of a set.
type pathSearch struct {
	shape *Shape
	m     int                               // devices in the set
	set   [lockstep.MaxDevicesPerNode]uint8 // in increasing order
	path  [lockstep.MaxDevicesPerNode]uint8 // the one being tried
	best  [lockstep.MaxDevicesPerNode]uint8
	sum   int32 // of best's links
	close int32 // of the link from best's end to its start
	least int32 // the least cost of any link
}

// run finds the path: least sum of link costs, then least cost of the link that
// would close it to a ring, then lowest indices from the start on. It is exact
// for at most nearDevices devices; beyond, each device in turn is a start from
// which the path goes on to what is nearest.
func (p *pathSearch) run(s *Shape, set lockstep.DeviceSet) {
	p.shape, p.sum, p.least = s, math.MaxInt32, math.MaxInt32
	for d := range set.All {
		p.set[p.m] = uint8(d)
		p.m++
	}
	if p.m < 3 || s.uniform {
		p.best = p.set
		return
	}
	for i, a := range p.set[:p.m] {
		for _, b := range p.set[:i] {
			p.least = min(p.least, p.cost(a, b))
		}
	}
	for _, start := range p.set[:p.m] {
		p.path[0] = start
		p.nearest(set &^ (1 << start))
	}
	if p.m <= nearDevices {
		p.exact(0, set, 0)
	}
}

func (p *pathSearch) cost(a, b uint8) int32 { return p.shape.costs[int(a)*p.shape.n+int(b)] }

// nearest continues path[0] through rest.
func (p *pathSearch) nearest(rest lockstep.DeviceSet) {
	sum := int32(0)
	for i := 1; rest != 0; i++ {
		from := p.path[i-1]
		next := uint8(bits.TrailingZeros64(uint64(rest)))
		for d := range rest.All {
			if p.cost(from, uint8(d)) < p.cost(from, next) {
				next = uint8(d)
			}
		}
		sum += p.cost(from, next)
		p.path[i] = next
		rest &^= 1 << next
	}
	p.offer(sum)
}

// exact tries all ways to continue path[:i], of that sum, through rest, in
// increasing order of indices.
func (p *pathSearch) exact(i int, rest lockstep.DeviceSet, sum int32) {
	if rest == 0 {
		p.offer(sum)
		return
	}
	if sum+int32(p.m-max(i, 1))*p.least > p.sum {
		return
	}
	for d := range rest.All {
		p.path[i] = uint8(d)
		step := int32(0)
		if i > 0 {
			step = p.cost(p.path[i-1], uint8(d))
		}
		p.exact(i+1, rest&^(1<<d), sum+step)
	}
}

// offer takes path where it is better than best.
func (p *pathSearch) offer(sum int32) {
	closing := p.cost(p.path[p.m-1], p.path[0])
	switch {
	case sum > p.sum || sum == p.sum && closing > p.close:
		return
	case sum == p.sum && closing == p.close && !less(p.path[:p.m], p.best[:p.m]):
		return
	}
	p.best, p.sum, p.close = p.path, sum, closing
}

func less(a, b []uint8) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
