package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/fairness"
)

const crowdTenants = 10_000

// memories are the kinds of memory that are measured.
var memories = []struct {
	name   string
	memory fairness.Memory
}{
	{"forever", fairness.Memory{}},
	{"window-24h", fairness.Memory{Bucket: time.Hour, Buckets: 24}},
	{"half-life-7d", fairness.Memory{HalfLife: week}},
}

// crowd is a ledger of many tenants, each with a job that runs and one that waits.
type crowd struct {
	ledger *fairness.Ledger
	now    time.Time
	jobs   [][2]lockstep.JobID // which runs, which waits
	at     int
}

func newCrowd(tenants int, memory fairness.Memory) (*crowd, error) {
	l, err := fairness.New(fairness.Config{Capacity: lockstep.WholeGPU.Mul(int64(tenants) * 6), Memory: memory})
	if err != nil {
		return nil, err
	}
	c := &crowd{ledger: l, now: time.Unix(0, 0), jobs: make([][2]lockstep.JobID, tenants)}
	for i := range c.jobs {
		id := lockstep.TenantID(fmt.Sprint("tenant-", i))
		if err := l.Join(c.now, id, int64(1+i%8)); err != nil {
			return nil, err
		}
		c.jobs[i] = [2]lockstep.JobID{lockstep.JobID(fmt.Sprint("a-", i)), lockstep.JobID(fmt.Sprint("b-", i))}
		amount := lockstep.WholeGPU.Mul(int64(8 - i*5%8))
		for _, job := range c.jobs[i] {
			if err := l.Submit(c.now, job, id, amount); err != nil {
				return nil, err
			}
		}
		if err := l.Start(c.now, c.jobs[i][0], amount); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// swap stops the running job of one tenant and starts its other one: two accruals.
func (c *crowd) swap() error {
	c.now = c.now.Add(time.Millisecond)
	c.at = (c.at + 7919) % len(c.jobs)
	j := &c.jobs[c.at]
	if err := c.ledger.Stop(c.now, j[0]); err != nil {
		return err
	}
	j[0], j[1] = j[1], j[0]
	return c.ledger.Start(c.now, j[0], lockstep.WholeGPU)
}

// times are medians over a round, in nanoseconds, as the reference would show them.
type times struct{ event, pick, open float64 }

func (p *program) round(c *crowd, batches int) (times, error) {
	const batch = 64
	var events, picks, opens []float64
	slow := p.calibration.Slowness()
	for range batches {
		start := p.clock.Nanos()
		for range batch {
			if err := c.swap(); err != nil {
				return times{}, err
			}
		}
		events = append(events, float64(p.clock.Nanos()-start)/(2*batch))
		if len(opens) < 20 {
			start = p.clock.Nanos()
			c.ledger.Begin(c.now)
			opens = append(opens, float64(p.clock.Nanos()-start))
			start = p.clock.Nanos()
			for range batch {
				job, ok := c.ledger.Next()
				if !ok {
					return times{}, fmt.Errorf("nobody waits")
				}
				c.ledger.Outcome(job, lockstep.Granted)
			}
			picks = append(picks, float64(p.clock.Nanos()-start)/batch)
		}
	}
	slow = (slow + p.calibration.Slowness()) / 2
	return times{harness.Median(events) / slow, harness.Median(picks) / slow, harness.Median(opens) / slow}, nil
}

// cost measures events and picks by kind of memory.
func (p *program) cost() error {
	p.Input("cost", fmt.Sprintf("%d tenants of weights 1 to 8, each with a job that runs and one that waits, 1 ms between changes", crowdTenants))
	table := &harness.Table{Head: []string{"memory", "ns/event ref", "ns/pick ref", "us to open a pass ref"}}
	batches := 200
	if p.Quick {
		batches = 40
	}
	for k, m := range memories {
		c, err := newCrowd(crowdTenants, m.memory)
		if err != nil {
			return err
		}
		var rounds []times
		for range p.Rounds() {
			t, err := p.round(c, batches)
			if err != nil {
				return err
			}
			rounds = append(rounds, t)
		}
		slices.SortFunc(rounds, func(a, b times) int { return int(a.event - b.event) })
		of := func(f func(times) float64) float64 {
			var v []float64
			for _, t := range rounds {
				v = append(v, f(t))
			}
			return harness.Median(v)
		}
		event, pick, open := of(func(t times) float64 { return t.event }), of(func(t times) float64 { return t.pick }), of(func(t times) float64 { return t.open })
		table.Add(m.name, harness.Number(event), harness.Number(pick), harness.Number(open/1e3))
		p.Result("cost/"+m.name+"/event-ref", event, "ns")
		p.Result("cost/"+m.name+"/pick-ref", pick, "ns")
		p.Result("cost/"+m.name+"/open-ref", open/1e3, "us")
		if k == 0 {
			defer func() {
				p.Target(harness.Target{Name: "cost/event", Value: event, Unit: "ns", Limit: 1000})
				p.Target(harness.Target{Name: "cost/pick", Value: pick, Unit: "ns", Limit: 3000})
			}()
		}
	}
	p.Table(table)
	return nil
}
