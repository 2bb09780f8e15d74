package gang_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// storm drives an Admission with random events, late, double and wrong ones
// included, and knows what truly sits on every device.
type storm struct {
	rng    *rand.Rand
	cfg    gang.Config
	a      *gang.Admission
	p      cluster
	quota  *ledger
	lends  *shares // quota, where that lends
	now    time.Time
	serial int
	jobs   []lockstep.JobID                                          // submitted, maybe left
	gangs  map[lockstep.JobID]*lockstep.Gang                         // by job
	truly  map[lockstep.NodeID]map[lockstep.JobID]lockstep.DeviceSet // processes on devices
	last   map[lockstep.JobID]lockstep.Action                        // latest reserve or start, for late events
	closed map[lockstep.NodeID]int
	trace  uint64 // hash of all actions
	kinds  map[lockstep.ActionKind]int
	swap   float64 // how often to continue from a snapshot
	starts map[lockstep.JobID]int
	buf    []lockstep.Action
	counts []int
	text   []byte
	wrong  string
	calms  bool
	flaky  bool                                   // what should have been given back may fail to be
	stage  map[lockstep.JobID]lockstep.ActionKind // kind of the latest action

	news           bool                       // gangs ask for what the first storms did not know
	taken          map[[2]lockstep.JobID]bool // victims and for whom, until that runs
	hunts, patched int
}

// newTakingStorm is a storm in which waiting gangs may take room, and gangs have
// canaries and spares.
func newTakingStorm(seed uint64, swap float64, build func(racks, nodes, devices int) cluster) *storm {
	w := newStorm(seed, swap, build)
	w.news, w.cfg.Preempt = true, gang.PreemptOn
	if w.rng.IntN(3) == 0 {
		w.cfg.MaxVictims = 1 + w.rng.IntN(3)
	}
	if w.quota != nil && w.rng.IntN(2) == 0 {
		total := max(w.quota.limit, 3)
		w.lends = newShares(total, map[lockstep.TenantID]int{"x": total / 2, "y": total / 3})
		w.quota, w.cfg.Quota = w.lends.ledger, w.lends
	}
	a, err := gang.New(w.cfg)
	if err != nil {
		panic(err)
	}
	w.a = a
	return w
}

// anyStorm is a storm of either kind, by whether seed is even.
func anyStorm(seed uint64, swap float64, build func(racks, nodes, devices int) cluster) *storm {
	if seed%2 == 1 {
		return newTakingStorm(seed, swap, build)
	}
	return newStorm(seed, swap, build)
}

// cluster is a placer whose account a storm can look into.
type cluster interface {
	gang.Placer
	gang.WhatIf
	Nodes() []lockstep.NodeID
	Plan(job lockstep.JobID) *lockstep.Plan
	Jobs() []lockstep.JobID
}

func reference(racks, nodes, devices int) cluster {
	return placertest.NewReference(racks, nodes, devices, 0)
}

func newStorm(seed uint64, swap float64, build func(racks, nodes, devices int) cluster) *storm {
	rng := rand.New(rand.NewPCG(seed, 7))
	shapes := [][3]int{{1, 6, 1}, {1, 2, 4}, {2, 3, 2}, {3, 2, 4}, {1, 1, 8}}
	s := shapes[rng.IntN(len(shapes))]
	p := build(s[0], s[1], s[2])
	total := s[0] * s[1] * s[2]
	quota := newLedger(max(2, total*(1+rng.IntN(2))/2))
	cfg := gang.Config{
		Hold: 10 * time.Second, Backoff: 3 * time.Second, Exclude: 20 * time.Second, Placer: p, Retain: 4,
		Backfill:    []gang.Backfill{gang.EASY, gang.EASY, gang.Strict, 2, gang.Conservative}[rng.IntN(5)],
		StartAtOnce: rng.IntN(5) == 0,
	}
	if rng.IntN(2) == 0 {
		cfg.Quota = quota
	} else {
		quota = nil
	}
	if rng.IntN(4) == 0 {
		cfg.MaxAttempts = 1 + rng.IntN(3)
	}
	w := &storm{rng: rng, cfg: cfg, p: p, quota: quota, now: epoch, swap: swap}
	w.gangs, w.truly = map[lockstep.JobID]*lockstep.Gang{}, map[lockstep.NodeID]map[lockstep.JobID]lockstep.DeviceSet{}
	w.last, w.closed = map[lockstep.JobID]lockstep.Action{}, map[lockstep.NodeID]int{}
	w.kinds = map[lockstep.ActionKind]int{}
	w.taken = map[[2]lockstep.JobID]bool{}
	w.starts, w.stage = map[lockstep.JobID]int{}, map[lockstep.JobID]lockstep.ActionKind{}
	for _, n := range p.Nodes() {
		w.truly[n] = map[lockstep.JobID]lockstep.DeviceSet{}
	}
	if rng.IntN(2) == 0 {
		w.cfg.Orderer = &shuffled{w: w, answers: map[lockstep.Outcome]int{}}
	}
	a, err := gang.New(w.cfg)
	if err != nil {
		panic(err)
	}
	w.a = a
	return w
}

