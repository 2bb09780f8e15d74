package gang_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// composed is a host of the real three together: an Admission over a State and a
// Quota, which it tells of everything, late, double and refused reports included.
type composed struct {
	rng    *rand.Rand
	swap   float64 // how often to go on from snapshots
	cfg    gang.Config
	a      *gang.Admission
	tree   *topology.Tree
	p      *placement.State
	q      *quota.Quota // nil: no quota
	rules  map[lockstep.QueueID]quota.Queue
	leaves []lockstep.QueueID
	nodes  map[lockstep.NodeID]placement.Node
	names  []lockstep.NodeID
	racks  bool
	told   bool // demands are told to the quota
	prompt int  // how often what was ordered is reported at once: all but one in so many times

	now    time.Time
	serial int
	gangs  map[lockstep.JobID]*lockstep.Gang
	live   []lockstep.JobID // submitted and not gone
	truly  map[lockstep.JobID][]lockstep.Member
	last   map[lockstep.JobID]lockstep.Action // latest reserve or start
	down   map[lockstep.NodeID]bool
	closed map[lockstep.NodeID]bool
	fresh  map[lockstep.NodeID]bool // lost since the last Step, maybe behind a confirmation

	taken  map[[2]lockstep.JobID]bool              // victim and for whom, until that has run
	named  map[lockstep.JobID]*lockstep.Candidates // what the quota listed in this Step, latest
	spent  map[lockstep.JobID][]lockstep.Resources // taken in this Step against the limits, by for whom
	trace  uint64
	log    []string
	counts struct{ started, evicted, reclaimed, preempted, shrunk, moved, replaced, most, quiet int }
}

// listing is the quota, with what it lists noted.
type listing struct {
	*quota.Quota
	w *composed
}

func (l listing) Reclaim(g *lockstep.Gang, counts []int, out *lockstep.Candidates) {
	l.Quota.Reclaim(g, counts, out)
	c := &lockstep.Candidates{Jobs: slices.Clone(out.Jobs)}
	for _, r := range out.Limits {
		c.Limits = append(c.Limits, maps.Clone(r))
	}
	l.w.named[g.ID] = c
}

const composedMIG = "a100-40gb"

func newComposed(seed uint64, swap float64) *composed {
	r := rand.New(rand.NewPCG(seed, 131))
	w := &composed{
		rng: r, swap: swap, now: epoch, rules: map[lockstep.QueueID]quota.Queue{}, nodes: map[lockstep.NodeID]placement.Node{},
		gangs: map[lockstep.JobID]*lockstep.Gang{}, truly: map[lockstep.JobID][]lockstep.Member{}, last: map[lockstep.JobID]lockstep.Action{},
		down: map[lockstep.NodeID]bool{}, closed: map[lockstep.NodeID]bool{}, fresh: map[lockstep.NodeID]bool{}, taken: map[[2]lockstep.JobID]bool{},
		named: map[lockstep.JobID]*lockstep.Candidates{}, spent: map[lockstep.JobID][]lockstep.Resources{},
	}
	w.prompt = 1 + r.IntN(3)
	total := w.buildCluster()
	w.cfg = gang.Config{
		Hold: 10 * time.Second, Backoff: 3 * time.Second, Exclude: 20 * time.Second, Retain: 4, Preempt: gang.PreemptOn,
		Backfill:    []gang.Backfill{gang.EASY, gang.EASY, gang.EASY, gang.Strict, 2, gang.Conservative}[r.IntN(6)],
		StartAtOnce: r.IntN(4) == 0, Placer: w.p,
	}
	if r.IntN(4) == 0 {
		w.cfg.MaxVictims = 1 + r.IntN(3)
	}
	if r.IntN(5) > 0 {
		w.buildQuota(total)
	}
	var err error
	if w.a, err = gang.New(w.cfg); err != nil {
		panic(err)
	}
	return w
}

func (w *composed) buildCluster() (devices int) {
	r := w.rng
	s := [][3]int{{1, 2, 2}, {1, 3, 1}, {2, 2, 2}, {2, 3, 1}, {3, 2, 4}, {2, 4, 2}, {3, 4, 1}, {1, 4, 4}}[r.IntN(8)]
	shape, err := topology.UniformShape(s[2], topology.NVLink(1))
	if err != nil {
		panic(err)
	}
	u := topology.UniformConfig{Levels: []topology.Level{{Name: "rack"}}, Fanout: []int{s[0], s[1]}, Shape: shape}
	if w.racks = s[0] > 1 || r.IntN(2) == 0; !w.racks {
		u.Levels, u.Fanout = nil, []int{s[0] * s[1]}
	}
	if w.tree, err = topology.Uniform(u); err != nil {
		panic(err)
	}
	cfg := placement.Config{RankAll: r.IntN(4) == 0}
	for i := range s[0] * s[1] {
		n := placement.Node{ID: lockstep.NodeID(fmt.Sprintf("n%d", i)), CPU: lockstep.MilliCPU(4000 + 4000*r.IntN(2)), GPUMemory: 40 << 30}
		if r.IntN(2) == 0 {
			n.MIG = composedMIG
		}
		cfg.Nodes = append(cfg.Nodes, n)
		w.nodes[n.ID] = n
		w.names = append(w.names, n.ID)
	}
	if w.p, err = placement.New(w.tree, cfg); err != nil {
		panic(err)
	}
	return s[0] * s[1] * s[2]
}

