package bubble

import (
	"errors"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Limits on what is accepted, so that products stay in 64 bits.
const (
	maxSpan    = time.Hour // of a window, a step, a resume and a pause
	maxStart   = 100 * time.Hour
	maxChoices = 64 // points of all bundles
	maxQuanta  = 1024
	maxFused   = 1_000_000
	maxWeight  = 1_000_000
	maxSamples = 100_000 // of one kind
	million    = 1_000_000
)

// The defaults of Config.
const (
	defaultMiss    = 1000 // parts per million
	defaultSamples = 4000
	defaultSteady  = 20
)

// BundleID names a Bundle.
type BundleID string

// Bundle is trials that may be trained as one fused model, as many at once as a window has room for.
type Bundle struct {
	ID           BundleID       `json:"id"`                     // not empty, unique
	Points       []fusion.Point `json:"points"`                 // what was measured, as for fusion.NewProfile; only these numbers are fused
	Members      int64          `json:"members,omitempty"`      // how many trials there are; 0 means more than can be loaded
	Steps        int64          `json:"steps,omitempty"`        // trial-steps that are left to make, of all members; 0 means no limit
	Weight       int64          `json:"weight,omitempty"`       // what one trial-step is worth; 0 means 1
	LowBandwidth bool           `json:"lowBandwidth,omitempty"` // it may also fill a CommWait, in which transfers go on
}

// Device is the device of one stage.
type Device struct {
	Memory lockstep.Bytes `json:"memory"`         // what it has
	Peak   lockstep.Bytes `json:"peak,omitempty"` // the most that the main job holds at any time of its iteration
}

// spare is what trials may hold. They keep it while they are paused, so the main job's peak counts and not what it
// holds in a window.
func (d Device) spare() lockstep.Bytes { return max(d.Memory-d.Peak, 0) }

// Window is a bubble of every iteration of the main job, as package pipeline predicts or the host has measured it.
type Window struct {
	Stage         int                 `json:"stage"`                   // index of the device
	Start         time.Duration       `json:"start"`                   // since the iteration began
	End           time.Duration       `json:"end"`                     // when the main job needs the device again
	Kind          pipeline.WindowKind `json:"kind,omitempty"`          // Idle is open to all, CommWait to LowBandwidth bundles
	ShareFraction float64             `json:"shareFraction,omitempty"` // speed of trials in it over their speed alone, in (0, 1]; 0 means 1
}

// share returns ShareFraction in parts per million.
func (w Window) share() int64 {
	if w.ShareFraction == 0 {
		return million
	}
	return max(int64(math.Floor(w.ShareFraction*million)), 1)
}

// Residency says what may be loaded on a device at once.
type Residency uint8

// The residencies.
const (
	// ResidentSet: whatever is run on a device in any window stays loaded on it, and all of it has to fit together.
	ResidentSet Residency = iota
	// FreeSwitching: each window may run whatever fits by itself. A device can do so only where state is moved in
	// time between windows; else this is a bound on what ResidentSet can reach.
	FreeSwitching
)

// String returns "resident" or "free".
func (r Residency) String() string {
	switch r {
	case ResidentSet:
		return "resident"
	case FreeSwitching:
		return "free"
	}
	return "Residency(" + strconv.Itoa(int(r)) + ")"
}

// Config configures a Packer. The zero value is valid and has nothing to fill.
type Config struct {
	Bundles      []Bundle      `json:"bundles,omitempty"`      // what may run
	Devices      []Device      `json:"devices,omitempty"`      // by stage
	Windows      []Window      `json:"windows,omitempty"`      // of one iteration; those of a stage by time, without overlap
	Quanta       int           `json:"quanta,omitempty"`       // safe points of a step: it can be paused after each of as many equal parts; 0 means 1
	Resume       time.Duration `json:"resume,omitempty"`       // from the start of a window to the first quantum
	Pause        time.Duration `json:"pause,omitempty"`        // from the end of the last quantum until the device is quiet
	Residency    Residency     `json:"residency,omitempty"`    // what may be loaded at once; zero is ResidentSet
	MissFraction float64       `json:"missFraction,omitempty"` // share of windows after which the main job may have to wait; 0 means 0.001
	// Samples is how many windows are observed, once filling was stopped or before it began, until it starts again; 0
	// means 4000, or what MissFraction needs if that is more.
	Samples int `json:"samples,omitempty"`
	// Steady is how many lengths in a row have to be alike before a window that drifted is filled again; 0 means 20.
	Steady int `json:"steady,omitempty"`
}

// withDefaults fills in what zero means, in copies.
func (c Config) withDefaults() Config {
	if c.Quanta == 0 {
		c.Quanta = 1
	}
	if c.MissFraction == 0 {
		c.MissFraction = defaultMiss / 1e6
	}
	if c.Samples == 0 {
		c.Samples = max(defaultSamples, int(need(c.miss())))
	}
	if c.Steady == 0 {
		c.Steady = defaultSteady
	}
	return c
}

// miss returns MissFraction in parts per million, rounded down.
func (c *Config) miss() int64 { return int64(math.Floor(float64(c.MissFraction*million) + 1e-6)) }

// need returns the fewest samples of which one may be beyond all of them with a chance of miss: 1/miss - 1.
func need(miss int64) int64 { return (million+max(miss, 1)-1)/max(miss, 1) - 1 }

// Validate reports all faults of c, joined.
func (c Config) Validate() error {
	var errs []error
	if !(c.MissFraction == 0 || c.MissFraction >= 1e-5 && c.MissFraction < 1) {
		errs = append(errs, invalid("config", "MissFraction", strconv.FormatFloat(c.MissFraction, 'g', -1, 64), "must be from 1e-5 up to, and without, 1"))
		c.MissFraction = 0
	}
	least := int(need(c.withDefaultMiss()))
	for _, f := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"Quanta", c.Quanta, 1, maxQuanta},
		{"Samples", c.Samples, least, maxSamples},
		{"Steady", c.Steady, 2, 1000},
	} {
		if f.value != 0 && (f.value < f.least || f.value > f.most) {
			errs = append(errs, invalid("config", f.name, strconv.Itoa(f.value), "must be 0 or from "+strconv.Itoa(f.least)+" to "+strconv.Itoa(f.most)))
		}
	}
	errs = append(errs, checkSpan("config", "Resume", c.Resume), checkSpan("config", "Pause", c.Pause))
	if c.Residency > FreeSwitching {
		errs = append(errs, invalid("config", "Residency", strconv.Itoa(int(c.Residency)), "is not a residency"))
	}
	for i, d := range c.Devices {
		if d.Memory < 0 || d.Peak < 0 {
			errs = append(errs, invalid("config", at("Devices", i), "", "memory and peak must not be negative"))
		}
	}
	return errors.Join(append(append(errs, c.validateBundles()...), c.validateWindows()...)...)
}