func (w *storm) randomGang() *lockstep.Gang {
	r := w.rng
	w.serial++
	g := &lockstep.Gang{
		ID:       lockstep.JobID(fmt.Sprintf("j%d", w.serial)),
		Tenant:   lockstep.TenantID([]string{"x", "y"}[r.IntN(2)]),
		Priority: lockstep.Priority(r.IntN(3)),
	}
	if r.IntN(3) > 0 {
		g.Walltime = time.Duration(1+r.IntN(30)) * time.Second
	}
	if r.IntN(4) == 0 {
		g.Hold = time.Duration(1+r.IntN(8)) * time.Second
	}
	if r.IntN(3) == 0 {
		g.Required = []lockstep.Level{placertest.Rack, lockstep.LevelNode}[r.IntN(2)]
	}
	role := lockstep.Role{Min: 1 + r.IntN(4), Demand: lockstep.Demand{GPUs: 1 + r.IntN(2)}}
	if r.IntN(2) == 0 {
		role.Max = role.Min + r.IntN(3)
	}
	g.Roles = []lockstep.Role{role}
	if r.IntN(6) == 0 {
		g.Roles[0].Name = "main"
		g.Roles = append(g.Roles, lockstep.Role{Name: "ps", Min: 1, Demand: lockstep.Demand{GPUs: 1}})
	}
	g.Capabilities = lockstep.Capabilities{Preemptible: r.IntN(3) > 0, Resizable: r.IntN(3) > 0, Grace: time.Duration(r.IntN(3)) * time.Second}
	if w.news {
		w.newWishes(g)
	}
	return g
}

func (w *storm) newWishes(g *lockstep.Gang) {
	r := w.rng
	if r.IntN(3) == 0 {
		g.Canary = 1 + r.IntN(3)
	}
	if r.IntN(6) == 0 {
		g.Preemption = lockstep.PreemptNever
	}
	if r.IntN(6) == 0 {
		g.Roles[0].Spares = 1
	}
	g.Capabilities.Replaceable = r.IntN(3) == 0
	if role := &g.Roles[0]; r.IntN(8) == 0 && role.Max == 0 {
		role.Min, role.Inner.Size = 2*(1+r.IntN(2)), 2
	}
}

func (w *storm) job() lockstep.JobID {
	if len(w.jobs) == 0 {
		return "nobody"
	}
	return w.jobs[w.rng.IntN(len(w.jobs))]
}

// jobIn picks a job, more likely than not one whose latest action was of kinds.
func (w *storm) jobIn(kinds ...lockstep.ActionKind) lockstep.JobID {
	id := w.job()
	for range 6 {
		if slices.Contains(kinds, w.stage[id]) {
			break
		}
		id = w.job()
	}
	return id
}

func (w *storm) node() lockstep.NodeID {
	nodes := w.p.Nodes()
	return nodes[w.rng.IntN(len(nodes))]
}