func (w *composed) buildQuota(devices int) {
	r := w.rng
	gpus := int64(devices) * 1000
	cfg := quota.Config{Capacity: lockstep.Resources{lockstep.ResourceGPU: gpus}, DisableBorrowing: r.IntN(8) == 0}
	if r.IntN(3) == 0 {
		cfg.Capacity[lockstep.ResourceCPU] = int64(len(w.names)) * 5000
	}
	names := []lockstep.QueueID{"a", "b"}
	var parents []lockstep.QueueID
	if r.IntN(2) == 0 {
		names, parents = []lockstep.QueueID{"top", "b", "a1", "a2"}, []lockstep.QueueID{"", "", "top", "top"}
	}
	if r.IntN(3) == 0 {
		names = append(names, "c")
	}
	part := func() lockstep.Resources {
		return lockstep.Resources{lockstep.ResourceGPU: gpus / 6 * int64(r.IntN(5))}
	}
	for i, name := range names {
		s := quota.Queue{Name: name, Weight: int64(r.IntN(4)), Tier: int32(r.IntN(2)), NotReclaimable: r.IntN(6) == 0}
		if i < len(parents) {
			s.Parent = parents[i]
		}
		if r.IntN(3) == 0 {
			s.Nominal = part()
			if r.IntN(3) == 0 {
				s.Guarantee = lockstep.Resources{lockstep.ResourceGPU: s.Nominal[lockstep.ResourceGPU] / 2}
			}
		}
		if r.IntN(6) == 0 {
			s.BorrowLimit = part()
		}
		if r.IntN(6) == 0 {
			s.LendLimit = part()
		}
		if r.IntN(6) == 0 {
			s.Max = lockstep.Resources{lockstep.ResourceGPU: max(part()[lockstep.ResourceGPU], 1000)}
		}
		if cfg.Validate() == nil {
			cfg.Queues = append(cfg.Queues, s)
			if cfg.Validate() != nil {
				s.Guarantee, s.LendLimit, s.Max, s.BorrowLimit = nil, nil, nil, nil
				cfg.Queues[i] = s
			}
		}
		w.rules[name] = s
		if name != "top" {
			w.leaves = append(w.leaves, name)
		}
	}
	var err error
	if w.q, err = quota.New(cfg); err != nil {
		panic(err)
	}
	w.told = r.IntN(4) > 0
	w.cfg.Quota = listing{w.q, w}
}

func (w *composed) randomGang() *lockstep.Gang {
	r := w.rng
	w.serial++
	g := &lockstep.Gang{ID: lockstep.JobID(fmt.Sprintf("j%d", w.serial)), Priority: lockstep.Priority(r.IntN(3))}
	if len(w.leaves) > 0 {
		g.Queue = w.leaves[r.IntN(len(w.leaves))]
	}
	if r.IntN(3) > 0 {
		g.Walltime = time.Duration(1+r.IntN(30)) * time.Second
	}
	if r.IntN(4) == 0 {
		g.Hold = time.Duration(1+r.IntN(8)) * time.Second
	}
	if r.IntN(3) == 0 {
		g.Required = lockstep.LevelNode
		if w.racks && r.IntN(2) == 0 {
			g.Required = "rack"
		}
	}
	if r.IntN(6) == 0 {
		g.Strategy = lockstep.Spread
	}
	for i := range 1 + r.IntN(2)*r.IntN(2)*(1+r.IntN(2)) {
		g.Roles = append(g.Roles, w.randomRole(i))
	}
	if r.IntN(6) == 0 {
		g.Labels = map[string]string{"app": []string{"x", "y"}[r.IntN(2)]}
		g.Constraints.Affinity = []lockstep.Affinity{{Match: map[string]string{"app": "x"}, Anti: r.IntN(3) > 0}}
	}
	if r.IntN(5) == 0 {
		g.Canary = 1 + r.IntN(3)
	}
	if r.IntN(8) == 0 {
		g.Preemption = lockstep.PreemptNever
	}
	g.Capabilities = lockstep.Capabilities{
		Preemptible: r.IntN(5) > 0, Resizable: r.IntN(3) > 0, Replaceable: r.IntN(3) == 0, Shareable: true,
		Grace: time.Duration(r.IntN(3)) * time.Second, Save: time.Duration(r.IntN(3)) * time.Second,
	}
	return g
}

