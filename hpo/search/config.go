package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Kind says what a slot of a class is.
type Kind string

// The kinds.
const (
	Exclusive Kind = ""       // Exclusive: a device of the search's own; strong trials and targets run here.
	Bubble    Kind = "bubble" // Bubble: the idle times of a device of another job; weak and unproven trials run here.
)

// ClassName names a Class.
type ClassName string

// Class is slots that are alike: a type of device, or the bubbles of one stage.
type Class struct {
	Name     ClassName      `json:"name"`               // not empty, unique
	Kind     Kind           `json:"kind,omitempty"`     // what its slots are
	Memory   lockstep.Bytes `json:"memory,omitempty"`   // that a bundle may take; 0 means no limit
	Profiles []Profile      `json:"profiles,omitempty"` // what was measured on it; a key without one does not run there
}

// Profile is what was measured of bundles of one key on slots of one class. In a bubble a step lasts from safe point to safe
// point, pauses included, so that its throughput is what the slot really gives.
type Profile struct {
	Key    fusion.Key     `json:"key,omitempty"` // which trials; "" means all keys without a profile of their own
	Points []fusion.Point `json:"points"`        // as for fusion.NewProfile, up to 2^20 fused
}

// Transfer says when the best surrogates are trained at full size. The zero value is valid.
type Transfer struct {
	Trials int `json:"trials,omitempty"` // how many trials there are going to be; 0 means that nobody knows
	// After is how many trials have to be over, or paused at a rung, before the first transfer; 0 means half of Trials,
	// or if there are more or nobody knows, of those added so far, but at least one.
	After int `json:"after,omitempty"`
	Best  int `json:"best,omitempty"` // how many are to be transferred at the end, chosen by key, the best one among them; 0 means 1
}

// Config configures a Search. The zero value is valid, and runs nothing before it has classes.
type Config struct {
	Rule          hpo.Config `json:"rule"`                    // who goes on and who stops; not PBT
	Classes       []Class    `json:"classes,omitempty"`       // the kinds of slots
	SlackFraction float64    `json:"slackFraction,omitempty"` // throughput given up for smaller bundles, as in Profile.Knee; 0 means 0.05
	FillFraction  float64    `json:"fillFraction,omitempty"`  // share of the limit from which a bundle counts as full; 0 means 1
	Ahead         int        `json:"ahead,omitempty"`         // trials held ready to make full bundles of; 0 means the largest limit for each group of trials that may be fused, and 4 times more
	DisableMoves  bool       `json:"disableMoves,omitempty"`  // bundles stay where they are, even if a better slot has nothing to do
	Transfer      *Transfer  `json:"transfer,omitempty"`      // nil means that nothing is trained at full size
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(kind error, field, value, reason string) {
		errs = append(errs, fault(kind, "config", field, value, reason))
	}
	if err := c.Rule.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.Rule.PBT != nil {
		bad(lockstep.ErrInvalid, "Rule.PBT", "", "trials that copy each other are not fused; use package hpo by itself")
	}
	if !(c.SlackFraction >= 0 && c.SlackFraction < 1) {
		bad(lockstep.ErrInvalid, "SlackFraction", fmt.Sprint(c.SlackFraction), "must be in [0, 1)")
	}
	if !(c.FillFraction >= 0 && c.FillFraction <= 1) {
		bad(lockstep.ErrInvalid, "FillFraction", fmt.Sprint(c.FillFraction), "must be in [0, 1]")
	}
	if c.Ahead < 0 || c.Ahead > maxFused {
		bad(lockstep.ErrInvalid, "Ahead", fmt.Sprint(c.Ahead), "must be in [0, 2^20]")
	}
	if t := c.Transfer; t != nil && (t.Trials < 0 || t.After < 0 || t.Best < 0) {
		bad(lockstep.ErrInvalid, "Transfer", fmt.Sprintf("%+v", *t), "must not be negative")
	}
	names := map[ClassName]bool{}
	for i := range c.Classes {
		cl, field := &c.Classes[i], fmt.Sprintf("Classes[%d]", i)
		if cl.Name == "" {
			bad(lockstep.ErrInvalid, field+".Name", "", "must be given")
		} else if names[cl.Name] {
			bad(lockstep.ErrDuplicate, field+".Name", errtext.Quote(cl.Name), "stands twice")
		}
		names[cl.Name] = true
		errs = append(errs, cl.faults(field)...)
	}
	return errors.Join(errs...)
}