// event makes one random thing happen.
func (w *storm) event() {
	if len(w.jobs) >= 16 {
		w.jobs = slices.DeleteFunc(w.jobs, func(id lockstep.JobID) bool {
			s, ok := w.a.State(id)
			return !ok || s.Phase == gang.Gone
		})
	}
	e := lockstep.Event{Time: w.now}
	r := w.rng
	switch k := r.IntN(40); {
	case k < 8 && len(w.jobs) < 16:
		e.Kind, e.Gang = lockstep.EventSubmit, w.randomGang()
		if r.IntN(10) == 0 && len(w.jobs) > 0 {
			e.Gang.ID = w.job()
		}
	case k < 10:
		e.Kind, e.Job = lockstep.EventCancel, w.job()
	case k < 22:
		e.Kind, e.Job = lockstep.EventConfirm, w.jobIn(lockstep.ActionReserve)
		if x, ok := w.last[e.Job]; ok {
			e.Attempt = x.Attempt
			if r.IntN(3) > 0 {
				for rank := range x.Plan.Members {
					e.Rank = rank
					w.apply(e)
				}
				return
			}
			e.Rank = r.IntN(len(x.Plan.Members) + 1)
		}
	case k < 23:
		e.Kind, e.Job, e.Node = lockstep.EventRefuse, w.job(), w.node()
	case k < 28:
		e.Kind, e.Job = lockstep.EventFinish, w.jobIn(lockstep.ActionStart, lockstep.ActionExtend)
		if r.IntN(4) == 0 {
			e.Kind = lockstep.EventFail
		}
	case k < 32:
		e.Kind, e.Job = lockstep.EventEvicted, w.jobIn(lockstep.ActionEvict, lockstep.ActionMove, lockstep.ActionResize)
	case k < 36:
		for range 1 + r.IntN(3) {
			w.apply(lockstep.Event{Time: w.now, Kind: lockstep.EventDue, Job: w.jobIn(lockstep.ActionStart, lockstep.ActionExtend)})
		}
		return
	case k < 37:
		e.Kind, e.Node = []lockstep.EventKind{lockstep.EventDown, lockstep.EventCordon}[r.IntN(2)], w.node()
	case k < 39:
		e.Kind, e.Node = []lockstep.EventKind{lockstep.EventUp, lockstep.EventOpen}[r.IntN(2)], w.node()
	default:
		from := w.now.Add(time.Duration(r.IntN(20)) * time.Second)
		_ = w.a.Reserve(w.now, gang.Window{
			Name: []string{"m1", "m2"}[r.IntN(2)], Nodes: []lockstep.NodeID{w.node()},
			From: from, To: from.Add(time.Duration(1+r.IntN(20)) * time.Second),
		})
		return
	}
	w.apply(e)
}

// apply reports e and keeps the truth up to date with it.
func (w *storm) apply(e lockstep.Event) {
	before, known := w.a.State(e.Job)
	err := w.a.Apply(e)
	if err != nil {
		return
	}
	switch e.Kind {
	case lockstep.EventSubmit:
		w.gangs[e.Gang.ID] = e.Gang
		for k := range w.taken { // the order does not matter
			if k[0] == e.Gang.ID || k[1] == e.Gang.ID {
				delete(w.taken, k)
			}
		}
		if !slices.Contains(w.jobs, e.Gang.ID) {
			w.jobs = append(w.jobs, e.Gang.ID)
		}
	case lockstep.EventFinish, lockstep.EventFail, lockstep.EventEvicted:
		if known && before.Phase == gang.Resizing && e.Kind == lockstep.EventEvicted {
			w.vacate(e.Job)
			w.occupy(e.Job, before.Plan)
		} else if known && before.Phase != gang.Gone {
			w.vacate(e.Job)
		}
	case lockstep.EventDown:
		w.closed[e.Node] |= 1
	case lockstep.EventUp:
		w.closed[e.Node] &^= 1
	case lockstep.EventCordon:
		w.closed[e.Node] |= 2
	case lockstep.EventOpen:
		w.closed[e.Node] &^= 2
	}
}

func (w *storm) vacate(job lockstep.JobID) {
	for _, on := range w.truly {
		delete(on, job)
	}
}

func (w *storm) occupy(job lockstep.JobID, p *lockstep.Plan) {
	for _, m := range p.Members {
		w.truly[m.Node][job] |= m.Devices
	}
}

// step lets the Admission decide, and does as it is told.
func (w *storm) step() error {
	var err error
	w.buf, err = w.a.AppendStep(w.buf[:0], w.now)
	if err != nil && !errors.Is(err, errFlaky) {
		return err
	}
	for _, x := range w.buf {
		if err := w.do(x); err != nil {
			return fmt.Errorf("%s %s: %w", x.Kind, x.Job, err)
		}
	}
	return nil
}

