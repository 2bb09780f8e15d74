package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/fairness"
)

// The ledgers that are measured, and what bounds their figures.
const (
	ledgerBatch  = 100 // tenants in a batch of events
	ledgerTurns  = 32  // batches of each kind in a round
	allocsNone   = 0.1 // allocations an event that count as none
	ledgerGrowth = 20  // times an event may cost at the most with 1,000 times the tenants, in caches that others use as well
)

var ledgerSizes = []int{100, 10_000, 100_000}

// eventKinds are what a job leads to, in that order. A batch of each in turn
// leaves every tenant with one job that runs and one that waits.
var eventKinds = [...]fairness.EventKind{fairness.EventStart, fairness.EventFinish, fairness.EventForget, fairness.EventSubmit}

// crowd is a ledger with tenants of which each has a job that runs and one that
// waits.
type crowd struct {
	ledger  *fairness.Ledger
	rng     *rand.Rand
	now     time.Time
	tenants []crowdTenant
	batch   []int // tenants, all different
}

type crowdTenant struct {
	id      lockstep.TenantID
	jobs    [2]lockstep.JobID
	running int // which of jobs runs
}

func newCrowd(tenants int, seed uint64) (*crowd, error) {
	c := &crowd{rng: rand.New(rand.NewPCG(seed, uint64(tenants))), now: time.Unix(0, 0), tenants: make([]crowdTenant, tenants)}
	var err error
	// On average tenants ask for 9 and hold 4.5: some have a share that covers what
	// they ask for, the others divide the rest.
	if c.ledger, err = fairness.New(fairness.Config{Capacity: lockstep.WholeGPU.Mul(int64(tenants) * 6)}); err != nil {
		return nil, err
	}
	for i := range c.tenants {
		t := &c.tenants[i]
		name := strconv.Itoa(i)
		t.id = lockstep.TenantID("tenant-" + name)
		t.jobs = [2]lockstep.JobID{lockstep.JobID("job-a-" + name), lockstep.JobID("job-b-" + name)}
		if err := c.ledger.Join(c.now, t.id, int64(1+i%8)); err != nil {
			return nil, err
		}
		for k := range t.jobs {
			if err := c.ledger.Submit(c.tick(), t.jobs[k], t.id, c.amount(i)); err != nil {
				return nil, err
			}
		}
		if err := c.ledger.Start(c.tick(), t.jobs[0], c.amount(i)); err != nil {
			return nil, err
		}
	}
	c.batch = make([]int, min(ledgerBatch, tenants))
	return c, nil
}

// amount is what the jobs of a tenant ask for: 1 to 8 devices, widest for the
// first of eight, so that demands and weights are not in step.
func (c *crowd) amount(tenant int) lockstep.MilliGPU {
	return lockstep.WholeGPU.Mul(int64(8 - tenant*5%8))
}

