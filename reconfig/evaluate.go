package reconfig

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Evaluate returns what p takes on these devices as they are now, by simulating
// every replica's schedule. It does not ask whether the plan is allowed, as Verify
// does, only that it can be computed: every device is there and live, every layer of
// a replica there once and in order, and Split has an entry for each replica.
func Evaluate(job Job, devs []Device, p *Plan) (Estimate, error) {
	w, err := newWorld("reconfig: evaluate", job, devs)
	if err != nil {
		return Estimate{}, err
	}
	runs, err := w.read("reconfig: evaluate", p)
	if err != nil {
		return Estimate{}, err
	}
	return w.evaluate(runs, p.Split, p.Migrations)
}

// running is a replica of a plan.
type running struct {
	number int
	groups []*group
	layers division // by stage
	virt   []int32  // by virtual stage
}

// read turns the replicas of a plan into groups. It refuses what cannot be computed.
func (w *world) read(op string, p *Plan) ([]running, error) {
	if p == nil {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: "p", Reason: "want a plan"}
	}
	if len(p.Replicas) == 0 {
		return nil, &Infeasible{DataLevel, ReasonTooFew, nowhere()}
	}
	if len(p.Split) != len(p.Replicas) {
		witness := nowhere()
		witness.Need, witness.Have = int64(len(p.Replicas)), int64(len(p.Split))
		return nil, &Infeasible{DataLevel, ReasonSplit, witness}
	}
	out := make([]running, len(p.Replicas))
	for i, r := range p.Replicas {
		out[i].number = r.Number
		if err := w.readReplica(op, &out[i], i, r); err != nil {
			return nil, err
		}
		if m := p.Split[i]; m < 0 || m > w.job.Micros {
			return nil, &Infeasible{DataLevel, ReasonSplit, Witness{Replica: i, Stage: -1, Need: int64(w.job.Micros), Have: int64(m)}}
		}
	}
	return out, nil
}

// readReplica reads one replica.
func (w *world) readReplica(op string, out *running, i int, r Replica) error {
	p := len(r.Stages)
	if p == 0 || p > w.layers {
		return &Infeasible{PipelineLevel, ReasonStages, Witness{Replica: i, Stage: -1, Have: int64(p)}}
	}
	out.virt = make([]int32, p*w.chunks)
	for j, s := range r.Stages {
		if len(s.Devices) == 0 || len(s.Devices) > w.job.Layout.TP {
			return &Infeasible{TensorLevel, ReasonDegree, Witness{Replica: i, Stage: j, Have: int64(len(s.Devices))}}
		}
		devs := make([]int32, len(s.Devices))
		for n, id := range s.Devices {
			at, ok := w.index[id]
			if !ok {
				return &lockstep.Error{Kind: lockstep.ErrUnknown, Op: op, Field: "Replicas[" + text(i) + "].Stages[" + text(j) + "]", Value: errtext.Quote(id), Reason: "is not among the devices"}
			}
			if w.units[at].speed == 0 {
				return &Infeasible{TensorLevel, ReasonDead, Witness{Replica: i, Stage: j, Devices: []lockstep.DeviceID{id}}}
			}
			devs[n] = at
		}
		if len(s.Spans) != w.chunks {
			return &Infeasible{PipelineLevel, ReasonStages, Witness{Replica: i, Stage: j, Need: int64(w.chunks), Have: int64(len(s.Spans))}}
		}
		out.groups = append(out.groups, w.group(devs))
		out.layers = append(out.layers, int32(s.Layers()))
	}
	at := 0
	for v := range out.virt {
		span := r.Stages[v%p].Spans[v/p]
		if span.First != at || span.Layers < 0 || span.Layers > w.layers-at {
			return &Infeasible{PipelineLevel, ReasonLayers, Witness{Replica: i, Stage: v % p, Layers: span}}
		}
		out.virt[v] = int32(span.Layers)
		at += span.Layers
	}
	if at != w.layers {
		return &Infeasible{PipelineLevel, ReasonLayers, Witness{Replica: i, Stage: -1, Layers: Span{at, w.layers - at}}}
	}
	return nil
}

