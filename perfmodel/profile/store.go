package profile

import (
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Defaults and bounds of a Store.
const (
	defaultKinds    = 4096
	defaultPartners = 64
	defaultKeep     = 16
	defaultExplore  = 3
	maxKinds        = 1 << 20
	maxPartners     = 1 << 12
	maxClasses      = 64 // of devices, by kind
	maxLevels       = 18 // as many as a topology has
	maxRate         = 1e100
)

// usual is the spread of repeated measurements, as a part of them, before there are
// enough to tell.
const usual = .05

// Kind names jobs that behave alike, such as a model, its batch size and its number of
// GPUs. A job that is like no other is a kind of its own.
type Kind string

// Source says where a figure comes from.
type Source string

// The sources, the worst first.
const (
	Unknown  Source = ""         // Unknown: nothing was measured that tells.
	Inferred Source = "inferred" // Inferred: concluded from what was measured of others, or on both sides of it.
	Measured Source = "measured" // Measured: it was measured, and possibly smoothed.
)

// Estimate is a figure and how sure it is. The zero Estimate is that nothing is known.
type Estimate struct {
	Value   float64 `json:"value"`             // Value is the best guess.
	Low     float64 `json:"low"`               // Low is what it is at least, with a probability of about 97.5 %.
	High    float64 `json:"high,omitempty"`    // High is what it is at most, with the same; 0 means that no bound is known.
	Samples int     `json:"samples,omitempty"` // Samples is how many measurements of it are kept.
	Source  Source  `json:"source,omitempty"`  // Source says where it comes from.
}

// Config configures a Store. The zero value is valid.
type Config struct {
	// Levels are the levels at which a job may be held together, the coarsest first,
	// as a topology has them; none means "cluster" and lockstep.LevelNode.
	Levels   []lockstep.Level `json:"levels,omitempty"`
	Kinds    int              `json:"kinds,omitempty"`    // Kinds is how many kinds are remembered, those last observed; 0 means 4096, at most 2²⁰.
	Partners int              `json:"partners,omitempty"` // Partners is how many neighbours of a kind are remembered; 0 means 64, at most 4096.
	Keep     int              `json:"keep,omitempty"`     // Keep is how many measurements of one thing are kept, the last ones; 0 means 16, at most 64.
	Explore  int              `json:"explore,omitempty"`  // Explore is on how many classes of devices a kind is tried out; 0 means 3, at most 64.
}

// Store keeps what was measured of kinds of jobs: how much slower they are the farther
// their devices are apart, how fast they are on each class of device, and how much they
// slow each other down on one device. It is made by New or Restore.
type Store struct {
	cfg   Config // with defaults filled in
	given Config // as given, for Snapshot
	kinds *lru[Kind, known]
	model *additive // of interference; nil until asked for, and after a change
	fit   *linear   // the same, by usage
}

// known is what is known of a kind.
type known struct {
	levels  [][]float64         // logarithms of seconds by level, as Config has them; nil until one was measured
	classes []class             // by name
	beside  *lru[Kind, []int64] // thousandths of its rate beside others; nil while none was measured
	usage   Usage
	told    bool // usage was
}

// class is the rates of a kind on a class of device, as logarithms.
type class struct {
	name  lockstep.DeviceClass
	rates []float64
}

// New returns an empty store.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, given: cfg, kinds: newLRU[Kind, known]()}
	s.given.Levels = slices.Clone(cfg.Levels)
	s.cfg.Levels = slices.Clone(cfg.Levels)
	if len(cfg.Levels) == 0 {
		s.cfg.Levels = []lockstep.Level{"cluster", lockstep.LevelNode}
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&s.cfg.Kinds, defaultKinds}, {&s.cfg.Partners, defaultPartners}, {&s.cfg.Keep, defaultKeep}, {&s.cfg.Explore, defaultExplore}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return s, nil
}

// Validate reports every fault of c, joined, each an *lockstep.Error: ErrDuplicate for a
// level that is named twice, else ErrInvalid.
func (c Config) Validate() error {
	f := faults{op: "profile: store"}
	if len(c.Levels) > maxLevels {
		f.bad("Levels", strconv.Itoa(len(c.Levels)), "want at most 18")
	}
	for i, l := range c.Levels[:min(len(c.Levels), maxLevels)] {
		at := "Levels[" + strconv.Itoa(i) + "]"
		f.wrap(at, l.Validate())
		if slices.Contains(c.Levels[:i], l) {
			f.errs = append(f.errs, fault(lockstep.ErrDuplicate, f.op, at, errtext.Quote(l), "named twice"))
		}
	}
	f.count("Kinds", int64(c.Kinds), 0, maxKinds)
	f.count("Partners", int64(c.Partners), 0, maxPartners)
	f.count("Keep", int64(c.Keep), 0, maxKeep)
	f.count("Explore", int64(c.Explore), 0, maxClasses)
	return f.err()
}

// Forget drops all that is known of a kind, also beside others. It says whether there
// was anything.
func (s *Store) Forget(k Kind) bool {
	e := s.kinds.get(k)
	if e == nil {
		return false
	}
	e.beside.all(func(other Kind, _ *[]int64) {
		if other != k {
			s.kinds.get(other).beside.remove(k)
		}
	})
	s.kinds.remove(k)
	s.model, s.fit = nil, nil
	return true
}

// Len returns how many kinds are remembered.
func (s *Store) Len() int { return s.kinds.len() }

// touch returns what is known of k for a change to it, and forgets the kind that was
// observed longest ago if there is one too many.
func (s *Store) touch(k Kind) *known {
	e := s.kinds.touch(k)
	if s.kinds.len() > s.cfg.Kinds {
		s.Forget(s.kinds.oldest())
	}
	return e
}

// spread returns the estimate that b is of a logarithm.
func (b belief) spread(src Source) Estimate {
	return Estimate{Value: exp(b.mid), Low: exp(b.mid - b.half), High: exp(b.mid + b.half), Samples: b.n, Source: src}
}

// exp returns the figure of a logarithm, held at the greatest that there is.
func exp(x float64) float64 { return min(math.Exp(x), math.MaxFloat64) }
