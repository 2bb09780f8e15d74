package pollux

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Policy decides where jobs run.
type Policy interface {
	// Decide returns where each of the jobs runs from now on, nil for one that waits, in
	// their order, which is that of the workload. Slots equal to Held leave a job alone; any
	// others restart it. The policy may keep what it returns.
	Decide(now time.Duration, c Cluster, jobs []*Active) ([][]Slot, error)
}

// Cluster is what there is to give out.
type Cluster struct {
	Nodes       int // Nodes is how many there are.
	GPUsPerNode int // GPUsPerNode is how many GPUs each has.
}

// UserBatch is what a Policy implements besides whose jobs train with Job.Batch. Under others they choose the
// batch that their model finds best, but for those that run on one GPU only, which take the largest.
type UserBatch interface {
	UserBatch() // UserBatch does nothing.
}

// world is the state of a run.
type world struct {
	cfg     Config
	cluster Cluster
	jobs    []*Active
	now     int64 // seconds
	memo    map[lookup]timing
}

// maxIdle is how many seconds a run may go on without an end of a job once all have come: 97 days.
const maxIdle = 1 << 23

// Run lets the jobs run under a policy until all are done.
func Run(cfg Config, jobs []Job, policy Policy) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if policy == nil {
		return nil, fault(lockstep.ErrInvalid, "run", "policy", "nil", "want one")
	}
	w, err := newWorld(cfg.withDefaults(), jobs, policy)
	if err != nil {
		return nil, err
	}
	last := int64(0) // when a job came or ended
	for _, j := range jobs {
		last = max(last, int64(j.Submit/time.Second))
	}
	for left := len(jobs); left > 0; {
		before := left
		if left, err = w.pass(int64(w.cfg.Tick / time.Second)); err != nil {
			return nil, err
		}
		if left < before {
			last = max(last, w.now)
		}
		if w.now-last > maxIdle {
			return nil, fault(lockstep.ErrInvalid, "run", "policy", strconv.Itoa(left)+" jobs left", "none has ended for 97 days")
		}
		if err = w.decide(policy); err != nil {
			return nil, err
		}
	}
	return w.result(), nil
}

func newWorld(cfg Config, jobs []Job, policy Policy) (*world, error) {
	if err := checkJobs(jobs); err != nil {
		return nil, err
	}
	w := &world{cfg: cfg, cluster: Cluster{cfg.Nodes, cfg.GPUsPerNode}, memo: map[lookup]timing{}}
	_, fixed := policy.(UserBatch)
	for i, j := range jobs {
		k := slices.IndexFunc(cfg.Profiles, func(p *Profile) bool { return p.name == j.App })
		if k < 0 {
			return nil, fault(lockstep.ErrUnknown, "run", at("jobs", i, "App"), errtext.Quote(j.App), "has no profile")
		}
		p := cfg.Profiles[k]
		a := &Active{Job: j, Index: i, w: w, profile: p, end: -1, restarts: -1}
		if fixed {
			if a.fixed = j.Batch; j.Batch < p.initial() || j.Batch > p.largest() {
				return nil, fault(lockstep.ErrInvalid, "run", at("jobs", i, "Batch"), strconv.FormatInt(j.Batch, 10), "is not between the validated batches")
			}
		} else if p.single {
			a.fixed = p.largest() // the authors' choice for ncf
		}
		w.jobs = append(w.jobs, a)
	}
	return w, nil
}

// pass lets time pass, and returns how many jobs are not done.
func (w *world) pass(tick int64) (left int, err error) {
	crowded := w.crowded()
	for _, a := range w.jobs {
		slowdown := 0.0
		if len(a.Held) > 1 && slices.ContainsFunc(a.Held, func(s Slot) bool { return crowded[s.Node] }) {
			slowdown = w.cfg.Interference
		}
		if err := a.run(tick, slowdown); err != nil {
			return 0, err
		}
		if a.end < 0 {
			left++
		} else {
			a.Held = nil
		}
	}
	w.now += tick
	return left, nil
}

// crowded says which nodes have parts of several jobs that span nodes.
func (w *world) crowded() []bool {
	spans := make([]int, w.cfg.Nodes)
	for _, a := range w.jobs {
		for _, s := range a.Held {
			if len(a.Held) > 1 {
				spans[s.Node]++
			}
		}
	}
	out := make([]bool, len(spans))
	for i, n := range spans {
		out[i] = n > 1
	}
	return out
}

