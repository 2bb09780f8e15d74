package sim

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Scheduler is what a simulation runs. scheduler.Scheduler is one. It owns the
// gangs, events and plans that it is given; Run owns the actions it returns.
type Scheduler interface {
	// Apply takes note of an event.
	Apply(e lockstep.Event) error
	// Step decides, and returns what is to be done.
	Step(now time.Time) ([]lockstep.Action, error)
	// NextWake returns when Step is to be called if nothing happens before.
	NextWake(now time.Time) (time.Time, bool)
}

// Job is one job to submit.
type Job struct {
	Gang     *lockstep.Gang // Gang is what is submitted, as it is; its Walltime is what the scheduler believes, its Capabilities say what a checkpoint and a resume cost.
	Submit   time.Duration  // Submit is when, after Config.Start.
	Duration time.Duration  // Duration is how long it truly has to run, more than 0.
}

// Config configures Run. Tree or Capacity is required.
type Config struct {
	Start         time.Time                   `json:"start,omitzero"`          // Start is the time that Submit counts from; zero means 1970.
	Weights       map[lockstep.TenantID]int64 `json:"weights,omitempty"`       // Weights are those by which tenants are measured; one that is not named has weight 1.
	Capacity      lockstep.MilliGPU           `json:"capacity,omitempty"`      // Capacity is what the cluster has; 0 means the devices of Tree.
	Latency       time.Duration               `json:"latency,omitempty"`       // Latency is how long members take to confirm a hold; 0 means none.
	Tick          time.Duration               `json:"tick,omitempty"`          // Tick makes everything happen at multiples of it after Start, later rather than earlier; 0 means at its own time.
	Unconditional bool                        `json:"unconditional,omitempty"` // Unconditional makes a job that is extended pay as if it had been released and started again: checkpoint and resume.
	Points        int                         `json:"points,omitempty"`        // Points bounds the samples of Result.Series; 0 means 512.
	Until         time.Duration               `json:"until,omitempty"`         // Until ends the simulation early, this long after Start; 0 means when all jobs have ended.

	Tree     *topology.Tree           `json:"-"` // Tree is the cluster, so that devices are checked and fragmentation is measured; nil means not.
	Progress func(Progress)           `json:"-"` // Progress is called now and then, about a hundred times; nil means not.
	Event    func(e *lockstep.Event)  `json:"-"` // Event is called with each event before the scheduler has it; nil means not. The event is valid during the call only.
	Action   func(a *lockstep.Action) `json:"-"` // Action is called with each action before it is carried out; nil means not. The action is valid during the call only, its plan beyond.
}

// Progress is how far a simulation has come.
type Progress struct {
	Now      time.Duration // Now is the simulated time after Config.Start.
	Jobs     int           // Jobs is how many there are.
	Finished int           // Finished is how many have ended.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if c.Tree == nil && c.Capacity <= 0 {
		bad("Capacity", c.Capacity.String(), "want a Tree, or more than 0")
	}
	if c.Capacity < 0 {
		bad("Capacity", c.Capacity.String(), "must not be negative")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Latency", c.Latency}, {"Tick", c.Tick}, {"Until", c.Until}} {
		if d.value < 0 || d.value > lockstep.MaxWalltime {
			bad(d.field, d.value.String(), "want 0 to "+lockstep.MaxWalltime.String())
		}
	}
	for _, t := range slices.Sorted(maps.Keys(c.Weights)) {
		if w := c.Weights[t]; w < 0 || w > fairness.MaxWeight {
			bad("Weights["+string(t)+"]", strconv.FormatInt(w, 10), "want 0 to 2^32")
		}
	}
	if c.Points < 0 {
		bad("Points", strconv.Itoa(c.Points), "must not be negative")
	}
	return errors.Join(errs...)
}

// Run submits jobs to a scheduler without any, does what it says, and returns
// what came of it. It ends when all jobs have ended, or when nothing more will
// happen: Result.Unfinished says how many are left then, such as gangs wider than
// the cluster. The gangs are the scheduler's from then on.
func Run(cfg Config, jobs []Job, s Scheduler) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fault(lockstep.ErrInvalid, "run", "Scheduler", "nil", "required")
	}
	h, err := newHost(cfg, jobs, s)
	if err != nil {
		return nil, err
	}
	if err := h.run(); err != nil {
		return nil, err
	}
	return h.acc.result(h)
}

// maxIdle is how many times in a row a scheduler may ask to be woken at once
// without deciding anything.
const maxIdle = 100

// maxAlone is how many times in a row a scheduler may ask to be woken, at whatever
// times, without deciding anything while nothing else is going to happen.
const maxAlone = 10_000

// run lets time pass until all jobs have ended, or nothing will happen.
func (h *host) run() error {
	idle, alone := 0, 0
	for h.left > 0 && alone <= maxAlone {
		t, ok := h.next()
		if !ok {
			break
		}
		if h.until > 0 && t > h.until {
			if h.until > h.now {
				h.acc.pass(h, h.until)
				h.now = h.until
			}
			break
		}
		if t > h.now {
			h.acc.pass(h, t)
			h.now = t
			idle = 0
		}
		busy, err := h.turn(t)
		if err != nil {
			return err
		}
		if idle++; busy {
			idle = 0
		}
		if alone++; busy || len(h.heap) > 0 || h.submitted < len(h.runs) {
			alone = 0
		}
		if idle > maxIdle {
			return fault(lockstep.ErrConflict, "run", "scheduler", "", "asks to be woken at "+lockstep.FromNanos(t).Format(time.RFC3339Nano)+" for ever and decides nothing")
		}
	}
	return h.acc.close(h)
}

// next returns when something happens next.
func (h *host) next() (int64, bool) {
	t, ok := int64(math.MaxInt64), false
	if len(h.heap) > 0 {
		t, ok = h.heap[0].at, true
	}
	if h.submitted < len(h.runs) {
		t, ok = min(t, h.runs[h.submitted].submit), true
	}
	if wake, some := h.sched.NextWake(lockstep.FromNanos(h.now)); some {
		t, ok = min(t, wake.UnixNano()), true
	}
	return h.onTick(max(t, h.now)), ok
}

// onTick returns the first time at or after t at which things happen.
func (h *host) onTick(t int64) int64 {
	tick := int64(h.cfg.Tick)
	if tick <= 0 {
		return t
	}
	if rest := (t - h.zero) % tick; rest != 0 && t < math.MaxInt64-tick {
		t += tick - rest
	}
	return t
}

// turn delivers what happened by now and carries out what is decided then.
func (h *host) turn(now int64) (busy bool, err error) {
	before := h.acc.contested()
	for len(h.heap) > 0 && h.heap[0].at <= now {
		x := h.heap[0]
		h.drop()
		busy = true
		if err := h.happen(x); err != nil {
			return busy, err
		}
	}
	for h.submitted < len(h.runs) && h.runs[h.submitted].submit <= now {
		j := h.runs[h.submitted]
		h.submitted++
		busy = true
		if err := h.submit(j); err != nil {
			return busy, err
		}
	}
	h.steps++
	actions, err := h.sched.Step(lockstep.FromNanos(now))
	if err != nil {
		return busy, fmt.Errorf("sim: step: %w", err)
	}
	for i := range actions {
		if err := h.do(&actions[i]); err != nil {
			return busy, err
		}
	}
	if h.beyond {
		return busy, fault(lockstep.ErrInvalid, "run", "jobs", "", "would run on after the last time there is, 2262-04-11")
	}
	return busy || len(actions) > 0, h.acc.look(h, before)
}

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "sim: " + op, Field: field, Value: value, Reason: reason}
}
