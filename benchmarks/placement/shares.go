package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// The cluster of shared devices.
const (
	sharesFill     = 80 // percent of the devices that may be held
	sharesTurnover = 1  // how many times what may be held is placed again before measuring
)

// model is a kind of node, of 8 devices.
type model struct {
	class lockstep.DeviceClass
	cpu   lockstep.MilliCPU
}

// modelOf returns the kind of the i-th node: half of them have 96 cores, a quarter 128.
func modelOf(i int) model {
	switch {
	case i%2 == 0:
		return model{"m96", 96_000}
	case i%4 == 1:
		return model{"m128", 128_000}
	case i%8 == 3:
		return model{"m64", 64_000}
	default:
		return model{"m208", 208_000}
	}
}

// task is a kind of gang of one member, and how often it comes.
type task struct {
	gpus    int
	share   lockstep.MilliGPU // of each device; 0 is all of it
	cpu     lockstep.MilliCPU
	classes []lockstep.DeviceClass
	weight  int
}

// milli returns how much of devices a task takes.
func (t *task) milli() int {
	return t.gpus * int(lockstep.Demand{GPUs: t.gpus, Share: t.share}.DeviceShare())
}

// tasks are 35 kinds in proportions like those of a public cluster of shared devices:
// two in five take part of one device, as many a whole one.
func tasks() []task {
	list := []task{
		{2, 0, 32_000, nil, 3},
		{4, 0, 48_000, nil, 2},
		{8, 0, 88_000, nil, 4},
		{1, 500, 6_000, []lockstep.DeviceClass{"m96", "m128"}, 10},
		{1, 0, 24_000, []lockstep.DeviceClass{"m128", "m208"}, 9},
	}
	for _, t := range [][3]int{
		{800, 3, 120},
		{450, 12, 40},
		{450, 8, 36},
		{650, 12, 25},
		{300, 4, 24},
		{220, 4, 13},
		{450, 6, 12},
		{300, 8, 8},
		{600, 3, 8},
		{550, 4, 7},
		{150, 4, 6},
		{380, 4, 5},
		{800, 4, 4},
		{250, 8, 4},
		{100, 4, 3},
		{350, 2, 3},
		{1000, 11, 90},
		{1000, 12, 80},
		{1000, 3, 47},
		{1000, 16, 32},
		{1000, 18, 26},
		{1000, 10, 20},
		{1000, 8, 17},
		{1000, 4, 16},
		{1000, 14, 10},
		{1000, 15, 4},
	} {
		list = append(list, task{gpus: 1, share: lockstep.MilliGPU(t[0] % 1000), cpu: lockstep.MilliCPU(1000 * t[1]), weight: t[2]})
	}
	for _, t := range [][2]int{{12, 18}, {32, 14}, {8, 10}, {16, 11}} {
		list = append(list, task{cpu: lockstep.MilliCPU(1000 * t[0]), weight: t[1]})
	}
	return list
}

// sharesSizes measures tasks that take part of a device on both clusters.
func (p *program) sharesSizes() error {
	list := tasks()
	p.Input("shares", fmt.Sprintf("%d kinds of one-member gangs: %d of part of a device (50 to 800 thousandths), %d of one, 3 of 2 to 8, 4 without; 3 to 88 cores; two kinds name models",
		len(list), 17, len(list)-24))
	p.Input("shares cluster", fmt.Sprintf("nodes of 8 devices and 96 (half), 128 (a quarter), 64 or 208 cores, by class; %d%% of the devices held, random gangs released, after %dx turnover; "+
		"100,000 nodes begin as ten copies of the 10,000; the mix is learned from arrivals; rule: prices, all gangs ranked", sharesFill, sharesTurnover))
	cfg := placement.Config{RankAll: true}
	tree, nodes, err := newSharedTree(10_000)
	if err != nil {
		return err
	}
	cfg.Nodes = nodes
	state, err := placement.New(tree, cfg)
	if err != nil {
		return err
	}
	small := newSharers(state, 10_000, p.Seed)
	if err := small.warm((1 + sharesTurnover) * small.most); err != nil {
		return err
	}
	if p.Quick {
		p.Note("shares on 100,000 nodes are left out under -quick: there are 800,000 tasks to place first")
		return p.shares(small, 10_000, 20)
	}
	big, err := small.copied(10_000, 10, cfg)
	if err != nil {
		return err
	}
	if err := p.shares(small, 10_000, 20); err != nil {
		return err
	}
	if err := big.warm(big.most / 50); err != nil {
		return err
	}
	return p.shares(big, 100_000, 40)
}

