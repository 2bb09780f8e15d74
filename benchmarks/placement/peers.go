package main

import (
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/placement"
)

// peers measures the inputs of the published runs and prints both sides.
func (p *program) peers() error {
	table := &harness.Table{Head: []string{"peer", "commit", "nodes", "peer gangs/CPU-s", "ours gangs/CPU-s", "ours/peer"}}
	add := func(peer harness.Peer, what string, rate float64) {
		table.Add(peer.Name+what, peer.Commit, strconv.Itoa(peer.Nodes), harness.Number(peer.PerCPU), harness.Number(rate), harness.Number(rate/peer.PerCPU))
		p.Result(fmt.Sprintf("peer=%s/nodes=%d/ours%s", peer.Name, peer.Nodes, what), rate, "gangs/CPU-s")
		p.Result(fmt.Sprintf("peer=%s/nodes=%d/theirs", peer.Name, peer.Nodes), peer.PerCPU, "gangs/CPU-s")
	}
	told := make(map[string]bool)
	var notes []string
	for _, peer := range harness.Peers() {
		if !told[peer.Name] {
			told[peer.Name] = true
			notes = append(notes, peer.Name+"'s input: "+peer.Input, peer.Name+" differs: "+peer.Differs)
		}
		if peer.Name == "KAI" {
			for _, rebuild := range []bool{false, true} {
				rate, err := p.likeKAI(peer.Nodes, rebuild)
				if err != nil {
					return err
				}
				what := ""
				if rebuild {
					what = "-rebuilt"
				}
				add(peer, what, rate)
			}
			continue
		}
		rate, err := p.likeHiveD(peer.Nodes)
		if err != nil {
			return err
		}
		add(peer, "", rate)
	}
	p.Table(table)
	p.Note("peers: " + harness.PeersMeasured)
	for _, note := range notes {
		p.Note(note)
	}
	p.Note("-rebuilt: ours with the tree and the state built anew for each cycle of 100 gangs")
	return nil
}

// peerFill is the use, in percent of the nodes, above which HiveD's run released.
const peerFill = 70

// likeHiveD returns gangs placed in a second of processor time on HiveD's input.
func (p *program) likeHiveD(nodes int) (float64, error) {
	state, err := newState(nodes)
	if err != nil {
		return 0, err
	}
	var shapes []shape
	for n := 1; n <= 16; n *= 2 {
		shapes = append(shapes, shape{nodes: n, required: levelRack})
	}
	c := newChurn(workload{nodes: nodes, percent: peerFill, release: oldest, shapes: shapes, inTurn: true, seed: p.Seed}, state)
	if err := c.warm(2); err != nil {
		return 0, err
	}
	f, err := p.meter.run(p.Bench, p.timed(c))
	// Only what was placed counts, as it does for the peer.
	return perSecond(f.cpu) * (1 - c.refusedShare()), err
}

// likeKAI returns gangs placed in a second of processor time on KAI's input.
func (p *program) likeKAI(nodes int, rebuild bool) (float64, error) {
	const gangs, members = 100, 4
	requests := make([]lockstep.Request, gangs)
	for i := range requests {
		requests[i].Gang = &lockstep.Gang{
			ID: lockstep.JobID("job-" + strconv.Itoa(i)), Roles: []lockstep.Role{{Min: members, Demand: lockstep.Demand{GPUs: 1}}},
		}
	}
	state, err := newState(nodes)
	if err != nil {
		return 0, err
	}
	var plan lockstep.Plan
	clock := p.meter.clock
	cycle := func() (int64, error) {
		start := clock.Nanos()
		if rebuild {
			if state, err = newState(nodes); err != nil {
				return 0, err
			}
		}
		if err := fillUp(state, requests, &plan); err != nil {
			return 0, err
		}
		took := clock.Nanos() - start
		if rebuild {
			return took, nil
		}
		for i := range requests {
			if err := state.Release(requests[i].Gang.ID); err != nil {
				return 0, err
			}
		}
		return took, nil
	}
	f, err := p.meter.run(p.Bench, cycle)
	return perSecond(f.cpu) * gangs, err
}

// fillUp places every request.
func fillUp(state *placement.State, requests []lockstep.Request, plan *lockstep.Plan) error {
	for i := range requests {
		verdict, err := state.Fit(&requests[i], plan)
		if err != nil {
			return err
		}
		if !verdict.Feasible {
			return fmt.Errorf("%s: %v", requests[i].Gang.ID, verdict)
		}
		if err := state.Apply(plan); err != nil {
			return err
		}
	}
	return nil
}
