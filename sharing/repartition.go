package sharing

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Held is a MIG instance that exists on a device.
type Held struct {
	Instance                // Instance is which profile it has, and where.
	Tenant   lockstep.JobID `json:"tenant,omitempty"` // Tenant is who runs in it; empty means that it is idle.
	Cost     int64          `json:"cost,omitempty"`   // Cost is what draining Tenant throws away, at least 0, such as an EvictionCost's Total; 0 for an idle instance.
	Fixed    bool           `json:"fixed,omitempty"`  // Fixed instances stay as they are.

	// Return says that Tenant goes on in another instance of the same profile
	// on the same device if it is drained, so that draining it is a move.
	Return bool `json:"return,omitempty"`
}

// Drained is a tenant that has to leave its instance.
type Drained struct {
	Held           // Held is what it has now.
	To   *Instance `json:"to,omitempty"` // To is where it goes on, for one that returns; nil for others.
}

// Repartition is how a device is to be divided anew, to be carried out in this
// order: drain, destroy, create. What it does not name stays untouched.
type Repartition struct {
	Drain   []Drained  `json:"drain,omitempty"`   // Drain are the tenants to stop first, by start.
	Destroy []Instance `json:"destroy,omitempty"` // Destroy are the instances to destroy then, those of Drain among them, by start.
	Create  []Instance `json:"create,omitempty"`  // Create are the instances to create then, by start.
	Grants  []Instance `json:"grants,omitempty"`  // Grants are the instances of the profiles wanted, one each and in their order: new ones, or idle ones as they are.
	Cost    int64      `json:"cost,omitempty"`    // Cost is the sum of the drained tenants' costs, held at the end of int64.
}

// Repartition finds how the profiles wanted, by index, can be had on a device that
// holds the instances of held, in any order, and fills out with it. Among all ways
// it takes the one with the least cost; then the fewest tenants drained, the
// fewest idle instances destroyed, the fewest instances created, and the most room
// left (see Room); then the one whose destroyed instances lie lowest, the highest
// of them compared first; then the lowest starts, as Pack has it. Idle instances
// of a profile wanted are used as they are, the lowest first, before others are
// created.
//
// Where there is no way the verdict is infeasible and out is empty: for
// ReasonCapacity when even the empty device has no room for wanted, else for
// ReasonBusy. Its Fit is how many of wanted, from the first on, can be had
// together. Instances that overlap or are not of g, a profile that is not of g, a
// cost below 0 and a cost or flags of an idle instance are ErrInvalid.
//
// It tries every subset of held, so that the answer is exact: at most 256.
func (g *Geometry) Repartition(held []Held, wanted []int, out *Repartition) (lockstep.Verdict, error) {
	s, err := g.division(held, wanted)
	if err != nil {
		return lockstep.Verdict{}, err
	}
	*out = Repartition{}
	verdict := lockstep.Verdict{Feasible: true, Fit: len(wanted), Want: len(wanted)}
	if s.search(wanted) {
		s.write(wanted, out)
		return verdict, nil
	}
	verdict.Feasible, verdict.Reason = false, lockstep.ReasonBusy
	if _, ok := g.Pack(nil, 0, wanted); !ok {
		verdict.Reason = lockstep.ReasonCapacity
	}
	for verdict.Fit--; verdict.Fit > 0 && !s.search(wanted[:verdict.Fit]); {
		verdict.Fit--
	}
	return verdict, nil
}

// division is a search for a repartition.
type division struct {
	g    *Geometry
	held []Held // by start
	may  uint   // instances that may be destroyed, as bits in the order of held
	best candidate
	ok   bool // best is one
}

// candidate is a set of instances to destroy and what follows from it.
type candidate struct {
	gone      uint // instances to destroy
	cost      int64
	drained   int
	destroyed int // idle ones
	created   []Instance
	room      int64
}

// order compares what Repartition minimizes, but for the last two terms.
func (c *candidate) order(d *candidate) int {
	return cmp.Or(cmp.Compare(c.cost, d.cost), cmp.Compare(c.drained, d.drained), cmp.Compare(c.destroyed, d.destroyed),
		cmp.Compare(len(c.created), len(d.created)), cmp.Compare(d.room, c.room))
}

