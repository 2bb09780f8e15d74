package lease

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// Server is a node whose lent devices may be taken back, and who is on it.
type Server struct {
	Node    lockstep.NodeID  `json:"node"`              // Node is which.
	Jobs    []lockstep.JobID `json:"jobs,omitempty"`    // Jobs are those with members on it that cannot go on without them.
	Elastic []lockstep.JobID `json:"elastic,omitempty"` // Elastic are those that can: without their members here they keep at least their least size, whichever of the other servers they lose too.
}

// Reclaimed is a server that is to be emptied, and what that costs.
type Reclaimed struct {
	Node      lockstep.NodeID  `json:"node"`                // Node is which.
	Preempted []lockstep.JobID `json:"preempted,omitempty"` // Preempted are the jobs that have to stop, which no earlier server stopped, sorted.
	Shrunk    []lockstep.JobID `json:"shrunk,omitempty"`    // Shrunk are the jobs that give up their members here, sorted.
}

// span is what divides evenly by every number of servers up to 40, so that the
// costs of jobs over so few compare exactly.
const span = 5_342_931_457_063_200

// AppendReclaim appends, in the order in which to take them, the servers that give
// back need of them at least cost, and returns dst: idle ones first, then those
// with elastic jobs only, then by server cost, which is the sum over the jobs that
// would have to stop of 1/(servers that the job is on). Costs are looked at again
// after each, since a job that has to stop leaves its other servers too; ties go
// to the lesser node ID. It is greedy. Of fewer servers it takes all. A server or
// a job on a server that is named twice counts once.
//
// Server cost: Li et al., Lyra: Elastic Scheduling for Deep Learning Clusters,
// EuroSys 2023. O(need × members).
func AppendReclaim(dst []Reclaimed, servers []Server, need int) []Reclaimed {
	left := normal(servers)
	spans := make(map[lockstep.JobID]int64)
	for i := range left {
		for _, job := range left[i].Jobs {
			spans[job]++
		}
	}
	for ; need > 0 && len(left) > 0; need-- {
		pick, least := 0, class{}
		for i := range left {
			if c := classOf(&left[i], spans); i == 0 || c.before(least) {
				pick, least = i, c
			}
		}
		s := left[pick]
		left = slices.Delete(left, pick, pick+1)
		dst = append(dst, Reclaimed{Node: s.Node, Preempted: s.Jobs, Shrunk: s.Elastic})
		for i := range left { // who stops leaves every server
			left[i].Jobs = slices.DeleteFunc(left[i].Jobs, func(j lockstep.JobID) bool { return slices.Contains(s.Jobs, j) })
			left[i].Elastic = slices.DeleteFunc(left[i].Elastic, func(j lockstep.JobID) bool { return slices.Contains(s.Jobs, j) })
		}
	}
	return dst
}

// class is what servers are compared by.
type class struct {
	kind int // 0 idle, 1 elastic jobs only, 2 others
	cost int64
}

func (c class) before(o class) bool {
	return cmp.Or(cmp.Compare(c.kind, o.kind), cmp.Compare(c.cost, o.cost)) < 0
}

func classOf(s *Server, spans map[lockstep.JobID]int64) class {
	switch {
	case len(s.Jobs) > 0:
		c := class{kind: 2}
		for _, job := range s.Jobs {
			c.cost = int64(lockstep.MilliGPU(c.cost).Add(lockstep.MilliGPU(span / spans[job]))) // held at the end of int64
		}
		return c
	case len(s.Elastic) > 0:
		return class{kind: 1}
	}
	return class{}
}

// normal returns a copy of servers by node, each once, with its jobs sorted and
// each once; one that stands among both counts as not elastic.
func normal(servers []Server) []Server {
	out := make([]Server, 0, len(servers))
	for _, s := range servers {
		jobs := slices.Compact(slices.Sorted(slices.Values(s.Jobs)))
		elastic := slices.Compact(slices.Sorted(slices.Values(s.Elastic)))
		elastic = slices.DeleteFunc(elastic, func(j lockstep.JobID) bool { return slices.Contains(jobs, j) })
		out = append(out, Server{Node: s.Node, Jobs: jobs, Elastic: elastic})
	}
	slices.SortStableFunc(out, func(a, b Server) int { return cmp.Compare(a.Node, b.Node) })
	return slices.CompactFunc(out, func(a, b Server) bool { return a.Node == b.Node })
}
