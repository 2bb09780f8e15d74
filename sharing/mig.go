package sharing

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Bounds of a MIG geometry, which keep an occupancy in a word and its tables small.
const (
	maxSlices   = 8
	maxProfiles = 16
	maxWeight   = 1 << 20
	states      = 1 << (maxSlices + 1) // occupancies there are
)

// Occupancy says which memory slices of one device MIG instances hold: bit i is
// slice i, and bit 8 says that one of them holds the media extensions, of which
// a device has one set. It compares with ==, and the zero Occupancy is an empty
// device.
type Occupancy uint16

// mediaTaken is the bit of the media extensions.
const mediaTaken Occupancy = 1 << maxSlices

// Slices returns how many memory slices are held.
func (o Occupancy) Slices() int { return bits.OnesCount16(uint16(o &^ mediaTaken)) }

// String returns a digit for each slice, the first one first, 1 where it is held,
// and "+me" behind them where the media extensions are: "11001000+me".
func (o Occupancy) String() string {
	b := make([]byte, 0, maxSlices+3)
	for i := range maxSlices {
		b = append(b, '0'+byte(o>>i&1))
	}
	if o&mediaTaken != 0 {
		b = append(b, "+me"...)
	}
	return string(b)
}

// Starts is a set of memory slices at which an instance may begin: bit i is
// slice i.
type Starts uint8

// Has reports whether slice i is in s.
func (s Starts) Has(i int) bool { return i >= 0 && i < maxSlices && s>>i&1 != 0 }

// All yields the slices of s in increasing order.
func (s Starts) All(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros8(uint8(s))) {
			return
		}
	}
}

// Profile is a kind of MIG instance that a device model offers.
type Profile struct {
	Name    lockstep.Profile `json:"name"`             // Name is the driver's name for it, such as "1g.10gb+me".
	Compute int              `json:"compute"`          // Compute is how many compute slices one takes, at least 1.
	Slices  int              `json:"slices"`           // Slices is how many memory slices in a row one takes, 1 to 8.
	Starts  Starts           `json:"starts"`           // Starts are the memory slices at which one may begin; at least one.
	Memory  lockstep.Bytes   `json:"memory"`           // Memory is what one has for its tenant, in bytes.
	Media   bool             `json:"media,omitempty"`  // Media profiles hold the media extensions, so only one such instance exists at a time.
	Weight  int64            `json:"weight,omitempty"` // Weight is what a place for one is worth when places are counted, up to 2²⁰; 0 means Slices.
}

// GeometryConfig is the MIG layout of a device model, as NVML reports it for a
// device whose model is not among Models.
type GeometryConfig struct {
	Slices   int       `json:"slices"`   // Slices is how many memory slices the device has, 1 to 8.
	Compute  int       `json:"compute"`  // Compute is how many compute slices it has; at least 1.
	Profiles []Profile `json:"profiles"` // Profiles are what it offers, 1 to 16, in the order of their indices.
}

// Instance is one MIG instance on a device: a profile, by its index in the
// geometry, and its first memory slice.
type Instance struct {
	Profile int `json:"profile"` // Profile is the index of the profile.
	Start   int `json:"start"`   // Start is the first memory slice.
}

// Geometry answers where MIG instances fit on one device model. It is immutable;
// every answer but those of Pack, Layouts and Repartition is looked up in tables.
type Geometry struct {
	cfg    GeometryConfig
	masks  [maxProfiles][maxSlices]Occupancy // by profile and start; 0 where it may not start
	best   [states][maxProfiles]int8         // start that keeps the most room; -1 for none
	counts [states][maxProfiles]int8         // most instances of one profile that still fit
	room   [states]int64                     // weight of the places left
}

// NewGeometry returns the geometry that cfg describes. It keeps no memory of cfg.
func NewGeometry(cfg GeometryConfig) (*Geometry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return build(cfg), nil
}