func (w *composed) randomRole(i int) lockstep.Role {
	r := w.rng
	role := lockstep.Role{Name: lockstep.RoleName(fmt.Sprintf("r%d", i)), Min: 1 + r.IntN(2)*r.IntN(3)}
	switch r.IntN(10) {
	case 0, 1, 2, 3, 4:
		role.Demand.GPUs = 1 + r.IntN(2)
	case 5, 6:
		role.Demand = lockstep.Demand{GPUs: 1, Share: []lockstep.MilliGPU{200, 300, 500, 700}[r.IntN(4)]}
		if r.IntN(2) == 0 {
			role.Demand.GPUMemory = lockstep.Bytes(1+r.IntN(20)) << 30
		}
	case 7, 8:
		role.Demand = lockstep.Demand{GPUs: 1, Profile: []lockstep.Profile{"1g.5gb", "2g.10gb", "3g.20gb"}[r.IntN(3)]}
	}
	if role.Demand.GPUs == 0 || r.IntN(3) == 0 {
		role.Demand.CPU = lockstep.MilliCPU(1000 * (1 + r.IntN(3)))
	}
	if r.IntN(2) == 0 {
		role.Max = role.Min + r.IntN(3)
	} else if r.IntN(6) == 0 {
		role.Min, role.Inner.Size = 2*(1+r.IntN(2)), 2
	}
	if r.IntN(8) == 0 {
		role.Spares = 1
	}
	return role
}

func (w *composed) job() lockstep.JobID {
	if len(w.live) == 0 {
		return "nobody"
	}
	return w.live[w.rng.IntN(len(w.live))]
}

// jobIn picks a job, more likely than not one in phases.
func (w *composed) jobIn(phases ...gang.Phase) lockstep.JobID {
	id := w.job()
	for range 6 {
		if s, _ := w.a.State(id); slices.Contains(phases, s.Phase) {
			break
		}
		id = w.job()
	}
	return id
}

// event makes one random thing happen, after what was ordered is maybe reported.
func (w *composed) event() {
	r, e := w.rng, lockstep.Event{Time: w.now}
	if r.IntN(w.prompt) > 0 {
		w.report(false)
	}
	switch k := r.IntN(40); {
	case k < 14 && len(w.live) < 16:
		e.Kind, e.Gang = lockstep.EventSubmit, w.randomGang()
	case k < 15:
		e.Kind, e.Job = lockstep.EventCancel, w.job()
	case k < 21:
		e.Kind, e.Job = lockstep.EventConfirm, w.jobIn(gang.Held)
		if x, ok := w.last[e.Job]; ok {
			e.Attempt = x.Attempt
			if r.IntN(4) > 0 {
				for e.Rank = range x.Plan.Members {
					w.apply(e)
				}
				return
			}
			e.Rank = r.IntN(len(x.Plan.Members) + 1)
		}
	case k < 22:
		e.Kind, e.Job, e.Node = lockstep.EventRefuse, w.jobIn(gang.Held), w.names[r.IntN(len(w.names))]
	case k < 26:
		e.Kind, e.Job = lockstep.EventFinish, w.jobIn(gang.Running)
		if r.IntN(4) == 0 {
			e.Kind = lockstep.EventFail
		}
	case k < 32:
		e.Kind, e.Job = lockstep.EventEvicted, w.jobIn(gang.Leaving, gang.Moving, gang.Resizing)
	case k < 34:
		for range 1 + r.IntN(3) {
			w.apply(lockstep.Event{Time: w.now, Kind: lockstep.EventDue, Job: w.jobIn(gang.Running)})
		}
		return
	case k < 35:
		e.Kind, e.Node = []lockstep.EventKind{lockstep.EventDown, lockstep.EventCordon}[r.IntN(2)], w.names[r.IntN(len(w.names))]
	case k < 39:
		e.Kind, e.Node = []lockstep.EventKind{lockstep.EventUp, lockstep.EventOpen}[r.IntN(2)], w.names[r.IntN(len(w.names))]
	case k < 39+r.IntN(2):
		w.drain(w.names[r.IntN(len(w.names))])
		return
	case r.IntN(2) == 0:
		w.must(w.p.SetPenalty(w.names[r.IntN(len(w.names))], int32(r.IntN(3))))
		return
	default:
		from := w.now.Add(time.Duration(r.IntN(20)) * time.Second)
		_ = w.a.Reserve(w.now, gang.Window{
			Name: []string{"m1", "m2"}[r.IntN(2)], Nodes: []lockstep.NodeID{w.names[r.IntN(len(w.names))]},
			From: from, To: from.Add(time.Duration(1+r.IntN(20)) * time.Second),
		})
		return
	}
	w.apply(e)
}

