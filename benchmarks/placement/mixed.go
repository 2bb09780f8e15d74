package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
)

// tiers is how many tiers candidates are in.
const tiers = 3

// kinds are the gangs of a mixed cluster: 1 to most whole nodes, and 1 to 4 members
// with 1, 2 or 4 devices each. Up to 16 nodes require one rack, more one block.
func kinds(most int) (list []lockstep.Gang, whole int) {
	for _, s := range uniform() {
		if s.nodes > most {
			break
		}
		list = append(list, lockstep.Gang{Required: s.required, Roles: []lockstep.Role{{Min: s.nodes, Demand: lockstep.Demand{GPUs: nodeGPUs}}}})
	}
	whole = len(list)
	for members := 1; members <= 4; members++ {
		for gpus := 1; gpus < nodeGPUs; gpus *= 2 {
			list = append(list, lockstep.Gang{Required: levelRack, Roles: []lockstep.Role{{Min: members, Demand: lockstep.Demand{GPUs: gpus}}}})
		}
	}
	return list, whole
}

// mixed is a cluster of gangs of mixed size that all may be evicted or moved. Gangs
// are drawn evenly from those of whole nodes, but every fourth from the others.
type mixed struct {
	state   *placement.State
	rng     *rand.Rand
	kinds   []lockstep.Gang // the first are those of whole nodes
	whole   int             // how many those are
	live    []resident
	index   map[lockstep.JobID]int // into live and candidates.Jobs
	used    int                    // devices
	all     int                    // devices
	nextID  int
	next    *lockstep.Gang // drawn in vain; it may be another kind's
	request lockstep.Request
	plan    lockstep.Plan

	candidates lockstep.Candidates // of live, in the same order
}

// resident is a gang that holds room.
type resident struct {
	gang    *lockstep.Gang
	members int // that it has now
	serial  int // of its arrival
}

func (r *resident) gpus() int { return r.gang.Roles[0].Demand.GPUs }

// newMixed returns an empty cluster for gangs of up to most whole nodes.
func newMixed(nodes, most int, seed uint64) (*mixed, error) {
	state, err := newState(nodes)
	if err != nil {
		return nil, err
	}
	list, whole := kinds(most)
	return &mixed{
		state: state, rng: rand.New(rand.NewPCG(seed, 64)), kinds: list, whole: whole,
		index: make(map[lockstep.JobID]int), all: nodes * nodeGPUs,
	}, nil
}

// draw returns a kind, evenly among those of whole nodes three times out of four.
func (m *mixed) draw() int {
	if m.rng.IntN(4) == 0 {
		return m.whole + m.rng.IntN(len(m.kinds)-m.whole)
	}
	return m.rng.IntN(m.whole)
}

// try places a gang of a kind if it fits.
func (m *mixed) try(kind int) (placed bool, err error) {
	if m.next == nil {
		m.next = new(lockstep.Gang)
	}
	*m.next = m.kinds[kind]
	m.next.ID = lockstep.JobID("job-" + strconv.Itoa(m.nextID))
	m.request.Gang = m.next
	verdict, err := m.state.Fit(&m.request, &m.plan)
	if err != nil || !verdict.Feasible {
		return false, err
	}
	if err := m.state.Apply(&m.plan); err != nil {
		return false, err
	}
	m.settle(m.next)
	m.next = nil // the state has it
	m.nextID++
	return true, nil
}

// settle keeps the books of a gang that was placed. Half of those with several members
// can give up half of them.
func (m *mixed) settle(g *lockstep.Gang) {
	r := resident{gang: g, members: g.Roles[0].Min, serial: m.nextID}
	c := lockstep.Candidate{Job: g.ID}
	if r.members > 1 && m.rng.IntN(2) == 0 {
		c.Min = []int{(r.members + 1) / 2}
	}
	m.price(&c, r.members*r.gpus())
	m.index[g.ID] = len(m.live)
	m.live = append(m.live, r)
	m.candidates.Jobs = append(m.candidates.Jobs, c)
	m.used += r.members * r.gpus()
}

