package reconfig

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Bounds of what is given.
const (
	maxDevices = 1 << 20
	maxMicros  = 1 << 20
	maxTime    = time.Hour // of one cost
	maxChunks  = 64
)

// Validate reports every fault of j, joined, each an *lockstep.Error.
func (j Job) Validate() error {
	f := faults{op: "reconfig: job"}
	j.validate(&f)
	return f.err()
}

func (j *Job) validate(f *faults) {
	j.validateLayout(f)
	f.within("Micros", int64(j.Micros), 1, maxMicros)
	f.within("Batch.Tokens", j.Batch.Tokens, 0, 1<<48)
	if !(j.Batch.Pairs >= 0 && j.Batch.Pairs <= 1e30) {
		f.bad("Batch.Pairs", strconv.FormatFloat(j.Batch.Pairs, 'g', -1, 64), "want 0 to 1e30")
	}
	if j.Schedule > pipeline.ZBH2 {
		f.bad("Schedule", j.Schedule.String(), "unknown")
	}
	f.within("Recompute", int64(j.Recompute), 0, int64(perfmodel.RecomputeFull))
	f.within("Chunks", int64(j.Chunks), 0, maxChunks)
	if j.Chunks > 1 && j.Schedule != pipeline.Interleaved {
		f.bad("Chunks", text(j.Chunks), "want 1 unless Schedule is interleaved")
	}
	if j.Reserve < 0 {
		f.bad("Reserve", j.Reserve.String(), "want at least 0")
	}
	j.Allow.validate(f)
	j.Costs.validate(f, j.Model.Layers)
	if len(f.errs) == 0 && j.Costs.zero() {
		j.validateRate(f)
	}
}

// validateLayout checks the model and how it is divided when all is healthy.
func (j *Job) validateLayout(f *faults) {
	f.wrap("Model", j.Model.Validate())
	f.wrap("Layout", j.Layout.Validate())
	if len(f.errs) > 0 {
		return
	}
	f.wrap("Model", j.Model.Check(j.Layout))
	if tp := max(1, j.Layout.TP); j.Model.Vocab%tp != 0 {
		f.bad("Layout.TP", text(tp), "want a divisor of Model.Vocab = "+text(j.Model.Vocab))
	}
	if l := j.Layout; int64(max(1, l.TP))*int64(max(1, l.PP))*int64(max(1, l.DP)) > maxDevices {
		f.bad("Layout", "", "more than 2^20 devices")
	}
}

// validateRate checks that costs can be derived.
func (j *Job) validateRate(f *faults) {
	ok := func(v lockstep.FLOPs) bool { return v > 0 && v <= 1e24 }
	if !ok(j.Rate.Linear) || j.Rate.Quadratic != 0 && !ok(j.Rate.Quadratic) {
		f.bad("Rate", strconv.FormatFloat(float64(j.Rate.Linear), 'g', -1, 64), "want above 0, at most 1e24, where Costs is zero")
		return
	}
	c := j.costs()
	if worst := max(c.Layer.most(), c.Head.most()); worst > maxTime {
		f.bad("Rate", strconv.FormatFloat(float64(j.Rate.Linear), 'g', -1, 64), "a layer takes more than an hour")
	} else if c.Layer.most() == 0 {
		f.bad("Batch", "", "a layer takes no time at all")
	}
}

func (a Constraints) validate(f *faults) {
	f.within("Allow.MinTP", int64(a.MinTP), 0, maxDevices)
	f.within("Allow.MaxStages", int64(a.MaxStages), 0, maxDevices)
	f.within("Allow.MinReplicas", int64(a.MinReplicas), 0, maxDevices)
	f.within("Allow.MaxReplicas", int64(a.MaxReplicas), 0, maxDevices)
}

// zero says whether no layer has a cost, so that costs are to be derived.
func (c Costs) zero() bool { return c.Layer == Cost{} && c.Layers == nil }

func (c Costs) validate(f *faults, layers int) {
	c.Layer.validate(f, "Costs.Layer")
	c.Embed.validate(f, "Costs.Embed")
	c.Head.validate(f, "Costs.Head")
	if c.Layers != nil {
		if len(c.Layers) != layers {
			f.bad("Costs.Layers", text(len(c.Layers))+" entries", "want one for each layer")
		}
		var sum time.Duration
		for i, l := range c.Layers {
			l.validate(f, "Costs.Layers["+text(i)+"]")
			sum |= l.most()
		}
		if sum == 0 {
			f.bad("Costs.Layers", "", "no layer takes any time")
		}
	}
	list := func(field string, v []time.Duration) {
		for i, d := range v {
			duration(f, field+"["+text(i)+"]", d)
		}
	}
	list("Costs.Collective", c.Collective)
	list("Costs.Across", c.Across)
	duration(f, "Costs.Hop.Node", c.Hop.Node)
	duration(f, "Costs.Hop.Leaf", c.Hop.Leaf)
	duration(f, "Costs.Hop.Fabric", c.Hop.Fabric)
	duration(f, "Costs.Exchange", c.Exchange)
}

