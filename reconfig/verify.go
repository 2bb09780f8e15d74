package reconfig

import (
	"math"
	"reflect"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Verify checks every invariant of a plan against the job and the devices as they are
// now. It shares nothing with the planner but the simulation behind Estimate. It
// returns an *Infeasible for the first one that is broken:
//
//   - every device of a stage is there, live, and in no other role;
//   - a stage's degree is allowed, divides heads, feed-forward width and vocabulary,
//     and its devices are on one node unless that may be otherwise;
//   - the stages of each replica have every layer once, in order;
//   - the micro-batches add up, and migrations are allowed and possible;
//   - no device needs more memory than it has;
//   - standbys are the live devices without a role, groups those of the layout;
//   - estimate and digest are right.
//
// Moves are not checked here.
func Verify(job Job, devs []Device, p *Plan) error { return verify(job, devs, p, true) }

// verify is Verify; without sealed it leaves out what a plan says of itself.
func verify(job Job, devs []Device, p *Plan, sealed bool) error {
	f := faults{op: "reconfig: verify"}
	job.validate(&f)
	validateDevices(&f, devs)
	if p == nil {
		f.bad("p", "", "want a plan")
	}
	if err := f.err(); err != nil {
		return err
	}
	v := verifier{job: job.filled(), plan: p, at: make(map[lockstep.DeviceID]int, len(devs)), devs: devs}
	for i, d := range devs {
		v.at[d.ID] = i
	}
	checks := []func() error{v.devices, v.shape, v.layers, v.split, v.migrations, v.memory}
	if sealed {
		checks = append(checks, v.standby, v.groups, func() error { return v.seal(job) })
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

type verifier struct {
	job  Job
	plan *Plan
	devs []Device
	at   map[lockstep.DeviceID]int
	role map[lockstep.DeviceID]bool
}

// breach builds the error of this file.
func breach(level Level, reason lockstep.Reason, replica, stage int, ids ...lockstep.DeviceID) error {
	return &Infeasible{level, reason, Witness{Replica: replica, Stage: stage, Devices: ids}}
}

func (d Device) usable() bool { return d.State == Up && math.Round(float64(d.Speed*whole)) >= 1 }

func (v *verifier) devices() error {
	v.role = map[lockstep.DeviceID]bool{}
	for i, r := range v.plan.Replicas {
		for j, s := range r.Stages {
			for _, id := range s.Devices {
				at, ok := v.at[id]
				switch {
				case !ok || !v.devs[at].usable():
					return breach(TensorLevel, ReasonDead, i, j, id)
				case v.role[id]:
					return breach(TensorLevel, ReasonTwice, i, j, id)
				}
				v.role[id] = true
			}
		}
	}
	return nil
}

// shape checks degrees, places and the numbers of replicas and stages.
func (v *verifier) shape() error {
	n, a := len(v.plan.Replicas), v.job.Allow
	if n < max(1, a.MinReplicas) || n > a.MaxReplicas || n%v.job.Layout.EP != 0 {
		return &Infeasible{DataLevel, ReasonTooFew, Witness{Replica: -1, Stage: -1, Need: int64(a.MinReplicas), Have: int64(n)}}
	}
	for i, r := range v.plan.Replicas {
		if i > 0 && r.Number <= v.plan.Replicas[i-1].Number || r.Number < 0 {
			return breach(DataLevel, ReasonTwice, i, -1)
		}
		if len(r.Stages) < 1 || len(r.Stages) > a.MaxStages || a.FixedStages && len(r.Stages) != v.job.Layout.PP {
			return breach(PipelineLevel, ReasonStages, i, -1)
		}
		for j, s := range r.Stages {
			if err := v.group(i, j, s.Devices); err != nil {
				return err
			}
		}
	}
	return nil
}

// group checks how many devices a stage has, and where.
func (v *verifier) group(i, j int, ids []lockstep.DeviceID) error {
	if !v.degree(len(ids)) {
		return breach(TensorLevel, ReasonDegree, i, j, ids...)
	}
	first := v.devs[v.at[ids[0]]]
	for _, id := range ids {
		d := v.devs[v.at[id]]
		if d.Leaf != first.Leaf || d.Node != first.Node && !v.job.Allow.AllowCrossNodeTP {
			return breach(TensorLevel, ReasonSpread, i, j, ids...)
		}
	}
	return nil
}

// degree says whether a stage may have k devices.
func (v *verifier) degree(k int) bool {
	m := v.job.Model
	if k < v.job.Allow.MinTP || k < 1 || k > v.job.Layout.TP {
		return false
	}
	for n := k; n > 1 && !v.job.Allow.AllowOddTP; n /= 2 {
		if n%2 != 0 {
			return false
		}
	}
	width, kv := m.FFN, m.KVHeads
	if m.Experts > 0 && m.ExpertFFN > 0 {
		width = m.ExpertFFN
	}
	if kv == 0 {
		kv = m.Heads
	}
	return m.Heads%k == 0 && width%k == 0 && m.Vocab%k == 0 && (kv%k == 0 || k%kv == 0)
}

// layers checks that each replica has every layer once, in order.
func (v *verifier) layers() error {
	for i, r := range v.plan.Replicas {
		next := 0
		for c := range v.job.Chunks {
			for j, s := range r.Stages {
				if len(s.Spans) != v.job.Chunks {
					return breach(PipelineLevel, ReasonStages, i, j)
				}
				span := s.Spans[c]
				if span.First != next || span.Layers < 1 || span.Layers > v.job.Model.Layers-next {
					return &Infeasible{PipelineLevel, ReasonLayers, Witness{Replica: i, Stage: j, Layers: span}}
				}
				next += span.Layers
			}
		}
		if missing := v.job.Model.Layers - next; missing != 0 {
			return &Infeasible{PipelineLevel, ReasonLayers, Witness{Replica: i, Stage: -1, Layers: Span{next, missing}}}
		}
		if v.job.Allow.Uniform && !sameLayers(r, v.plan.Replicas[0]) {
			return breach(PipelineLevel, ReasonUniform, i, -1)
		}
	}
	return nil
}

func sameLayers(a, b Replica) bool {
	return slices.EqualFunc(a.Stages, b.Stages, func(x, y Stage) bool { return slices.Equal(x.Spans, y.Spans) })
}

func (v *verifier) split() error {
	sum := 0
	bad := func(i int) error {
		return &Infeasible{DataLevel, ReasonSplit, Witness{Replica: i, Stage: -1, Need: int64(v.job.Micros), Have: int64(sum)}}
	}
	if len(v.plan.Split) != len(v.plan.Replicas) {
		return bad(-1)
	}
	for i, n := range v.plan.Split {
		if n < 1 || n > v.job.Micros {
			return bad(i)
		}
		if p := len(v.plan.Replicas[i].Stages); v.job.Chunks > 1 && n%p != 0 {
			return bad(i)
		}
		sum += n
	}
	if sum != v.job.Micros {
		return bad(-1)
	}
	return nil
}

func (v *verifier) migrations() error {
	for i, m := range v.plan.Migrations {
		inside := func(n, end int) bool { return n >= 0 && n < end }
		n := len(v.plan.Replicas)
		ok := v.job.Allow.AllowMigration && inside(m.Owner, n) && inside(m.Host, n) && m.Owner != m.Host &&
			inside(m.Micro, v.plan.Split[m.Owner]) && inside(m.Stage, len(v.plan.Replicas[m.Owner].Stages)) &&
			sameLayers(v.plan.Replicas[m.Owner], v.plan.Replicas[m.Host])
		for _, o := range v.plan.Migrations[:i] {
			ok = ok && (o.Owner != m.Owner || o.Stage != m.Stage || o.Micro != m.Micro)
		}
		if !ok {
			return breach(DataLevel, ReasonMigration, m.Owner, m.Stage)
		}
	}
	return nil
}

// memory checks every stage by the single calculator, with what the schedule itself
// has in flight.
func (v *verifier) memory() error {
	known := map[[2]int][]int{}
	for i, r := range v.plan.Replicas {
		key := [2]int{len(r.Stages), v.plan.Split[i]}
		held, ok := known[key]
		if !ok {
			l, err := pipeline.New(pipeline.Config{Schedule: v.job.Schedule, Stages: key[0], Micros: key[1], Chunks: v.job.Chunks})
			if err != nil {
				return breach(DataLevel, ReasonSplit, i, -1)
			}
			held = inFlight(l)
			known[key] = held
		}
		for j, s := range r.Stages {
			if err := v.stageMemory(i, j, s, held[j]+v.guests(i, j)); err != nil {
				return err
			}
		}
	}
	return nil
}

// guests is how many micro-batches of others a stage may have in flight besides: for
// each owner no more than its own pipeline would.
func (v *verifier) guests(replica, stage int) int {
	count := map[int]int{}
	for _, m := range v.plan.Migrations {
		if m.Host == replica && m.Stage == stage {
			count[m.Owner]++
		}
	}
	most := len(v.plan.Replicas[replica].Stages) - stage
	sum := 0
	for _, n := range count { // a sum does not depend on order
		if v.job.Schedule == pipeline.OneFOneB {
			n = min(n, most)
		}
		sum += n
	}
	return sum
}

// inFlight replays a schedule: what each stage keeps activations of at most.
func inFlight(l *pipeline.Line) []int {
	most := make([]int, l.Stages())
	for s := range most {
		now := 0
		for _, op := range l.Order(s) {
			if op.Kind == pipeline.Forward {
				now++
			}
			most[s] = max(most[s], now)
			if op.Kind == pipeline.Weight || op.Kind == pipeline.Backward && !l.Splits() {
				now--
			}
		}
	}
	return most
}

func (v *verifier) stageMemory(i, j int, s Stage, held int) error {
	layout := v.job.Layout
	layout.TP, layout.PP, layout.DP = len(s.Devices), 1, len(v.plan.Replicas)
	stage := perfmodel.Stage{
		Layers: s.Layers(), First: j == 0, Last: j == len(v.plan.Replicas[i].Stages)-1,
		Flash: v.job.Flash, Recompute: v.job.Recompute,
	}
	load := perfmodel.Load{Tokens: v.job.Batch.Tokens, InFlight: held, Chunks: v.job.Chunks, Reserve: v.job.Reserve}
	if v.job.Schedule == pipeline.GPipe {
		load.Losses = v.plan.Split[i]
	}
	m, err := v.job.Model.Memory(layout, stage, load)
	for _, id := range s.Devices {
		has := v.devs[v.at[id]].Memory
		if has > 0 && (err != nil || m.Total() > has) {
			return &Infeasible{PipelineLevel, ReasonMemory, Witness{
				Replica: i, Stage: j, Devices: []lockstep.DeviceID{id}, Layers: s.Spans[0], Need: int64(m.Total()), Have: int64(has),
			}}
		}
	}
	return nil
}

func (v *verifier) standby() error {
	var want []lockstep.DeviceID
	for _, d := range v.devs {
		if d.usable() && !v.role[d.ID] {
			want = append(want, d.ID)
		}
	}
	slices.Sort(want)
	if !slices.Equal(want, v.plan.Standby) {
		return breach(SealLevel, ReasonStandby, -1, -1, want...)
	}
	return nil
}

// groups checks that each replica has one communicator for its pipeline and one for
// each stage, and that for every layer one device of each replica exchanges each part
// of it, with the others that hold that part.
func (v *verifier) groups() error {
	kinds := map[GroupKind][]Group{}
	for _, g := range v.plan.Groups {
		if plain := (Group{Kind: g.Kind, Devices: g.Devices}); g.Kind != DataGroup && !reflect.DeepEqual(g, plain) {
			return breach(SealLevel, ReasonGroups, -1, -1, g.Devices...)
		}
		kinds[g.Kind] = append(kinds[g.Kind], g)
	}
	tensor, pipe, data := kinds[TensorGroup], kinds[PipelineGroup], kinds[DataGroup]
	if len(tensor)+len(pipe)+len(data) != len(v.plan.Groups) {
		return breach(SealLevel, ReasonGroups, -1, -1)
	}
	bad := func(i, j int) error { return breach(SealLevel, ReasonGroups, i, j) }
	n := 0
	for i, r := range v.plan.Replicas {
		var all []lockstep.DeviceID
		for j, s := range r.Stages {
			if n >= len(tensor) || !slices.Equal(tensor[n].Devices, s.Devices) {
				return bad(i, j)
			}
			n++
			all = append(all, s.Devices...)
		}
		if i >= len(pipe) || !slices.Equal(pipe[i].Devices, all) {
			return bad(i, -1)
		}
	}
	if n != len(tensor) || len(pipe) != len(v.plan.Replicas) {
		return bad(-1, -1)
	}
	if len(v.plan.Replicas) == 1 {
		if len(data) != 0 {
			return bad(0, -1)
		}
		return nil
	}
	return v.exchanges(data)
}

// exchanges checks the data groups: they follow each other over slices and layers
// without a gap, and each member holds its slice.
func (v *verifier) exchanges(data []Group) error {
	at, slice := 0, 0
	for n, g := range data {
		same := slice == 0 || g.Span == data[n-1].Span && g.Slices == data[n-1].Slices
		if !same || g.Span.First != at || g.Slice != slice || g.Slices < 1 || g.Span.Layers < 1 || len(g.Devices) != len(v.plan.Replicas) {
			return breach(SealLevel, ReasonGroups, -1, -1, g.Devices...)
		}
		for i, id := range g.Devices {
			if !v.holds(i, id, g) {
				return breach(SealLevel, ReasonGroups, i, -1, id)
			}
		}
		if slice++; slice == g.Slices {
			at, slice = g.Span.End(), 0
		}
	}
	if at != v.job.Model.Layers || slice != 0 {
		return breach(SealLevel, ReasonGroups, -1, -1)
	}
	return nil
}

// holds says whether a device of replica i holds the slice and the layers of g.
func (v *verifier) holds(i int, id lockstep.DeviceID, g Group) bool {
	for _, s := range v.plan.Replicas[i].Stages {
		rank := slices.Index(s.Devices, id)
		if rank < 0 {
			continue
		}
		k := len(s.Devices)
		if g.Slices%k != 0 || g.Slice/(g.Slices/k) != rank {
			return false
		}
		return slices.ContainsFunc(s.Spans, func(sp Span) bool { return sp.First <= g.Span.First && g.Span.End() <= sp.End() })
	}
	return false
}

// seal checks what the plan says of itself.
func (v *verifier) seal(job Job) error {
	if v.plan.Digest != v.plan.Sum() {
		return breach(SealLevel, ReasonDigest, -1, -1)
	}
	e, err := Evaluate(job, v.devs, v.plan)
	if err != nil {
		return err
	}
	got := v.plan.Estimate
	same := e.Iteration == got.Iteration && e.Sync == got.Sync && e.Devices == got.Devices && slices.Equal(e.Replicas, got.Replicas) &&
		e.Fluid == got.Fluid && e.Memory == got.Memory
	if !same || e.Fluid > e.Iteration {
		return breach(SealLevel, ReasonEstimate, -1, -1)
	}
	return nil
}