// division checks the arguments of Repartition.
func (g *Geometry) division(held []Held, wanted []int) (*division, error) {
	f := faults{op: "sharing: repartition"}
	var o Occupancy
	for i := range held {
		h, at := &held[i], "held["+strconv.Itoa(i)+"]"
		after, ok := g.Take(o, h.Profile, h.Start)
		if !ok {
			f.bad(at, "", "is no instance of this geometry, or overlaps one before it")
		}
		o = after
		if h.Cost < 0 {
			f.bad(at+".Cost", strconv.FormatInt(h.Cost, 10), "want at least 0")
		}
		if h.Tenant == "" && (h.Cost != 0 || h.Return) {
			f.bad(at+".Tenant", "", "an idle instance has no cost and nobody to return")
		}
		if h.Tenant != "" {
			f.wrap(at+".Tenant", h.Tenant.Validate())
		}
	}
	for i, p := range wanted {
		if !g.has(p) {
			f.bad("wanted["+strconv.Itoa(i)+"]", strconv.Itoa(p), "no such profile")
		}
	}
	s := &division{g: g, held: slices.Clone(held)}
	slices.SortFunc(s.held, func(a, b Held) int { return cmp.Compare(a.Start, b.Start) })
	for i := range s.held {
		if !s.held[i].Fixed {
			s.may |= 1 << i
		}
	}
	return s, f.err()
}

// search sets best to the best way to have wanted and says whether there is one.
func (s *division) search(wanted []int) bool {
	s.ok = false
	for gone := uint(0); gone <= s.may; gone++ {
		if gone&^s.may != 0 {
			continue
		}
		c := s.price(gone)
		if s.ok && (c.cost > s.best.cost || c.cost == s.best.cost && c.drained > s.best.drained) {
			continue // dearer whatever it leads to
		}
		created, room, ok := s.place(gone, wanted)
		if !ok {
			continue
		}
		c.created, c.room = created, room
		if !s.ok || c.order(&s.best) < 0 { // of equals the first stays, which has the lowest instances
			s.best, s.ok = c, true
		}
	}
	return s.ok
}

// price sums what destroying the instances in gone costs.
func (s *division) price(gone uint) candidate {
	c := candidate{gone: gone}
	for ; gone != 0; gone &= gone - 1 {
		h := &s.held[bits.TrailingZeros(gone)]
		if h.Tenant == "" {
			c.destroyed++
			continue
		}
		c.drained++
		if h.Cost > math.MaxInt64-c.cost {
			c.cost = math.MaxInt64
		} else {
			c.cost += h.Cost
		}
	}
	return c
}

// place finds the instances to create once those in gone are destroyed: for those of wanted, and then of the tenants
// that return, which no idle instance serves.
func (s *division) place(gone uint, wanted []int) (created []Instance, room int64, ok bool) {
	o, missing := s.rest(gone, wanted)
	created, ok = s.g.Pack(nil, o, missing)
	for _, in := range created {
		o |= s.g.mask(in.Profile, in.Start)
	}
	return created, s.g.room[o], ok
}

// rest returns the occupancy without the instances in gone, and the profiles for which instances must be created.
func (s *division) rest(gone uint, wanted []int) (o Occupancy, missing []int) {
	var idle [maxProfiles]int
	for i := range s.held {
		h := &s.held[i]
		if gone>>i&1 != 0 {
			continue
		}
		o |= s.g.mask(h.Profile, h.Start)
		if h.Tenant == "" {
			idle[h.Profile]++
		}
	}
	need := func(p int) {
		if idle[p] > 0 {
			idle[p]--
		} else {
			missing = append(missing, p)
		}
	}
	for _, p := range wanted {
		need(p)
	}
	for i := range s.held {
		if gone>>i&1 != 0 && s.held[i].Return {
			need(s.held[i].Profile)
		}
	}
	return o, missing
}

// write turns best into out.
func (s *division) write(wanted []int, out *Repartition) {
	out.Cost = s.best.cost
	var idle []Instance
	for i := range s.held {
		h := s.held[i]
		switch {
		case s.best.gone>>i&1 == 0:
			if h.Tenant == "" {
				idle = append(idle, h.Instance)
			}
			continue
		case h.Tenant != "":
			out.Drain = append(out.Drain, Drained{Held: h})
		}
		out.Destroy = append(out.Destroy, h.Instance)
	}
	fresh := s.best.created
	grant := func(p int) Instance {
		if i := slices.IndexFunc(idle, func(in Instance) bool { return in.Profile == p }); i >= 0 {
			in := idle[i]
			idle = slices.Delete(idle, i, i+1)
			return in
		}
		in := fresh[0]
		fresh = fresh[1:]
		return in
	}
	for _, p := range wanted {
		out.Grants = append(out.Grants, grant(p))
	}
	for i := range out.Drain {
		if d := &out.Drain[i]; d.Return {
			in := grant(d.Profile)
			d.To = &in
		}
	}
	out.Create = slices.Clone(s.best.created)
	slices.SortFunc(out.Create, func(a, b Instance) int { return cmp.Compare(a.Start, b.Start) })
}
