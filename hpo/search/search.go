package search

import (
	"math"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Do is what an Action asks for.
type Do string

// What actions ask for.
const (
	Start  Do = "start"  // Start: train Members as one model on Slot, from their checkpoints; it is a new bundle.
	Stop   Do = "stop"   // Stop: save the members of Bundle, which is over; those that go on are in a later Start.
	Move   Do = "move"   // Move: take Bundle from From to Slot, unchanged, at its next safe point.
	Target Do = "target" // Target: train the full-size model of Trial on Slot.
)

// Action is something that the host is to do, after those before it.
type Action struct {
	Do      Do              `json:"do"`                // what
	Bundle  fusion.BundleID `json:"bundle,omitempty"`  // which bundle; "" for Target
	Key     fusion.Key      `json:"key,omitempty"`     // of the bundle's members
	Slot    SlotID          `json:"slot,omitempty"`    // where; with Stop where it was
	From    SlotID          `json:"from,omitempty"`    // where it was, with Move
	Members []Member        `json:"members,omitempty"` // with Start, in the order of the fused axis; the receiver owns them
	Begin   uint64          `json:"begin,omitempty"`   // the last step that all members reported, with Start
	Until   uint64          `json:"until,omitempty"`   // the step to report at, with Start; 0 means every one
	Trial   hpo.TrialID     `json:"trial,omitempty"`   // with Target
}

// Member is a trial of a bundle.
type Member struct {
	Trial   hpo.TrialID `json:"trial"`   // which
	Attempt uint32      `json:"attempt"` // which of its attempts, from 1
}

// Report is what the members of a bundle measured at a step.
type Report struct {
	Bundle fusion.BundleID // Bundle is which; it must run.
	Step   uint64          // Step is how far all of them are.
	Values []float64       // Values are the metrics, in the order of Action.Members; NaN where there is none.
}

// state is where a trial is.
type state uint8

const (
	away    state = iota // with the rule: waiting, paused or over
	ready                // started by the rule, in a group
	running              // in a bundle
	states
)

// trial is what is kept of a trial.
type trial struct {
	id      hpo.TrialID
	value   float64 // as last reported; NaN if not, or not finite
	key     int32
	attempt uint32
	stamp   uint32 // how often value changed
	state   state
	ended   bool // it was paused at a rung, or is over
	sent    bool // it was transferred
}

// bundle is trials that run as one.
type bundle struct {
	seq     uint64 // of its ID
	gkey           // from is the last step reported
	slot    *slot
	members []int32
}

func (b *bundle) id() fusion.BundleID { return bundleID(b.seq) }

func bundleID(seq uint64) fusion.BundleID { return fusion.BundleID("b" + strconv.FormatUint(seq, 10)) }

// Search coordinates one search. Make one with New.
type Search struct {
	cfg    Config
	rule   *hpo.Scheduler
	levels [][]uint64 // of the rungs, by bracket; none where the rule has none
	most   uint64     // step at which a trial is complete

	tables  []table
	largest int              // limit of all
	names   map[string]int32 // classes

	keys    []fusion.Key
	keyed   map[fusion.Key]int32
	trials  []trial
	index   map[hpo.TrialID]int32
	ended   int
	slots   []*slot // in the order in which they are served
	at      map[SlotID]*slot
	bundles map[fusion.BundleID]*bundle
	made    uint64    // bundles, ever
	safe    []*bundle // that lost members and are to be fused anew; they keep their slots

	groups []*group
	group  map[gkey]*group
	ready  int    // trials in groups
	picks  uint64 // groups taken from, ever
	dry    bool   // the rule had nothing to start, in this call of Next

	best      board
	pending   []int32 // to be transferred
	finished  bool    // the end was reached and the last transfers chosen
	queue     []Action
	decisions []hpo.Decision // of Next
}

// New returns a search without trials and slots. It copies cfg.
func New(cfg Config) (*Search, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	rule, err := hpo.New(cfg.Rule)
	if err != nil {
		return nil, err
	}
	return build(cfg.clone(), rule), nil
}

// build returns a search of a valid configuration, which it keeps.
func build(cfg Config, rule *hpo.Scheduler) *Search {
	s := &Search{
		cfg: cfg, rule: rule, names: map[string]int32{}, keyed: map[fusion.Key]int32{}, index: map[hpo.TrialID]int32{},
		at: map[SlotID]*slot{}, bundles: map[fusion.BundleID]*bundle{}, group: map[gkey]*group{},
	}
	for i := range cfg.Classes {
		s.names[string(cfg.Classes[i].Name)] = int32(i)
	}
	r := cfg.Rule
	if r.SHA == nil && r.Hyperband == nil && r.Median == nil {
		for _, g := range rule.Rungs() {
			for g.Bracket >= len(s.levels) {
				s.levels = append(s.levels, nil)
			}
			s.levels[g.Bracket] = append(s.levels[g.Bracket], g.Level)
		}
		s.most = 100
		if a := r.ASHA; a != nil && a.Max > 0 {
			s.most = a.Max
		} else if a != nil && len(a.Levels) > 0 {
			s.most = a.Levels[len(a.Levels)-1]
		}
	}
	s.tabulate()
	return s
}

// Add makes a trial wait to be started. Trials of one key may be fused.
func (s *Search) Add(id hpo.TrialID, key fusion.Key) error {
	if err := s.rule.Add(id); err != nil {
		return err
	}
	s.index[id] = int32(len(s.trials))
	s.trials = append(s.trials, trial{id: id, key: s.intern(key), value: math.NaN()})
	s.finished = false
	return nil
}

// intern returns the number of a key.
func (s *Search) intern(key fusion.Key) int32 {
	n, ok := s.keyed[key]
	if !ok {
		n = int32(len(s.keys))
		s.keyed[key] = n
		s.keys = append(s.keys, key)
	}
	return n
}

// Measure takes the profile of a class's slots for a key in place of what was known. Bundles that run stay as they are.
func (s *Search) Measure(class ClassName, p Profile) error {
	n, ok := s.names[string(class)]
	if !ok {
		return fault(lockstep.ErrUnknown, "measure", "class", errtext.Quote(class), "is not there")
	}
	if err := p.check("profile"); err != nil {
		return err
	}
	p.Points = append([]fusion.Point(nil), p.Points...)
	cl := &s.cfg.Classes[n]
	for i := range cl.Profiles {
		if cl.Profiles[i].Key == p.Key {
			cl.Profiles[i] = p
			s.tabulate()
			s.order()
			return nil
		}
	}
	cl.Profiles = append(cl.Profiles, p)
	s.tabulate()
	s.order()
	return nil
}

// Quiescent says that nothing runs, and that nothing will until a trial is added: the search is over, and so are its
// targets.
func (s *Search) Quiescent() bool {
	if len(s.queue) > 0 || s.ready > 0 || len(s.bundles) > 0 || len(s.safe) > 0 || len(s.pending) > 0 || !s.rule.Quiescent() {
		return false
	}
	for _, x := range s.slots {
		if x.target >= 0 {
			return false
		}
	}
	return s.cfg.Transfer == nil || s.finished
}

// View is a copy of what a Search knows.
type View struct {
	Trials  int // Trials were added.
	Ready   int // Ready are those that could run if a slot that fits them were free.
	Running int // Running are those in bundles.
	Ended   int // Ended are those that were paused at a rung at some time, or are over.
	Bundles int // Bundles run.
	Free    int // Free are the slots in service on which nothing runs.
	Targets int // Targets run.
	Pending int // Pending are targets that wait for an exclusive slot.
}

// View returns what there is.
func (s *Search) View() View {
	v := View{Trials: len(s.trials), Ready: s.ready, Ended: s.ended, Bundles: len(s.bundles), Pending: len(s.pending)}
	for _, x := range s.slots {
		switch {
		case x.target >= 0:
			v.Targets++
		case x.free():
			v.Free++
		case x.bundle != nil:
			v.Running += len(x.bundle.members)
		}
	}
	return v
}

// Rungs returns what the rungs of the rule have seen, as hpo.Scheduler does.
func (s *Search) Rungs() []hpo.Rung { return s.rule.Rungs() }