// faults returns what is wrong with c but its name.
func (c *Class) faults(field string) []error {
	var errs []error
	if c.Kind != Exclusive && c.Kind != Bubble {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field+".Kind", errtext.Quote(c.Kind), `must be "" or "bubble"`))
	}
	if c.Memory < 0 {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field+".Memory", fmt.Sprint(int64(c.Memory)), "must not be negative"))
	}
	keys := map[fusion.Key]bool{}
	for i := range c.Profiles {
		p, field := &c.Profiles[i], fmt.Sprintf("%s.Profiles[%d]", field, i)
		if keys[p.Key] {
			errs = append(errs, fault(lockstep.ErrDuplicate, "config", field+".Key", errtext.Quote(p.Key), "stands twice"))
		}
		keys[p.Key] = true
		if err := p.check(field); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// maxFused is the most trials of a bundle, so that rates stay in range.
const maxFused = 1 << 20

func (p *Profile) check(field string) error {
	for i := range p.Points {
		if p.Points[i].Fused > maxFused {
			return fault(lockstep.ErrInvalid, "config", fmt.Sprintf("%s.Points[%d].Fused", field, i), fmt.Sprint(p.Points[i].Fused), "must be at most 2^20")
		}
	}
	if _, err := fusion.NewProfile(p.Points); err != nil {
		return fmt.Errorf("search: config: %s: %w", field, err)
	}
	return nil
}

// clone copies what c points to.
func (c Config) clone() Config {
	c.Classes = slices.Clone(c.Classes)
	for i := range c.Classes {
		c.Classes[i].Profiles = slices.Clone(c.Classes[i].Profiles)
		for j := range c.Classes[i].Profiles {
			c.Classes[i].Profiles[j].Points = slices.Clone(c.Classes[i].Profiles[j].Points)
		}
	}
	if c.Transfer != nil {
		t := *c.Transfer
		c.Transfer = &t
	}
	if c.Rule.ASHA != nil {
		a := *c.Rule.ASHA
		a.Levels = slices.Clone(a.Levels)
		c.Rule.ASHA = &a
	}
	if c.Rule.SHA != nil {
		h := *c.Rule.SHA
		c.Rule.SHA = &h
	}
	if c.Rule.Hyperband != nil {
		h := *c.Rule.Hyperband
		c.Rule.Hyperband = &h
	}
	if c.Rule.Median != nil {
		m := *c.Rule.Median
		c.Rule.Median = &m
	}
	return c
}

// cost is what trials of one profile cost on slots of one class.
type cost struct {
	profile fusion.Profile
	memory  lockstep.Bytes
	limit   int   // at the knee, at least 1
	rate    int64 // trial-steps in 1000 s at the limit
	full    int   // from how many members a bundle is full
}

// step returns how long a step of so many takes, in nanoseconds, or false if they do not fit.
func (c *cost) step(fused int) (int64, bool) {
	p, ok := c.profile.At(fused)
	return int64(p.Step), ok && p.Memory <= c.memory
}

// table is what is known of one class.
type table struct {
	kind  Kind
	costs map[fusion.Key]*cost // those that fit
	rate  int64                // the highest of costs
}

// tabulate works out the tables of all classes, which are valid, and the largest limit.
func (s *Search) tabulate() {
	s.tables, s.largest = make([]table, len(s.cfg.Classes)), 1
	slack, fill := cmp.Or(s.cfg.SlackFraction, 0.05), cmp.Or(s.cfg.FillFraction, 1)
	for i := range s.cfg.Classes {
		cl, t := &s.cfg.Classes[i], &s.tables[i]
		t.kind, t.costs = cl.Kind, map[fusion.Key]*cost{}
		for _, p := range cl.Profiles {
			c := &cost{memory: cmp.Or(cl.Memory, math.MaxInt64)}
			t.costs[p.Key] = nil
			c.profile, _ = fusion.NewProfile(p.Points)
			limit, ok := c.profile.Knee(c.memory, slack)
			if !ok {
				continue
			}
			step, _ := c.step(limit)
			c.limit, c.rate = limit, int64(limit)*1_000_000_000_000/step
			c.full = max(1, int(math.Ceil(float64(limit)*fill)))
			t.costs[p.Key] = c
			t.rate = max(t.rate, c.rate)
			s.largest = max(s.largest, limit)
		}
	}
}

// cost returns what trials of a key cost on slots of a class, nil if they do not run there.
func (s *Search) cost(class, key int32) *cost {
	t := &s.tables[class]
	if c, ok := t.costs[s.keys[key]]; ok {
		return c
	}
	return t.costs[""]
}
