package main

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// A baseline plans as another system does, or as an operator would. It returns a plan
// to be evaluated, and false if it has none: then the job stands still. Baselines are
// given the benefit of the doubt: their layers and micro-batches are divided as well
// as their layout allows, memory never stops them, and they may use the simulation.
type baseline struct {
	name string
	plan func(s situation) (*reconfig.Plan, bool)
}

// situation is a job whose devices have changed.
type situation struct {
	job  reconfig.Job
	devs []reconfig.Device
	prev *reconfig.Plan
}

// baselines are the columns of the table.
func baselines() []baseline {
	return []baseline{
		{"no action", noAction},
		{"drop replica", dropReplica},
		{"drop TP group (Oobleck)", dropGroup},
		{"re-route (ReCycle)", reroute},
		{"greedy uniform (ResiHP)", greedyUniform},
	}
}

// speeds returns how fast each device is that may be used.
func (s situation) speeds() map[lockstep.DeviceID]float64 {
	out := make(map[lockstep.DeviceID]float64, len(s.devs))
	for _, d := range s.devs {
		if d.State == reconfig.Up && d.Speed > 0 {
			out[d.ID] = d.Speed
		}
	}
	return out
}

// layout is what a baseline decides: for each replica its groups and layers.
type layout struct {
	numbers []int
	groups  [][][]lockstep.DeviceID
	layers  [][]int
}

// of returns the layout of a plan.
func of(p *reconfig.Plan) layout {
	var l layout
	for _, r := range p.Replicas {
		var groups [][]lockstep.DeviceID
		var layers []int
		for _, st := range r.Stages {
			groups, layers = append(groups, st.Devices), append(layers, st.Layers())
		}
		l.numbers = append(l.numbers, r.Number)
		l.groups = append(l.groups, groups)
		l.layers = append(l.layers, layers)
	}
	return l
}

// plan writes a layout as a plan, with the micro-batches divided evenly.
func (l layout) plan(micros int) (*reconfig.Plan, bool) {
	n := len(l.groups)
	if n == 0 || micros < n {
		return nil, false
	}
	p := &reconfig.Plan{Version: 1}
	for i, groups := range l.groups {
		r := reconfig.Replica{Number: l.numbers[i]}
		at := 0
		for j, g := range groups {
			r.Stages = append(r.Stages, reconfig.Stage{Devices: g, Spans: []reconfig.Span{{First: at, Layers: l.layers[i][j]}}})
			at += l.layers[i][j]
		}
		p.Replicas = append(p.Replicas, r)
		share := micros / n
		if i < micros%n {
			share++
		}
		p.Split = append(p.Split, share)
	}
	return p, true
}

// rounds bounds the evaluations that a baseline's split is improved by.
const rounds = 40

// balanced moves micro-batches from the slowest replica to the one that would then
// take least, for as long as that helps.
func (s situation) balanced(p *reconfig.Plan) (*reconfig.Plan, bool) {
	e, err := reconfig.Evaluate(s.job, s.devs, p)
	if err != nil {
		return nil, false
	}
	step := make([]time.Duration, len(p.Split)) // of one more micro-batch
	for i, r := range p.Replicas {
		step[i] = s.bottleneck(r)
	}
	best := e.Iteration
	for range rounds {
		next := slices.Clone(p.Split)
		times := slices.Clone(e.Replicas)
		for range p.Split { // as many as there are replicas, by the linear model
			from, to := 0, 0
			for i := range times {
				if times[i] > times[from] && next[i] > 0 {
					from = i
				}
				if times[i]+step[i] < times[to]+step[to] {
					to = i
				}
			}
			if times[to]+step[to] >= times[from] {
				break
			}
			next[from], next[to] = next[from]-1, next[to]+1
			times[from], times[to] = times[from]-step[from], times[to]+step[to]
		}
		if slices.Equal(next, p.Split) {
			break
		}
		q := *p
		q.Split = next
		better, err := reconfig.Evaluate(s.job, s.devs, &q)
		if err != nil || better.Iteration >= best {
			break
		}
		p, e, best = &q, better, better.Iteration
	}
	return p, true
}