// decide asks the policy, and does what it says.
func (w *world) decide(policy Policy) error {
	var there []*Active
	for _, a := range w.jobs {
		if a.end < 0 && int64(a.Job.Submit/time.Second) <= w.now {
			there = append(there, a)
		}
	}
	if len(there) == 0 {
		return nil
	}
	now := time.Duration(w.now) * time.Second
	placed, err := policy.Decide(now, w.cluster, there)
	if err != nil {
		return fmt.Errorf("pollux: run: %w", err)
	}
	if err := w.check(there, placed); err != nil {
		return err
	}
	for i, a := range there {
		if slices.Equal(placed[i], a.Held) {
			continue
		}
		a.move(placed[i], int64(w.cfg.Restart/time.Second))
		if w.cfg.Observe != nil {
			w.cfg.Observe(Change{At: now, Job: a.Job.ID, Slots: slices.Clone(a.Held), Batch: int64(count(a.Held)) * a.local * (a.passes + 1), Restarts: a.Restarts()})
		}
	}
	return nil
}

// check refuses what does not fit.
func (w *world) check(there []*Active, placed [][]Slot) error {
	if len(placed) != len(there) {
		return fault(lockstep.ErrInvalid, "run", "decision", strconv.Itoa(len(placed)), "want one for each of "+strconv.Itoa(len(there))+" jobs")
	}
	free := make([]int, w.cfg.Nodes)
	for i := range free {
		free[i] = w.cfg.GPUsPerNode
	}
	for i, slots := range placed {
		for k, s := range slots {
			if s.Node < 0 || s.Node >= len(free) || s.GPUs < 1 || s.GPUs > free[s.Node] || slices.ContainsFunc(slots[:k], func(o Slot) bool { return o.Node == s.Node }) {
				return fault(lockstep.ErrInvalid, "run", at("decision", i, "slots"), fmt.Sprint(slots), "of "+string(there[i].Job.ID)+" do not fit")
			}
			free[s.Node] -= s.GPUs
		}
	}
	return nil
}

// timing returns how long a step takes: as it was given, as it was measured for the placement, between two
// batches, or between placements.
func (w *world) timing(p *Profile, slots []Slot, batch int64) (timing, error) {
	key := lookup{app: p.name, place: rotated(slots), batch: batch}
	if t, ok := w.cfg.Timings[key]; ok {
		return t, nil
	}
	if t, ok := w.memo[key]; ok {
		return t, nil
	}
	t, ok := p.lookup(key.place, batch)
	if !ok {
		return timing{}, w.outside(p, "placement "+key.place+" and batch", batch)
	}
	w.memo[key] = t
	return t, nil
}

func (w *world) outside(p *Profile, what string, v int64) error {
	return fault(lockstep.ErrInvalid, "run", p.name+": "+what, strconv.FormatInt(v, 10), "is outside of what was measured")
}

// rotated returns the least rotation of a placement, which the profiles are for.
func rotated(slots []Slot) string {
	var b [64]byte
	ring := b[:0]
	for _, s := range slots {
		ring = append(ring, byte('0'+s.GPUs))
	}
	least := string(ring)
	for i := 1; i < len(ring); i++ {
		if r := string(ring[i:]) + string(ring[:i]); r < least {
			least = r
		}
	}
	return least
}

// lookup returns the timing of a placement in its least rotation.
func (p *Profile) lookup(place string, batch int64) (timing, bool) {
	rows := p.layouts[place]
	if len(rows) == 0 {
		gpus := int64(0)
		for _, c := range place {
			gpus += int64(c - '0')
		}
		return p.interpolate(min(int64(len(place)), maxNodes), gpus, batch)
	}
	i, _ := slices.BinarySearchFunc(rows, batch, func(m measured, b int64) int { return int(m.batch - b) })
	if i == len(rows) || i == 0 && rows[0].batch != batch {
		return timing{}, false
	}
	i = max(i, 1)
	if i == len(rows) {
		return rows[0].timing, true // the only one
	}
	lo, hi := &rows[i-1], &rows[i]
	line := func(a, b float64) float64 {
		slope := (b - a) / float64(hi.batch-lo.batch)
		return float64(slope*float64(batch-lo.batch)) + a
	}
	return timing{line(lo.step, hi.step), line(lo.sync, hi.sync)}, true
}

// maxNodes is how many nodes the widest measured layouts have.
const maxNodes = 16