func (w *storm) do(x lockstep.Action) error {
	w.kinds[x.Kind]++
	w.stage[x.Job] = x.Kind
	w.note(x)
	switch x.Kind {
	case lockstep.ActionReserve, lockstep.ActionStart:
		for _, m := range x.Plan.Members {
			if x.Kind == lockstep.ActionReserve && w.closed[m.Node]&1 != 0 {
				return fmt.Errorf("on the lost node %s", m.Node)
			}
			for id, devices := range w.truly[m.Node] {
				if devices&m.Devices != 0 {
					return fmt.Errorf("on devices of %s where %s still is", m.Node, id)
				}
			}
		}
		w.last[x.Job] = x
		if x.Kind == lockstep.ActionStart {
			w.occupy(x.Job, x.Plan)
			w.starts[x.Job]++
			for k := range w.taken { // the order does not matter
				if k[1] == x.Job {
					delete(w.taken, k)
				}
			}
		}
	case lockstep.ActionEvict, lockstep.ActionMove, lockstep.ActionResize:
		lost := x.Reason == gang.ReasonLost || x.Reason == gang.ReasonCancelled
		c := w.gangs[x.Job].Capabilities
		if x.Kind == lockstep.ActionResize && x.Reason == gang.ReasonLost {
			return w.replaced(x)
		}
		if !lost && !c.Preemptible && x.Eviction != nil || x.Kind == lockstep.ActionResize && !c.Resizable {
			return fmt.Errorf("of a job that cannot bear it, for %s", x.Reason)
		}
		if err := w.checkTaken(x); err != nil {
			return err
		}
		if x.Kind == lockstep.ActionResize && x.Eviction == nil {
			w.occupy(x.Job, x.Plan)
		}
	}
	return nil
}

// replaced takes note that lost members start anew elsewhere.
func (w *storm) replaced(x lockstep.Action) error {
	w.patched++
	if !w.gangs[x.Job].Capabilities.Replaceable || len(x.Eviction.Ranks) == 0 {
		return errors.New("of a job that cannot bear it")
	}
	for rank, m := range x.Plan.Members {
		others := w.truly[m.Node]
		if fresh := slices.Contains(x.Eviction.Ranks, rank); fresh && w.closed[m.Node] != 0 {
			return fmt.Errorf("rank %d onto the closed node %s", rank, m.Node)
		} else if !fresh && others[x.Job]&m.Devices != m.Devices {
			return fmt.Errorf("rank %d, which was not lost, was not on %s", rank, m.Node)
		}
		for id, devices := range others {
			if id != x.Job && devices&m.Devices != 0 {
				return fmt.Errorf("on devices of %s where %s still is", m.Node, id)
			}
		}
	}
	w.occupy(x.Job, x.Plan)
	return nil
}

// checkTaken holds a preemption to what it may do.
func (w *storm) checkTaken(x lockstep.Action) error {
	if x.Reason != gang.ReasonPreempted && x.Reason != gang.ReasonReclaimed {
		return nil
	}
	w.hunts++
	by, victim := w.gangs[x.Eviction.For], w.gangs[x.Job]
	if k := [2]lockstep.JobID{x.Job, by.ID}; w.taken[k] {
		return fmt.Errorf("twice for %s", by.ID)
	} else {
		w.taken[k] = true
	}
	switch {
	case by.Preemption == lockstep.PreemptNever:
		return fmt.Errorf("for %s, which takes nothing", by.ID)
	case w.lends == nil && victim.Priority >= by.Priority:
		return fmt.Errorf("of priority %d for %s", victim.Priority, by.ID)
	case w.quota != nil && w.lends == nil && victim.Tenant != by.Tenant:
		return fmt.Errorf("of another tenant than %s", by.ID)
	}
	if w.lends != nil && !slices.Contains(w.lends.named[by.ID], x.Job) {
		return fmt.Errorf("for %s, to which the quota did not name it", by.ID)
	}
	return nil
}