// bottleneck returns what the slowest stage of a replica takes for one micro-batch.
func (s situation) bottleneck(r reconfig.Replica) time.Duration {
	speeds, worst := s.speeds(), 0.0
	for i, st := range r.Stages {
		worst = max(worst, s.work(st.Layers(), i == 0, i == len(r.Stages)-1)/rate(st.Devices, speeds))
	}
	return time.Duration(worst)
}

// work returns what layers take on one healthy device, in nanoseconds.
func (s situation) work(layers int, first, last bool) float64 {
	c := s.job.Costs
	one := func(k reconfig.Cost) float64 { return float64(k.Forward + k.Backward + k.Weight) }
	sum := float64(layers) * one(c.Layer)
	if first {
		sum += one(c.Embed)
	}
	if last {
		sum += one(c.Head)
	}
	return sum
}

// rate returns how fast a group is, in healthy devices; 0 if one of it is dead.
func rate(devs []lockstep.DeviceID, speeds map[lockstep.DeviceID]float64) float64 {
	least := 1.0
	for _, id := range devs {
		least = min(least, speeds[id])
	}
	return least * float64(len(devs))
}

// noAction goes on as before: a dead device stops the job.
func noAction(s situation) (*reconfig.Plan, bool) {
	speeds := s.speeds()
	for _, r := range s.prev.Replicas {
		for _, st := range r.Stages {
			if rate(st.Devices, speeds) == 0 {
				return nil, false
			}
		}
	}
	return s.prev, true
}

// dropReplica goes on without the replicas that lost a device, or, if that is better,
// without those that have a slow one as well.
func dropReplica(s situation) (*reconfig.Plan, bool) {
	speeds := s.speeds()
	var best *reconfig.Plan
	for _, least := range []float64{1e-6, 1} {
		l, all := layout{}, of(s.prev)
		for i, groups := range all.groups {
			if !slices.ContainsFunc(groups, func(g []lockstep.DeviceID) bool { return rate(g, speeds) < least*float64(len(g)) }) {
				l.numbers, l.groups, l.layers = append(l.numbers, all.numbers[i]), append(l.groups, groups), append(l.layers, all.layers[i])
			}
		}
		if p, ok := l.plan(s.job.Micros); ok {
			best = s.better(best, p)
		}
	}
	return best, best != nil
}

// better returns the faster of a plan and another one, whose split it improves.
func (s situation) better(best, p *reconfig.Plan) *reconfig.Plan {
	p, ok := s.balanced(p)
	if !ok {
		return best
	}
	e, err := reconfig.Evaluate(s.job, s.devs, p)
	if err != nil {
		return best
	}
	if best != nil {
		if b, err := reconfig.Evaluate(s.job, s.devs, best); err == nil && b.Iteration <= e.Iteration {
			return best
		}
	}
	return p
}

// dropGroup goes on without the groups that lost a device, each pipeline with fewer
// stages, and with the micro-batches divided anew; slow groups get fewer layers.
func dropGroup(s situation) (*reconfig.Plan, bool) {
	speeds := s.speeds()
	l, all := layout{}, of(s.prev)
	for i, groups := range all.groups {
		var kept [][]lockstep.DeviceID
		for _, g := range groups {
			if rate(g, speeds) > 0 {
				kept = append(kept, g)
			}
		}
		if len(kept) == 0 {
			continue
		}
		layers := all.layers[i]
		if len(kept) < len(groups) {
			layers = s.divide(kept, speeds)
		}
		l.numbers, l.groups, l.layers = append(l.numbers, all.numbers[i]), append(l.groups, kept), append(l.layers, layers)
	}
	p, ok := l.plan(s.job.Micros)
	if !ok {
		return nil, false
	}
	return s.balanced(p)
}

