package scheduler

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/policy/order"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Rule names a policy that comes ready made.
type Rule string

// The rules. The zero Rule is LTGF.
const (
	LTGF   Rule = ""       // LTGF is long-term GPU-time fairness: the most owed tenant first, and holders compete when their term is over.
	FIFO   Rule = "fifo"   // FIFO is first come first served with backfill; nobody is ever stopped.
	SRTF   Rule = "srtf"   // SRTF is shortest remaining time first, by walltimes; holders compete when their term is over.
	LAS    Rule = "las"    // LAS is discretised two-dimensional least attained service; holders compete when their term is over.
	Static Rule = "static" // Static gives each tenant its weight's part of the devices, and first come first served inside it; nobody is ever stopped.
)

// Rules returns all rules, in the order of their declaration.
func Rules() []Rule { return []Rule{LTGF, FIFO, SRTF, LAS, Static} }

// Inside names the order of one tenant's jobs under LTGF.
type Inside string

// The orders inside a tenant. The zero Inside is Shortest.
const (
	Shortest Inside = ""      // Shortest is the shortest remaining time first, by walltimes; jobs without one come last.
	First    Inside = "first" // First is the one submitted first.
	MostOwed Inside = "owed"  // MostOwed is the job that is owed most within its tenant: all of them take turns.
)

// DefaultTerm is Config.Term where that is 0.
const DefaultTerm = 15 * time.Minute

// The defaults under Config.Floor.
const (
	DefaultQuantum  = 150 * time.Second // DefaultQuantum is Config.Quantum where that is 0.
	floorTerm       = 5 * time.Minute
	floorRound      = time.Minute
	floorHysteresis = 700_000
	floorBand       = 30 * time.Minute
)

// maxFloor is the greatest Floor, an index of ten.
const maxFloor = 10_000_000

// NoTerm, as Config.Term, means that terms never end.
const NoTerm time.Duration = -1

// Config configures a Scheduler. Only Tree has no default.
type Config struct {
	Rule          Rule                        `json:"rule,omitempty"`          // Rule is the policy; zero is LTGF.
	Weights       map[lockstep.TenantID]int64 `json:"weights,omitempty"`       // Weights are those of the tenants, 0 to fairness.MaxWeight; nil means that all are alike.
	DefaultWeight int64                       `json:"defaultWeight,omitempty"` // DefaultWeight is that of tenants without one in Weights; 0 means that their jobs are refused, or 1 where Weights is nil.
	Term          time.Duration               `json:"term,omitempty"`          // Term is how long a job holds devices before it competes for them; 0 means DefaultTerm, or NoTerm for FIFO and Static.
	Loss          int                         `json:"loss,omitempty"`          // Loss is the share of a term, in millionths, that a job's Save and Restore may take: its own term is longer where they take more; 0 means that all terms are Term.
	Round         time.Duration               `json:"round,omitempty"`         // Round is the grid of times at which ended terms are decided, so that one pass sees many; 0 means Term, 1 means at once.
	Horizon       time.Duration               `json:"horizon,omitempty"`       // Horizon is how far LTGF looks ahead, see fairness.Config; 0 means Term.
	Inside        Inside                      `json:"inside,omitempty"`        // Inside is the order of one tenant's jobs under LTGF; zero is Shortest.
	Floor         int                         `json:"floor,omitempty"`         // Floor makes LTGF displace holders only for jobs that otherwise could not expect this index, service over deserved, in millionths; terms are then held over until that is so. 0 means that holders compete with everybody when their terms are over.
	Quantum       time.Duration               `json:"quantum,omitempty"`       // Quantum is how long jobs without a walltime are expected to run on, under Floor; 0 means DefaultQuantum.
	Hysteresis    int                         `json:"hysteresis,omitempty"`    // Hysteresis is by what a holder's expected index is multiplied, in millionths, before a job that waits may be below it and displace it, under Floor; 0 means 700000.
	Band          time.Duration               `json:"band,omitempty"`          // Band is how much less than the most, as time times its quota, a tenant may be owed for its jobs to be compared with those of the tenant that is owed most, under Floor; 0 means half an hour.
	Basis         fairness.Basis              `json:"basis,omitempty"`         // Basis is what tenants are entitled to under LTGF; zero is max-min.
	Limits        []time.Duration             `json:"limits,omitempty"`        // Limits are those of the LAS queues, see order.LAS; nil means its default.
	Backfill      gang.Backfill               `json:"backfill,omitempty"`      // Backfill says which jobs may pass a blocked one; zero is EASY.
	MaxAttempts   int                         `json:"maxAttempts,omitempty"`   // MaxAttempts is how many waiting jobs one Step tries to place; 0 means no limit.
	Hold          time.Duration               `json:"hold,omitempty"`          // Hold is how long room is kept while members confirm; 0 means 5 minutes.
	StartAtOnce   bool                        `json:"startAtOnce,omitempty"`   // StartAtOnce starts gangs without reserving and confirming first.
	Retain        int                         `json:"retain,omitempty"`        // Retain is how many jobs that have left are remembered; 0 means 1024.
	Nodes         []placement.Node            `json:"nodes,omitempty"`         // Nodes say what nodes of the tree offer besides devices; see placement.Config.
	Preempt       gang.Preempt                `json:"preempt,omitempty"`       // Preempt lets gangs whose turn has come take room, and quota, of running ones before their term; zero is gang.PreemptOff.
	Forecasts     bool                        `json:"forecasts,omitempty"`     // Forecasts has passes go on while no device is free, so that blocked jobs have a reservation, and a Forecast, then too.
	Lifecycle     lifecycle.Config            `json:"lifecycle,omitzero"`      // Lifecycle are retry rules and budgets. Its deadlines default to never: gang admission and the host keep those.

	Layouts map[string]sharing.GeometryConfig `json:"layouts,omitempty"` // Layouts are those that Nodes may name as their MIG beside sharing.Models; see placement.Config.

	Tree     *topology.Tree    `json:"-"` // Tree is the cluster; required.
	Policy   Policy            `json:"-"` // Policy is used in place of Rule's; nil means none. Restore wants it in the state that it had.
	Quota    gang.Quota        `json:"-"` // Quota limits tenants and queues, such as a fairness/quota tree; nil means no limits but those of Static, which has its own. Restore wants it in the state that it had.
	Log      func(Entry)       `json:"-"` // Log is called with each input once it is taken, to be stored; nil means not. It must not block or call back.
	Recorder lockstep.Recorder `json:"-"` // Recorder takes measurements; nil means none.
}

