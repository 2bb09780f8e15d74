package main

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/topology"
)

// leastEvents is the target: job events in a second of the reference core.
const leastEvents = 200_000

// The clusters that the extract is replayed on.
const (
	usualNodes   = 88 // as many devices as are offered work for, and few more
	roomyNodes   = 96
	crowdedNodes = 64
)

// policy is how a replay is scheduled.
type policy struct {
	name  string // in results
	title string
	rule  scheduler.Rule
}

var (
	ltgf = policy{name: "ltgf", title: "LTGF leases", rule: scheduler.LTGF}
	fifo = policy{name: "fifo", title: "FIFO + EASY", rule: scheduler.FIFO}
)

// config is a scheduler of policy for w on a cluster.
func (w *workload) config(p policy, tree *topology.Tree) scheduler.Config {
	cfg := scheduler.Config{Rule: p.rule, Weights: w.weights, Tree: tree}
	if p.rule == scheduler.LTGF {
		cfg.Term = term
	}
	return cfg
}

// census is what happened in a replay.
type census struct{ *sim.Result }

// confirms is how many of the events that the scheduler was told were
// confirmations: each job is submitted once and finishes once, each preemption
// ends once, and there are no others.
func (c *census) confirms() int { return c.Events - c.Jobs - c.Finished - c.Preemptions }

// terms is how many times a holder's term ended.
func (c *census) terms() int { return c.Extensions + c.Preemptions }

// jobEvents is how many things happened to jobs; see the package comment.
func (c *census) jobEvents() int { return c.Events + c.terms() }

// busy tells how busy the cluster was while jobs arrived: the part of the devices
// that was held, and how many jobs waited on average.
func (c *census) busy(span time.Duration, gpus int) (held, waiting float64) {
	n := 0
	for i := range c.Series.Samples {
		s := &c.Series.Samples[i]
		if s.Time > span {
			break
		}
		n++
		waiting += float64(s.Waiting)
		for _, h := range s.Held {
			held += float64(h)
		}
	}
	d := float64(max(n, 1))
	return held / d / float64(lockstep.WholeGPU.Mul(int64(gpus))), waiting / d
}

// crowded returns the time at which most jobs waited, of the samples.
func (c *census) crowded() (at time.Duration, waiting int) {
	for i := range c.Series.Samples {
		if s := &c.Series.Samples[i]; s.Waiting > waiting {
			at, waiting = s.Time, s.Waiting
		}
	}
	return at, waiting
}

// every is how many of the calls of Progress, about a hundred in a replay, pass
// between two calibrations.
const every = 5

// replay replays w once, and times it.
func (w *workload) replay(m *meter, p policy, tree *topology.Tree) (*census, cost, error) {
	s, err := scheduler.New(w.config(p, tree))
	if err != nil {
		return nil, cost{}, err
	}
	jobs, calls := w.jobs(), 0
	live() // what was before is not collected at this replay's cost
	watch := m.watch()
	r, err := sim.Run(sim.Config{
		Tree: tree, Weights: w.weights,
		Progress: func(sim.Progress) {
			if calls++; calls%every == 0 {
				watch.calibrate()
			}
		},
	}, jobs, s)
	if err != nil {
		return nil, cost{}, err
	}
	took := watch.stop()
	if r.Finished != r.Jobs {
		return nil, cost{}, fmt.Errorf("%s: %d of %d jobs finished", p.title, r.Finished, r.Jobs)
	}
	if r.Held != r.Service {
		return nil, cost{}, fmt.Errorf("%s: the ledger charged %v, jobs held %v", p.title, r.Service, r.Held)
	}
	return &census{r}, took, nil
}

// replays replays w a number of times, which must all go alike, and returns the
// middle of the times.
func (w *workload) replays(m *meter, p policy, tree *topology.Tree, runs int) (*census, cost, error) {
	var first *census
	costs := make([]cost, 0, runs)
	for range runs {
		c, took, err := w.replay(m, p, tree)
		if err != nil {
			return nil, cost{}, err
		}
		if first == nil {
			first = c
		}
		if c.Events != first.Events || c.Actions != first.Actions || c.Makespan != first.Makespan {
			return nil, cost{}, fmt.Errorf("%s: %d events and %d actions, before %d and %d", p.title, c.Events, c.Actions, first.Events, first.Actions)
		}
		costs = append(costs, took)
	}
	return first, middle(costs), nil
}