// drain closes a node and calls who is there due, or cancels it.
func (w *composed) drain(node lockstep.NodeID) {
	jobs, err := w.p.Drain(node)
	if err != nil {
		panic(err)
	}
	w.closed[node] = true
	if err := w.a.Cordon(w.now, node); err != nil {
		panic(err)
	}
	for _, id := range jobs {
		kind := lockstep.EventDue
		if w.rng.IntN(3) == 0 {
			kind = lockstep.EventCancel
		}
		w.apply(lockstep.Event{Time: w.now, Kind: kind, Job: id})
	}
}

// apply reports e to all whom it concerns, and keeps the truth up to date.
func (w *composed) apply(e lockstep.Event) {
	before, known := w.a.State(e.Job)
	switch e.Kind { // the placer hears of nodes first
	case lockstep.EventDown, lockstep.EventUp:
		w.down[e.Node] = e.Kind == lockstep.EventDown
		w.fresh[e.Node] = true
		w.must(w.p.SetHealth(e.Node, e.Kind == lockstep.EventUp))
	case lockstep.EventCordon:
		w.closed[e.Node] = true
		w.must(w.p.Cordon(e.Node))
	case lockstep.EventOpen:
		w.closed[e.Node] = false
		w.must(w.p.Open(e.Node))
	case lockstep.EventSubmit:
		w.must(w.p.Arrived(e.Gang))
		if w.told {
			w.must(w.q.Demand(e.Gang, nil))
		}
	}
	if err := w.a.Apply(e); err != nil {
		return
	}
	if e.Kind == lockstep.EventSubmit {
		w.gangs[e.Gang.ID] = e.Gang
		w.live = append(w.live, e.Gang.ID)
	}
	w.log = append(w.log, fmt.Sprint("-> ", e.Kind, " ", e.Job, e.Node, " ", e.Rank))
	if e.Gang != nil {
		w.log = append(w.log, fmt.Sprintf("   %+v", *e.Gang))
	}
	switch e.Kind {
	case lockstep.EventFinish, lockstep.EventFail, lockstep.EventEvicted:
		if known && e.Kind == lockstep.EventEvicted && before.Phase == gang.Resizing {
			w.truly[e.Job] = before.Plan.Members
		} else if known && before.Phase != gang.Gone {
			delete(w.truly, e.Job)
		}
	}
	w.bury()
}

func (w *composed) must(err error) {
	if err != nil {
		panic(err)
	}
}

// bury withdraws the demand of those that are gone.
func (w *composed) bury() {
	w.live = slices.DeleteFunc(w.live, func(id lockstep.JobID) bool {
		if s, ok := w.a.State(id); ok && s.Phase != gang.Gone {
			return false
		}
		if w.told {
			w.must(w.q.Withdraw(id))
		}
		gone := func(k [2]lockstep.JobID, _ bool) bool { return k[0] == id || k[1] == id }
		maps.DeleteFunc(w.taken, gone)
		return true
	})
}

// step lets the Admission decide, does as it is told, and returns how many actions
// there were.
func (w *composed) step() (int, error) {
	clear(w.named)
	clear(w.spent)
	actions, err := w.a.Step(w.now)
	if err != nil {
		return 0, err
	}
	w.log = append(w.log, fmt.Sprintf("step %v", w.now.Sub(epoch)))
	for _, x := range actions {
		w.note(x)
		w.log = append(w.log, "   "+w.text(x))
	}
	for _, x := range actions {
		if err := w.do(x); err != nil {
			return 0, fmt.Errorf("%s: %w", w.text(x), err)
		}
	}
	clear(w.fresh)
	w.bury()
	return len(actions), w.check()
}

func (w *composed) text(x lockstep.Action) string {
	s := fmt.Sprint(x.Kind, " ", x.Job, " ", x.Reason)
	if x.Eviction != nil {
		s += fmt.Sprint(" for ", x.Eviction.For, " ", x.Eviction.Ranks)
	}
	if x.Plan != nil {
		s += fmt.Sprint(" ", x.Plan.Members, x.Plan.Spares)
	}
	return s
}

