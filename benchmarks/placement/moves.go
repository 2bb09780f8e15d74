package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/placement"
)

// The clusters that moves make room in.
const (
	movesNodes    = 1000
	movesFill     = 85 // percent of the devices held
	movesTurnover = 4
	movesMost     = 64 // of one goal
)

// rule is an order in which the greedy baseline moves the gangs of a block.
type rule struct {
	name  string
	order func(a, b *resident) int // among equals the one that came first

	logs         float64 // sum of the logarithms of our moves over its
	both         int     // seeds in which both found a way
	ours, theirs int     // moves in those
	onlyOurs     int     // seeds in which only Repack found a way
	onlyTheirs   int     // seeds in which only the rule did
}

// rules are the orders: the peers take the newest first, the least disruption is that
// of the smallest, and the fewest moves are most often those of the largest.
func rules() []*rule {
	size := func(r *resident) int { return r.members * r.gpus() }
	return []*rule{
		{name: "newest", order: func(a, b *resident) int { return b.serial - a.serial }},
		{name: "smallest", order: func(a, b *resident) int { return size(a) - size(b) }},
		{name: "largest", order: func(a, b *resident) int { return size(b) - size(a) }},
	}
}

// note compares one outcome; -1 is no way.
func (r *rule) note(ours, theirs int) {
	switch {
	case ours > 0 && theirs > 0:
		r.both++
		r.ours += ours
		r.theirs += theirs
		r.logs += math.Log(float64(ours) / float64(theirs))
	case ours > 0:
		r.onlyOurs++
	case theirs > 0:
		r.onlyTheirs++
	}
}

// ratio returns the geometric mean of our moves over the rule's.
func (r *rule) ratio() float64 { return math.Exp(r.logs / float64(r.both)) }

// defragment compares Repack with greedy rules and with exact search.
func (p *program) defragment() error {
	p.Input("moves", fmt.Sprintf("gang of %d whole nodes in one block of %d; %d nodes, %d%% of the devices held after %dx turnover, random gangs released, gangs as for victims; every gang may move; "+
		"clusters in which it fits as they are are passed over", pendingNodes, rackNodes*blockRacks, movesNodes, movesFill, movesTurnover))
	p.Note("greedy: the block with most wholly free nodes first; its gangs in an order (newest; smallest; largest; best is the best of the three), each to where Fit puts it outside the block, " +
		"until the gang fits; those without such a place stay; then the next block, from the beginning")
	var targets []harness.Target
	for _, most := range []int{pendingNodes, 8} {
		if p.Quick && most < pendingNodes {
			continue
		}
		list, err := p.moves(most)
		if err != nil {
			return err
		}
		if most < pendingNodes {
			list = list[1:] // the target is for gangs of all sizes
		}
		targets = append(targets, list...)
	}
	list, err := p.exact()
	if err != nil {
		return err
	}
	for _, t := range append(targets, list...) {
		p.Target(t)
	}
	return nil
}

// moves compares Repack with greedy rules on clusters in which a gang of 64 nodes does
// not fit, one a seed, of gangs of up to most whole nodes.
func (p *program) moves(most int) ([]harness.Target, error) {
	seeds := 100
	if p.Quick {
		seeds = 10
	}
	list := append(rules(), &rule{name: "best"})
	var took []int64
	slow := p.meter.calibration.Slowness()
	for seed := p.Seed * 1000; len(took) < seeds; seed++ {
		m, err := newMixed(movesNodes, most, seed)
		if err != nil {
			return nil, err
		}
		if err := m.churn(movesTurnover, movesFill); err != nil {
			return nil, err
		}
		goal := m.goal()
		v, err := m.state.Fit(goal.Request, &m.plan)
		if err != nil {
			return nil, err
		}
		if v.Feasible {
			continue // nothing to do
		}
		spent, err := p.contest(m, goal, list)
		if err != nil {
			return nil, err
		}
		took = append(took, spent)
	}
	slow = (slow + p.meter.calibration.Slowness()) / 2
	slices.Sort(took)
	at := fmt.Sprintf("moves/gangs=1-%d/", most)
	p.Result(at+"seeds", float64(len(took)), "seeds")
	p.Result(at+"p50", micros(float64(harness.Percentile(took, 50))), "us")
	p.Result(at+"p99", micros(float64(harness.Percentile(took, 99))), "us")
	p.Result(at+"p50-ref", micros(float64(harness.Percentile(took, 50)))/slow, "us")
	return p.compared(most, at, list), nil
}

// contest has Repack and the rules solve one cluster, and returns the time of Repack.
func (p *program) contest(m *mixed, goal *placement.Goal, list []*rule) (took int64, err error) {
	ours, took, err := m.repack(goal, p.meter)
	if err != nil {
		return 0, err
	}
	best, last := -1, len(list)-1
	for _, r := range list[:last] {
		n, err := m.greedy(goal.Request, r.order)
		if err != nil {
			return 0, err
		}
		r.note(ours, n)
		if n > 0 && (best < 0 || n < best) {
			best = n
		}
	}
	list[last].note(ours, best)
	return took, nil
}

