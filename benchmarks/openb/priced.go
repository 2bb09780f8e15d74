package main

import (
	"cmp"
	"slices"
)

// The rule's amounts are in worth: worthOne is a whole device.
const (
	worthBits = 10
	worthOne  = milli << worthBits
)

// The constants of priced.
const (
	lossWeight = 4                // times a lost device is worth more than one without CPU
	openDevice = 100 << worthBits // for the first share on a device
	mostBroken = 100              // thousandths of a device, for room of tasks that take several
	costGrain  = 5                // bits of cost that do not tell nodes apart
)

// When priced learns: after 32 arrivals, then after gaps that double, up to 1,024 or
// the number of nodes, whichever is more.
const (
	learnFirst = 32
	learnLeast = 1024
)

// priced places a task where the cluster loses least worth. It learns what room is
// worth from the arrivals so far and knows nothing of those to come. It is what
// placement's RulePrices does, written as plainly as can be.
type priced struct {
	cluster *cluster
	shapes  []shape
	counts  []int64 // arrivals of each shape
	sizes   [milli]int64
	since   int // arrivals since it learned
	gap     int // arrivals after which it learns again
	epoch   int

	worth   [milli + 1]int64      // of a device with so much free
	need    [milli + 1]int64      // CPU that such a device will take
	free    []int64               // of each model: worth that was free when it learned last, in thousandths of devices
	wanted  []demandSet           // least choice first, and last one for all that have more
	choosy  map[uint64][]int64    // answers of choosier so far, by set of models
	several [maxDevices + 1]int64 // thousandths of all demand that takes so many devices at once
}

func (p *priced) begin(c *cluster, l *list) {
	*p = priced{cluster: c, shapes: l.shapes, counts: make([]int64, len(l.shapes)), gap: learnFirst}
}

func (p *priced) arrive(shape int) int {
	p.counts[shape]++
	if s := &p.shapes[shape]; s.devices == 1 && s.milli < milli {
		p.sizes[s.milli]++
	}
	if p.since++; p.since >= p.gap {
		p.learn()
		p.epoch++
		p.since, p.gap = 0, min(2*p.gap, max(learnLeast, len(p.cluster.at)))
	}
	return p.epoch
}

func (p *priced) learn() {
	for r, v := range worths(&p.sizes) {
		p.worth[r] = v * worthOne >> priceBits
	}
	p.learnNeed()
	p.learnSeveral()
	p.learnChoosy()
}

// value returns what a task of shape s takes in worth.
func (p *priced) value(s *shape) int64 {
	if s.devices == 1 {
		return p.worth[s.milli]
	}
	return int64(s.devices) * worthOne
}

// learnNeed sets need to the mean CPU, for each device, of the tasks that fit and
// are worth something.
func (p *priced) learnNeed() {
	var cpu, devices [milli + 1]int64
	for i, n := range p.counts {
		if s := &p.shapes[i]; p.value(s) > 0 {
			cpu[s.milli] += n * s.cpu
			devices[s.milli] += n * int64(s.devices)
		}
	}
	sum, weight := int64(0), int64(0)
	for r := range p.need {
		sum, weight = sum+cpu[r], weight+devices[r]
		p.need[r] = sum / max(1, weight)
	}
}

func (p *priced) learnSeveral() {
	clear(p.several[:])
	all := int64(0)
	for i, n := range p.counts {
		s := &p.shapes[i]
		v := n * p.value(s) >> worthBits
		all += v
		if s.devices > 1 {
			p.several[s.devices] += v
		}
	}
	for k := range p.several {
		p.several[k] = p.several[k] * 1000 / max(1, all)
	}
}

// learnChoosy sets wanted. The demand of every set of models, scaled so that all
// demand together fills what is free, is poured over its models, level first, those
// with less choice before those with more; a set sees what was poured before it. So
// a model is held back only as far as tasks that can go to few others are about to
// use it up (Littlewood's rule of 1972, with means in place of chances).
func (p *priced) learnChoosy() {
	p.free = make([]int64, len(p.cluster.trace.models))
	total := int64(0)
	for _, s := range p.cluster.at {
		for _, f := range s.free[:s.devices] {
			v := p.worth[f] >> worthBits
			p.free[s.model] += v
			total += v
		}
	}
	demand := p.demands()
	poured := make([]int64, len(p.free))
	for i := range p.wanted {
		set := &p.wanted[i]
		set.before = slices.Clone(poured)
		pour(poured, p.free, set.models, set.demand*total/max(1, demand))
	}
	p.wanted = append(p.wanted, demandSet{choice: total + 1, before: poured})
	p.choosy = map[uint64][]int64{}
}

