package bubble

import (
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// choice is one point of one bundle: what a quantum may be of.
type choice struct {
	bundle int
	fused  int64
	step   int64 // nanoseconds
	memory lockstep.Bytes
	worth  int64 // of a quantum, in trial-steps of weight 1 over Quanta
	low    bool
}

// choices are the points of all bundles, by bundle and by number fused, without those that need more members than
// there are.
func choices(c *Config) ([]choice, error) {
	var out []choice
	for i, b := range c.Bundles {
		p, err := fusion.NewProfile(b.Points)
		if err != nil {
			return nil, err
		}
		for _, q := range p.Points() {
			n := int64(q.Fused)
			if b.Members > 0 && n > b.Members || b.Steps > 0 && n > b.Steps {
				continue
			}
			out = append(out, choice{i, n, int64(q.Step), q.Memory, n * max(b.Weight, 1), b.LowBandwidth})
		}
	}
	return out, nil
}

// quantum returns how long a quantum of x takes at a share of the device, in nanoseconds.
func (x *choice) quantum(quanta int, share int64) int64 {
	return int128.MulDivUp(x.step, million, int64(quanta)*share)
}

// set is some of the choices, as bits.
type set uint64

func (s set) has(i int) bool { return s>>i&1 != 0 }

// suits drops from s what may not run in a window of the kind.
func (s set) suits(all []choice, kind pipeline.WindowKind) set {
	if kind == pipeline.Idle {
		return s
	}
	for i := range all {
		if !all[i].low {
			s &^= 1 << i
		}
	}
	return s
}

// maxSets is how many sets are listed at most; past it those are taken that come first.
const maxSets = 4096

// rule says what may be loaded together.
type rule struct {
	all       []choice
	spare     lockstep.Bytes
	residency Residency
	members   []int64 // by bundle, how many trials are free; negative means no limit
}

// sets lists the sets that r allows and to which nothing can be added, in the order of the choices, largest number of
// fused trials of the last bundle first.
func (r *rule) sets() []set {
	var out []set
	steps := 0
	var walk func(i int, s set, spare lockstep.Bytes, members []int64)
	walk = func(i int, s set, spare lockstep.Bytes, members []int64) {
		if steps++; len(out) == maxSets || steps > 64*maxSets {
			return
		}
		if i < 0 {
			if r.full(s, spare, members) {
				out = append(out, s)
			}
			return
		}
		if x := &r.all[i]; r.fits(x, spare, members) {
			more := slices.Clone(members)
			walk(i-1, s|1<<i, r.load(x, spare, more), more)
			if r.residency == FreeSwitching && members[x.bundle] < 0 {
				return // it costs nothing to have it
			}
		}
		walk(i-1, s, spare, members)
	}
	walk(len(r.all)-1, 0, r.spare, r.members)
	return out
}

// load takes the members of x from members and returns what it leaves of spare.
func (r *rule) load(x *choice, spare lockstep.Bytes, members []int64) lockstep.Bytes {
	if members[x.bundle] >= 0 {
		members[x.bundle] -= x.fused
	}
	if r.residency == ResidentSet {
		spare -= x.memory
	}
	return spare
}

func (r *rule) fits(x *choice, spare lockstep.Bytes, members []int64) bool {
	return x.memory <= spare && (members[x.bundle] < 0 || x.fused <= members[x.bundle])
}

// full says whether nothing more fits beside s.
func (r *rule) full(s set, spare lockstep.Bytes, members []int64) bool {
	for i := range r.all {
		if !s.has(i) && r.fits(&r.all[i], spare, members) {
			return false
		}
	}
	return true
}

// addSat returns a+b, held at the largest int64. It takes no negative numbers.
func addSat(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// gcd returns the greatest common divisor; that of 0 and b is b.
func gcd(a, b int64) int64 {
	for a != 0 {
		a, b = b%a, a
	}
	return b
}
