package reconfig

import (
	"time"

	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Slot is when one stage of a plan does one op.
type Slot struct {
	Replica int           // Replica is an index in Plan.Replicas: who computes it.
	Stage   int           // Stage is an index in its Stages.
	Owner   int           // Owner is the index of the replica whose micro-batch it is; another than Replica where it migrates.
	Op      pipeline.Op   // Op is what is done; its Micro counts the owner's micro-batches, from 0.
	Start   time.Duration // Start is when it begins, from the start of the step.
	End     time.Duration // End is when it ends.
}

// Timeline returns what every stage of p does, in the order in which it does it, by
// replica and stage: the simulation behind Evaluate, whose errors it returns. It is
// what a runtime is to do, and what a picture of the plan shows.
func Timeline(job Job, devs []Device, p *Plan) ([]Slot, error) {
	const op = "reconfig: timeline"
	w, err := newWorld(op, job, devs)
	if err != nil {
		return nil, err
	}
	runs, err := w.read(op, p)
	if err != nil {
		return nil, err
	}
	if err := w.checkMigrations(runs, p.Split, p.Migrations); err != nil {
		return nil, err
	}
	rows := make([][][]Slot, len(runs)) // by replica and stage
	for i := range runs {
		rows[i] = make([][]Slot, len(runs[i].groups))
	}
	joint := map[int]bool{}
	for _, set := range tied(len(runs), p.Migrations) {
		for _, i := range set {
			joint[i] = true
		}
		if _, _, err := w.runJoint(runs, p.Split, p.Migrations, set); err != nil {
			return nil, err
		}
		w.slots(rows, set, p.Split)
	}
	for i := range runs {
		if joint[i] || p.Split[i] == 0 {
			continue
		}
		if w.alone(&runs[i], p.Split[i]) >= forever {
			return nil, &Infeasible{DataLevel, ReasonSplit, Witness{Replica: i, Stage: -1, Have: int64(p.Split[i])}}
		}
		w.slots(rows, []int{i}, p.Split)
	}
	var out []Slot
	for i := range rows {
		for _, row := range rows[i] {
			out = append(out, row...)
		}
	}
	return out, nil
}

// alone simulates a replica that nothing migrates to or from.
func (w *world) alone(r *running, micros int) int64 {
	var slots []slot
	var hops []int64
	for s, g := range r.groups {
		slots = append(slots, g.slot())
		hops = append(hops, w.hop(g, r.groups[(s+1)%len(r.groups)]))
	}
	return w.run(slots, hops, r.virt, micros)
}

// slots reads the simulation that was run last, of the replicas in set.
func (w *world) slots(rows [][][]Slot, set, split []int) {
	for row := range w.ran.Stages() {
		stages := len(rows[set[0]])
		replica, stage := set[row/stages], row%stages
		for n, op := range w.ran.Order(row) {
			owner := 0
			for op.Micro >= int32(split[set[owner]]) {
				op.Micro -= int32(split[set[owner]])
				owner++
			}
			rows[replica][stage] = append(rows[replica][stage], Slot{
				Replica: replica, Stage: stage, Owner: set[owner], Op: op,
				Start: w.res.Start(row, n), End: w.res.End(row, n),
			})
		}
	}
}
