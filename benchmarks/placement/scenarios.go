package main

import (
	"fmt"
	"runtime"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/placement"
)

// turnover is how many times the cluster's nodes are placed before measuring.
const turnover = 10

// allocsNone is the most allocations a decision that count as none: a state's
// pools grow when it holds more gangs of one size than it ever did, which ever
// fewer of the decisions bring about.
const allocsNone = 0.01

// limits are the targets for one size of cluster; 0 is none.
type limits struct {
	rate     float64 // decisions a second, at least
	p50, p99 float64 // microseconds
	large    float64 // microseconds: the median for a gang of 1,024 nodes
	memory   float64 // MB
}

// churnSizes measures the churn on clusters of 1,000, 10,000 and 100,000 nodes.
func (p *program) churnSizes() error {
	table := &harness.Table{Head: []string{
		"nodes", "decisions/s", "per CPU-s", "p50 us", "p99 us", "p99.9 us", "allocs/op", "refused", "heap MB", "slowness", "p50 ref", "p99 ref", "decisions", "interrupted",
	}}
	found := make(map[int]figures)
	var targets []harness.Target
	for _, size := range []struct {
		nodes  int
		limits limits
	}{
		{1_000, limits{}},
		{10_000, limits{rate: 100_000, p50: 5, p99: 50, large: 200, memory: memoryLimits[10_000]}},
		{100_000, limits{p50: 10, p99: 100, large: 300, memory: memoryLimits[100_000]}},
	} {
		c, memory, err := p.churned(size.nodes)
		if err != nil {
			return err
		}
		f, err := p.meter.run(p.Bench, p.timed(c))
		if err != nil {
			return err
		}
		found[size.nodes] = f
		table.Add(fmt.Sprint(size.nodes), harness.Number(perSecond(f.wall)), harness.Number(perSecond(f.cpu)),
			harness.Number(micros(f.p50)), harness.Number(micros(f.p99)), harness.Number(micros(f.all999)),
			harness.Number(f.allocs), harness.Number(c.refusedShare()*100)+"%", harness.Number(memory), harness.Number(f.slowness),
			harness.Number(micros(f.p50Ref)), harness.Number(micros(f.p99Ref)), fmt.Sprint(f.count),
			fmt.Sprint(f.dropped))
		targets = append(targets, p.report(size.nodes, f, c.refusedShare(), memory, size.limits)...)
		if size.limits.p50 > 0 {
			p.list = append(p.list, line{name: "whole", what: "gang of 1 to 64 whole nodes", nodes: size.nodes, f: f, p50: size.limits.p50, p99: size.limits.p99, memory: memory})
			large, refused, err := p.largeGang(c)
			if err != nil {
				return err
			}
			p.list = append(p.list, line{name: "large-gang", what: "gang of 1,024 nodes in groups of 8", nodes: size.nodes, f: large, p50: size.limits.large, memory: memory})
			name := fmt.Sprintf("large-gang/nodes=%d/refused", size.nodes)
			p.Result(name, refused, "fraction")
			targets = append(targets, harness.Target{Name: name, Value: refused, Unit: "fraction", Limit: 0.1}) // else the time says little
		}
		runtime.KeepAlive(c)
	}
	p.Table(table)
	small, big := found[10_000], found[100_000]
	p.Result("growth/p50", big.p50Ref/small.p50Ref, "x")
	p.Result("growth/mean", big.cpuRef/small.cpuRef, "x")
	for _, t := range append(targets,
		harness.Target{Name: "growth/p50", Value: big.p50Ref / small.p50Ref, Unit: "x", Limit: growthMost},
		harness.Target{Name: "growth/mean", Value: big.cpuRef / small.cpuRef, Unit: "x", Limit: growthMost},
	) {
		p.Target(t)
	}
	return nil
}

// churned returns a warm churn, and the live heap of its state in MB: all that
// it keeps beside the tree and the gangs, which are the caller's.
func (p *program) churned(nodes int) (c *churn, memory float64, err error) {
	tree, err := newTree(nodes)
	if err != nil {
		return nil, 0, err
	}
	state, err := placement.New(tree, placement.Config{})
	if err != nil {
		return nil, 0, err
	}
	c = newChurn(workload{nodes: nodes, percent: p.fill, release: p.release, shapes: uniform(), seed: p.Seed}, state)
	if err := c.warm(turnover); err != nil {
		return nil, 0, err
	}
	with := heap()
	c.placer, state = nil, nil
	c.request, c.plan = lockstep.Request{}, lockstep.Plan{}
	without := heap()
	runtime.KeepAlive(tree)
	// The state is gone with that measurement; another like it is made for the
	// rest, which is deterministic.
	if state, err = placement.New(tree, placement.Config{}); err != nil {
		return nil, 0, err
	}
	c = newChurn(c.workload, state)
	return c, (with - without) / 1e6, c.warm(turnover)
}

