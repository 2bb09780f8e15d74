package view

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

// The keys of the ConfigMap that ParseQueues reads.
const (
	SchedulerKey = "scheduler.yaml" // SchedulerKey holds the policy: the fields of scheduler.Config by their JSON names, durations as "15m".
	QueuesKey    = "queues.yaml"    // QueuesKey holds the tree of queues: a quota.Config by its JSON names.
)

// Rules that package standalone has beside those of package scheduler, under names of
// its own.
const (
	priority scheduler.Rule = "priority"
	ltgf     scheduler.Rule = "ltgf"
)

// Queues is what a ConfigMap says about tenants, queues and the policy.
type Queues struct {
	Scheduler scheduler.Config // Scheduler has the rule, weights and times; Tree, Nodes and the collaborators are the host's to fill in. Rule may be "priority" or "ltgf" too, which package standalone knows; "" means that none is named.
	Quota     quota.Config     // Quota is the tree of queues; zero means that nothing is limited.
}

// settings are the fields of scheduler.Config that a cluster's people set.
type settings struct {
	Rule          scheduler.Rule              `json:"rule"`
	Weights       map[lockstep.TenantID]int64 `json:"weights"`
	DefaultWeight int64                       `json:"defaultWeight"`
	Term          duration                    `json:"term"`
	Loss          int                         `json:"loss"`
	Round         duration                    `json:"round"`
	Horizon       duration                    `json:"horizon"`
	Inside        scheduler.Inside            `json:"inside"`
	Floor         int                         `json:"floor"`
	Quantum       duration                    `json:"quantum"`
	Hysteresis    int                         `json:"hysteresis"`
	Band          duration                    `json:"band"`
	Basis         fairness.Basis              `json:"basis"`
	Limits        []duration                  `json:"limits"`
	Backfill      gang.Backfill               `json:"backfill"`
	MaxAttempts   int                         `json:"maxAttempts"`
	Hold          duration                    `json:"hold"`
	Retain        int                         `json:"retain"`
}

// duration is read as time.ParseDuration reads it; "never" is scheduler.NoTerm.
type duration time.Duration

func (d *duration) UnmarshalJSON(data []byte) error {
	text, err := strconv.Unquote(string(data))
	if err != nil {
		return errors.New("want a duration such as 15m, quoted")
	}
	if text == "never" {
		*d = duration(scheduler.NoTerm)
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return errors.New("want a duration such as 15m, or never")
	}
	*d = duration(v)
	return nil
}

// ParseQueues reads the data of a ConfigMap. A key that is absent says nothing; one
// that is neither SchedulerKey nor QueuesKey is at fault, as is a field that there is
// not. It returns every fault, joined, each a *Fault of the kind ConfigMap whose
// Err.Field begins with the key; what it returns beside them is zero.
func ParseQueues(namespace, name string, data map[string]string) (Queues, error) {
	o := object{"ConfigMap", namespace, name, ""}
	var q Queues
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var err error
		switch key {
		case SchedulerKey:
			q.Scheduler, err = parseSettings(data[key])
		case QueuesKey:
			if err = yaml.UnmarshalStrict([]byte(data[key]), &q.Quota); err == nil {
				err = valid(q.Quota)
			}
		default:
			errs = append(errs, o.fault(lockstep.ErrUnknown, key, "", "want "+SchedulerKey+" or "+QueuesKey))
			continue
		}
		errs = append(errs, o.faults(key, err)...)
	}
	if err := errors.Join(errs...); err != nil {
		return Queues{}, err
	}
	return q, nil
}

func parseSettings(text string) (scheduler.Config, error) {
	var s settings
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		return scheduler.Config{}, err
	}
	cfg := scheduler.Config{
		Rule: s.Rule, Weights: s.Weights, DefaultWeight: s.DefaultWeight, Term: time.Duration(s.Term), Loss: s.Loss,
		Round: time.Duration(s.Round), Horizon: time.Duration(s.Horizon), Inside: s.Inside, Floor: s.Floor,
		Quantum: time.Duration(s.Quantum), Hysteresis: s.Hysteresis, Band: time.Duration(s.Band), Basis: s.Basis,
		Backfill: s.Backfill, MaxAttempts: s.MaxAttempts, Hold: time.Duration(s.Hold), Retain: s.Retain,
	}
	for _, l := range s.Limits {
		cfg.Limits = append(cfg.Limits, time.Duration(l))
	}
	var err error
	if cfg.Tree, err = topology.New(nil, nil); err != nil { // Validate wants one; the host has its own
		return scheduler.Config{}, err
	}
	if s.Rule == priority || s.Rule == ltgf {
		cfg.Rule = "" // the others' fields are looked at all the same
	}
	err = cfg.Validate()
	cfg.Tree, cfg.Rule = nil, s.Rule
	return cfg, err
}

// faults turns what a reader found under a key into faults of the object.
func (o object) faults(key string, err error) (out []error) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, o.faults(key, e)...)
		}
		return out
	}
	f := o.fault(lockstep.ErrInvalid, key, "", oneLine(err.Error()))
	var e *lockstep.Error
	if f.Err.Value = ""; errors.As(err, &e) {
		f.Err.Kind, f.Err.Field, f.Err.Value, f.Err.Reason = e.Kind, key+": "+e.Field, e.Value, e.Reason
	}
	return append(out, f)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// valid reports the faults of q. Where it has no capacity, that is what the nodes have.
func valid(q quota.Config) error {
	if q.Capacity == nil {
		q.Capacity = lockstep.Resources{lockstep.ResourceGPU: 0}
	}
	return q.Validate()
}
