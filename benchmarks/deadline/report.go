package main

import (
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// The rows that stand beside published ones.
const (
	exact    = "ours"
	slotwise = "ours, in slots, with pauses"
	planned  = "ours, pauses planned"
	gangwise = "ours, gangs as asked"
	widest   = "EDF, widest"
	las      = "LAS, 3 queues"
)

// quickTraces are those that -quick replays.
var quickTraces = []string{"195job", "cluster01", "cluster03", "cluster10"}

// elasticFlow replays ElasticFlow's traces.
func (p *program) elasticFlow() error {
	if p.absent("elasticflow-asplos23") {
		return nil
	}
	folder := filepath.Join(p.traces, "elasticflow-asplos23")
	models, err := curves(folder)
	if err != nil {
		return err
	}
	table := &harness.Table{Head: []string{"trace, devices", "policy", "jobs", "admitted", "met", "missed", "met/jobs", "published", "mean JCT s", "resizes"}}
	for i := range elasticFlow {
		t := &elasticFlow[i]
		if p.Quick && !slices.Contains(quickTraces, t.name) {
			continue
		}
		all, err := jobs(filepath.Join(folder, t.name+".csv"), models)
		if err != nil {
			return err
		}
		if err := p.trace(table, t, all); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	p.Table(table)
	p.Note("met counts jobs that end by their deadlines, of all that came; missed those that were admitted and do not. Without admission all are. JCT is the mean over those that ended, so without those refused, which are not the shortest.")
	return p.figure10(folder)
}

// trace is the rows of one trace.
func (p *program) trace(table *harness.Table, t *published, all []*job) error {
	alone := 0
	for _, j := range all {
		if j.work <= j.points[len(j.points)-1].Rate*(j.deadline-j.submit) {
			alone++
		}
	}
	p.Result(t.name+"/alone", float64(alone)/float64(len(all)), "of jobs could meet their deadlines alone on all devices")
	free, err := admission(all, world{gpus: t.gpus, spread: elastic.Config{Rule: elastic.Service}})
	if err != nil {
		return err
	}
	p.row(table, t, exact, free)
	like, err := admission(all, t.world())
	if err != nil {
		return err
	}
	p.row(table, t, slotwise, like)
	w := t.world()
	w.planned = true
	safe, err := admission(all, w)
	if err != nil {
		return err
	}
	p.row(table, t, planned, safe)
	list := make([]gang, len(all))
	for i, j := range all {
		n, rate := j.asked()
		list[i] = gang{id: j.id, gpus: n, submit: j.submit, length: (j.work + rate - 1) / rate, deadline: j.deadline}
	}
	gangs, err := slots(list, t.gpus, 240, true)
	if err != nil {
		return err
	}
	p.row(table, t, gangwise, gangs.outcome)
	for i := range baselines {
		p.row(table, t, baselines[i].name, baselines[i].replay(all, t.gpus))
	}
	p.Target(harness.Target{Name: t.name + "/missed", Value: float64(free.missed + gangs.missed + safe.missed), Unit: "admitted jobs", Limit: 0})
	p.Target(harness.Target{Name: t.name + "/ratio", Value: free.ratio(), Unit: "of jobs", Limit: t.elastic, AtLeast: true})
	p.Target(harness.Target{Name: t.name + "/ratio-in-slots", Value: like.ratio(), Unit: "of jobs", Limit: t.elastic, AtLeast: true})
	p.Target(harness.Target{Name: t.name + "/ratio-gangs", Value: gangs.ratio(), Unit: "of jobs", Limit: t.chronus, AtLeast: true})
	if safe.ratio() < t.elastic {
		p.Note(fmt.Sprintf("not reached: %s with pauses planned meets %s of its deadlines, ElasticFlow, which plans none, %s", t.name, fraction(safe.ratio()), fraction(t.elastic)))
	}
	if like.missed > 0 {
		p.Note(fmt.Sprintf("%s, in slots, with pauses: %d of %d admitted jobs missed, the latest by %.0f s: a pause is no part of a plan", t.name, like.missed, like.admitted, like.latest))
	}
	return nil
}

// world is what the authors' simulator takes for granted: decisions once in a slot, and a pause of each job at each of them,
// which is longer for one that is resized (estimate_overhead in ElasticFlow/scheduler/utils.py). Plans end a slot early
// for that.
func (t *published) world() world {
	slot, base := 240*second, 2*second
	if t.simulated {
		slot = 60 * second
	}
	if t.gpus >= 256 {
		base = 7 * second
	}
	return world{
		gpus: t.gpus, slot: slot, allowance: slot, spread: elastic.Config{Rule: elastic.Service},
		pause: func(gpus int, resized bool) int64 {
			if !resized {
				return base
			}
			return base + 2*second*int64(bits.Len(uint(gpus)))
		},
	}
}

// row adds one row.
func (p *program) row(table *harness.Table, t *published, name string, o outcome) {
	beside := "-"
	if who, v, ok := t.ratio(name); ok {
		beside = who + " " + fraction(v)
	}
	resizes := "-"
	if o.resizes > 0 {
		resizes = count(o.resizes)
	}
	table.Add(fmt.Sprintf("%s, %d", t.name, t.gpus), name, count(o.jobs), count(o.admitted), count(o.met), count(o.missed), fraction(o.ratio()), beside, harness.Number(o.jct), resizes)
}

// figure10 prints the authors' own run of which the outcome by job is public and the trace is not.
func (p *program) figure10(folder string) error {
	table := &harness.Table{Head: []string{"published run of 100 jobs on 128 devices", "jobs", "met", "mean JCT s"}}
	for _, policy := range []struct{ name, folder string }{{"ElasticFlow", "ef-accessctrl"}, {"Tiresias", "dlas-gpu"}, {"EDF", "edf"}, {"Gandiva", "gandiva"}} {
		t, err := readTable(filepath.Join(folder, "results_fig10", policy.folder, "job.csv"))
		if err != nil {
			return err
		}
		met, sum := 0, 0.0
		for row := range t.rows {
			var v [3]float64
			for i, name := range []string{"end_time", "ddl", "JCT"} {
				if v[i], err = t.number(row, name); err != nil {
					return err
				}
			}
			if v[0] <= v[1] {
				met++
			}
			sum += v[2]
		}
		table.Add(policy.name, count(len(t.rows)), count(met), harness.Number(sum/float64(max(len(t.rows), 1))))
	}
	p.Table(table)
	p.Note("its jobs' models and iterations were not published, so that ours cannot be put beside it")
	return nil
}

// Where Chronus' authors ran their traces.
const (
	chronusGPUs  = 120 * 8
	chronusLease = int64(20 * time.Minute / time.Second)
	quickJobs    = 12_000
)

// chronus replays Chronus' traces.
func (p *program) chronus() error {
	if p.absent("chronus-socc21") {
		return nil
	}
	for _, name := range []string{"MIX1", "SLO"} {
		list, dropped, err := gangs(chronusFile(p.traces, name))
		if err != nil {
			return err
		}
		if p.Quick {
			list = list[:min(len(list), quickJobs)]
		}
		p.Input("chronus/"+name, fmt.Sprintf("%d jobs on %d devices in slots of %d s; %d rows that ask for no device are left out", len(list), chronusGPUs, chronusLease, dropped))
		if err := p.mix(name, list); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// mix is the rows of one trace of Chronus.
func (p *program) mix(name string, list []gang) error {
	table := &harness.Table{Head: []string{name, "with deadline", "admitted", "met", "missed", "met/jobs", "met/device-hours", "mean JCT s", "best effort", "mean JCT s"}}
	row := func(policy string, o slotted) {
		table.Add(policy, count(o.jobs), count(o.admitted), count(o.met), count(o.missed), fraction(o.ratio()), fraction(float64(o.kept)/float64(max(o.asked, 1))),
			harness.Number(o.jct), count(o.bestEffort), harness.Number(o.bestEffortJCT))
	}
	ours := make([]slotted, 2)
	for i, eager := range []bool{false, true} {
		var err error
		if ours[i], err = slots(slices.Clone(list), chronusGPUs, chronusLease, eager); err != nil {
			return err
		}
	}
	row("ours", ours[0])
	row("ours, eager", ours[1])
	best := ours[1]
	others := make([]slotted, len(rivals))
	for i, r := range rivals {
		others[i] = r.replay(slices.Clone(list), chronusGPUs, chronusLease)
		row(r.name, others[i])
	}
	p.Table(table)
	p.Target(harness.Target{Name: "chronus/" + name + "/missed", Value: float64(ours[0].missed + ours[1].missed), Unit: "admitted jobs", Limit: 0})
	misses, sooner := 0.0, 0.0
	for i, r := range rivals {
		o := others[i]
		if o.ratio() > best.ratio() {
			p.Note(fmt.Sprintf("not reached: %s without admission meets %s of %s's deadlines, ours, eager, %s", r.name, fraction(o.ratio()), name, fraction(best.ratio())))
		}
		misses = max(misses, (1-o.ratio())/(1-best.ratio()))
		if best.bestEffortJCT > 0 {
			sooner = max(sooner, o.bestEffortJCT/best.bestEffortJCT)
		}
	}
	p.Result("chronus/"+name+"/fewer-misses-at-most", misses, fmt.Sprintf("times, those refused included (Chronus claims up to %v against its own rivals)", chronusMisses))
	if best.bestEffort > 0 {
		p.Result("chronus/"+name+"/best-effort-sooner-at-most", sooner, fmt.Sprintf("times (Chronus claims up to %v)", chronusBestEffort))
		p.Target(harness.Target{Name: "chronus/" + name + "/ratio-beside-EDF", Value: best.ratio(), Unit: "of jobs", Limit: others[0].ratio(), AtLeast: true})
	}
	return nil
}
