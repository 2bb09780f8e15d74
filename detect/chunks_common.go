package detect

import (
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

const (
	commonWeight = 20.0   // weight, in samples, of what is expected of the replicas' common part beforehand
	likelyShared = 0.5    // that expectation
	commonMemory = 4096.0 // samples over which the common part is learned
	anewAfter    = 10.0   // samples that a level is as uncertain as the mean of, once it was taken to have changed
)

// center takes off the samples of a stage what the other replicas have in common.
func (t *ChunkTest) center(stage int) {
	c := &t.cfg
	t.sorted = t.sorted[:0]
	for r := range c.Replicas {
		p, x := &t.places[r*c.Stages+stage], t.samples[r*c.Stages+stage]
		t.rises[r] = math.NaN()
		if !p.learning() && !p.standing && !math.IsNaN(x) {
			t.rises[r] = x - p.series.level
			t.sorted = append(t.sorted, t.rises[r])
		}
	}
	slices.Sort(t.sorted)
	for r, rise := range t.rises {
		p := &t.places[r*c.Stages+stage]
		n := len(t.sorted)
		if p.learning() || n == 0 || !math.IsNaN(rise) && n == 1 {
			continue
		}
		common := num.Median(t.sorted)
		if !math.IsNaN(rise) {
			at, _ := slices.BinarySearch(t.sorted, rise)
			common = middleWithout(t.sorted, at)
			t.relate(p, rise, common)
		}
		// A large common part is real, a small one mostly noise of the others.
		_, noise := density(common * common / t.variance(p))
		t.samples[r*c.Stages+stage] -= float64((1 - float64((1-t.shared)*noise)) * common)
	}
}

// middleWithout returns the median of a sorted slice of two or more without one entry.
func middleWithout(sorted []float64, at int) float64 {
	pick := func(i int) float64 {
		if i >= at {
			i++
		}
		return sorted[i]
	}
	n := len(sorted) - 1
	return float64(pick((n-1)/2)/2) + float64(pick(n/2)/2)
}

// variance is that of the common part.
func (t *ChunkTest) variance(p *place) float64 {
	before := p.series.spread()
	return (t.square + float64(commonWeight*before)) / (t.count + commonWeight)
}

// relate learns how much of a common part a place shares.
func (t *ChunkTest) relate(p *place, rise, common float64) {
	before := p.series.spread()
	sd := math.Sqrt(before)
	rise, common = num.Clip(rise, learnClip*sd), num.Clip(common, learnClip*sd)
	t.joint += float64(rise * common)
	t.square += float64(common * common)
	t.count++
	if most := commonMemory * float64(len(t.places)); t.count > most {
		part := most / t.count
		t.joint, t.square, t.count = float64(t.joint*part), float64(t.square*part), most
	}
	weight := float64(commonWeight * before)
	t.shared = min(max((t.joint+float64(likelyShared*weight))/(t.square+weight), 0), 1)
}

// together says that most of the other replicas show a fault at the stage of a place as well, if
// not as clearly: then it is not of one device.
func (t *ChunkTest) together(i int) bool {
	peers, rising := 0, 0
	for j := i % t.cfg.Stages; j < len(t.places); j += t.cfg.Stages {
		p := &t.places[j]
		if j == i || p.learning() || p.standing {
			continue
		}
		peers++
		if p.odds*p.odds >= t.limit {
			rising++
		}
	}
	return rising*2 > peers
}

// rebase takes what a stage shows now for its healthy level, in all replicas that show it.
func (t *ChunkTest) rebase(stage int) {
	for j := stage; j < len(t.places); j += t.cfg.Stages {
		p := &t.places[j]
		if p.learning() || p.standing || p.odds*p.odds < t.limit {
			continue
		}
		s := &p.series
		rise := p.shift()
		s.level += rise
		s.top += rise
		s.last = s.level
		s.unsure = max(s.unsure, s.noise/float64((1-s.keep)*(1-s.keep)*anewAfter))
		s.ready()
		p.odds = 0
		for k := range p.branches {
			p.branches[k].start(s)
		}
	}
}