// speed measures the simulator on both traces.
func (p *program) speed() error {
	t := &tables{
		speed: harness.Table{Head: []string{
			"trace, GPUs, policy", "job events", "wall s", "events/s", "per CPU-s", "ref", "told/s ref", "decisions/s", "ref", "allocs/event", "slowness", "runs",
		}},
		kinds: harness.Table{Head: []string{
			"trace, GPUs, policy", "submit", "confirm", "evicted", "finish", "= told", "terms extended", "preempted", "decisions", "steps", "held", "waiting", "max", "makespan d",
		}},
	}
	w, absent, err := philly()
	if err != nil {
		return err
	}
	if w == nil {
		p.Note("the Philly trace is passed over: " + absent)
	} else {
		p.Input("trace philly2w", w.about)
		for _, nodes := range []int{usualNodes, roomyNodes, crowdedNodes} {
			if err := p.replays(w, nodes, t); err != nil {
				return err
			}
		}
	}
	if w, err = p.madeUp(); err != nil {
		return err
	}
	p.Input("trace synthetic", w.about)
	if err := p.replays(w, usualNodes, t); err != nil {
		return err
	}
	p.Table(&t.speed)
	p.Table(&t.kinds)
	p.Note("ref: in a second of the reference core; held and waiting: means while jobs arrive, and the most that waited, of some 500 samples")
	for _, target := range t.targets {
		p.Target(target)
	}
	return nil
}

// madeUp is the made up trace for the smaller of the clusters.
func (p *program) madeUp() (*workload, error) {
	span := 14 * 24 * time.Hour
	if p.Quick {
		span = 2 * 24 * time.Hour
	}
	return synthetic(p.Seed, usualNodes*perNode, span)
}

// tables gather what the replays found.
type tables struct {
	speed, kinds harness.Table
	targets      []harness.Target
}

// replays measures both policies on a cluster.
func (p *program) replays(w *workload, nodes int, t *tables) error {
	tree, err := cluster(nodes)
	if err != nil {
		return err
	}
	p.Input("cluster", fmt.Sprintf("%d nodes x %d = %d GPUs", nodes, perNode, nodes*perNode))
	for _, policy := range []policy{ltgf, fifo} {
		runs := 5
		if p.Quick {
			if policy == fifo && nodes != usualNodes {
				continue
			}
			runs = 1
		}
		c, took, err := w.replays(p.meter, policy, tree, runs)
		if err != nil {
			return err
		}
		p.reportSpeed(w, nodes, policy, c, took, runs, t)
		if policy == ltgf && nodes == restartNodes(w) {
			p.waits[w.name], _ = c.crowded()
		}
	}
	return nil
}

// judged tells which replays the target is for.
func judged(w *workload, nodes int, p policy) bool {
	return p.rule == scheduler.LTGF && w.name == philly2w && nodes != crowdedNodes
}

// reportSpeed prints what the replays of one policy on one cluster found.
func (p *program) reportSpeed(w *workload, nodes int, policy policy, c *census, took cost, runs int, t *tables) {
	gpus := nodes * perNode
	event, told, decision := took.per(c.jobEvents()), took.per(c.Events), took.per(c.Actions)
	at := fmt.Sprintf("%s/gpus=%d/%s/", w.name, gpus, policy.name)
	title := fmt.Sprintf("%s, %d, %s", w.name, gpus, policy.title)
	held, waiting := c.busy(w.span, gpus)
	_, most := c.crowded()
	number, whole := harness.Number, func(n int) string { return fmt.Sprint(n) }
	t.speed.Add(title, whole(c.jobEvents()), number(took.wall/1e9), number(perSecond(event.wall)), number(perSecond(event.cpu)), number(perSecond(event.ref())),
		number(perSecond(told.ref())), number(perSecond(decision.wall)), number(perSecond(decision.ref())), number(event.allocs), number(took.slowness), whole(runs))
	t.kinds.Add(title, whole(c.Jobs), whole(c.confirms()), whole(c.Preemptions), whole(c.Finished), whole(c.Events),
		whole(c.Extensions), whole(c.Preemptions), whole(c.Actions), whole(c.Steps), number(held*100)+"%", number(waiting), whole(most), number(c.Makespan.Hours()/24))
	p.Result(at+"job-events", perSecond(event.wall), "job-events/s")
	p.Result(at+"job-events-cpu", perSecond(event.cpu), "job-events/CPU-s")
	p.Result(at+"job-events-ref", perSecond(event.ref()), "job-events/CPU-s")
	p.Result(at+"told", perSecond(told.wall), "events/s")
	p.Result(at+"told-cpu", perSecond(told.cpu), "events/CPU-s")
	p.Result(at+"told-ref", perSecond(told.ref()), "events/CPU-s")
	p.Result(at+"decisions", perSecond(decision.wall), "decisions/s")
	p.Result(at+"decisions-ref", perSecond(decision.ref()), "decisions/CPU-s")
	p.Result(at+"steps-ref", perSecond(took.per(c.Steps).ref()), "steps/CPU-s")
	p.Result(at+"simulation", took.wall/1e9, "s")
	p.Result(at+"allocs", event.allocs, "allocs/job-event")
	p.Result(at+"bytes", event.bytes, "B/job-event")
	p.Result(at+"held", held, "fraction")
	if judged(w, nodes, policy) {
		t.targets = append(t.targets, harness.Target{Name: at + "job-events-ref", Value: perSecond(event.ref()), Unit: "job-events/CPU-s", Limit: leastEvents, AtLeast: true})
	}
}