// withDefaultMiss returns miss with what zero means.
func (c Config) withDefaultMiss() int64 {
	if c.MissFraction == 0 {
		return defaultMiss
	}
	return c.miss()
}

func (c *Config) validateBundles() (errs []error) {
	points := 0
	ids := make(map[BundleID]bool, len(c.Bundles))
	for i := range c.Bundles {
		b := &c.Bundles[i]
		field := at("Bundles", i)
		if b.ID != "" && ids[b.ID] {
			errs = append(errs, fault(lockstep.ErrDuplicate, "config", field+".ID", string(b.ID), "stands twice"))
		}
		ids[b.ID] = true
		points += len(b.Points)
		errs = append(errs, b.validate(field)...)
	}
	if points > maxChoices {
		errs = append(errs, invalid("config", "Bundles", strconv.Itoa(points)+" points", "must be at most "+strconv.Itoa(maxChoices)))
	}
	return errs
}

// validate returns the faults of b, which is at field.
func (b *Bundle) validate(field string) (errs []error) {
	bad := func(name, value, reason string) {
		errs = append(errs, invalid("config", field+"."+name, value, reason))
	}
	if b.ID == "" || !utf8.ValidString(string(b.ID)) {
		bad("ID", errtext.Quote(b.ID), "must be UTF-8 and not empty")
	}
	if b.Members < 0 {
		bad("Members", strconv.FormatInt(b.Members, 10), "must not be negative")
	}
	if b.Steps < 0 || b.Steps > math.MaxInt64/maxQuanta {
		bad("Steps", strconv.FormatInt(b.Steps, 10), "must be from 0 to "+strconv.FormatInt(math.MaxInt64/maxQuanta, 10))
	}
	if b.Weight < 0 || b.Weight > maxWeight {
		bad("Weight", strconv.FormatInt(b.Weight, 10), "must be from 0 to "+strconv.Itoa(maxWeight))
	}
	if _, err := fusion.NewProfile(b.Points); err != nil {
		errs = append(errs, err)
	}
	for _, p := range b.Points {
		if p.Fused > maxFused || p.Step > maxSpan {
			bad("Points", strconv.Itoa(p.Fused)+" in "+p.Step.String(), "more than "+strconv.Itoa(maxFused)+" or longer than "+maxSpan.String())
		}
	}
	return errs
}

func (c *Config) validateWindows() (errs []error) {
	last := make([]time.Duration, len(c.Devices)) // where the stage's windows end so far
	for i, w := range c.Windows {
		bad := func(name, value, reason string) {
			errs = append(errs, invalid("config", at("Windows", i)+"."+name, value, reason))
		}
		if w.Stage < 0 || w.Stage >= len(c.Devices) {
			bad("Stage", strconv.Itoa(w.Stage), "must be the index of a device")
			continue
		}
		if w.Kind > pipeline.CommWait {
			bad("Kind", strconv.Itoa(int(w.Kind)), "is not a kind")
		}
		if !(w.ShareFraction >= 0 && w.ShareFraction <= 1) {
			bad("ShareFraction", strconv.FormatFloat(w.ShareFraction, 'g', -1, 64), "must lie in [0, 1]")
		}
		switch {
		case w.Start < 0 || w.Start > maxStart:
			bad("Start", w.Start.String(), "must be from 0 to "+maxStart.String())
		case w.End <= w.Start || w.End-w.Start > maxSpan:
			bad("End", w.End.String(), "must be after Start by at most "+maxSpan.String())
		case w.Start < last[w.Stage]:
			bad("Start", w.Start.String(), "is before the end of the stage's window before it")
		}
		last[w.Stage] = max(last[w.Stage], w.End)
	}
	return errs
}