// divide gives each next layer to the group that then takes least.
func (s situation) divide(groups [][]lockstep.DeviceID, speeds map[lockstep.DeviceID]float64) []int {
	rates := make([]float64, len(groups))
	for i, g := range groups {
		rates[i] = rate(g, speeds)
	}
	return s.divideRates(rates)
}

func (s situation) divideRates(rates []float64) []int {
	n := make([]int, len(rates))
	for i := range n {
		n[i] = 1
	}
	for range s.job.Model.Layers - len(n) {
		best, least := -1, 0.0
		for i := range n {
			took := s.work(n[i]+1, i == 0, i == len(n)-1) / rates[i]
			if best < 0 || took < least {
				best, least = i, took
			}
		}
		n[best]++
	}
	return n
}

// reroute has the work of groups that lost a device done by the same stage of the
// other replicas, in turn. A stage without any peer stops the job.
func reroute(s situation) (*reconfig.Plan, bool) {
	speeds := s.speeds()
	anyone := s.anyone(speeds)
	if anyone == nil {
		return nil, false
	}
	l := of(s.prev)
	p, ok := l.plan(s.job.Micros)
	if !ok {
		return nil, false
	}
	for st := range l.groups[0] {
		var hosts []int
		for i := range l.groups {
			if st < len(l.groups[i]) && rate(l.groups[i][st], speeds) > 0 {
				hosts = append(hosts, i)
			}
		}
		turn := 0
		for i := range l.groups {
			if st >= len(l.groups[i]) || rate(l.groups[i][st], speeds) > 0 {
				continue
			}
			if len(hosts) == 0 {
				return nil, false
			}
			p.Replicas[i].Stages[st].Devices = anyone
			for m := range p.Split[i] {
				p.Migrations = append(p.Migrations, reconfig.Migration{Stage: st, Owner: i, Host: hosts[turn%len(hosts)], Micro: m})
				turn++
			}
		}
	}
	if len(p.Migrations) == 0 {
		return s.balanced(p)
	}
	_, err := reconfig.Evaluate(s.job, s.devs, p)
	return p, err == nil
}

// greedyUniform shrinks each group to its fastest part of a power of two, then gives
// all replicas the layers that suit the slowest group of each stage, then divides the
// micro-batches.
func greedyUniform(s situation) (*reconfig.Plan, bool) {
	speeds := s.speeds()
	l := of(s.prev)
	var worst []float64
	for i, groups := range l.groups {
		for st, g := range groups {
			best := subgroup(g, speeds)
			if best == nil {
				return dropGroup(s) // a stage is gone: it has no rule but to leave it out
			}
			l.groups[i][st] = best
			if i == 0 {
				worst = append(worst, rate(best, speeds))
			} else if st < len(worst) {
				worst[st] = min(worst[st], rate(best, speeds))
			}
		}
	}
	layers := s.divideRates(worst)
	for i := range l.layers {
		if len(l.layers[i]) != len(layers) {
			return nil, false
		}
		l.layers[i] = layers
	}
	p, ok := l.plan(s.job.Micros)
	if !ok {
		return nil, false
	}
	return s.balanced(p)
}

// migrating does as greedyUniform, and then has micro-batches of slow groups, and all of dead ones, computed by the same
// stage of other replicas until no other helps (as published for ResiHP; its parameter, the gap, is 0).
func migrating(s situation) (*reconfig.Plan, bool) {
	plain, ok := greedyUniform(s)
	p, rates := s.uniform()
	if p == nil {
		return plain, ok
	}
	for st := range rates[0] {
		column := make([]float64, len(rates))
		for i := range rates {
			column[i] = rates[i][st]
		}
		p.Migrations = append(p.Migrations, leveled(p.Split, column, st)...)
	}
	e, err := reconfig.Evaluate(s.job, s.devs, p)
	if err != nil {
		return plain, ok
	}
	if ok {
		if other, err := reconfig.Evaluate(s.job, s.devs, plain); err == nil && other.Iteration <= e.Iteration {
			return plain, ok
		}
	}
	return p, true
}