// evaluate is the one evaluator.
func (w *world) evaluate(runs []running, split []int, moved []Migration) (Estimate, error) {
	e := Estimate{Replicas: make([]time.Duration, len(runs)), Fluid: time.Duration(w.fluid())}
	joint, err := w.joint(runs, split, moved)
	if err != nil {
		return Estimate{}, err
	}
	var slots []slot
	var hops []int64
	for i := range runs {
		r := &runs[i]
		for _, g := range r.groups {
			e.Devices += len(g.devs)
		}
		if t, ok := joint[i]; ok {
			e.Replicas[i] = t
			continue
		}
		slots, hops = slots[:0], hops[:0]
		for s, g := range r.groups {
			slots = append(slots, g.slot())
			hops = append(hops, w.hop(g, r.groups[(s+1)%len(r.groups)]))
		}
		took := w.run(slots, hops, r.virt, split[i])
		if took >= forever {
			return Estimate{}, &Infeasible{DataLevel, ReasonSplit, Witness{Replica: i, Stage: -1, Have: int64(split[i])}}
		}
		e.Replicas[i] = time.Duration(took)
	}
	for i := range runs {
		for s, g := range runs[i].groups {
			e.Sync = max(e.Sync, time.Duration(w.sync(g, runs[i].layers[s], s == 0, s == len(runs[i].groups)-1, len(runs))))
		}
	}
	e.Iteration = slices.Max(e.Replicas) + e.Sync
	e.Memory = w.peakMemory(runs, split, moved)
	return e, nil
}

// sync returns what a stage takes to exchange its gradients: a ring over as many
// replicas. Embedding and head count by their parameters, as parts of a layer.
func (w *world) sync(g *group, layers int32, first, last bool, replicas int) int64 {
	one := int64(w.job.Costs.Exchange)
	if one == 0 || replicas < 2 {
		return 0
	}
	thousandths := 1000 * int64(layers)
	if first {
		thousandths += w.endParts[0]
	}
	if last {
		thousandths += w.endParts[1]
	}
	n, k := int64(replicas), int64(len(g.devs))
	return quotient(2*(n-1)*one, thousandths, n*k*1000)
}

// fluid returns how long a step takes if all work is spread over the live devices in
// proportion to their speeds, rounded down.
func (w *world) fluid() int64 {
	speed := int64(0)
	for i := range w.units {
		speed += w.units[i].speed
	}
	if speed == 0 {
		return 0
	}
	one := w.sum[w.layers] + w.endSum[0] + w.endSum[1]
	return quotient(one, int64(w.job.Micros)*whole, speed)
}

// peakMemory returns the most that one device needs; 0 where none states its memory.
func (w *world) peakMemory(runs []running, split []int, moved []Migration) lockstep.Bytes {
	if !w.limited {
		return 0
	}
	type key struct {
		layers, degree int32
		peak, losses   int
		first, last    bool
	}
	most, seen := int64(0), map[key]int64{}
	for i := range runs {
		r := &runs[i]
		l := w.schedule(len(r.groups), max(split[i], 1))
		if l == nil {
			continue
		}
		for s, g := range r.groups {
			held := l.peaks[s] + w.guests(moved, i, s, len(r.groups))
			k := key{r.layers[s], int32(len(g.devs)), held, w.losses(split[i]), s == 0, s == len(r.groups)-1}
			need, ok := seen[k]
			if !ok {
				need = w.memory(k.degree, int(k.layers), k.first, k.last, held, k.losses, len(runs))
				seen[k] = need
			}
			most = max(most, need)
		}
	}
	return lockstep.Bytes(most)
}

// guests returns for how many micro-batches of others a stage may keep activations
// besides its own: of each owner for no more than its own pipeline would.
func (w *world) guests(moved []Migration, host, stage, stages int) int {
	count := map[int]int{}
	for _, m := range moved {
		if m.Host == host && m.Stage == stage {
			count[m.Owner]++
		}
	}
	sum := 0
	for _, n := range count { // a sum does not depend on order
		if w.job.Schedule == pipeline.OneFOneB {
			n = min(n, stages-stage)
		}
		sum += n
	}
	return sum
}