func (c *crowd) tick() time.Time {
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

// draw chooses the tenants of the next batches: a run of them, far apart in
// memory, from a random place.
func (c *crowd) draw() {
	n := len(c.tenants)
	stride := max(n/len(c.batch), 1)
	first := c.rng.IntN(n)
	for i := range c.batch {
		c.batch[i] = (first + i*stride) % n
	}
	c.rng.Shuffle(len(c.batch), func(i, k int) { c.batch[i], c.batch[k] = c.batch[k], c.batch[i] })
}

// apply has one event of a kind for every tenant of the batch.
func (c *crowd) apply(kind fairness.EventKind) error {
	for _, i := range c.batch {
		t := &c.tenants[i]
		var err error
		switch kind {
		case fairness.EventStart: // the one that waits, beside the one that runs
			err = c.ledger.Start(c.tick(), t.jobs[1-t.running], c.amount(i))
		case fairness.EventFinish:
			err = c.ledger.Finish(c.tick(), t.jobs[t.running])
		case fairness.EventForget:
			err = c.ledger.Forget(t.jobs[t.running])
		case fairness.EventSubmit:
			err = c.ledger.Submit(c.tick(), t.jobs[t.running], t.id, c.amount(i))
			t.running = 1 - t.running
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pass opens a pass and takes its first proposal.
func (c *crowd) pass() error {
	c.ledger.Begin(c.now)
	job, ok := c.ledger.Next()
	if !ok {
		return fmt.Errorf("nobody waits among %d tenants", len(c.tenants))
	}
	c.ledger.Outcome(job, lockstep.Blocked)
	return nil
}

// ledgerFigures are what one size of ledger showed, for one event each.
type ledgerFigures struct {
	kinds [len(eventKinds)]cost
	event cost // mean over the kinds
	pass  cost
}

// measure times rounds of events by kind, and passes.
func (c *crowd) measure(p *program) (f ledgerFigures, err error) {
	var kinds [len(eventKinds)][]cost
	for round := range p.Rounds() + 1 {
		var sum [len(eventKinds)]cost
		slow := p.meter.calibration.Slowness()
		for range ledgerTurns {
			c.draw()
			for k, kind := range eventKinds {
				w := watch{meter: p.meter}
				w.resume()
				if err := c.apply(kind); err != nil {
					return f, fmt.Errorf("%s: %w", kind, err)
				}
				w.pause()
				sum[k].wall += w.sum.wall
				sum[k].cpu += w.sum.cpu
				sum[k].allocs += w.sum.allocs
				sum[k].bytes += w.sum.bytes
			}
		}
		slow = quiet([]float64{slow, p.meter.calibration.Slowness()})
		if round == 0 {
			continue // warms up
		}
		for k := range sum {
			sum[k].slowness = slow
			kinds[k] = append(kinds[k], sum[k].per(ledgerTurns*len(c.batch)))
		}
	}
	for k := range kinds {
		f.kinds[k] = middle(kinds[k])
		f.event = f.event.plus(f.kinds[k])
	}
	f.event = f.event.per(len(kinds))
	passes := max(1_000_000/len(c.tenants)/10, 1)
	f.pass, err = p.meter.rounds(p.Rounds(), nil, func() error {
		for range passes {
			if err := c.pass(); err != nil {
				return err
			}
		}
		return nil
	})
	f.pass = f.pass.per(passes)
	return f, err
}

// plus adds costs that were measured on their own. The slowness is such that ref
// adds up.
func (c cost) plus(d cost) cost {
	sum := cost{wall: c.wall + d.wall, cpu: c.cpu + d.cpu, allocs: c.allocs + d.allocs, bytes: c.bytes + d.bytes}
	ref := d.ref()
	if c.slowness > 0 {
		ref += c.ref()
	}
	sum.slowness = sum.cpu / ref
	return sum
}

// ledgers measures ledgers of growing size.
func (p *program) ledgers() error {
	p.Input("ledger", "max-min; each tenant has one job that runs and one that waits, of 1 to 8 GPUs, weights 1 to 8; the capacity is 6 GPUs a tenant")
	p.Input("events", fmt.Sprintf("batches of %d of each kind for tenants drawn at random, 1 ms apart; an event of a finish comes with a start, a forget and a submission", ledgerBatch))
	table := &harness.Table{Head: []string{"tenants", "ns/event", "CPU", "ref", "allocs", "start ref", "finish ref", "forget ref", "submit ref", "submit allocs", "pass us ref", "pass allocs", "heap MB"}}
	found := make([]ledgerFigures, 0, len(ledgerSizes))
	for _, tenants := range ledgerSizes {
		before := live()
		c, err := newCrowd(tenants, p.Seed)
		if err != nil {
			return err
		}
		size := live() - before
		f, err := c.measure(p)
		if err != nil {
			return fmt.Errorf("%d tenants: %w", tenants, err)
		}
		found = append(found, f)
		p.reportLedger(tenants, f, size, table)
	}
	p.Table(table)
	last := found[len(found)-1]
	growth := last.event.ref() / found[0].event.ref()
	p.Result("ledger/growth", growth, "x")
	// Start, finish and forget add nothing that is kept.
	allocs := 0.0
	for k, kind := range eventKinds {
		if kind != fairness.EventSubmit {
			allocs = max(allocs, last.kinds[k].allocs)
		}
	}
	p.Target(harness.Target{Name: "ledger/growth", Value: growth, Unit: "x", Limit: ledgerGrowth})
	p.Target(harness.Target{Name: "ledger/allocs", Value: allocs, Unit: "allocs/event", Limit: allocsNone})
	return nil
}

// reportLedger prints what one size of ledger showed.
func (p *program) reportLedger(tenants int, f ledgerFigures, size float64, table *harness.Table) {
	at := fmt.Sprintf("ledger/tenants=%d/", tenants)
	row := []string{fmt.Sprint(tenants), harness.Number(f.event.wall), harness.Number(f.event.cpu), harness.Number(f.event.ref()), harness.Number(f.event.allocs)}
	p.Result(at+"event", f.event.wall, "ns")
	p.Result(at+"event-cpu", f.event.cpu, "ns")
	p.Result(at+"event-ref", f.event.ref(), "ns")
	p.Result(at+"event-allocs", f.event.allocs, "allocs/event")
	submits := 0.0
	for k, kind := range eventKinds {
		row = append(row, harness.Number(f.kinds[k].ref()))
		p.Result(at+string(kind)+"-ref", f.kinds[k].ref(), "ns")
		p.Result(at+string(kind)+"-allocs", f.kinds[k].allocs, "allocs/event")
		if kind == fairness.EventSubmit {
			submits = f.kinds[k].allocs
		}
	}
	p.Result(at+"pass-ref", f.pass.ref()/1e3, "us")
	p.Result(at+"pass-allocs", f.pass.allocs, "allocs/pass")
	p.Result(at+"heap", size/1e6, "MB")
	table.Add(append(row, harness.Number(submits), harness.Number(f.pass.ref()/1e3), harness.Number(f.pass.allocs), harness.Number(size/1e6))...)
}
