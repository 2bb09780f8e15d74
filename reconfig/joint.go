package reconfig

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// joint simulates the replicas that migrations tie together as one schedule and
// returns their times by index; nil if there are no migrations. Each of a tied set
// has the time of the set, since it ends with its last micro-batch.
func (w *world) joint(runs []running, split []int, moved []Migration) (map[int]time.Duration, error) {
	if len(moved) == 0 {
		return nil, nil
	}
	if err := w.checkMigrations(runs, split, moved); err != nil {
		return nil, err
	}
	out := map[int]time.Duration{}
	for _, set := range tied(len(runs), moved) {
		took, _, err := w.runJoint(runs, split, moved, set)
		if err != nil {
			return nil, err
		}
		for _, i := range set {
			out[i] = took
		}
	}
	return out, nil
}

// checkMigrations refuses migrations that cannot be computed.
func (w *world) checkMigrations(runs []running, split []int, moved []Migration) error {
	bad := func(m Migration) error {
		return &Infeasible{DataLevel, ReasonMigration, Witness{Replica: m.Owner, Stage: m.Stage, Have: int64(m.Micro)}}
	}
	seen := map[[3]int]bool{}
	for _, m := range moved {
		if m.Owner < 0 || m.Owner >= len(runs) || m.Host < 0 || m.Host >= len(runs) || m.Host == m.Owner || m.Micro < 0 || m.Micro >= split[m.Owner] {
			return bad(m)
		}
		a, b := &runs[m.Owner], &runs[m.Host]
		if m.Stage < 0 || m.Stage >= len(a.groups) || !slices.Equal(a.virt, b.virt) || w.chunks > 1 || w.job.Schedule > pipeline.GPipe {
			return bad(m)
		}
		key := [3]int{m.Owner, m.Stage, m.Micro}
		if seen[key] {
			return bad(m)
		}
		seen[key] = true
	}
	return nil
}

// tied returns the sets of replicas that migrations tie together, each ascending.
func tied(n int, moved []Migration) [][]int {
	root := make([]int, n)
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			i = root[i]
		}
		return i
	}
	touched := make([]bool, n)
	for _, m := range moved {
		a, b := find(m.Owner), find(m.Host)
		root[max(a, b)] = min(a, b)
		touched[m.Owner], touched[m.Host] = true, true
	}
	var out [][]int
	at := make([]int, n)
	for i := range n {
		if !touched[i] {
			continue
		}
		r := find(i)
		if at[r] == 0 {
			out = append(out, nil)
			at[r] = len(out)
		}
		out[at[r]-1] = append(out[at[r]-1], i)
	}
	return out
}

// timedOp is an op with the time at which a pipeline of equal stages would do it.
type timedOp struct {
	op    pipeline.Op
	slot  int
	owner int
}