// note adds x to the trace.
func (w *composed) note(x lockstep.Action) {
	b := append(append(append([]byte(x.Kind), x.Job...), x.Reason...), w.text(x)...)
	for _, v := range []uint64{w.trace, uint64(x.Time.UnixNano()), uint64(x.Deadline.UnixNano()), uint64(x.Attempt)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	h := fnv.New64a()
	h.Write(b)
	w.trace = h.Sum64()
}

func (w *composed) do(x lockstep.Action) error {
	g := w.gangs[x.Job]
	switch x.Kind {
	case lockstep.ActionReserve, lockstep.ActionStart:
		w.last[x.Job] = x
		if x.Kind == lockstep.ActionReserve {
			for _, m := range x.Plan.Members {
				if w.down[m.Node] && !w.fresh[m.Node] {
					return fmt.Errorf("on the lost node %s", m.Node)
				}
			}
			return w.fits(x.Job, x.Plan.Members)
		}
		w.truly[x.Job] = x.Plan.Members
		w.counts.started++
		for k := range w.taken { // the order does not matter
			if k[1] == x.Job {
				delete(w.taken, k)
			}
		}
		return w.fits(x.Job, x.Plan.Members)
	case lockstep.ActionEvict, lockstep.ActionMove, lockstep.ActionResize:
		if x.Kind == lockstep.ActionResize && x.Reason == gang.ReasonLost {
			w.counts.replaced++
			if !g.Capabilities.Replaceable {
				return errors.New("of a job that cannot bear it")
			}
			for _, rank := range x.Eviction.Ranks {
				m := x.Plan.Members[rank]
				if err := w.fits(x.Job, []lockstep.Member{m}); err != nil {
					return err
				}
				if w.down[m.Node] || w.closed[m.Node] {
					return fmt.Errorf("rank %d onto the closed node %s", rank, m.Node)
				}
			}
			return nil
		}
		lost := x.Reason == gang.ReasonLost || x.Reason == gang.ReasonCancelled
		if !lost && x.Eviction != nil && !g.Capabilities.Preemptible || x.Kind == lockstep.ActionResize && !g.Capabilities.Resizable {
			return errors.New("of a job that cannot bear it")
		}
		if x.Kind == lockstep.ActionResize && x.Eviction == nil { // it grew
			w.truly[x.Job] = x.Plan.Members
			return w.fits(x.Job, x.Plan.Members)
		}
		return w.checkTaken(x)
	}
	return nil
}

// fits holds members of job to what others truly have.
func (w *composed) fits(job lockstep.JobID, members []lockstep.Member) error {
	l := load{}
	for id, m := range w.truly { // the order does not matter
		if id != job {
			l.add(w.gangs[id], m)
		}
	}
	l.add(w.gangs[job], members)
	if err := l.check(w.nodes); err != nil {
		return fmt.Errorf("beside those who truly run: %w", err)
	}
	return nil
}

// load is what members take, by node and device.
type load map[lockstep.NodeID]*nodeLoad

type nodeLoad struct {
	cpu     lockstep.MilliCPU
	devices [64]struct {
		whole, shares, parts int
		share                lockstep.MilliGPU
		memory               lockstep.Bytes
		slices               uint32
		clash                bool
	}
}

var composedSlices = map[lockstep.Profile]int{"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 4}

func (l load) add(g *lockstep.Gang, members []lockstep.Member) {
	for _, m := range members {
		n := l[m.Node]
		if n == nil {
			n = &nodeLoad{}
			l[m.Node] = n
		}
		d := &g.Roles[m.Role].Demand
		n.cpu += d.CPU
		for i := range m.Devices.All {
			x := &n.devices[i]
			switch {
			case d.Profile != "":
				bits := uint32(1<<composedSlices[d.Profile]-1) << m.Start
				x.clash = x.clash || x.slices&bits != 0
				x.slices |= bits
				x.parts++
			case d.Share > 0 && d.Share < lockstep.WholeGPU:
				x.shares++
				x.share += d.Share
				x.memory += d.GPUMemory
			default:
				x.whole++
			}
		}
	}
}

func (l load) check(nodes map[lockstep.NodeID]placement.Node) error {
	for id, n := range l {
		if n.cpu > nodes[id].CPU {
			return fmt.Errorf("%s has %v of processor given out", id, n.cpu)
		}
		for i := range n.devices {
			x := &n.devices[i]
			kinds := 0
			for _, used := range []bool{x.whole > 0, x.shares > 0, x.parts > 0} {
				if used {
					kinds++
				}
			}
			if kinds > 1 || x.whole > 1 || x.share > lockstep.WholeGPU || x.memory > nodes[id].GPUMemory || x.clash {
				return fmt.Errorf("device %d of %s is over-committed: %+v", i, id, *x)
			}
		}
	}
	return nil
}

// line is a queue with those above it, from below on.
func (w *composed) line(id lockstep.QueueID) (line []lockstep.QueueID) {
	for ; id != ""; id = w.rules[id].Parent {
		line = append(line, id)
	}
	return line
}

// checkTaken holds a preemption to what it may do.
func (w *composed) checkTaken(x lockstep.Action) error {
	w.counts.evicted++
	if x.Kind == lockstep.ActionMove {
		w.counts.moved++
	}
	if x.Kind == lockstep.ActionResize {
		w.counts.shrunk++
	}
	if x.Reason != gang.ReasonPreempted && x.Reason != gang.ReasonReclaimed {
		return nil
	}
	if x.Reason == gang.ReasonPreempted {
		w.counts.preempted++
	} else {
		w.counts.reclaimed++
	}
	by, victim := w.gangs[x.Eviction.For], w.gangs[x.Job]
	k := [2]lockstep.JobID{x.Job, by.ID}
	if w.taken[k] {
		return fmt.Errorf("twice for %s", by.ID)
	}
	w.taken[k] = true
	s, _ := w.a.State(by.ID)
	switch {
	case by.Preemption == lockstep.PreemptNever:
		return fmt.Errorf("for %s, which takes nothing", by.ID)
	case s.Phase == gang.Queued || s.Phase == gang.Gone:
		return fmt.Errorf("for %s, which got nothing", by.ID)
	case victim.Queue == by.Queue && victim.Priority >= by.Priority:
		return fmt.Errorf("of priority %d for %s of %d", victim.Priority, by.ID, by.Priority)
	case victim.Queue != by.Queue && w.q == nil:
		return errors.New("across queues without a quota")
	}
	own := w.line(by.Queue)
	for _, id := range w.line(victim.Queue) {
		if slices.Contains(own, id) {
			break
		}
		if w.rules[id].NotReclaimable {
			return fmt.Errorf("from outside of %s, which is not reclaimable", id)
		}
	}
	if w.q == nil {
		return nil
	}
	return w.checkLimits(x)
}

// checkLimits adds what x takes to what was taken for its cause in this Step.
func (w *composed) checkLimits(x lockstep.Action) error {
	by := x.Eviction.For
	c := w.named[by]
	if c == nil {
		return errors.New("the quota was not asked")
	}
	i := slices.IndexFunc(c.Jobs, func(j lockstep.Candidate) bool { return j.Job == x.Job })
	if i < 0 {
		return errors.New("the quota did not name it")
	}
	g := w.gangs[x.Job]
	members := w.truly[x.Job]
	gives := lockstep.Resources{}
	for rank, m := range members {
		if len(x.Eviction.Ranks) > 0 && !slices.Contains(x.Eviction.Ranks, rank) {
			continue
		}
		for name, n := range g.Roles[m.Role].Demand.Resources() {
			gives[name] += n
		}
	}
	if w.spent[by] == nil {
		w.spent[by] = make([]lockstep.Resources, len(c.Limits))
	}
	for _, l := range c.Jobs[i].Limits {
		if w.spent[by][l] == nil {
			w.spent[by][l] = lockstep.Resources{}
		}
		for name, most := range c.Limits[l] {
			if w.spent[by][l][name] += gives[name]; w.spent[by][l][name] > most {
				return fmt.Errorf("%d of %s is more than may be taken, %d", w.spent[by][l][name], name, most)
			}
		}
	}
	return nil
}

// check holds the state at rest to the invariants.
func (w *composed) check() error {
	all, holding := load{}, 0
	used := map[lockstep.QueueID]lockstep.Resources{}
	for _, id := range w.live {
		s, _ := w.a.State(id)
		g := w.gangs[id]
		var plan lockstep.Plan
		if applied := w.p.Plan(id, &plan); applied != (s.Plan != nil) {
			return fmt.Errorf("%s is %s: it and the placer differ on whether it holds room", id, s.Phase)
		}
		if s.Phase == gang.Awaiting || s.Phase == gang.Moving {
			if len(s.Waits) == 0 {
				return fmt.Errorf("%s is %s and waits for nobody", id, s.Phase)
			}
			for _, x := range s.Waits {
				if o, _ := w.a.State(x); o.Phase != gang.Leaving && o.Phase != gang.Moving && o.Phase != gang.Resizing {
					return fmt.Errorf("%s waits for %s, which is %s", id, x, o.Phase)
				}
			}
		}
		if s.Plan == nil {
			continue
		}
		holding++
		if !slices.Equal(s.Plan.Members, plan.Members) || !slices.Equal(s.Plan.Spares, plan.Spares) {
			return fmt.Errorf("%s holds other room than the placer says: %v %v, %v %v", id, s.Plan.Members, s.Plan.Spares, plan.Members, plan.Spares)
		}
		all.add(g, s.Plan.Members)
		all.add(g, s.Plan.Spares)
		counts := s.Plan.AppendCounts(nil, len(g.Roles))
		partly := s.Trial > 0 && s.Trial == len(s.Plan.Members) || s.Phase == gang.Held && s.Deadline.IsZero()
		for i, r := range g.Roles {
			if !partly && (counts[i] < r.Min || counts[i] > r.Limit()) {
				return fmt.Errorf("%s holds %d of %d to %d", id, counts[i], r.Min, r.Limit())
			}
			n := counts[i] + r.Spares
			if counts[i] == 0 {
				n = 0
			}
			for _, q := range w.line(g.Queue) {
				if used[q] == nil {
					used[q] = lockstep.Resources{}
				}
				for name, each := range r.Demand.Resources() {
					used[q][name] += each * int64(n)
				}
			}
		}
	}
	if n := len(w.p.Jobs()); n != holding {
		return fmt.Errorf("%d jobs hold room, the placer says %d", holding, n)
	}
	if err := all.check(w.nodes); err != nil {
		return err
	}
	return w.checkQuota(used)
}

func (w *composed) checkQuota(used map[lockstep.QueueID]lockstep.Resources) error {
	if w.q == nil {
		return nil
	}
	for _, id := range w.q.AppendQueues(nil) {
		s, _ := w.q.Statement(id)
		for _, name := range []lockstep.ResourceName{lockstep.ResourceGPU, lockstep.ResourceCPU} {
			n := s.Used[name]
			if _, limited := s.Nominal[name]; n == 0 && !limited {
				continue
			}
			if n != used[id][name] {
				return fmt.Errorf("%s uses %d of %s, the quota says %d", id, used[id][name], name, n)
			}
			if most, ok := w.rules[id].Max[name]; ok && n > most {
				return fmt.Errorf("%s uses %d of %s, of %d at most", id, n, name, most)
			}
			if loan, ok := w.rules[id].BorrowLimit[name]; ok && n > s.Nominal[name]+loan {
				return fmt.Errorf("%s uses %d of %s, with %d and a loan of %d at most", id, n, name, s.Nominal[name], loan)
			}
		}
	}
	return nil
}

// rest steps until there is nothing to do at this time, and then, at some time
// before the next wake, there must be nothing to do either.
func (w *composed) rest() error {
	for i := 0; ; i++ {
		if _, err := w.step(); err != nil {
			return err
		}
		wake, ok := w.a.NextWake(w.now)
		if ok && !wake.After(w.now) {
			if i > 50 {
				return errors.New("it does not come to rest")
			}
			continue
		}
		for n := w.rng.IntN(3); n > 0; n-- {
			at := w.now.Add(time.Duration(w.rng.IntN(4000)) * time.Millisecond)
			if ok && !at.Before(wake) {
				at = wake.Add(-1)
			}
			w.now = at
			n, err := w.step()
			if err == nil && n > 0 {
				err = fmt.Errorf("%d actions before it wanted to be woken, at %v (%v)", n, wake.Sub(epoch), ok)
			}
			if err != nil {
				return err
			}
			w.counts.quiet++
		}
		return nil
	}
}

// run makes so many random steps.
func (w *composed) run(steps int) error {
	for i := range steps {
		w.event()
		if w.rng.IntN(3) == 0 {
			w.now = w.now.Add(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		}
		swap, ask := w.rng.Float64(), w.rng.IntN(20)
		err := w.rest()
		if err == nil && ask == 0 {
			err = w.ask()
		}
		if err == nil && swap < w.swap {
			err = w.restore()
		}
		if err == nil && ask == 1 {
			err = w.settle()
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// ask asks why a job waits, which must change nothing.
func (w *composed) ask() error {
	before := w.saved()
	w.a.Explain(w.job())
	w.a.Forecast(w.job())
	if before != w.saved() {
		return errors.New("a question changed something")
	}
	return nil
}

func (w *composed) saved() string {
	var b bytes.Buffer
	w.must(w.a.Snapshot(&b))
	w.must(w.p.Snapshot(&b))
	if w.q != nil {
		w.must(w.q.Snapshot(&b))
	}
	return b.String()
}

// restore goes on from snapshots of all three.
func (w *composed) restore() error {
	var b bytes.Buffer
	w.must(w.p.Snapshot(&b))
	var err error
	if w.p, err = placement.Restore(w.tree, placement.Config{}, &b); err != nil {
		return err
	}
	w.cfg.Placer = w.p
	if w.q != nil {
		b.Reset()
		w.must(w.q.Snapshot(&b))
		if w.q, err = quota.Restore(&b); err != nil {
			return err
		}
		w.cfg.Quota = listing{w.q, w}
	}
	b.Reset()
	w.must(w.a.Snapshot(&b))
	if w.a, err = gang.Restore(w.cfg, &b); err != nil {
		return err
	}
	return nil
}

// settle lets everything that was ordered be done, with no event from outside: how
// many lose room until then is bounded.
func (w *composed) settle() error {
	before := w.counts.preempted + w.counts.reclaimed
	for i := 0; ; i++ {
		if err := w.rest(); err != nil {
			return err
		}
		if !w.report(false) {
			break
		}
		if i > 500 {
			return errors.New("preemption does not come to an end")
		}
	}
	n := w.counts.preempted + w.counts.reclaimed - before
	w.counts.most = max(w.counts.most, n)
	return nil
}

// report does what was ordered, and lets who runs end where that is said; false
// means that there was nothing to do.
func (w *composed) report(end bool) (busy bool) {
	for _, id := range slices.Clone(w.live) {
		s, _ := w.a.State(id)
		e := lockstep.Event{Time: w.now, Job: id}
		switch s.Phase {
		case gang.Held:
			e.Kind = lockstep.EventConfirm
			for e.Rank = range s.Plan.Members {
				w.apply(e)
			}
			busy = true
		case gang.Running:
			if e.Kind = lockstep.EventFinish; end {
				w.apply(e)
				busy = true
			}
		case gang.Leaving, gang.Moving, gang.Resizing:
			e.Kind = lockstep.EventEvicted
			w.apply(e)
			busy = true
		}
	}
	return busy
}

// calm lets all end, with nobody new: whoever fits alone and has quota then starts.
func (w *composed) calm() error {
	for _, n := range w.names {
		w.apply(lockstep.Event{Time: w.now, Kind: lockstep.EventUp, Node: n})
		w.apply(lockstep.Event{Time: w.now, Kind: lockstep.EventOpen, Node: n})
	}
	for i := 0; ; i++ {
		if i > 5000 {
			return errors.New("it does not come to an end")
		}
		if err := w.rest(); err != nil {
			return err
		}
		if w.report(w.rng.IntN(3) == 0) {
			continue
		}
		if len(w.p.Jobs()) > 0 {
			w.report(true)
			continue
		}
		wake, ok := w.a.NextWake(w.now)
		if !ok {
			break
		}
		w.now = wake
	}
	for _, id := range w.live {
		g := w.gangs[id]
		var plan lockstep.Plan
		v, err := w.p.Fit(&lockstep.Request{Gang: g}, &plan)
		if err != nil {
			return err
		}
		if v.Feasible && (w.q == nil || w.q.Check(g, nil).Feasible) {
			s, _ := w.a.State(id)
			return fmt.Errorf("%s never starts: %s, %v", id, s.Phase, s.Verdict)
		}
	}
	return nil
}

func TestTheRealThreeKeepTheInvariantsTogether(t *testing.T) {
	seeds, steps := 70, 350
	if testing.Short() {
		seeds, steps = 16, 200
	}
	var sum composed
	c := &sum.counts
	for seed := range seeds {
		w := newComposed(uint64(seed), 0.005)
		err := w.run(steps)
		if err == nil {
			err = w.calm()
		}
		if err != nil {
			t.Log(w.tail(60))
		}
		require.NoError(t, err, "seed %d", seed)
		x := &w.counts
		c.started, c.evicted, c.reclaimed, c.preempted = c.started+x.started, c.evicted+x.evicted, c.reclaimed+x.reclaimed, c.preempted+x.preempted
		c.shrunk, c.moved, c.replaced, c.quiet = c.shrunk+x.shrunk, c.moved+x.moved, c.replaced+x.replaced, c.quiet+x.quiet
		c.most = max(c.most, x.most)
	}
	t.Logf("%+v", *c)
	require.NotZero(t, c.reclaimed)
	require.NotZero(t, c.preempted)
	require.NotZero(t, c.shrunk)
	require.NotZero(t, c.moved)
	require.NotZero(t, c.replaced)
	require.Less(t, c.most, 40, "taken between two events from outside")
}

// A job with members on a cordoned node can give up others and keep those: the placer
// would let nobody new go there, but they are not new.
func TestWhoShrinksKeepsItsMembersOnACordonedNode(t *testing.T) {
	p := place(1, 2, 2).(*placed)
	a, err := gang.New(gang.Config{Placer: p.State, Preempt: gang.PreemptOn, StartAtOnce: true})
	require.NoError(t, err)
	h := low("h", 4, 0, 0)
	h.Roles[0].Min, h.Roles[0].Max, h.Capabilities.Resizable = 2, 4, true
	submit(t, a, 0, h)
	require.Equal(t, []string{"start h"}, summary(step(t, a, 0)))
	require.NoError(t, p.Cordon("n0"))
	require.NoError(t, a.Cordon(at(1), "n0"))
	w := high("w", 1, 1)
	submit(t, a, 2, w)
	require.Equal(t, []string{"resize h preempted"}, summary(step(t, a, 2)))
	s, _ := a.State("h")
	require.Len(t, s.Plan.Members, 3)
	require.Equal(t, s.Plan.Members, p.Plan("h").Members)
	require.NoError(t, a.Evicted(at(3), "h", 0))
	require.Equal(t, []string{"start w"}, summary(step(t, a, 3)))
}

// tail is the end of the log.
func (w *composed) tail(n int) string {
	s := ""
	for _, l := range w.log[max(len(w.log)-n, 0):] {
		s += l + "\n"
	}
	return s
}

func TestTheRealThreeGoOnFromSnapshotsAsTheyWould(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		traces := map[uint64]bool{}
		for _, swap := range []float64{0, 0.05, 0.2} {
			w := newComposed(uint64(seed)+5000, swap)
			require.NoError(t, w.run(200), "seed %d", seed)
			require.NoError(t, w.calm(), "seed %d", seed)
			traces[w.trace] = true
		}
		require.Len(t, traces, 1, "seed %d", seed)
	}
}
