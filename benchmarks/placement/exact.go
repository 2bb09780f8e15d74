package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// The clusters of the exact search.
const (
	smallRacks   = 3
	smallInRack  = 4
	smallNodes   = smallRacks * smallInRack
	smallDevices = 2 // of a node
	smallMoves   = 3 // at most
)

// room is what is free on each node of a small cluster.
type room [smallNodes]int8

// small is a gang of a small cluster.
type small struct {
	members, gpus int8
	rack          bool // it must sit in one rack
	at            room // members by node
}

// riddle is a small cluster in which a gang does not fit.
type riddle struct {
	free   room
	jobs   []small
	wanted small
}

// newRiddle scatters gangs by chance over most of a small cluster.
func newRiddle(rng *rand.Rand) *riddle {
	r := &riddle{}
	for x := range r.free {
		r.free[x] = smallDevices
	}
	for range 40 {
		if len(r.jobs) == 10 {
			break
		}
		j := small{members: int8(1 + rng.IntN(3)), gpus: int8(1 + rng.IntN(smallDevices)), rack: rng.IntN(3) > 0}
		var ways []room
		r.seatings(&j, r.free, func(at room) bool {
			ways = append(ways, at)
			return false
		})
		if len(ways) > 0 {
			j.at = ways[rng.IntN(len(ways))]
			r.free = less(r.free, &j)
			r.jobs = append(r.jobs, j)
		}
	}
	r.wanted = small{members: int8(1 + rng.IntN(smallInRack)), gpus: int8(1 + rng.IntN(smallDevices)), rack: true}
	return r
}

// less returns free without what a gang takes, more with it.
func less(free room, j *small) room {
	for x := range free {
		free[x] -= j.at[x] * j.gpus
	}
	return free
}

func more(free room, j *small) room {
	for x := range free {
		free[x] += j.at[x] * j.gpus
	}
	return free
}

// seatings yields every way to seat a gang on what is free until yield returns true.
func (r *riddle) seatings(j *small, free room, yield func(at room) bool) bool {
	var at room
	var seat func(x, end int, left int8) bool
	seat = func(x, end int, left int8) bool {
		if left == 0 {
			return yield(at)
		}
		if x == end {
			return false
		}
		for n := int8(0); n <= min(left, free[x]/j.gpus); n++ {
			at[x] = n
			if seat(x+1, end, left-n) {
				return true
			}
		}
		at[x] = 0
		return false
	}
	if !j.rack {
		return seat(0, smallNodes, j.members)
	}
	for x := 0; x < smallNodes; x += smallInRack {
		if seat(x, x+smallInRack, j.members) {
			return true
		}
		at = room{}
	}
	return false
}

// fits reports whether the wanted gang fits on what is free.
func (r *riddle) fits(free room) bool {
	return r.seatings(&r.wanted, free, func(room) bool { return true })
}

// least returns the fewest gangs that have to move, each once and one after the other,
// by trying every set, every order and every place; -1 where smallMoves will not do.
func (r *riddle) least() int {
	for n := 0; n <= smallMoves; n++ {
		if r.choose(nil, 0, n) {
			return n
		}
	}
	return -1
}

// choose tries every set of n more gangs.
func (r *riddle) choose(set []int, from, n int) bool {
	if n == 0 {
		free := r.free
		for _, i := range set {
			free = more(free, &r.jobs[i])
		}
		// If it does not fit with all of them gone, no places of theirs help.
		return r.fits(free) && r.arrange(set, r.free)
	}
	for i := from; i <= len(r.jobs)-n; i++ {
		if r.choose(append(slices.Clone(set), i), i+1, n-1) {
			return true
		}
	}
	return false
}

// arrange moves the gangs of a set in every order to every place.
func (r *riddle) arrange(set []int, free room) bool {
	if len(set) == 0 {
		return r.fits(free)
	}
	for k, i := range set {
		rest := slices.Delete(slices.Clone(set), k, k+1)
		gone := more(free, &r.jobs[i])
		tried := make(map[room]bool) // of what is left, places that leave the same are one
		if r.seatings(&r.jobs[i], gone, func(at room) bool {
			next := less(gone, &small{gpus: r.jobs[i].gpus, at: at})
			if tried[next] {
				return false
			}
			tried[next] = true
			return r.arrange(rest, next)
		}) {
			return true
		}
	}
	return false
}