// runJoint simulates one tied set. It returns the peaks of its rows as well, by
// replica in set and stage.
//
// Each row does its own and its guests' ops in the order in which stages that all
// take the same would: of 1F1B, micro-batch i of stage s of p goes forward at 2i+s
// and back at 2(p+i)-1-s. What one op waits for comes earlier by that clock, so no
// order can deadlock. GPipe does all forwards first.
func (w *world) runJoint(runs []running, split []int, moved []Migration, set []int) (time.Duration, [][]int, error) {
	p := len(runs[set[0]].groups)
	pos := map[int]int{}
	first := make([]int, len(set)+1) // by position: the number of the owner's first micro-batch
	for n, i := range set {
		pos[i] = n
		first[n+1] = first[n] + split[i]
	}
	micros := first[len(set)]
	host := map[[3]int]int{} // by position of the owner, stage, micro
	for _, m := range moved {
		if o, ok := pos[m.Owner]; ok {
			host[[3]int{o, m.Stage, m.Micro}] = pos[m.Host]
		}
	}
	rows := make([][]timedOp, len(set)*p)
	costs := pipeline.Costs{Forward: make([]time.Duration, p*micros), Backward: make([]time.Duration, p*micros)}
	late := 0 // when GPipe begins to go back
	if w.job.Schedule == pipeline.GPipe {
		late = 2 * (micros + p)
	}
	for o := range set {
		for s := range p {
			for i := range split[set[o]] {
				h, ok := host[[3]int{o, s, i}]
				if !ok {
					h = o
				}
				id := first[o] + i
				t := w.stageTook(&runs[set[h]], s)
				costs.Forward[s*micros+id], costs.Backward[s*micros+id] = time.Duration(t[0]), time.Duration(t[1])
				rows[h*p+s] = append(rows[h*p+s],
					timedOp{pipeline.Op{Kind: pipeline.Forward, Micro: int32(id)}, 2*i + s, o},
					timedOp{pipeline.Op{Kind: pipeline.Backward, Micro: int32(id)}, 2*(p+i) - 1 - s + late, o})
			}
		}
	}
	costs.Send = w.jointHops(runs, set, p)
	costs.Return = costs.Send
	costs.Across = w.job.Costs.Hop.Fabric
	return w.runOrders(pipeline.Config{Stages: p, Micros: micros, Orders: orders(rows), Replicas: len(set)}, &costs)
}

// orders sorts the ops of each row by their time; those of one time do not wait for
// each other.
func orders(rows [][]timedOp) [][]pipeline.Op {
	out := make([][]pipeline.Op, len(rows))
	for n, ops := range rows {
		slices.SortFunc(ops, func(a, b timedOp) int {
			return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.owner, b.owner), cmp.Compare(a.op.Kind, b.op.Kind))
		})
		for _, op := range ops {
			out[n] = append(out[n], op.op)
		}
	}
	return out
}

// stageTook returns what stage s of a replica takes for one micro-batch, by kind.
func (w *world) stageTook(r *running, s int) [3]int64 {
	a := start(r.virt, s)
	return w.took(r.groups[s].slot(), a, a+int(r.virt[s]), s == 0, s == len(r.virt)-1)
}

// start returns the first layer of virtual stage v.
func start(virt []int32, v int) int {
	at := 0
	for _, n := range virt[:v] {
		at += int(n)
	}
	return at
}

// jointHops returns, for each stage, the slowest hop of any replica of the set.
func (w *world) jointHops(runs []running, set []int, p int) []time.Duration {
	hops := make([]time.Duration, p)
	for _, i := range set {
		g := runs[i].groups
		for s := range p - 1 {
			hops[s] = max(hops[s], time.Duration(w.hop(g[s], g[s+1])))
		}
	}
	return hops
}

// runOrders compiles and simulates explicit orders.
func (w *world) runOrders(cfg pipeline.Config, costs *pipeline.Costs) (time.Duration, [][]int, error) {
	if cfg.Micros == 0 {
		return 0, make([][]int, cfg.Replicas), nil
	}
	l, err := pipeline.New(cfg)
	if err != nil {
		return 0, nil, &Infeasible{DataLevel, ReasonMigration, nowhere()}
	}
	w.ops += int64(2 * cfg.Stages * cfg.Micros)
	w.ran = l
	if err := l.Run(costs, &w.res); err != nil || w.res.Makespan >= forever {
		return 0, nil, &Infeasible{DataLevel, ReasonMigration, nowhere()}
	}
	rowPeaks, out := peaks(l), make([][]int, cfg.Replicas)
	for r := range out {
		out[r] = rowPeaks[r*cfg.Stages : (r+1)*cfg.Stages]
	}
	return w.res.Makespan, out, nil
}

// deviceIDs returns the names of units.
func deviceIDs(w *world, devs []int32) []lockstep.DeviceID {
	ids := make([]lockstep.DeviceID, len(devs))
	for i, d := range devs {
		ids[i] = w.units[d].id
	}
	return ids
}
