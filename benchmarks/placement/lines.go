package main

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// line is one kind of decision on a cluster of one size, and what it may take.
type line struct {
	name     string // of its results
	what     string
	nodes    int
	f        figures
	p50, p99 float64 // microseconds at most, at the reference; 0 is no target
	memory   float64 // MB of the state
}

// memoryLimits are the targets for the memory of a state, in MB by nodes.
var memoryLimits = map[int]float64{10_000: 20, 100_000: 200}

// growthMost is the most that ten times the nodes may multiply the time of a decision
// by, where that is judged.
const growthMost = 3

// lines prints the table of the targets, line by line, and judges them.
func (p *program) lines(list []line) {
	table := &harness.Table{Head: []string{
		"decision", "nodes", "p50 us", "p99 us", "p50 ref", "want", "p99 ref", "want", "10k to 100k", "allocs", "MB", "want", "slowness",
	}}
	want := func(limit float64) string {
		if limit == 0 {
			return "-"
		}
		return "<= " + harness.Number(limit)
	}
	small := make(map[string]float64)
	for i := range list {
		l := &list[i]
		growth := "-"
		if s, ok := small[l.name]; ok {
			growth = harness.Number(l.f.p50Ref/s) + "x"
			if l.name != "whole" { // whose growth is judged with its other figures
				p.Result("growth/"+l.name, l.f.p50Ref/s, "x")
			}
		}
		small[l.name] = l.f.p50Ref
		table.Add(l.what, fmt.Sprint(l.nodes), harness.Number(micros(l.f.p50)), harness.Number(micros(l.f.p99)),
			harness.Number(micros(l.f.p50Ref)), want(l.p50), harness.Number(micros(l.f.p99Ref)), want(l.p99),
			growth, harness.Number(l.f.allocs), harness.Number(l.memory), want(memoryLimits[l.nodes]), harness.Number(l.f.slowness))
	}
	p.Table(table)
	for i := range list {
		if list[i].name != "whole" {
			p.judge(&list[i])
		}
	}
}

// judge prints the results of a line and its targets.
func (p *program) judge(l *line) {
	at := fmt.Sprintf("%s/nodes=%d/", l.name, l.nodes)
	p.Result(at+"p50", micros(l.f.p50), "us")
	p.Result(at+"p50-ref", micros(l.f.p50Ref), "us")
	p.Result(at+"p99", micros(l.f.p99), "us")
	p.Result(at+"p99-ref", micros(l.f.p99Ref), "us")
	p.Result(at+"worst", micros(l.f.worst), "us")
	p.Result(at+"allocs", l.f.allocs, "allocs/op")
	p.Result(at+"heap", l.memory, "MB")
	p.Result(at+"decisions", float64(l.f.count), "decisions")
	for _, t := range []harness.Target{
		{Name: at + "p50-ref", Value: micros(l.f.p50Ref), Unit: "us", Limit: l.p50},
		{Name: at + "p99-ref", Value: micros(l.f.p99Ref), Unit: "us", Limit: l.p99},
		{Name: at + "heap", Value: l.memory, Unit: "MB", Limit: memoryLimits[l.nodes]},
	} {
		if t.Limit > 0 {
			p.Target(t)
		}
	}
	p.Target(harness.Target{Name: at + "allocs", Value: l.f.allocs, Unit: "allocs/op", Limit: allocsNone})
}