// note adds x to the trace.
func (w *storm) note(x lockstep.Action) {
	b := append(w.text[:0], x.Kind...)
	b = append(b, x.Job...)
	b = append(b, x.Reason...)
	for _, v := range []uint64{w.trace, uint64(x.Time.UnixNano()), uint64(x.Deadline.UnixNano()), uint64(x.Attempt)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	if x.Plan != nil {
		for _, m := range x.Plan.Members {
			b = append(append(b, m.Node...), byte(m.Devices), byte(m.Role))
		}
	}
	if e := x.Eviction; e != nil {
		b = append(append(b, e.For...), byte(len(e.Ranks)), byte(e.Cost.Devices/lockstep.WholeGPU))
	}
	w.text = b
	h := fnv.New64a()
	h.Write(b)
	w.trace = h.Sum64()
}

// check holds the state at rest to the invariants.
func (w *storm) check() error {
	holding := 0
	for _, id := range w.jobs {
		s, ok := w.a.State(id)
		if !ok {
			continue
		}
		applied := w.p.Plan(id)
		if (s.Plan == nil) != (applied == nil) {
			return fmt.Errorf("%s is %s: it and the placer differ on whether it holds room", id, s.Phase)
		}
		if w.quota != nil {
			if c, charged := w.quota.charges[id]; charged != (s.Plan != nil) {
				return fmt.Errorf("%s is %s: charged %v", id, s.Phase, charged)
			} else if charged && !slices.Equal(c.counts, s.Plan.AppendCounts(nil, len(w.gangs[id].Roles))) {
				return fmt.Errorf("%s is charged for %v", id, c.counts)
			}
		}
		if s.Plan != nil {
			holding++
			if !slices.Equal(s.Plan.Members, applied.Members) {
				return fmt.Errorf("%s holds other room than the placer says", id)
			}
			w.counts = s.Plan.AppendCounts(w.counts[:0], len(w.gangs[id].Roles))
			counts := w.counts
			for i, r := range w.gangs[id].Roles {
				if s.Trial > 0 && s.Trial == len(s.Plan.Members) || s.Phase == gang.Held && s.Deadline.IsZero() {
					continue // only the first members have theirs
				}
				if counts[i] < r.Min || counts[i] > r.Limit() {
					return fmt.Errorf("%s holds %d of %d to %d", id, counts[i], r.Min, r.Limit())
				}
			}
		}
		switch s.Phase {
		case gang.Queued, gang.Gone:
			if s.Plan != nil {
				return fmt.Errorf("%s is %s and holds room", id, s.Phase)
			}
		case gang.Held:
			if !s.Deadline.IsZero() && !s.Deadline.After(w.now) && !w.flaky {
				return fmt.Errorf("%s is held beyond its deadline", id)
			}
		case gang.Awaiting, gang.Moving:
			if len(s.Waits) == 0 {
				return fmt.Errorf("%s is %s and waits for nobody", id, s.Phase)
			}
		}
	}
	if n := len(w.p.Jobs()); n != holding {
		return fmt.Errorf("%d jobs hold room, the placer says %d", holding, n)
	}
	if w.wrong != "" {
		return errors.New(w.wrong)
	}
	if w.quota != nil && w.quota.wrong != "" {
		return fmt.Errorf("quota: %s", w.quota.wrong)
	}
	return nil
}

// run makes steps random steps.
func (w *storm) run(steps int) error {
	for i := range steps {
		w.event()
		if w.rng.IntN(3) == 0 {
			w.now = w.now.Add(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		}
		swap := w.rng.Float64()
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if swap < w.swap {
			if err := w.restore(); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		}
	}
	return nil
}

// restore goes on from a snapshot.
func (w *storm) restore() error {
	var b, again bytes.Buffer
	if err := w.a.Snapshot(&b); err != nil {
		return err
	}
	a, err := gang.Restore(w.cfg, bytes.NewReader(b.Bytes()))
	if err != nil {
		return err
	}
	if err := a.Snapshot(&again); err != nil {
		return err
	}
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		return fmt.Errorf("the snapshot of a restored state differs")
	}
	w.a = a
	return nil
}

// calm lets everything that can happen by itself happen, until nothing is left:
// with nobody new, every gang that fits alone must get its turn.
func (w *storm) calm() error {
	w.calms = true
	for _, n := range w.p.Nodes() {
		w.apply(lockstep.Event{Time: w.now, Kind: lockstep.EventUp, Node: n})
		w.apply(lockstep.Event{Time: w.now, Kind: lockstep.EventOpen, Node: n})
	}
	for range 5000 {
		if err := w.step(); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return err
		}
		busy := false
		for _, id := range w.a.AppendJobs(nil) {
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
				e.Kind = lockstep.EventFinish
				w.apply(e)
				busy = true
			case gang.Leaving, gang.Moving, gang.Resizing:
				e.Kind = lockstep.EventEvicted
				w.apply(e)
				busy = true
			}
		}
		if busy {
			continue
		}
		wake, ok := w.a.NextWake(w.now)
		if !ok {
			break
		}
		w.now = wake
	}
	for _, id := range w.a.AppendJobs(nil) {
		s, _ := w.a.State(id)
		if s.Phase == gang.Gone {
			continue
		}
		e, _ := w.a.Explain(id)
		_, exact := w.p.(*placertest.Reference) // which knows by itself what never fits
		if !exact && slices.ContainsFunc(e.Notes, func(n lockstep.Note) bool { return n.Reason == lockstep.ReasonCapacity }) {
			continue
		}
		if s.Phase == gang.Queued && (s.Verdict.Reason == lockstep.ReasonCapacity || s.Verdict.Reason == lockstep.ReasonQuota) {
			if w.quota == nil || s.Verdict.Reason == lockstep.ReasonCapacity || int(w.gangs[id].GPUs(nil)/lockstep.WholeGPU) > w.most() {
				continue
			}
		}
		return fmt.Errorf("%s never starts: %s, %v", id, s.Phase, s.Verdict)
	}
	return nil
}

