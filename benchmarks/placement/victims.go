package main

import (
	"fmt"
	"runtime"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// The gang that room is made for, and the turnover of the cluster that it meets.
const (
	pendingNodes    = 64
	victimsTurnover = 4 // how many times the cluster's devices are placed before it is filled up
)

// pending returns a gang of 64 whole nodes in one block.
func pending(id lockstep.JobID) *lockstep.Gang {
	return &lockstep.Gang{ID: id, Required: levelBlock, Roles: []lockstep.Role{{Min: pendingNodes, Demand: lockstep.Demand{GPUs: nodeGPUs}}}}
}

// hunted is what the proposals of a measurement were like.
type hunted struct {
	decisions, evictions, shrinks, exact int
	candidates                           int // at the last decision
	fill                                 float64
	allocs                               []float64 // by decision
}

// victims measures who has to go for a gang of 64 nodes in a full cluster. Between
// decisions the proposal is carried out and the gang placed; then it leaves, with
// gangs picked at random that held as much, and others take the room.
func (p *program) victims(nodes int) (f figures, found hunted, memory float64, err error) {
	m, err := newMixed(nodes, pendingNodes, p.Seed)
	if err != nil {
		return f, found, 0, err
	}
	if err = m.churn(victimsTurnover, p.fill); err != nil {
		return f, found, 0, err
	}
	var out lockstep.Preempted
	count := 0
	step := func() (int64, error) {
		if err := m.fill(); err != nil {
			return 0, err
		}
		count++
		gang := pending(lockstep.JobID(fmt.Sprint("pending-", count)))
		request := lockstep.Request{Gang: gang}
		before := mallocs()
		start := p.meter.spent()
		verdict, err := m.state.Victims(&request, &m.candidates, &out)
		took := p.meter.spent() - start
		allocated := mallocs() - before
		if err != nil {
			return 0, err
		}
		if !verdict.Feasible || len(out.Evictions) == 0 {
			return 0, fmt.Errorf("victims: %v with %d evictions", verdict, len(out.Evictions))
		}
		found.note(m, &out, allocated)
		if err := m.evict(&out); err != nil {
			return 0, err
		}
		if err := m.end(m.index[gang.ID]); err != nil {
			return 0, err
		}
		m.reprice()
		return took, nil
	}
	for range 8 { // warm
		if _, err := step(); err != nil {
			return f, found, 0, err
		}
	}
	found = hunted{}
	if f, err = p.meter.long(p.Bench, 20, step); err != nil {
		return f, found, 0, err
	}
	f.allocs = harness.Median(found.allocs)
	with := heap()
	tree := m.state.Tree()
	m.state, m.plan, m.request = nil, lockstep.Plan{}, lockstep.Request{}
	without := heap()
	runtime.KeepAlive(tree)
	runtime.KeepAlive(m)
	return f, found, (with - without) / 1e6, nil
}

// victimsSizes measures both clusters.
func (p *program) victimsSizes() error {
	p.Input("victims", fmt.Sprintf("gang of %d whole nodes in one block of %d; cluster full (no gang of any kind fits): %dx turnover at %d%%, then filled up, of gangs of 1 to 64 whole nodes, "+
		"every fourth of 1 to 4 members of 1, 2 or 4 devices; all are candidates, in %d tiers, with up to an hour lost, 1 to 5 min to resume, half of those of several members can give up half; "+
		"between decisions the evictions and the gang are carried out, the gang leaves, others fill up, and all costs are drawn anew",
		pendingNodes, rackNodes*blockRacks, victimsTurnover, p.fill, tiers))
	for _, size := range []struct {
		nodes int
		p50   float64
	}{{10_000, 1000}, {100_000, 2000}} {
		f, found, memory, err := p.victims(size.nodes)
		if err != nil {
			return err
		}
		at, n := fmt.Sprintf("victims/nodes=%d/", size.nodes), float64(found.decisions)
		p.Result(at+"candidates", float64(found.candidates), "gangs")
		p.Result(at+"evictions", float64(found.evictions)/n, "gangs/op")
		p.Result(at+"shrinks", float64(found.shrinks)/n, "gangs/op")
		p.Result(at+"exact", float64(found.exact)/n, "fraction")
		p.Result(at+"fill", found.fill/n, "percent")
		all := 0.0
		for _, a := range found.allocs {
			all += a
		}
		p.Result(at+"allocs-mean", all/n, "allocs/op")
		p.list = append(p.list, line{name: "victims", what: "victims for a gang of 64 nodes", nodes: size.nodes, f: f, p50: size.p50, memory: memory})
	}
	return nil
}

func (h *hunted) note(m *mixed, out *lockstep.Preempted, allocated uint64) {
	h.decisions++
	h.evictions += len(out.Evictions)
	for i := range out.Evictions {
		if len(out.Evictions[i].Ranks) > 0 {
			h.shrinks++
		}
	}
	if out.Exact {
		h.exact++
	}
	h.candidates = len(m.candidates.Jobs)
	h.fill += 100 * float64(m.used) / float64(m.all)
	h.allocs = append(h.allocs, float64(allocated))
}
