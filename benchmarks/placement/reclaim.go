package main

import (
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/placement"
)

// reclaimed is what KAI's benchmark ReclaimLargeJobs showed.
type reclaimed struct {
	nodes, members int
	seconds        float64 // of processor time a cycle; at least that where it did not end
	open           bool    // it did not end
}

// Figures of KAI 72de64f, measured as harness.PeersMeasured says.
var reclaims = []reclaimed{
	{nodes: 100, members: 10, seconds: 0.4},
	{nodes: 500, members: 50, seconds: 16.9},
	{nodes: 1000, members: 100, seconds: 28, open: true},
}

// reclaim measures the input of ReclaimLargeJobs: every device is held by a job of its
// own, of a queue that deserves nothing, and a gang of whole nodes comes.
func (p *program) reclaim() error {
	table := &harness.Table{Head: []string{"KAI ReclaimLargeJobs", "running jobs", "gang", "KAI CPU s", "Victims us", "cycle ms", "KAI/cycle", "evictions", "allocs"}}
	for _, peer := range reclaims {
		var evictions int
		alone, err := p.reclaimed(peer, false, &evictions)
		if err != nil {
			return err
		}
		cycle, err := p.reclaimed(peer, true, &evictions)
		if err != nil {
			return err
		}
		mark := ""
		if peer.open {
			mark = ">"
		}
		table.Add(fmt.Sprintf("%d nodes", peer.nodes), strconv.Itoa(peer.nodes*nodeGPUs), fmt.Sprintf("%d x %d", peer.members, nodeGPUs),
			mark+harness.Number(peer.seconds), harness.Number(micros(alone.p50)), harness.Number(cycle.p50/1e6),
			mark+harness.Number(peer.seconds*1e9/cycle.p50), strconv.Itoa(evictions), harness.Number(alone.allocs))
		at := fmt.Sprintf("reclaim/nodes=%d/", peer.nodes)
		p.Result(at+"victims-p50", micros(alone.p50), "us")
		p.Result(at+"victims-p50-ref", micros(alone.p50Ref), "us")
		p.Result(at+"cycle-p50", cycle.p50/1e9, "s")
		p.Result(at+"cycle-p50-ref", cycle.p50Ref/1e9, "s")
		p.Result(at+"theirs", peer.seconds, "s")
		p.Result(at+"allocs", alone.allocs, "allocs/op")
	}
	p.Table(table)
	p.Note("ReclaimLargeJobs: every device of nodes of 8 is held by a one-device job of a queue that deserves nothing, and a gang of so many x 8 devices, " +
		"without a level, comes; all jobs are candidates of equal cost under one limit, of all that the queue holds")
	p.Note("Victims: that call on a state that lives on; cycle: tree and state built, the running jobs adopted, Victims, every eviction carried out and the gang adopted")
	p.Note("ReclaimLargeJobs differs: KAI also derives from its queues who may be reclaimed and by how much, orders jobs and queues, and runs its plugins; " +
		"ours is told the candidates and the limit. > marks a run of KAI that did not end")
	return nil
}

// reclaimed measures Victims alone, or a whole cycle.
func (p *program) reclaimed(peer reclaimed, rebuild bool, evictions *int) (figures, error) {
	plans, candidates := oneDeviceJobs(peer.nodes)
	gang := &lockstep.Gang{ID: "reclaimer", Roles: []lockstep.Role{{Min: peer.members, Demand: lockstep.Demand{GPUs: nodeGPUs}}}}
	request := lockstep.Request{Gang: gang}
	var out lockstep.Preempted
	var state *placement.State
	var allocated []float64
	begin := func() (err error) {
		if state, err = newState(peer.nodes); err != nil {
			return err
		}
		for i := range plans {
			if err := state.Adopt(&plans[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := begin(); err != nil {
		return figures{}, err
	}
	hunt := func() error {
		v, err := state.Victims(&request, candidates, &out)
		if err == nil && (!v.Feasible || len(out.Evictions) != peer.members*nodeGPUs) {
			err = fmt.Errorf("reclaim: %v with %d evictions", v, len(out.Evictions))
		}
		*evictions = len(out.Evictions)
		return err
	}
	step := func() (int64, error) {
		mallocsBefore := mallocs()
		start := p.meter.spent()
		err := hunt()
		took := p.meter.spent() - start
		allocated = append(allocated, float64(mallocs()-mallocsBefore))
		return took, err
	}
	if rebuild {
		step = func() (int64, error) {
			start := p.meter.spent()
			if err := begin(); err != nil {
				return 0, err
			}
			if err := hunt(); err != nil {
				return 0, err
			}
			for i := range out.Evictions {
				if err := state.Evict(&out.Evictions[i]); err != nil {
					return 0, err
				}
			}
			err := state.Adopt(&out.Plan)
			return p.meter.spent() - start, err
		}
	}
	if _, err := step(); err != nil { // warm
		return figures{}, err
	}
	allocated = allocated[:0]
	f, err := p.meter.long(p.Bench, 10, step)
	f.allocs = harness.Median(allocated)
	return f, err
}

// oneDeviceJobs returns a job on every device, and all of them as candidates.
func oneDeviceJobs(nodes int) ([]lockstep.Plan, *lockstep.Candidates) {
	candidates := &lockstep.Candidates{Limits: []lockstep.Resources{{lockstep.ResourceGPU: int64(1000 * nodes * nodeGPUs)}}}
	plans := make([]lockstep.Plan, 0, nodes*nodeGPUs)
	for i := range nodes * nodeGPUs {
		g := &lockstep.Gang{ID: lockstep.JobID("job-" + strconv.Itoa(i)), Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 1}}}}
		plans = append(plans, lockstep.Plan{Job: g.ID, Gang: g, Members: []lockstep.Member{{
			Node: lockstep.NodeID("n" + strconv.Itoa(i/nodeGPUs)), Devices: 1 << (i % nodeGPUs),
		}}})
		candidates.Jobs = append(candidates.Jobs, lockstep.Candidate{Job: g.ID, Limits: []int32{0}, Cost: lockstep.EvictionCost{Lost: 60e9, Devices: lockstep.WholeGPU}})
	}
	return plans, candidates
}