// shares measures a warm cluster. What is timed is Arrived, Fit and Apply of gangs that
// take part of a device; the others come in between.
func (p *program) shares(c *sharers, nodes int, p50 float64) error {
	f, err := p.meter.run(p.Bench, func() (int64, error) {
		for {
			if took, part, err := c.step(p.meter.clock); part || err != nil {
				return took, err
			}
		}
	})
	if err != nil {
		return err
	}
	f.allocs *= c.partly() // of one task, not of all that come until one takes part of a device
	p.Result(fmt.Sprintf("shares/nodes=%d/refused", nodes), float64(c.refused)/float64(max(c.granted+c.refused, 1)), "fraction")
	p.Result(fmt.Sprintf("shares/nodes=%d/mean-ref", nodes), micros(f.cpuRef)*c.partly(), "us") // of all tasks, the releases and the drawing included
	tree := c.state.Tree()
	with := heap()
	c.state, c.plan, c.request = nil, lockstep.Plan{}, lockstep.Request{}
	without := heap()
	runtime.KeepAlive(tree)
	runtime.KeepAlive(c)
	p.list = append(p.list, line{name: "shares", what: "one shared-device task, 35 kinds", nodes: nodes, f: f, p50: p50, memory: (with - without) / 1e6})
	return nil
}

// partly returns how many of the tasks take part of a device.
func (c *sharers) partly() float64 {
	part := 0
	for _, i := range c.deck {
		if c.tasks[i].share > 0 {
			part++
		}
	}
	return float64(part) / float64(len(c.deck))
}

// newSharedTree returns a cluster of n nodes of all models, and what they offer.
func newSharedTree(n int) (*topology.Tree, []placement.Node, error) {
	tree, err := newTree(n)
	if err != nil {
		return nil, nil, err
	}
	nodes := make([]placement.Node, 0, n)
	for x := range tree.Slots() {
		if id, ok := tree.NodeAt(int32(x)); ok {
			m := modelOf(len(nodes))
			nodes = append(nodes, placement.Node{ID: id, Class: m.class, CPU: m.cpu})
		}
	}
	return tree, nodes, nil
}

// sharers drives a state with gangs of one member that come and go. Gangs are made
// beforehand and used again under new IDs.
type sharers struct {
	state   *placement.State
	rng     *rand.Rand
	tasks   []task
	deck    []int              // tasks, each by its weight
	roles   [][]lockstep.Role  // of the gangs of a task
	pools   [][]*lockstep.Gang // free gangs of a task
	live    []holder           // who holds room
	request lockstep.Request
	plan    lockstep.Plan
	nextID  int
	seed    uint64
	held    int // milli
	most    int // milli
	placed  int // milli, all time
	granted int
	refused int
}

func newSharers(state *placement.State, nodes int, seed uint64) *sharers {
	c := &sharers{state: state, seed: seed, rng: rand.New(rand.NewPCG(seed, 35)), tasks: tasks(), most: nodes * nodeGPUs * 10 * sharesFill}
	c.pools = make([][]*lockstep.Gang, len(c.tasks))
	for i := range c.tasks {
		t := &c.tasks[i]
		c.deck = slices.Concat(c.deck, slices.Repeat([]int{i}, t.weight))
		c.roles = append(c.roles, []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: t.gpus, Share: t.share, CPU: t.cpu, Classes: t.classes}}})
	}
	return c
}

// draw returns the next gang.
func (c *sharers) draw() holder {
	return c.take(c.deck[c.rng.IntN(len(c.deck))])
}

// take returns a gang of a task.
func (c *sharers) take(i int) holder {
	if len(c.pools[i]) == 0 {
		c.provide(i, 64)
	}
	last := len(c.pools[i]) - 1
	g := c.pools[i][last]
	c.pools[i] = c.pools[i][:last]
	return holder{gang: g, shape: i}
}