// Validate reports every fault of c, joined; those of the parts' own fields are
// theirs to find.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if !slices.Contains(Rules(), c.Rule) {
		bad("Rule", quote(c.Rule), "no such rule")
	}
	if c.Inside != Shortest && c.Inside != First && c.Inside != MostOwed {
		bad("Inside", quote(c.Inside), "no such order")
	}
	errs = append(errs, c.validateWeights())
	duration := func(field string, d time.Duration) {
		if d < 0 || d > lockstep.MaxWalltime {
			bad(field, d.String(), "want 0 to "+lockstep.MaxWalltime.String())
		}
	}
	if c.Term != NoTerm {
		duration("Term", c.Term)
	}
	duration("Round", c.Round)
	duration("Horizon", c.Horizon)
	duration("Hold", c.Hold)
	if c.Loss < 0 || c.Loss > 1_000_000 {
		bad("Loss", strconv.Itoa(c.Loss), "want 0 to 1000000")
	}
	errs = append(errs, c.validateFloor())
	if c.Retain < 0 {
		bad("Retain", strconv.Itoa(c.Retain), "must not be negative")
	}
	if c.Tree == nil {
		bad("Tree", "nil", "required")
	}
	if c.Quota != nil && c.Rule == Static && c.Policy == nil {
		bad("Quota", "not nil", "the rule "+quote(Static)+" has its own")
	}
	return errors.Join(errs...)
}

// validateFloor reports the faults of what goes with a floor.
func (c *Config) validateFloor() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	switch {
	case c.Floor < 0 || c.Floor > maxFloor:
		bad("Floor", strconv.Itoa(c.Floor), "want 0 to "+strconv.Itoa(maxFloor))
	case c.Floor > 0 && (c.Rule != LTGF || c.Inside != Shortest || c.Term == NoTerm):
		bad("Floor", strconv.Itoa(c.Floor), "want LTGF, no order inside, and a term")
	}
	if c.Hysteresis < 0 || c.Hysteresis > millionth {
		bad("Hysteresis", strconv.Itoa(c.Hysteresis), "want 0 to "+strconv.Itoa(millionth))
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Quantum", c.Quantum}, {"Band", c.Band}} {
		if d.value < 0 || d.value > lockstep.MaxWalltime {
			bad(d.field, d.value.String(), "want 0 to "+lockstep.MaxWalltime.String())
		}
	}
	return errors.Join(errs...)
}

// validateWeights reports the faults of the weights, by tenant.
func (c *Config) validateWeights() error {
	var errs []error
	check := func(field string, w int64) {
		if w < 0 || w > fairness.MaxWeight {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", field, strconv.FormatInt(w, 10), "want 0 to 2^32"))
		}
	}
	for _, t := range slices.Sorted(maps.Keys(c.Weights)) {
		check("Weights["+string(t)+"]", c.Weights[t])
		if t != "" {
			errs = append(errs, t.Validate())
		}
	}
	check("DefaultWeight", c.DefaultWeight)
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Floor > 0 {
		c.Term = cmp.Or(c.Term, floorTerm)
		c.Round = cmp.Or(c.Round, floorRound)
		c.Quantum = cmp.Or(c.Quantum, DefaultQuantum)
		c.Hysteresis = cmp.Or(c.Hysteresis, floorHysteresis)
		c.Band = cmp.Or(c.Band, floorBand)
	}
	if c.Term == 0 {
		c.Term = DefaultTerm
		if c.Rule == FIFO || c.Rule == Static {
			c.Term = NoTerm
		}
	}
	if c.Round == 0 {
		c.Round = max(c.Term, 1)
	}
	if c.Horizon == 0 {
		c.Horizon = max(c.Term, 0)
	}
	if c.Weights == nil && c.DefaultWeight == 0 {
		c.DefaultWeight = 1
	}
	if c.Retain == 0 {
		c.Retain = 1024
	}
	l := &c.Lifecycle
	for _, d := range []*time.Duration{&l.Reserve, &l.Start, &l.Grace, &l.Clean, &l.Fence} {
		if *d == 0 {
			*d = lockstep.MaxWalltime
		}
	}
	return c
}