// price draws what it costs to evict a gang: up to an hour of work lost and one to five
// minutes to resume, in one of three tiers. To shrink it loses half the work.
func (m *mixed) price(c *lockstep.Candidate, gpus int) {
	c.Tier = int32(m.rng.IntN(tiers))
	c.Cost = lockstep.EvictionCost{
		Lost:    time.Duration(m.rng.IntN(3600)) * time.Second,
		Restore: time.Duration(60+m.rng.IntN(241)) * time.Second,
		Devices: lockstep.MilliGPU(1000 * gpus),
	}
	c.Shrink = lockstep.EvictionCost{}
	if c.Min != nil {
		c.Shrink = c.Cost
		c.Shrink.Lost /= 2
	}
}

// reprice draws all prices again.
func (m *mixed) reprice() {
	for i := range m.live {
		m.price(&m.candidates.Jobs[i], m.live[i].members*m.live[i].gpus())
	}
}

// forget drops the books of a gang that left.
func (m *mixed) forget(i int) {
	m.used -= m.live[i].members * m.live[i].gpus()
	last := len(m.live) - 1
	delete(m.index, m.live[i].gang.ID)
	if i < last {
		m.live[i], m.candidates.Jobs[i] = m.live[last], m.candidates.Jobs[last]
		m.index[m.live[i].gang.ID] = i
	}
	m.live, m.candidates.Jobs = m.live[:last], m.candidates.Jobs[:last]
}

// end releases the i-th gang.
func (m *mixed) end(i int) error {
	if err := m.state.Release(m.live[i].gang.ID); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	m.forget(i)
	return nil
}

// endAny releases gangs at random until at most so many devices are held.
func (m *mixed) endAny(devices int) error {
	for m.used > devices && len(m.live) > 0 {
		if err := m.end(m.rng.IntN(len(m.live))); err != nil {
			return err
		}
	}
	return nil
}

// fill places gangs until none of any kind fits.
func (m *mixed) fill() error {
	var full [32]bool // kinds that do not fit; what is placed makes no room
	for left := len(m.kinds); left > 0; {
		k := m.draw()
		if full[k] {
			continue
		}
		placed, err := m.try(k)
		if err != nil {
			return err
		}
		if !placed {
			full[k] = true
			left--
		}
	}
	return nil
}

// churn places gangs until their devices come to turnover times the cluster's, and
// releases some at random whenever more than percent of the devices are held.
func (m *mixed) churn(turnover, percent int) error {
	for placed := 0; placed < turnover*m.all; {
		before := m.used
		if _, err := m.try(m.draw()); err != nil {
			return err
		}
		placed += m.used - before
		if err := m.endAny(m.all * percent / 100); err != nil {
			return err
		}
	}
	return nil
}

// evict carries out what was proposed and seats the gang. That nothing refuses it is a
// check of the proposal.
func (m *mixed) evict(p *lockstep.Preempted) error {
	for i := range p.Evictions {
		e := &p.Evictions[i]
		if err := m.state.Evict(e); err != nil {
			return err
		}
		at, ok := m.index[e.Job]
		switch {
		case !ok:
			return fmt.Errorf("%s is no candidate", e.Job)
		case len(e.Ranks) == 0:
			m.forget(at)
		default:
			m.shrink(at, len(e.Ranks))
		}
	}
	if err := m.state.Adopt(&p.Plan); err != nil {
		return err
	}
	m.settle(p.Plan.Gang)
	return nil
}

// shrink keeps the books of a gang that gave up n members.
func (m *mixed) shrink(i, n int) {
	r, c := &m.live[i], &m.candidates.Jobs[i]
	m.used -= n * r.gpus()
	r.members -= n
	if r.members <= c.Min[0] {
		c.Min = nil
	}
	m.price(c, r.members*r.gpus())
}
