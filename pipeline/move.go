package pipeline

import (
	"cmp"
	"slices"
	"strconv"
)

// Move lets another replica run a micro-batch on one stage: its forward, backward and weight op, in all chunks of the stage.
type Move struct {
	Stage   int // the stage in the pipeline, from 0 to before Config.Stages
	Micro   int // the micro-batch
	Replica int // the replica that runs it
}

// Moved returns the configuration of r's Line after some moves. Every stage runs its ops in the order in which they started in r,
// and what started together in the order of evaluation there; so the new orders never end in a deadlock. Of two moves of
// the same micro-batch on the same stage, the later one holds. Costs and transfers for it are the caller's: an op costs
// what it costs where it now runs.
func (r *Result) Moved(moves ...Move) (Config, error) {
	l := r.line
	if l == nil {
		return Config{}, invalid("moved", "Result", "", "must be one that Run made")
	}
	c := &l.cfg
	to := make([]int32, c.Stages*c.Micros) // the replica by stage and micro-batch, plus 1
	for i, m := range moves {
		field := "moves[" + strconv.Itoa(i) + "]"
		switch {
		case m.Stage < 0 || m.Stage >= c.Stages:
			return Config{}, invalid("moved", field+".Stage", strconv.Itoa(m.Stage), "must be a stage of the pipeline")
		case m.Micro < 0 || m.Micro >= c.Micros:
			return Config{}, invalid("moved", field+".Micro", strconv.Itoa(m.Micro), "must be one of the micro-batches")
		case m.Replica < 0 || m.Replica >= c.Replicas:
			return Config{}, invalid("moved", field+".Replica", strconv.Itoa(m.Replica), "must be one of the replicas")
		}
		to[m.Stage*c.Micros+m.Micro] = int32(m.Replica + 1)
	}
	sorted := make([]int32, len(l.nodes)) // as indices into nodes, by start
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortStableFunc(sorted, func(a, b int32) int {
		x, y := l.nodes[a].at, l.nodes[b].at
		return cmp.Compare(r.ends[x]-r.took[x], r.ends[y]-r.took[y])
	})
	next := Config{Stages: c.Stages, Micros: c.Micros, Chunks: c.Chunks, Replicas: c.Replicas, Orders: make([][]Op, len(l.rows))}
	for _, i := range sorted {
		at := l.nodes[i].at
		op, row := l.ops[at], int(l.row[at])
		if replica := to[row%c.Stages*c.Micros+int(op.Micro)]; replica != 0 {
			row = int(replica-1)*c.Stages + row%c.Stages
		}
		next.Orders[row] = append(next.Orders[row], op)
	}
	return next, nil
}