// timed returns a step of c that tells the time of its decision.
func (p *program) timed(c *churn) func() (int64, error) {
	clock := p.meter.clock
	return func() (int64, error) {
		h := c.draw()
		if err := c.room(c.shapes[h.shape].nodes); err != nil {
			return 0, err
		}
		start := clock.Nanos()
		granted, err := c.decide(h)
		took := clock.Nanos() - start
		if err != nil {
			return 0, err
		}
		c.settle(h, granted)
		return took, nil
	}
}

// report prints the results of one size and returns its targets.
func (p *program) report(nodes int, f figures, refused, memory float64, l limits) []harness.Target {
	at := fmt.Sprintf("nodes=%d/", nodes)
	p.Result(at+"rate", perSecond(f.wall), "decisions/s")
	p.Result(at+"rate-cpu", perSecond(f.cpu), "decisions/CPU-s")
	p.Result(at+"rate-ref", perSecond(f.cpuRef), "decisions/CPU-s")
	p.Result(at+"p50", micros(f.p50), "us")
	p.Result(at+"p50-ref", micros(f.p50Ref), "us")
	p.Result(at+"p99", micros(f.p99), "us")
	p.Result(at+"p99-ref", micros(f.p99Ref), "us")
	p.Result(at+"p999", micros(f.all999), "us")
	p.Result(at+"worst", micros(f.worst), "us")
	p.Result(at+"allocs", f.allocs, "allocs/op")
	p.Result(at+"refused", refused, "fraction")
	p.Result(at+"heap", memory, "MB")
	p.Result(at+"slowness", f.slowness, "x")
	p.Result(at+"allocs-total", f.allocs*float64(f.count), "allocs")
	p.Result(at+"decisions", float64(f.count), "decisions")
	p.Result(at+"interrupted", float64(f.dropped), "decisions")
	targets := []harness.Target{{Name: at + "allocs", Value: f.allocs, Unit: "allocs/op", Limit: allocsNone}}
	if l.rate > 0 {
		targets = append(targets, harness.Target{Name: at + "rate-ref", Value: perSecond(f.cpuRef), Unit: "decisions/CPU-s", Limit: l.rate, AtLeast: true})
	}
	for _, t := range []harness.Target{
		{Name: at + "p50-ref", Value: micros(f.p50Ref), Unit: "us", Limit: l.p50},
		{Name: at + "p99-ref", Value: micros(f.p99Ref), Unit: "us", Limit: l.p99},
		{Name: at + "heap", Value: memory, Unit: "MB", Limit: l.memory},
	} {
		if t.Limit > 0 {
			targets = append(targets, t)
		}
	}
	return targets
}

// The large gang: 128 groups of 8 nodes.
const (
	largeNodes = 1024
	largeGroup = 8
)

// largeGang measures a gang of 1,024 nodes on the churned cluster of c.
func (p *program) largeGang(c *churn) (f figures, refusedShare float64, err error) {
	gang := &lockstep.Gang{ID: "large", Roles: []lockstep.Role{{
		Min: largeNodes, Demand: lockstep.Demand{GPUs: nodeGPUs}, Inner: lockstep.Inner{Size: largeGroup, Level: levelRack},
	}}}
	request := lockstep.Request{Gang: gang}
	var plan lockstep.Plan
	clock := p.meter.clock
	refused, tried := 0, 0
	step := func() (int64, error) {
		for range 4 { // so that no two placements see the same cluster
			if err := c.step(); err != nil {
				return 0, err
			}
		}
		tried++
		start := clock.Nanos()
		verdict, err := c.placer.Fit(&request, &plan)
		if err == nil && verdict.Feasible {
			err = c.placer.Apply(&plan)
		}
		took := clock.Nanos() - start
		if err != nil {
			return 0, err
		}
		if !verdict.Feasible {
			refused++
			return took, nil
		}
		return took, c.placer.Release(gang.ID)
	}
	f, err = p.meter.run(p.Bench, step)
	return f, float64(refused) / float64(max(tried, 1)), err
}