// uniform returns the layout of before with each group shrunk to its best part and the same layers in all replicas, and
// how fast each group is, by replica and stage; nil if a stage is dead in all replicas. Groups of which nobody is left
// are stood in for by some device that must do nothing.
func (s situation) uniform() (*reconfig.Plan, [][]float64) {
	speeds, l := s.speeds(), of(s.prev)
	worst := make([]float64, len(l.groups[0]))
	rates := make([][]float64, len(l.groups))
	for i, groups := range l.groups {
		if len(groups) != len(worst) {
			return nil, nil
		}
		rates[i] = make([]float64, len(worst))
		for st, g := range groups {
			if best := subgroup(g, speeds); best != nil {
				groups[st], rates[i][st] = best, rate(best, speeds)
				if worst[st] == 0 || rates[i][st] < worst[st] {
					worst[st] = rates[i][st]
				}
			} else {
				groups[st] = nil
			}
		}
	}
	if slices.Contains(worst, 0) {
		return nil, nil
	}
	layers := s.divideRates(worst)
	for i, groups := range l.groups {
		l.layers[i] = layers
		for st := range groups {
			if groups[st] == nil {
				groups[st] = s.anyone(speeds)
			}
		}
	}
	p, ok := l.plan(s.job.Micros)
	if !ok {
		return nil, nil
	}
	return p, rates
}

// leveled returns the migrations at one stage: from the replica that takes longest to the one that then takes least.
func leveled(split []int, rates []float64, stage int) []reconfig.Migration {
	count, own := slices.Clone(split), slices.Clone(split)
	var out []reconfig.Migration
	for {
		from, to := -1, -1
		load := func(i, more int) float64 { return float64(count[i]+more) / rates[i] }
		for i := range count {
			if own[i] > 0 && (from < 0 || load(i, 0) > load(from, 0)) {
				from = i
			}
			if rates[i] > 0 && (to < 0 || load(i, 1) < load(to, 1)) {
				to = i
			}
		}
		if from < 0 || from == to || load(to, 1) >= load(from, 0) {
			break
		}
		own[from]--
		count[from], count[to] = count[from]-1, count[to]+1
		out = append(out, reconfig.Migration{Stage: stage, Owner: from, Host: to})
	}
	next := make([]int, len(split))
	for n := range out { // spread evenly over the owner's
		m := &out[n]
		moved := split[m.Owner] - own[m.Owner]
		m.Micro = (2*next[m.Owner] + 1) * split[m.Owner] / (2 * moved)
		next[m.Owner]++
	}
	return out
}

// anyone returns a device that works, to stand in for a group of which nobody is left and that does nothing.
func (s situation) anyone(speeds map[lockstep.DeviceID]float64) []lockstep.DeviceID {
	for _, d := range s.devs {
		if speeds[d.ID] > 0 {
			return []lockstep.DeviceID{d.ID}
		}
	}
	return nil
}

// subgroup returns the devices whose number, a power of two, times the slowest of them
// is greatest.
func subgroup(g []lockstep.DeviceID, speeds map[lockstep.DeviceID]float64) []lockstep.DeviceID {
	live := slices.DeleteFunc(slices.Clone(g), func(id lockstep.DeviceID) bool { return speeds[id] == 0 })
	slices.SortStableFunc(live, func(a, b lockstep.DeviceID) int {
		switch {
		case speeds[a] > speeds[b]:
			return -1
		case speeds[a] < speeds[b]:
			return 1
		}
		return 0
	})
	best, fastest := 0, 0.0
	for k := 1; k <= len(live); k *= 2 {
		if r := float64(k) * speeds[live[k-1]]; r > fastest {
			best, fastest = k, r
		}
	}
	if best == 0 {
		return nil
	}
	return live[:best]
}
