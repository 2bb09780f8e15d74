package sharing

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Defaults and bounds of packing.
const (
	defaultGain     = 100
	defaultPatience = 3
	maxRate         = 10 * wholeMille
	maxPatience     = 1 << 20
	maxPairs        = 1 << 20
)

// Kind names jobs that progress alike beside the same neighbour, such as a model
// and its batch size. A job that is like no other is a kind of its own.
type Kind string

// PackConfig configures Pairs. A rate is how fast a job progresses beside another,
// in thousandths of how fast it does alone. The zero value is valid.
type PackConfig struct {
	Gain     int64 `json:"gain,omitempty"`     // Gain is how far the two rates must come to more than 1000 for a pair to be packed, 1 to 10000; 0 means 100.
	Keep     int64 `json:"keep,omitempty"`     // Keep is the same for a pair that runs packed to stay so, at most Gain; 0 means that they must not come to less than 1000.
	Least    int64 `json:"least,omitempty"`    // Least is the rate that each of the two must have, up to 10000; 0 means none.
	Patience int   `json:"patience,omitempty"` // Patience is how many bad measurements in a row unpack a pair; 0 means 3.

	// TryUnknown packs a pair that nothing is known of, to find out; else it
	// waits until rates were set.
	TryUnknown bool `json:"tryUnknown,omitempty"`
}

// PackDecision says whether two jobs should share a device, and why.
type PackDecision struct {
	Pack  bool     `json:"pack"`          // Pack says that they should, or should go on doing so.
	Known bool     `json:"known"`         // Known says that there are rates for them; else Rates are 0.
	Rates [2]int64 `json:"rates"`         // Rates are theirs beside each other, in the order asked for.
	Bad   int      `json:"bad,omitempty"` // Bad is how many of the latest measurements in a row spoke against it.
}

// Pairs keeps how kinds of jobs progress beside each other and decides who should
// share a device. It is made by NewPairs or RestorePairs.
type Pairs struct {
	cfg   PackConfig // with defaults filled in
	given PackConfig // as given, for SnapshotPairs
	rates map[pair]corun
}

// pair is two kinds, the lesser first.
type pair struct{ a, b Kind }

// corun is what is known of a pair.
type corun struct {
	rates [2]int64 // of a and of b
	bad   int      // bad measurements in a row, less than Patience
}