// gang returns a gang of the library.
func (j *small) gang(id string) *lockstep.Gang {
	g := &lockstep.Gang{ID: lockstep.JobID(id), Roles: []lockstep.Role{{Min: int(j.members), Demand: lockstep.Demand{GPUs: int(j.gpus)}}}}
	if j.rack {
		g.Required = levelRack
	}
	return g
}

// state returns the cluster of the riddle and the goal.
func (r *riddle) state() (*placement.State, *placement.Goal, error) {
	shape, err := topology.UniformShape(smallDevices, topology.NVLink(1))
	if err != nil {
		return nil, nil, err
	}
	nodes := make([]topology.Node, smallNodes)
	for x := range nodes {
		nodes[x] = topology.Node{ID: lockstep.NodeID("n" + strconv.Itoa(10+x)), Path: []string{"r" + strconv.Itoa(x/smallInRack)}, Shape: shape}
	}
	tree, err := topology.New([]topology.Level{{Name: levelRack}}, nodes)
	if err != nil {
		return nil, nil, err
	}
	state, err := placement.New(tree, placement.Config{})
	if err != nil {
		return nil, nil, err
	}
	goal := &placement.Goal{Request: &lockstep.Request{Gang: r.wanted.gang("wanted")}, MaxMoves: smallMoves}
	var used room
	for i := range r.jobs {
		j := &r.jobs[i]
		plan := &lockstep.Plan{Gang: j.gang("j" + strconv.Itoa(i))}
		plan.Job = plan.Gang.ID
		for x, n := range j.at {
			for range n {
				var set lockstep.DeviceSet
				for range j.gpus {
					set |= 1 << used[x]
					used[x]++
				}
				plan.Members = append(plan.Members, lockstep.Member{Node: nodes[x].ID, Devices: set})
			}
		}
		if err := state.Adopt(plan); err != nil {
			return nil, nil, err
		}
		goal.Jobs = append(goal.Jobs, placement.Movable{Job: plan.Job})
	}
	return state, goal, nil
}

// exact compares Repack with the exact search on small clusters.
func (p *program) exact() ([]harness.Target, error) {
	cases := 300
	if p.Quick {
		cases = 60
	}
	rng := rand.New(rand.NewPCG(p.Seed, 12))
	logs, found, none, unlike := 0.0, 0, 0, 0
	var count [smallMoves + 1]int
	for found+none < cases {
		r := newRiddle(rng)
		free := int8(0)
		for _, n := range r.free {
			free += n
		}
		if free < r.wanted.members*r.wanted.gpus || r.fits(r.free) {
			continue
		}
		want := r.least()
		got, err := r.repack()
		if err != nil {
			return nil, err
		}
		switch {
		case want > 0 && got > 0:
			found++
			count[want]++
			logs += math.Log(float64(got) / float64(want))
		case want < 0 && got < 0:
			none++
		default:
			unlike++
			none++
		}
	}
	p.Input("exact search", fmt.Sprintf("%d racks of %d nodes of %d devices, up to 10 gangs scattered at random; every set of up to %d gangs, order and place",
		smallRacks, smallInRack, smallDevices, smallMoves))
	p.Note(fmt.Sprintf("exact search: %d clusters with a way, by 1, 2 and 3 moves %v; %d without; %d answered unlike", found, count[1:], none-unlike, unlike))
	ratio := math.Exp(logs / float64(max(found, 1)))
	p.Result("moves/exact/ratio", ratio, "x")
	p.Result("moves/exact/clusters", float64(cases), "clusters")
	p.Result("moves/exact/unlike", float64(unlike), "clusters")
	return []harness.Target{
		{Name: "moves/exact/ratio", Value: ratio, Unit: "x", Limit: 1},
		{Name: "moves/exact/unlike", Value: float64(unlike), Unit: "clusters", Limit: 0},
	}, nil
}

// repack returns how many moves Repack asks for, -1 where it finds no way.
func (r *riddle) repack() (int, error) {
	state, goal, err := r.state()
	if err != nil {
		return 0, err
	}
	var out placement.Moves
	v, err := state.Repack(goal, &out)
	if err != nil || !v.Feasible {
		return -1, err
	}
	for i := range out.Moves {
		if err := state.Exchange(&out.Moves[i].To); err != nil {
			return 0, fmt.Errorf("move %d: %w", i, err)
		}
	}
	return len(out.Moves), state.Adopt(&out.Plan)
}
