package main

import (
	"fmt"
	"math"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// slack is how many standard errors a quick run may miss a target by: it has few jobs.
const slack = 3

// atLeast judges a share of n that is to be want or more.
func (p *program) atLeast(name string, share float64, n int, want float64) {
	if p.Quick {
		want -= slack * math.Sqrt(want*(1-want)/float64(max(n, 1)))
	}
	p.Target(harness.Target{Name: name, Value: share, Unit: "share", Limit: want, AtLeast: true})
}

// atMost judges a rate per job.
func (p *program) atMost(name string, rate float64, want float64) {
	if p.Quick {
		want += slack * math.Sqrt(want/float64(p.jobs))
	}
	p.Target(harness.Target{Name: name, Value: rate, Unit: "a job", Limit: want})
}

// judge states what every cell should show.
func (p *program) judge() {
	p.Printf("\n## targets\n")
	for _, s := range p.scores {
		p.judgeChunks(s)
		p.judgeTimes(s)
		p.judgeLimit(s)
	}
	p.judgeLoss()
	for _, s := range p.scores {
		p.dominate(s)
	}
}

// judgeChunks judges steps and ramps with chunk times.
func (p *program) judgeChunks(s *score) {
	i := find(p.list, "ours-chunks")
	stepped := s.Kind == step && s.Factor >= 1.1
	ramped := s.Kind == ramp && s.Factor >= 1.1
	if s.Context != k32 || s.Replicas != 2 || s.Loss || !stepped && !ramped {
		return
	}
	name := s.name() + "/chunks"
	p.atMost(name+"/false-alarms", s.falseAlarms(i), 0.03)
	if ramped {
		p.atLeast(name+"/recall", s.recall(i), s.Faulty, 0.95)
		return
	}
	p.atLeast(name+"/recall", s.recall(i), s.Faulty, 0.98)
	p.Target(harness.Target{Name: name + "/delay", Value: s.delay(i), Unit: "iterations", Limit: 6})
	p.atLeast(name+"/top-1", s.top(i), s.Tallies[i].Found, 0.97)
}

// judgeTimes judges iteration times alone.
func (p *program) judgeTimes(s *score) {
	if s.Context != k32 || s.Loss || s.Kind != step || s.Factor != 1.3 {
		return
	}
	i := find(p.list, "ours-iteration")
	name := s.name() + "/times"
	p.atMost(name+"/false-alarms", s.falseAlarms(i), 0.10)
	recall, delay := 0.95, 12.0
	if s.Replicas > 2 {
		recall, delay = 0.88, 16
	}
	p.atLeast(name+"/recall", s.recall(i), s.Faulty, recall)
	p.Target(harness.Target{Name: name + "/delay", Value: s.delay(i), Unit: "iterations", Limit: delay})
	if s.Replicas*p.Stages == 8 {
		p.atLeast(name+"/top-1", s.top(i), s.Tallies[i].Found, 0.5)
	}
}

// judgeLimit judges whether the minimum detectable slowdown is what it says.
func (p *program) judgeLimit(s *score) {
	name := "ours-iteration"
	switch s.Kind {
	case chunkLimit:
		name = "ours-chunks"
	case limit:
	default:
		return
	}
	found := s.recall(find(p.list, name))
	p.atLeast(s.name()+"/found", found, s.Faulty-s.Unseen, 0.5)
	most := 0.7
	if p.Quick {
		most += slack * math.Sqrt(most*(1-most)/float64(max(s.Faulty, 1)))
	}
	p.Target(harness.Target{Name: s.name() + "/found", Value: found, Unit: "share", Limit: most})
}

// judgeLoss judges the cells with a loss layer together: few of their faults show.
func (p *program) judgeLoss() {
	i := find(p.list, "ours-iteration")
	for _, replicas := range []int{2, 4} {
		found, all, alarms, jobs := 0, 0, 0, 0
		for _, s := range p.scores {
			if s.Loss && s.Kind == step && s.Replicas == replicas {
				found += s.Tallies[i].Large
				all += s.Large
				alarms += s.Tallies[i].False
				jobs += s.Jobs
			}
		}
		if all == 0 {
			continue
		}
		name := fmt.Sprintf("%s/32K/D%d/loss/times", step, replicas)
		want := 0.95
		if replicas > 2 {
			want = 0.88
		}
		p.Result(name+"/faults-that-show", float64(all), "faults")
		p.atLeast(name+"/recall-of-those-that-show", share(found, all), all, want)
		p.atMost(name+"/false-alarms", share(alarms, jobs), 0.10)
	}
}

// dominate judges that no baseline finds more at no more false alarms: ours, told no more than it,
// at a rung with at most as many false alarms, or mixed of that and the next one by chance such
// that both have as many, has to find at least as much, but for the error of so few jobs. Where a
// baseline is ahead within that error, a note says so. In a cell about links, chunk times tell
// nothing, and what is told of them is not compared.
func (p *program) dominate(s *score) {
	ahead, within := 0, 0
	for i, e := range p.list {
		if e.ours || e.sees == chunks && s.Kind == link {
			continue
		}
		ours, theirs := p.at(s, e.sees, s.falseAlarms(i)), s.recall(i)
		if ours >= theirs {
			continue
		}
		p.Note(fmt.Sprintf("%s: %s finds %.3f at %.3f false alarms, ours at as many %.3f", s.name(), e.name, theirs, s.falseAlarms(i), ours))
		n := float64(max(s.Faulty-s.Unseen, 1))
		if theirs-ours > slack*math.Sqrt((ours*(1-ours)+theirs*(1-theirs)+1/n)/n) {
			ahead++
		} else {
			within++
		}
	}
	p.Result(s.name()+"/ahead-within-error", float64(within), "baselines")
	p.Target(harness.Target{Name: s.name() + "/dominated", Value: float64(ahead), Unit: "baselines ahead", Limit: 0})
}

// at returns what ours finds at so many false alarms.
func (p *program) at(s *score, told sees, falseAlarms float64) float64 {
	best, next, nextAt := 0.0, 1.0, math.Inf(1)
	bestAt := 0.0
	for j, o := range p.list {
		if !o.ours || o.sees > told {
			continue
		}
		at, recall := s.falseAlarms(j), s.recall(j)
		switch {
		case at <= falseAlarms && recall >= best:
			best, bestAt = recall, at
		case at > falseAlarms && at < nextAt:
			next, nextAt = recall, at
		}
	}
	if next > best && nextAt > bestAt && !math.IsInf(nextAt, 1) {
		best += (next - best) * (falseAlarms - bestAt) / (nextAt - bestAt)
	}
	return best
}