// build makes the tables of a valid layout.
func build(cfg GeometryConfig) *Geometry {
	g := &Geometry{cfg: cfg}
	g.cfg.Profiles = slices.Clone(cfg.Profiles)
	for i := range g.cfg.Profiles {
		p := &g.cfg.Profiles[i]
		if p.Weight == 0 {
			p.Weight = int64(p.Slices)
		}
		for start := range p.Starts.All {
			g.masks[i][start] = p.mask(start)
		}
	}
	for o := Occupancy(states - 1); ; o-- { // what an instance leads to is a greater number
		g.room[o] = g.weigh(o)
		for p := range g.cfg.Profiles {
			g.best[o][p], g.counts[o][p] = g.choose(o, p)
		}
		if o == 0 {
			return g
		}
	}
}

// mask returns what an instance of p at start holds.
func (p *Profile) mask(start int) Occupancy {
	m := Occupancy(1<<p.Slices-1) << start
	if p.Media {
		m |= mediaTaken
	}
	return m
}

// weigh sums the weights of all placements that are free in o.
func (g *Geometry) weigh(o Occupancy) int64 {
	var sum int64
	for i := range g.cfg.Profiles {
		for _, m := range g.masks[i] {
			if m != 0 && m&o == 0 {
				sum += g.cfg.Profiles[i].Weight
			}
		}
	}
	return sum
}

// choose finds the best start for profile p in o, and how many instances of it fit. Greater occupancies are done.
func (g *Geometry) choose(o Occupancy, p int) (start, count int8) {
	start = -1
	var most int64
	for s, m := range g.masks[p] {
		if m == 0 || m&o != 0 {
			continue
		}
		if room := g.room[o|m]; start < 0 || room > most {
			start, most = int8(s), room
		}
		count = max(count, 1+g.counts[o|m][p])
	}
	return start, count
}

// Profiles returns a copy of the profiles, by index; weights are filled in.
func (g *Geometry) Profiles() []Profile { return slices.Clone(g.cfg.Profiles) }

// Profile returns the profile with index p; ok is false when there is none.
func (g *Geometry) Profile(p int) (profile Profile, ok bool) {
	if !g.has(p) {
		return Profile{}, false
	}
	return g.cfg.Profiles[p], true
}