// provide makes n gangs of a task for later. Their IDs stay theirs: with as many as
// live at once, new ones for each would cost more than the rest of this program.
func (c *sharers) provide(task, n int) {
	gangs := make([]lockstep.Gang, n)
	for i := range gangs {
		gangs[i] = lockstep.Gang{ID: lockstep.JobID("task-" + strconv.Itoa(c.nextID)), Roles: c.roles[task]}
		c.nextID++
		c.pools[task] = append(c.pools[task], &gangs[i])
	}
}

// room releases gangs at random until one of task may be held.
func (c *sharers) room(task int) error {
	for len(c.live) > 0 && c.held+c.tasks[task].milli() > c.most {
		i, last := c.rng.IntN(len(c.live)), len(c.live)-1
		h := c.live[i]
		c.live[i] = c.live[last]
		c.live = c.live[:last]
		if err := c.state.Release(h.gang.ID); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		c.held -= c.tasks[h.shape].milli()
		c.pools[h.shape] = append(c.pools[h.shape], h.gang)
	}
	return nil
}

// decide tells the state of a gang, asks for a place and takes it.
func (c *sharers) decide(h holder) (granted bool, err error) {
	if err := c.state.Arrived(h.gang); err != nil {
		return false, err
	}
	c.request.Gang = h.gang
	verdict, err := c.state.Fit(&c.request, &c.plan)
	if err != nil || !verdict.Feasible {
		return false, err
	}
	return true, c.state.Apply(&c.plan)
}

// settle keeps the books after a decision.
func (c *sharers) settle(h holder, granted bool) {
	if !granted {
		c.refused++
		c.pools[h.shape] = append(c.pools[h.shape], h.gang)
		return
	}
	c.granted++
	c.live = append(c.live, h)
	c.held += c.tasks[h.shape].milli()
	c.placed += c.tasks[h.shape].milli()
}

// step draws a gang, makes room and decides, timed by clock. It returns whether the
// gang takes a part of a device.
func (c *sharers) step(clock harness.Clock) (took int64, part bool, err error) {
	h := c.draw()
	if err := c.room(h.shape); err != nil {
		return 0, false, err
	}
	start := clock.Nanos()
	granted, err := c.decide(h)
	took = clock.Nanos() - start
	if err != nil {
		return 0, false, fmt.Errorf("decide: %w", err)
	}
	c.settle(h, granted)
	return took, c.tasks[h.shape].share > 0, nil
}

// warm runs until so much was placed, and forgets the tally.
func (c *sharers) warm(milli int) error {
	clock := harness.NewClock()
	for c.placed < milli {
		if _, _, err := c.step(clock); err != nil {
			return err
		}
	}
	c.granted, c.refused = 0, 0
	for i := range c.tasks {
		c.provide(i, 1024)
	}
	c.live = slices.Grow(c.live, len(c.live)/4)
	return nil
}

// copied returns n copies of c beside each other, on a cluster n times as large: a
// cluster that came to be as c did, at a fraction of the time.
func (c *sharers) copied(nodes, n int, cfg placement.Config) (*sharers, error) {
	tree, offers, err := newSharedTree(nodes * n)
	if err != nil {
		return nil, err
	}
	cfg.Nodes = offers
	state, err := placement.New(tree, cfg)
	if err != nil {
		return nil, err
	}
	d := newSharers(state, nodes*n, c.seed+1)
	d.live = make([]holder, 0, len(c.live)*n*5/4)
	var plan lockstep.Plan
	for _, h := range c.live {
		if !c.state.Plan(h.gang.ID, &plan) {
			return nil, fmt.Errorf("%s holds nothing", h.gang.ID)
		}
		slot, _ := c.state.Tree().Slot(plan.Members[0].Node)
		for k := range n {
			id, _ := tree.NodeAt(int32(k*nodes) + slot)
			plan.Members[0].Node = id
			o := d.take(h.shape)
			plan.Job, plan.Gang = o.gang.ID, o.gang
			if err := state.Arrived(o.gang); err != nil {
				return nil, err
			}
			if err := state.Adopt(&plan); err != nil {
				return nil, err
			}
			d.settle(o, true)
		}
	}
	d.placed = 0
	return d, nil
}