// most is how many devices one gang may have by quota.
func (w *storm) most() int {
	if w.lends != nil {
		return w.lends.total
	}
	return w.quota.limit
}

// The storms make half a million steps together.
func TestStormsKeepTheInvariants(t *testing.T) {
	seeds, steps := 250, 2000
	if testing.Short() {
		seeds = 25
	}
	started, kinds := 0, map[lockstep.ActionKind]int{}
	for seed := range seeds {
		w := newStorm(uint64(seed), 0, reference)
		require.NoError(t, w.run(steps), "seed %d", seed)
		require.NoError(t, w.calm(), "seed %d, calm", seed)
		for k, n := range w.kinds {
			kinds[k] += n
		}
		started += len(w.starts)
	}
	t.Logf("%d storms of %d steps: %d jobs started, actions %v", seeds, steps, started, kinds)
	for _, k := range []lockstep.ActionKind{
		lockstep.ActionReserve, lockstep.ActionStart, lockstep.ActionRelease, lockstep.ActionExtend,
		lockstep.ActionEvict, lockstep.ActionResize, lockstep.ActionMove,
	} {
		require.NotZero(t, kinds[k], k)
	}
}

func TestTakingStormsKeepTheInvariants(t *testing.T) {
	seeds, steps := 120, 1500
	if testing.Short() {
		seeds, steps = 20, 1000
	}
	started, taken, patched, kinds := 0, 0, 0, map[lockstep.ActionKind]int{}
	for seed := range seeds {
		w := newTakingStorm(uint64(seed)+9000, 0, reference)
		require.NoError(t, w.run(steps), "seed %d", seed)
		require.NoError(t, w.calm(), "seed %d, calm", seed)
		for k, n := range w.kinds {
			kinds[k] += n
		}
		started += len(w.starts)
		taken += w.hunts
		patched += w.patched
	}
	t.Logf("%d storms of %d steps: %d jobs started, %d made room, %d had members replaced, actions %v", seeds, steps, started, taken, patched, kinds)
	require.NotZero(t, taken)
	require.NotZero(t, patched)
}

func TestSameTakingStormSameActionsAlsoAcrossRestores(t *testing.T) {
	seeds := 16
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		traces := map[uint64]bool{}
		for _, swap := range []float64{0, 0.05, 0.1} {
			w := newTakingStorm(uint64(seed)+9000, swap, reference)
			require.NoError(t, w.run(600), "seed %d", seed)
			require.NoError(t, w.calm(), "seed %d", seed)
			traces[w.trace] = true
		}
		require.Len(t, traces, 1, "seed %d", seed)
	}
}

func TestSameStormSameActionsAlsoAcrossRestores(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		traces := map[uint64]bool{}
		for _, swap := range []float64{0, 0, 0.05} {
			w := newStorm(uint64(seed), swap, reference)
			require.NoError(t, w.run(600), "seed %d", seed)
			require.NoError(t, w.calm(), "seed %d", seed)
			traces[w.trace] = true
		}
		require.Len(t, traces, 1, "seed %d", seed)
	}
}