// NewPairs returns an empty table.
func NewPairs(cfg PackConfig) (*Pairs, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Pairs{cfg: cfg, given: cfg, rates: make(map[pair]corun)}
	p.cfg.Gain = cmp.Or(cfg.Gain, defaultGain)
	p.cfg.Patience = cmp.Or(cfg.Patience, defaultPatience)
	return p, nil
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (c PackConfig) Validate() error {
	f := faults{op: "sharing: pairs"}
	if c.Gain < 0 || c.Gain > maxRate {
		f.bad("Gain", strconv.FormatInt(c.Gain, 10), "want 0 to 10000")
	}
	if c.Keep < 0 || c.Keep > cmp.Or(max(c.Gain, 0), defaultGain) {
		f.bad("Keep", strconv.FormatInt(c.Keep, 10), "want 0 to Gain")
	}
	if c.Least < 0 || c.Least > maxRate {
		f.bad("Least", strconv.FormatInt(c.Least, 10), "want 0 to 10000")
	}
	if c.Patience < 0 || c.Patience > maxPatience {
		f.bad("Patience", strconv.Itoa(c.Patience), "want 0 to 2²⁰")
	}
	return f.err()
}

// Set states how fast a job of kind a is beside one of kind b, and that one beside
// it, in place of what was known. A kind that is no name or a rate outside of 0 to
// 10000 is ErrInvalid; one pair more than 2²⁰ is ErrConflict.
func (p *Pairs) Set(a, b Kind, rateA, rateB int64) error {
	const op = "sharing: set"
	if err := checkPair(op, a, b, rateA, rateB); err != nil {
		return err
	}
	key, turned := ordered(a, b)
	if _, ok := p.rates[key]; !ok && len(p.rates) == maxPairs {
		return fault(lockstep.ErrConflict, op, "a", errtext.Quote(a), "there are 2²⁰ pairs")
	}
	p.rates[key] = corun{rates: turn([2]int64{rateA, rateB}, turned)}
	return nil
}

// Observe takes a measurement of two jobs that share a device and says whether they
// should go on. A bad one, by Keep and Least, speaks against it; Patience of them in
// a row unpack the pair, and the last of them is then what is known, so that it is
// not packed again before Set says otherwise. Else what is known moves a quarter of
// the way to what was measured. Errors are as for Set.
func (p *Pairs) Observe(a, b Kind, rateA, rateB int64) (PackDecision, error) {
	const op = "sharing: observe"
	if err := checkPair(op, a, b, rateA, rateB); err != nil {
		return PackDecision{}, err
	}
	key, turned := ordered(a, b)
	sample := turn([2]int64{rateA, rateB}, turned)
	c, known := p.rates[key]
	if !known {
		if len(p.rates) == maxPairs {
			return PackDecision{}, fault(lockstep.ErrConflict, op, "a", errtext.Quote(a), "there are 2²⁰ pairs")
		}
		c.rates = sample
	}
	for i := range sample {
		c.rates[i] = (3*c.rates[i] + sample[i] + 2) / 4
	}
	stay := true
	bad := 0
	if !p.pays(sample, p.cfg.Keep) {
		bad = c.bad + 1
	}
	c.bad = bad
	if bad >= p.cfg.Patience {
		stay = false
		c = corun{rates: sample}
	}
	p.rates[key] = c
	return PackDecision{Pack: stay, Known: true, Rates: turn(c.rates, turned), Bad: bad}, nil
}

// Decide says whether a job of kind a and one of kind b that run apart should share
// a device. It allocates nothing.
func (p *Pairs) Decide(a, b Kind) PackDecision {
	key, turned := ordered(a, b)
	c, known := p.rates[key]
	d := PackDecision{Known: known, Rates: turn(c.rates, turned), Bad: c.bad}
	if known {
		d.Pack = p.pays(c.rates, p.cfg.Gain)
	} else {
		d.Pack = p.cfg.TryUnknown
	}
	return d
}

// Best returns the index in with of the kind that a job of kind a should share a
// device with: of those that Decide packs, one that is known before one that is
// not, then the one with the greatest sum of rates, then the first. Ok is false
// when there is none. It allocates nothing.
func (p *Pairs) Best(a Kind, with []Kind) (i int, d PackDecision, ok bool) {
	for j, b := range with {
		e := p.Decide(a, b)
		if !e.Pack {
			continue
		}
		if !ok || cmp.Or(first(e.Known, d.Known), cmp.Compare(d.sum(), e.sum())) < 0 {
			i, d, ok = j, e, true
		}
	}
	return i, d, ok
}

func (d PackDecision) sum() int64 { return d.Rates[0] + d.Rates[1] }

// pays says whether rates come to margin more than one job alone, and nobody starves.
func (p *Pairs) pays(rates [2]int64, margin int64) bool {
	return rates[0]+rates[1] >= wholeMille+margin && min(rates[0], rates[1]) >= p.cfg.Least
}

// ordered returns the key of a pair, and whether it has its kinds the other way round.
func ordered(a, b Kind) (key pair, turned bool) {
	if a <= b {
		return pair{a, b}, false
	}
	return pair{b, a}, true
}

// turn returns rates the other way round if turned.
func turn(rates [2]int64, turned bool) [2]int64 {
	if turned {
		rates[0], rates[1] = rates[1], rates[0]
	}
	return rates
}

func checkPair(op string, a, b Kind, rateA, rateB int64) error {
	f := faults{op: op}
	f.wrap("a", lockstep.JobID(a).Validate())
	f.wrap("b", lockstep.JobID(b).Validate())
	for _, r := range []struct {
		field string
		rate  int64
	}{{"rateA", rateA}, {"rateB", rateB}} {
		if r.rate < 0 || r.rate > maxRate {
			f.bad(r.field, strconv.FormatInt(r.rate, 10), "want 0 to 10000")
		}
	}
	return f.err()
}

// sorted returns the pairs that are known, by their kinds.
func (p *Pairs) sorted() []pair {
	keys := make([]pair, 0, len(p.rates))
	for k := range p.rates { // in any order: sorted below
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y pair) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) })
	return keys
}