func (c Cost) validate(f *faults, field string) {
	duration(f, field+".Forward", c.Forward)
	duration(f, field+".Backward", c.Backward)
	duration(f, field+".Weight", c.Weight)
}

// most returns the largest of the three.
func (c Cost) most() time.Duration { return max(c.Forward, c.Backward, c.Weight) }

func duration(f *faults, field string, d time.Duration) {
	if d < 0 || d > maxTime {
		f.bad(field, d.String(), "want 0 to 1h")
	}
}

// ValidateDevices reports every fault of devices, joined, each an *lockstep.Error.
func ValidateDevices(devs []Device) error {
	f := faults{op: "reconfig: devices"}
	validateDevices(&f, devs)
	return f.err()
}

// validateDevices checks names, places and speeds.
func validateDevices(f *faults, devs []Device) {
	if len(devs) > maxDevices {
		f.bad("devs", text(len(devs))+" devices", "want at most 2^20")
		return
	}
	seen := make(map[lockstep.DeviceID]int, len(devs))
	leaf := make(map[lockstep.NodeID]int)
	for i, d := range devs {
		field := func(name string) string { return "devs[" + text(i) + "]." + name }
		var e *lockstep.Error
		if errors.As(d.ID.Validate(), &e) {
			f.add(e.Kind, field("ID"), e.Value, e.Reason)
		}
		if first, ok := seen[d.ID]; ok {
			f.add(lockstep.ErrDuplicate, field("ID"), errtext.Quote(d.ID), "is also devs["+text(first)+"]")
		}
		seen[d.ID] = i
		if first, ok := leaf[d.Node]; !ok {
			leaf[d.Node] = i
		} else if devs[first].Leaf != d.Leaf {
			f.bad(field("Leaf"), errtext.Quote(d.Leaf), "its node is in another leaf at devs["+text(first)+"]")
		}
		if !(d.Speed >= 0 && d.Speed <= 1) {
			f.bad(field("Speed"), strconv.FormatFloat(d.Speed, 'g', -1, 64), "want 0 to 1")
		}
		if d.Memory < 0 {
			f.bad(field("Memory"), d.Memory.String(), "want at least 0")
		}
		if d.State > Cordoned {
			f.bad(field("State"), d.State.String(), "unknown")
		}
	}
}

// Validate reports every fault of o, joined, each an *lockstep.Error.
func (o Options) Validate() error {
	f := faults{op: "reconfig: options"}
	o.validate(&f)
	return f.err()
}

func (o Options) validate(f *faults) {
	if o.Disturb != AnyGain && !(o.Disturb >= 0 && o.Disturb <= 1) {
		f.bad("Disturb", strconv.FormatFloat(o.Disturb, 'g', -1, 64), "want 0 to 1, or AnyGain")
	}
	f.within("Budget", o.Budget, 0, 1<<50)
	f.within("Gap", int64(o.Gap), 0, maxMicros)
}

// filled returns a copy of j in which zero fields have what they stand for.
func (j Job) filled() Job {
	j.Layout.TP, j.Layout.PP = max(1, j.Layout.TP), max(1, j.Layout.PP)
	j.Layout.DP, j.Layout.EP = max(1, j.Layout.DP), max(1, j.Layout.EP)
	j.Chunks = max(1, j.Chunks)
	j.Batch.Tokens = max(1, j.Batch.Tokens)
	a := &j.Allow
	a.MinTP, a.MinReplicas = max(1, a.MinTP), max(1, a.MinReplicas)
	if a.MaxStages == 0 {
		a.MaxStages = 2 * j.Layout.PP
	}
	if a.MaxReplicas == 0 {
		a.MaxReplicas = j.Layout.DP
	}
	a.MaxStages = min(a.MaxStages, j.Model.Layers/j.Chunks)
	if a.FixedStages {
		a.MaxStages = j.Layout.PP
	}
	a.Uniform = a.Uniform || j.Layout.EP > 1
	j.Costs.Layers = slices.Clone(j.Costs.Layers)
	return j
}