// demandSet is the demand of the tasks that may use one set of models.
type demandSet struct {
	models uint64
	names  []string // of the models; none for all
	choice int64    // free worth on those models
	demand int64
	before []int64 // of each model: what tasks with less choice will take
}

// order compares the choice that d leaves with that of others, of equals the names.
func (d *demandSet) order(o *demandSet) int {
	return cmp.Or(cmp.Compare(d.choice, o.choice), slices.Compare(d.names, o.names))
}

// setOf returns the set of models without its demand.
func (p *priced) setOf(models uint64) demandSet {
	d := demandSet{models: models, names: p.cluster.trace.namesOf(models)}
	for m, f := range p.free {
		d.choice += f * int64(models>>m&1)
	}
	return d
}

// demands sets wanted to the sets of models that tasks asked for, least choice first,
// and returns the demand of all together.
func (p *priced) demands() (all int64) {
	p.wanted = nil
	for i, n := range p.counts {
		s := &p.shapes[i]
		if n == 0 || s.devices == 0 {
			continue
		}
		at := slices.IndexFunc(p.wanted, func(d demandSet) bool { return d.models == s.models })
		if at < 0 {
			at = len(p.wanted)
			p.wanted = append(p.wanted, p.setOf(s.models))
		}
		v := n * p.value(s) >> worthBits
		p.wanted[at].demand += v
		all += v
	}
	slices.SortFunc(p.wanted, func(a, b demandSet) int { return a.order(&b) })
	return all
}

// choosier returns, for each model, the thousandths of its free worth that tasks will
// take which have less choice than those that may use the given models.
func (p *priced) choosier(models uint64) []int64 {
	share, ok := p.choosy[models]
	if ok {
		return share
	}
	d := p.setOf(models)
	at := slices.IndexFunc(p.wanted, func(o demandSet) bool { return o.order(&d) >= 0 })
	for m, f := range p.free {
		share = append(share, 0)
		if f > 0 {
			share[m] = min(1000, 1000*p.wanted[at].before[m]/f)
		}
	}
	p.choosy[models] = share
	return share
}

// pour spreads amount over the models of a set that have anything free, in drops,
// each where the level is lowest.
func pour(poured, free []int64, models uint64, amount int64) {
	const drops = 64
	for k := range int64(drops) {
		least := -1
		for m := range free {
			if models>>m&1 != 0 && free[m] > 0 && (least < 0 || poured[m]*free[least] < poured[least]*free[m]) {
				least = m
			}
		}
		if least < 0 {
			return
		}
		poured[least] += amount*(k+1)/drops - amount*k/drops
	}
}

// starved returns the worth of a node's free devices that lacks CPU.
func (p *priced) starved(s *state) int64 {
	if s.known == p.epoch {
		return s.memo
	}
	worth, need := int64(0), int64(0)
	for _, f := range s.free[:s.devices] {
		worth += p.worth[f]
		need += p.need[f]
	}
	s.memo, s.known = 0, p.epoch
	if s.cpu < need {
		s.memo = worth * (need - s.cpu) / need
	}
	return s.memo
}

func (*priced) grain() uint { return costGrain }

func (p *priced) cost(from, to *state, shape, device int) int64 {
	s := &p.shapes[shape]
	cost := p.starved(to) - p.starved(from)
	if s.devices == 0 {
		return cost
	}
	loss := int64(s.devices) * worthOne
	if s.devices == 1 {
		f := from.free[device]
		loss = p.worth[f] - p.worth[f-s.milli]
		if f == milli && s.milli < milli {
			cost += openDevice
		}
	}
	cost += lossWeight * loss
	if p.epoch > 0 {
		cost += loss * p.choosier(s.models)[from.model] / 1000
	}
	broken := int64(0) // room for tasks with more devices
	for k := max(to.whole, s.devices) + 1; k <= from.whole; k++ {
		broken += p.several[k]
	}
	return cost + min(broken, mostBroken)<<worthBits
}