// New returns a Scheduler without jobs. It reports every fault of cfg.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Scheduler{cfg: cfg.withDefaults(), now: math.MinInt64, jobs: make(map[lockstep.JobID]*job), foreign: make(map[lockstep.JobID]bool)}
	var err error
	if s.room, err = placement.New(cfg.Tree, placement.Config{Nodes: cfg.Nodes, Layouts: cfg.Layouts}); err != nil {
		return nil, err
	}
	usage := s.room.Usage()
	s.placer = &placer{State: s.room, held: make(map[lockstep.JobID]int), parts: make(map[lockstep.JobID]bool), free: usage.Free}
	if s.policy, err = s.newPolicy(usage.Devices); err != nil {
		return nil, err
	}
	if cfg.Rule == Static && cfg.Policy == nil {
		if s.quota, err = newStatic(s.cfg, usage.Devices); err != nil {
			return nil, err
		}
	}
	if s.gangs, err = gang.New(s.gangConfig()); err != nil {
		return nil, err
	}
	if s.lives, err = lifecycle.New(s.cfg.Lifecycle); err != nil {
		return nil, err
	}
	if s.cfg.Term > 0 {
		if s.leases, err = lease.New(lease.Config{Term: s.cfg.Term}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newPolicy makes the policy of the rule.
func (s *Scheduler) newPolicy(devices int) (Policy, error) {
	switch {
	case s.cfg.Policy != nil:
		return s.cfg.Policy, nil
	case s.cfg.Rule == LTGF:
		return s.newFair(devices)
	case s.cfg.Rule == Static:
		w, err := newWithin(nil, 0, order.FIFO{})
		return w, err
	}
	q, err := order.New(order.Config{Order: s.cfg.order()})
	return &ordered{Queue: q}, err
}

func (s *Scheduler) newFair(devices int) (Policy, error) {
	l, err := fairness.New(s.ledgerConfig(devices))
	if err != nil {
		return nil, err
	}
	if s.cfg.Floor > 0 {
		f, err := newFloored(&s.cfg, l, devices)
		if err == nil {
			f.free = func() int { return s.placer.free }
			f.keeps = func(id lockstep.JobID) bool { _, ok := s.placer.held[id]; return ok }
		}
		return f, err
	}
	switch s.cfg.Inside {
	case MostOwed, First:
		f := newFair(l)
		f.weights = s.cfg.Weights
		return f, nil
	}
	w, err := newWithin(l, s.cfg.Horizon, order.SRTF{})
	if err != nil {
		return nil, err
	}
	w.weights = s.cfg.Weights
	return w, nil
}

func (s *Scheduler) ledgerConfig(devices int) fairness.Config {
	inside := fairness.MostOwed
	if s.cfg.Inside == First {
		inside = fairness.FIFO
	}
	return fairness.Config{
		Basis: s.cfg.Basis, JobOrder: inside, Horizon: s.cfg.Horizon, DefaultWeight: s.cfg.DefaultWeight,
		Capacity: lockstep.WholeGPU.Mul(int64(devices)),
	}
}

// order is the order of the rules that have one.
func (c *Config) order() order.Order {
	switch c.Rule {
	case SRTF:
		return order.SRTF{}
	case LAS:
		return order.LAS{Limits: c.Limits}
	}
	return order.FIFO{}
}

func (s *Scheduler) gangConfig() gang.Config {
	o := &orderer{Policy: s.policy, full: s.cfg.Preempt != gang.PreemptOff || s.cfg.Forecasts, placer: s.placer, quota: s.quota, jobs: s.jobs}
	c := gang.Config{
		Hold: s.cfg.Hold, Backfill: s.cfg.Backfill, MaxAttempts: s.cfg.MaxAttempts, Retain: s.cfg.Retain, StartAtOnce: s.cfg.StartAtOnce,
		Inventory: s.cfg.Tree, Placer: s.placer, Orderer: o, Quota: s.cfg.Quota, Recorder: s.cfg.Recorder, Preempt: s.cfg.Preempt,
	}
	if s.quota != nil {
		c.Quota = s.quota
		o.tenants = s.policy.(*within)
	}
	if f, ok := s.policy.(*floored); ok {
		c.Orderer = &ranked{orderer: o, floored: f}
	}
	return c
}

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "scheduler: " + op, Field: field, Value: value, Reason: reason}
}

func quote[T ~string](s T) string { return errtext.Quote(s) }
