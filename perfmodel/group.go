package perfmodel

import (
	"math"
	"math/bits"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Link is how long a message takes between two ranks: Latency plus its size over
// Bandwidth.
type Link struct {
	Latency   time.Duration           `json:"latency"`   // Latency is of a message of no size, at least 0.
	Bandwidth lockstep.BytesPerSecond `json:"bandwidth"` // Bandwidth is one way, above 0.
}

// GroupLevel is one level of a group.
type GroupLevel struct {
	Ranks int  `json:"ranks"` // Ranks is how many groups of the level below are joined at this one, at least 1; at the first level, how many ranks.
	Link  Link `json:"link"`  // Link is what joins them, as one rank sees it; not looked at where Ranks is 1.
}

// GroupShape is a communication group, by levels from the innermost out: {8, NVLink}
// and {4, InfiniBand} are 32 ranks on four nodes. Levels with one rank do not matter and
// need no link. The zero GroupShape is a single rank, to which nothing has to be sent.
type GroupShape []GroupLevel

// Collective is what a group does with a message.
type Collective uint8

// The collectives. The size of each is that of the whole message: of what one rank
// has at the end (AllGather), at the start (ReduceScatter, AllToAll) or both (AllReduce).
const (
	AllReduce     Collective = iota // AllReduce: all ranks get the sum.
	ReduceScatter                   // ReduceScatter: each rank gets its part of the sum.
	AllGather                       // AllGather: all ranks get the parts of all.
	AllToAll                        // AllToAll: each rank gets its part from each of the others.
	PointToPoint                    // PointToPoint: one rank gets the message of another.
)

// Algorithm is a way to do a collective.
type Algorithm uint8

// The algorithms, in the order in which ties are decided.
const (
	Ring         Algorithm = iota // Ring: the parts go round, or straight to each of the others, at the speed of the slowest link.
	Tree                          // Tree: up a binary tree and down again; AllReduce only.
	Hierarchical                  // Hierarchical: level by level, with less to send on each level out; not AllToAll.
)

// Validate reports every fault of g, joined, each an *lockstep.Error of kind
// ErrInvalid. A group has at most 2^20 ranks.
func (g GroupShape) Validate() error {
	f := faults{op: "perfmodel: group"}
	total := int64(1)
	for i, level := range g {
		if total *= int64(max(level.Ranks, 1)); level.Ranks >= 1 && total <= maxDegree && (level.Ranks == 1 || level.Link.valid()) {
			continue
		}
		at := "[" + text(i) + "]."
		f.within(at+"Ranks", int64(level.Ranks), 1, maxDegree)
		if level.Ranks != 1 && level.Link.Latency < 0 {
			f.bad(at+"Link.Latency", level.Link.Latency.String(), "want at least 0")
		}
		if level.Ranks != 1 && level.Link.Bandwidth <= 0 {
			f.bad(at+"Link.Bandwidth", level.Link.Bandwidth.String(), "want more than 0")
		}
		if total > maxDegree {
			f.bad(at+"Ranks", text(level.Ranks), "the group has more than 2^20 ranks")
			break
		}
	}
	return f.err()
}

// valid says whether l can carry anything.
func (l Link) valid() bool { return l.Latency >= 0 && l.Bandwidth > 0 }

// Ranks returns how many ranks a valid g has.
func (g GroupShape) Ranks() int {
	n := 1
	for _, level := range g {
		n *= level.Ranks
	}
	return n
}

// Wire returns how many bytes each rank sends when n ranks do c with a message of this
// size: 2(n-1)/n of it for AllReduce, all of it for PointToPoint, else (n-1)/n; rounded up,
// and 0 for a single rank. It is the same for Ring and Hierarchical, and the least there is.
func (c Collective) Wire(n int, size lockstep.Bytes) lockstep.Bytes {
	if n <= 1 || size <= 0 {
		return 0
	}
	times := uint64(n - 1)
	switch c {
	case AllReduce:
		times *= 2
	case PointToPoint:
		return size
	}
	hi, lo := bits.Mul64(times, uint64(size))
	lo, carry := bits.Add64(lo, uint64(n-1), 0) // rounds up
	if hi += carry; hi >= uint64(n) {
		return math.MaxInt64
	}
	quo, _ := bits.Div64(hi, lo, uint64(n))
	return lockstep.Bytes(min(quo, math.MaxInt64))
}

// Time returns how long g takes for c with a message of this size by algorithm a, to the
// nearest nanosecond and held at the largest Duration. It is 0 for a single rank. Ok is
// false where a does not do c, or where g, the size or one of both is invalid.
func (g GroupShape) Time(c Collective, a Algorithm, size lockstep.Bytes) (d time.Duration, ok bool) {
	if size < 0 || c > PointToPoint || g.Validate() != nil {
		return 0, false
	}
	return g.time(c, a, size)
}

// Best returns the algorithm with the least Time, and that time; of equal ones the first
// in the order Ring, Tree, Hierarchical. Ok is false where Time has none.
func (g GroupShape) Best(c Collective, size lockstep.Bytes) (a Algorithm, d time.Duration, ok bool) {
	if size < 0 || c > PointToPoint || g.Validate() != nil {
		return 0, 0, false
	}
	a, d = Ring, math.MaxInt64
	for _, try := range [...]Algorithm{Ring, Tree, Hierarchical} {
		if t, does := g.time(c, try, size); does && (!ok || t < d) {
			a, d, ok = try, t, true
		}
	}
	return a, d, ok
}

// time is Time of valid arguments.
func (g GroupShape) time(c Collective, a Algorithm, size lockstep.Bytes) (time.Duration, bool) {
	n, slowest := g.Ranks(), g.slowest()
	if n == 1 {
		return 0, a == Ring
	}
	s := float64(size)
	switch {
	case a == Ring && c == PointToPoint:
		return quantise(slowest.seconds(1, s)), true
	case a == Ring && c == AllReduce:
		return quantise(2 * slowest.pass(n, s)), true
	case a == Ring:
		return quantise(slowest.pass(n, s)), true
	case a == Tree && c == AllReduce:
		return quantise(2 * slowest.seconds(bits.Len(uint(n-1)), s)), true
	case a == Hierarchical && c == AllReduce:
		return quantise(2 * g.levels(s)), true
	case a == Hierarchical && (c == ReduceScatter || c == AllGather):
		return quantise(g.levels(s)), true
	}
	return 0, false
}

// levels returns the seconds of one reduce-scatter or all-gather level by level: at each
// one, what is left of the message after the levels inside it.
func (g GroupShape) levels(size float64) float64 {
	var sum float64
	for _, level := range g {
		if level.Ranks < 2 {
			continue
		}
		sum += level.Link.pass(level.Ranks, size)
		size /= float64(level.Ranks)
	}
	return sum
}

// slowest returns the greatest latency and the least bandwidth of the levels that g crosses.
func (g GroupShape) slowest() Link {
	var s Link
	for _, level := range g {
		if level.Ranks < 2 {
			continue
		}
		s.Latency = max(s.Latency, level.Link.Latency)
		if s.Bandwidth == 0 || level.Link.Bandwidth < s.Bandwidth {
			s.Bandwidth = level.Link.Bandwidth
		}
	}
	return s
}

// pass returns the seconds in which n ranks send (n-1)/n of a message in n-1 steps.
func (l Link) pass(n int, size float64) float64 {
	return l.seconds(n-1, float64(float64(n-1)*size)/float64(n))
}

// seconds returns those of so many steps in which so many bytes are sent in all.
func (l Link) seconds(steps int, size float64) float64 {
	return float64(float64(steps)*l.Latency.Seconds()) + size/float64(l.Bandwidth)
}