// compared prints the rules beside Repack and returns the targets.
func (p *program) compared(most int, at string, list []*rule) []harness.Target {
	table := &harness.Table{Head: []string{
		fmt.Sprintf("gangs of 1 to %d nodes: greedy rule", most), "its moves", "Repack's", "geometric mean of Repack's/its", "both", "only Repack", "only greedy",
	}}
	for _, r := range list {
		table.Add(r.name, strconv.Itoa(r.theirs), strconv.Itoa(r.ours), harness.Number(r.ratio()), strconv.Itoa(r.both), strconv.Itoa(r.onlyOurs), strconv.Itoa(r.onlyTheirs))
		p.Result(at+r.name+"/ratio", r.ratio(), "x")
		p.Result(at+r.name+"/greedy", float64(r.theirs)/float64(max(r.both, 1)), "moves/seed")
		p.Result(at+r.name+"/repack", float64(r.ours)/float64(max(r.both, 1)), "moves/seed")
	}
	p.Table(table)
	best := list[len(list)-1]
	return []harness.Target{
		{Name: at + "newest/ratio", Value: list[0].ratio(), Unit: "x", Limit: 0.8},
		{Name: at + "best/ratio", Value: best.ratio(), Unit: "x", Limit: 1},
		{Name: at + "best/only-greedy", Value: float64(best.onlyTheirs), Unit: "seeds", Limit: 0},
	}
}

// goal wants a gang of 64 nodes; every gang may move.
func (m *mixed) goal() *placement.Goal {
	goal := &placement.Goal{Request: &lockstep.Request{Gang: pending("pending")}, MaxMoves: movesMost}
	for i := range m.candidates.Jobs {
		goal.Jobs = append(goal.Jobs, placement.Movable{Job: m.candidates.Jobs[i].Job, Cost: m.candidates.Jobs[i].Cost})
	}
	return goal
}

// repack returns how many moves Repack asks for, -1 where it finds none, and its time.
// It makes the moves, seats the gang, and takes all of it back: that nothing is refused
// is a check of the answer.
func (m *mixed) repack(goal *placement.Goal, meter *meter) (moves int, took int64, err error) {
	var out placement.Moves
	start := meter.spent()
	v, err := m.state.Repack(goal, &out)
	took = meter.spent() - start
	if err != nil || !v.Feasible {
		return -1, took, err
	}
	mark := m.state.Mark()
	for i := range out.Moves {
		if err := m.state.Exchange(&out.Moves[i].To); err != nil {
			return 0, 0, fmt.Errorf("move %d: %w", i, err)
		}
	}
	if err := m.state.Adopt(&out.Plan); err != nil {
		return 0, 0, fmt.Errorf("after %d moves: %w", len(out.Moves), err)
	}
	return len(out.Moves), took, m.state.Rollback(mark)
}

// greedy is the baseline. It looks at the blocks with most wholly free nodes first. In
// a block it takes the gangs with members there in an order, and moves each to where Fit
// puts it outside the block, until the request fits; gangs without such a place stay,
// and so do those that need not move once it fits. Where all were tried in vain it goes on to
// the next block, from where it began. It returns the moves, -1 if no block will do.
func (m *mixed) greedy(r *lockstep.Request, order func(a, b *resident) int) (int, error) {
	tree := m.state.Tree()
	level, _ := tree.LevelIndex(r.Gang.Required)
	type block struct {
		nodes []lockstep.NodeID
		jobs  []*resident
		free  int
	}
	blocks := make([]block, tree.Domains(level))
	for x := range tree.Slots() {
		id, _ := tree.NodeAt(int32(x))
		b := &blocks[tree.DomainOf(level, int32(x))]
		b.nodes = append(b.nodes, id)
		if status, _ := m.state.Node(id); status.Free.Len() == nodeGPUs {
			b.free++
		}
	}
	for i := range m.live {
		m.state.Plan(m.live[i].gang.ID, &m.plan)
		slot, _ := tree.Slot(m.plan.Members[0].Node) // no gang is in two blocks
		b := &blocks[tree.DomainOf(level, slot)]
		b.jobs = append(b.jobs, &m.live[i])
	}
	slices.SortStableFunc(blocks, func(a, b block) int { return b.free - a.free })
	for i := range blocks {
		b := &blocks[i]
		slices.SortFunc(b.jobs, func(x, y *resident) int { return cmp.Or(order(x, y), x.serial-y.serial) })
		mark := m.state.Mark()
		moves, err := m.clear(r, b.nodes, b.jobs)
		if err == nil {
			err = m.state.Rollback(mark)
		}
		if err != nil || moves >= 0 {
			return moves, err
		}
	}
	return -1, nil
}

// clear moves jobs out of nodes until the request fits, and counts the moves.
func (m *mixed) clear(r *lockstep.Request, nodes []lockstep.NodeID, jobs []*resident) (moves int, err error) {
	for _, j := range jobs {
		away := lockstep.Request{Gang: j.gang, Exclude: nodes}
		v, err := m.state.Fit(&away, &m.plan)
		if err != nil {
			return 0, err
		}
		if !v.Feasible {
			continue
		}
		if err := m.state.Exchange(&m.plan); err != nil {
			return 0, err
		}
		moves++
		if v, err = m.state.Fit(r, &m.plan); err != nil || v.Feasible {
			return moves, err
		}
	}
	return -1, nil
}