// Lookup returns the index of the profile with that name.
func (g *Geometry) Lookup(name lockstep.Profile) (p int, ok bool) {
	for i := range g.cfg.Profiles {
		if g.cfg.Profiles[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// Take returns o with an instance of profile p at start added. Ok is false, and o
// comes back as it was, when it may not begin there or what it needs is held.
func (g *Geometry) Take(o Occupancy, p, start int) (after Occupancy, ok bool) {
	m := g.mask(p, start)
	if m == 0 || m&o != 0 || !g.knows(o) {
		return o, false
	}
	return o | m, true
}

// Give returns o with the instance of profile p at start removed. Ok is false, and
// o comes back as it was, when o cannot hold such an instance.
func (g *Geometry) Give(o Occupancy, p, start int) (after Occupancy, ok bool) {
	m := g.mask(p, start)
	if m == 0 || m&o != m || !g.knows(o) {
		return o, false
	}
	return o &^ m, true
}

// Starts returns where an instance of profile p may begin now; none where p is no
// profile of g.
func (g *Geometry) Starts(o Occupancy, p int) Starts {
	var s Starts
	if g.has(p) && g.knows(o) {
		for i, m := range g.masks[p] {
			if m != 0 && m&o == 0 {
				s |= 1 << i
			}
		}
	}
	return s
}

// BestStart returns the start for an instance of profile p that leaves the most
// room (see Room), the lowest of equals; ok is false when none fits.
func (g *Geometry) BestStart(o Occupancy, p int) (start int, ok bool) {
	if !g.has(p) || !g.knows(o) || g.best[o][p] < 0 {
		return 0, false
	}
	return int(g.best[o][p]), true
}

// Room returns what is left of o, as the sum of the weights of all placements, a
// profile at a start, that are free, each by itself. It is 0 if and only if nothing
// more fits.
func (g *Geometry) Room(o Occupancy) int64 {
	if !g.knows(o) {
		return 0
	}
	return g.room[o]
}

// Count returns how many more instances of profile p fit together, at the most.
func (g *Geometry) Count(o Occupancy, p int) int {
	if !g.has(p) || !g.knows(o) {
		return 0
	}
	return int(g.counts[o][p])
}

func (g *Geometry) has(p int) bool { return p >= 0 && p < len(g.cfg.Profiles) }

// knows says whether o has no slice that the device lacks.
func (g *Geometry) knows(o Occupancy) bool { return o&^mediaTaken>>g.cfg.Slices == 0 && o < states }

// mask returns what an instance holds; 0 where there can be none.
func (g *Geometry) mask(p, start int) Occupancy {
	if !g.has(p) || start < 0 || start >= maxSlices {
		return 0
	}
	return g.masks[p][start]
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind
// ErrInvalid, or ErrDuplicate for a name that stands twice. A layout in which
// instances that share no memory slice could take more compute slices than there
// are is refused too: it would be no use to know the memory slices only.
func (c GeometryConfig) Validate() error {
	f := faults{op: "sharing: geometry"}
	if c.Slices < 1 || c.Slices > maxSlices {
		f.bad("Slices", strconv.Itoa(c.Slices), "want 1 to 8")
	}
	if c.Compute < 1 {
		f.bad("Compute", strconv.Itoa(c.Compute), "want at least 1")
	}
	if n := len(c.Profiles); n < 1 || n > maxProfiles {
		f.bad("Profiles", strconv.Itoa(n), "want 1 to 16")
		return f.err()
	}
	for i := range c.Profiles {
		c.profile(&f, i)
	}
	if len(f.errs) == 0 {
		if most := c.mostCompute(); most > c.Compute {
			f.bad("Compute", strconv.Itoa(c.Compute), "instances that share no memory slice could take "+strconv.Itoa(most))
		}
	}
	return f.err()
}

// profile checks the profile with index i.
func (c *GeometryConfig) profile(f *faults, i int) {
	p, at := &c.Profiles[i], "Profiles["+strconv.Itoa(i)+"]."
	f.wrap(at+"Name", p.Name.Validate())
	for j := range i {
		if c.Profiles[j].Name == p.Name {
			f.duplicate(at+"Name", string(p.Name))
			break
		}
	}
	if p.Compute < 1 || p.Compute > c.Compute {
		f.bad(at+"Compute", strconv.Itoa(p.Compute), "want 1 to Compute")
	}
	switch {
	case p.Slices < 1 || p.Slices > c.Slices:
		f.bad(at+"Slices", strconv.Itoa(p.Slices), "want 1 to Slices")
	case p.Starts == 0:
		f.bad(at+"Starts", "", "want at least one")
	case bits.Len8(uint8(p.Starts))+p.Slices-1 > c.Slices:
		f.bad(at+"Starts", strconv.Itoa(bits.Len8(uint8(p.Starts))-1), "reaches past the last memory slice")
	}
	if p.Memory < 1 {
		f.bad(at+"Memory", p.Memory.String(), "want more than 0")
	}
	if p.Weight < 0 || p.Weight > maxWeight {
		f.bad(at+"Weight", strconv.FormatInt(p.Weight, 10), "want 0 to 2²⁰")
	}
}

// mostCompute returns the most compute slices that instances which share no memory slice take together.
func (c *GeometryConfig) mostCompute() int {
	var most [states]int // by occupancy, of what can be added to it
	for o := Occupancy(states - 1); ; o-- {
		for i := range c.Profiles {
			p := &c.Profiles[i]
			for start := range p.Starts.All {
				if m := p.mask(start); m&o == 0 {
					most[o] = max(most[o], p.Compute+most[o|m])
				}
			}
		}
		if o == 0 {
			return most[0]
		}
	}
}
