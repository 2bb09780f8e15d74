package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// placer is what a churn drives; *placement.State is one.
type placer interface {
	Fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error)
	Apply(p *lockstep.Plan) error
	Release(job lockstep.JobID) error
}

// order says which gang leaves when room is needed.
type order string

const (
	oldest order = "oldest" // the one that came first
	random order = "random" // any, each with the same chance
)

// shape is a kind of gang that a workload draws.
type shape struct {
	nodes    int            // how many nodes it takes, whole
	required lockstep.Level // the level of which one domain must hold it
}

// workload says which gangs come and go on a cluster.
type workload struct {
	nodes   int     // of the cluster
	percent int     // how much of it may be held, in percent of the nodes
	release order   // who leaves when more would be held
	shapes  []shape // drawn evenly
	inTurn  bool    // shapes come in turn rather than at random
	seed    uint64
}

// uniform are gangs of 1 to 64 whole nodes, in one rack up to 16, in one block above.
func uniform() []shape {
	var shapes []shape
	for n := 1; n <= 64; n *= 2 {
		level := levelRack
		if n > rackNodes {
			level = levelBlock
		}
		shapes = append(shapes, shape{nodes: n, required: level})
	}
	return shapes
}

// tally counts what became of the gangs of one shape.
type tally struct{ granted, refused int }

// churn drives a placer with gangs that come and go. Gangs are made beforehand
// and used again under new IDs, so that a step allocates nothing of its own.
type churn struct {
	workload
	placer  placer
	rng     *rand.Rand
	request lockstep.Request
	plan    lockstep.Plan

	ids    []lockstep.JobID
	nextID int
	turn   int
	pools  [][]*lockstep.Gang // free gangs by shape
	live   []holder           // who holds nodes: a ring from head for oldest, any order for random
	head   int
	held   int // nodes
	placed int // nodes, all time
	tally  []tally
}

type holder struct {
	gang  *lockstep.Gang
	shape int
}

// idRing is how many IDs there are: far more than gangs live through.
const idRing = 1 << 18

// newChurn returns a churn of w over an empty placer.
func newChurn(w workload, p placer) *churn {
	c := &churn{workload: w, placer: p, rng: rand.New(rand.NewPCG(w.seed, 0))}
	c.ids = make([]lockstep.JobID, idRing)
	for i := range c.ids {
		c.ids[i] = lockstep.JobID("job-" + strconv.Itoa(i))
	}
	c.pools = make([][]*lockstep.Gang, len(w.shapes))
	c.tally = make([]tally, len(w.shapes))
	c.live = make([]holder, 0, w.nodes+1)
	for i := range w.shapes {
		c.pools[i] = make([]*lockstep.Gang, 0, w.nodes)
	}
	return c
}

// draw returns the next gang, under an ID that none has had for long.
func (c *churn) draw() holder {
	var i int
	if c.inTurn {
		i, c.turn = c.turn, (c.turn+1)%len(c.shapes)
	} else {
		i = c.rng.IntN(len(c.shapes))
	}
	pool := c.pools[i]
	if len(pool) == 0 {
		c.provide(i, 16)
		pool = c.pools[i]
	}
	g := pool[len(pool)-1]
	c.pools[i] = pool[:len(pool)-1]
	g.ID = c.ids[c.nextID]
	c.nextID = (c.nextID + 1) % len(c.ids)
	return holder{gang: g, shape: i}
}

// provide makes n gangs of a shape for later.
func (c *churn) provide(shape, n int) {
	s := c.shapes[shape]
	for range n {
		c.pools[shape] = append(c.pools[shape], &lockstep.Gang{
			Required: s.required,
			Roles:    []lockstep.Role{{Min: s.nodes, Demand: lockstep.Demand{GPUs: nodeGPUs}}},
		})
	}
}

// room releases gangs until n more nodes may be held.
func (c *churn) room(n int) error {
	limit := c.nodes * c.percent / 100
	for c.held > 0 && c.held+n > limit {
		var h holder
		switch c.release {
		case oldest:
			h = c.live[c.head]
			c.live[c.head] = holder{}
			c.head++
			if c.head*2 > len(c.live) { // close the gap before it grows; amortised O(1)
				c.live = c.live[:copy(c.live, c.live[c.head:])]
				c.head = 0
			}
		default:
			i, last := c.rng.IntN(len(c.live)), len(c.live)-1
			h = c.live[i]
			c.live[i] = c.live[last]
			c.live = c.live[:last]
		}
		if err := c.placer.Release(h.gang.ID); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		c.held -= c.shapes[h.shape].nodes
		c.pools[h.shape] = append(c.pools[h.shape], h.gang)
	}
	return nil
}

// decide asks for a place and takes it.
func (c *churn) decide(h holder) (granted bool, err error) {
	c.request.Gang = h.gang
	verdict, err := c.placer.Fit(&c.request, &c.plan)
	if err != nil || !verdict.Feasible {
		return false, err
	}
	return true, c.placer.Apply(&c.plan)
}

// settle keeps the books after a decision.
func (c *churn) settle(h holder, granted bool) {
	n := c.shapes[h.shape].nodes
	if !granted {
		c.tally[h.shape].refused++
		c.pools[h.shape] = append(c.pools[h.shape], h.gang)
		return
	}
	c.tally[h.shape].granted++
	c.live = append(c.live, h)
	c.held += n
	c.placed += n
}

// step draws a gang, makes room and decides.
func (c *churn) step() error {
	h := c.draw()
	if err := c.room(c.shapes[h.shape].nodes); err != nil {
		return err
	}
	granted, err := c.decide(h)
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	c.settle(h, granted)
	return nil
}

// warm runs until turnover times the cluster's nodes have been placed, then
// forgets the tally and provides gangs for what comes.
func (c *churn) warm(turnover int) error {
	for c.placed < turnover*c.nodes {
		if err := c.step(); err != nil {
			return err
		}
	}
	clear(c.tally)
	for i := range c.pools {
		c.provide(i, min(1024, cap(c.pools[i])-len(c.pools[i])))
	}
	return nil
}

// refusedShare returns the part of all decisions since warm that found no room.
func (c *churn) refusedShare() float64 {
	granted, refused := 0, 0
	for _, t := range c.tally {
		granted += t.granted
		refused += t.refused
	}
	return float64(refused) / float64(max(granted+refused, 1))
}
