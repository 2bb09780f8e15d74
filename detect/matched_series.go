package detect

import (
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

// What noise is taken to be: normal, with a few samples (pauses, stalls) that say little; those
// follow a t-distribution with three degrees of freedom, some times as wide.
const (
	strays    = 0.03                            // share of samples that say little
	strayWide = 10.0                            // their scale, in scales of the noise
	strayTop  = strays * 0.9213 / strayWide     // their density at 0, where the density of the normal part is 1 - strays
	strayTail = 1 / (3 * strayWide * strayWide) // squared scales to the argument of their tail
)

const (
	levelMemory = 1024 // samples over which a level is averaged at most
	noiseMemory = 400  // samples over which the noise is
	fewSamples  = 10.0 // weight, in samples, of the correlation expected beforehand
	likelyKeep  = 0.4  // that correlation
	firstWeight = 5.0  // weight, in samples, of the first estimate of noise, from medians
	roughSize   = 0.02 // variance of the size of a fault in shifts, beforehand
	leastSize   = 0.5  // of a fault, in shifts
	mostSize    = 2.0
	fewNoise    = 3.0  // over the samples seen: by how much more noise is allowed for, while it is not known well
	learnClip   = 2.0  // scales at which learning clips
	maxRho      = 0.9  // largest correlation that is taken out
	levelRise   = 0.02 // most that a level is learned to rise above what the first samples showed, as a fraction
)

// density returns the density of noise at a deviation whose square is z squared scales, up to a
// constant, and which part of it is normal: the chance that the sample is no stray.
func density(z float64) (d, normal float64) {
	q := 1 + float64(z*strayTail)
	n, s := float64((1-strays)*bell(z)), strayTop/float64(q*q)
	d = n + s
	return d, n / d
}

// bell returns e to the -z/2, within 1e-9 of its value, and 0 where that is below 1e-17; z is not
// negative. It gives the same bits on every platform.
func bell(z float64) float64 {
	if !(z < 78) {
		return 0
	}
	y := float64(z * -0.5)
	k := math.Floor(float64(y*(1/math.Ln2)) + 0.5)
	r := y - float64(k*num.Ln2Hi) - float64(k*num.Ln2Lo)
	p := 1.0 / 40320
	p = float64(p*r) + 1.0/5040
	p = float64(p*r) + 1.0/720
	p = float64(p*r) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 0.5
	p = float64(p*r) + 1
	p = float64(p*r) + 1
	return float64(p * math.Float64frombits(uint64(1023+int64(k))<<52))
}

// series is what is known of one healthy series of logarithms of times: a level, known with some
// uncertainty, and noise about it of which each sample keeps a part of the deviation before it (an
// autoregression of order one). Samples are weighted by the chance that they are no strays, so
// that a pause teaches nothing.
type series struct {
	level  float64 // mean of the series
	unsure float64 // variance of that mean
	top    float64 // highest level that is learned
	last   float64 // last sample, with strays replaced by what was expected
	noise  float64 // variance of what is new in each sample
	cov    float64 // sum of products of neighbouring deviations, clipped
	square float64 // sum of squares of the first of each two
	n      int     // samples seen, held at levelMemory
	keep   float64 // cov over square: the part of a deviation that the next sample keeps
	scale  float64 // squared scale of the next sample about its mean
	mean   float64 // mean of the next sample
	gain   float64 // part of its deviation by which the level moves
}

// begin learns from the first samples, with a scale of least at least. scratch has room for as
// many.
func (s *series) begin(first, scratch []float64, least float64) {
	*s = series{n: len(first), top: math.Inf(1)}
	copy(scratch, first)
	slices.Sort(scratch[:len(first)])
	s.level = num.Median(scratch[:len(first)])
	for i, x := range first {
		scratch[i] = math.Abs(x - s.level)
	}
	slices.Sort(scratch[:len(first)])
	sd := max(num.MADScale*num.Median(scratch[:len(first)]), least)
	s.square = fewSamples * sd * sd
	s.cov = likelyKeep * s.square
	for i := 1; i < len(first); i++ {
		s.relate(first[i-1]-s.level, first[i]-s.level, sd)
	}
	s.noise = sd * sd * (1 - float64(s.keep*s.keep))
	s.unsure = sd * sd * (1 + s.keep) / (1 - s.keep)
	s.settle(first, least)
	s.n = min(len(first), levelMemory)
	s.top = s.level + 2*math.Sqrt(s.unsure) + levelRise
}

// settle goes through the first samples, for a better estimate of noise and level.
func (s *series) settle(first []float64, least float64) {
	prior, level, unsure := s.noise, s.level, s.unsure
	sum, weight := firstWeight*s.noise, firstWeight
	for pass := range 2 {
		s.level, s.unsure, s.last = level, unsure, first[0]
		s.ready()
		for _, x := range first[1:] {
			if pass == 0 {
				r := x - level - float64(s.keep*(s.last-level))
				_, sure := density(r * r / prior)
				sum += float64(float64(sure*r) * r)
				weight += sure
			}
			s.follow(x)
		}
		if pass == 0 { // level and correlation were fitted to the same samples
			s.noise = max(sum/max(weight-2, 1), least*least)
		}
	}
}

// relate takes two neighbouring deviations into the correlation.
func (s *series) relate(before, after, sd float64) {
	before, after = num.Clip(before, learnClip*sd), num.Clip(after, learnClip*sd)
	s.cov += float64(before * after)
	s.square += float64(before * before)
	s.keep = min(max(s.cov/s.square, 0), maxRho)
}

// ready works out what is expected of the next sample.
func (s *series) ready() {
	own := 1 - s.keep
	s.scale = s.fresh() + float64(own*own*s.unsure)
	s.mean = s.level + float64(s.keep*(s.last-s.level))
	s.gain = own * s.unsure / s.scale
}

// fresh is the variance of what is new in a sample, with room for what is not known of it.
func (s *series) fresh() float64 { return float64(s.noise * (1 + fewNoise/float64(s.n))) }

// spread is the variance of a sample about the level.
func (s *series) spread() float64 { return s.noise / (1 - float64(s.keep*s.keep)) }

// weight is how many samples without memory say as much about a level as n samples of the series:
// the first one shows all of a shift, the others what does not carry over.
func (s *series) weight(n int) float64 {
	own := 1 - s.keep
	return float64(float64(own*own)*float64(n-1)) + 1
}

// sure is the variance of a level that n samples show.
func (s *series) sure(n int) float64 { return s.fresh() / s.weight(n) }

// visible is the lasting shift whose odds n samples show to be so many, as a logarithm, least at
// least: smaller ones look more like none than like what is looked for, however little noise there is.
func (s *series) visible(odds float64, n int, least float64) float64 {
	return max(math.Sqrt(2*odds*(s.sure(n)+s.unsure)), least)
}

// follow takes a sample into the level.
func (s *series) follow(x float64) {
	r := x - s.mean
	_, sure := density(r * r / s.scale)
	s.level = min(s.level+float64(float64(sure*s.gain)*r), s.top)
	s.unsure *= 1 - float64(float64(sure*s.gain)*(1-s.keep))
	own := 1 - s.keep
	s.unsure = max(s.unsure, s.noise/float64(own*own*levelMemory))
	s.last = s.mean + float64(sure*r)
	s.ready()
}

// learn takes a healthy sample into everything, with a scale of least at least.
func (s *series) learn(x, least float64) {
	r := x - s.mean
	_, sure := density(r * r / s.scale)
	s.n = min(s.n+1, levelMemory)
	fresh := float64(r*r) * s.noise / s.scale
	s.noise += float64(sure / float64(min(s.n, noiseMemory)) * (fresh - s.noise))
	s.noise = max(s.noise, least*least)
	if s.n == levelMemory { // forget, so that the sums stay bounded
		s.cov *= 1 - 1.0/levelMemory
		s.square *= 1 - 1.0/levelMemory
	}
	s.relate(s.last-s.level, x-s.level, math.Sqrt(s.spread()))
	s.follow(x)
}

// pass takes a sample while nothing is learned.
func (s *series) pass(x float64) {
	r := x - s.mean
	_, sure := density(r * r / s.scale)
	s.last = s.mean + float64(sure*r)
	s.ready()
}

// skip is a sample that is not known.
func (s *series) skip() {
	s.last = s.mean
	s.ready()
}

// branch is the series as it would be if, from some sample on, a fault had shifted it. odds are
// those of the fault against health, summed over the samples at which it may have begun (Shiryaev
// 1963, Roberts 1966).
type branch struct {
	odds  float64
	level float64 // the level, learned without the shift
	last  float64 // the last sample without the shift
	age   float64 // samples since the fault began, by their odds
	size  float64 // how much of the shift there is: a fault between two that are looked for shows more or less of it
	rough float64 // variance of size
}

// take judges a sample by its density under s and returns the new odds. forget is the part of the
// odds that is kept from sample to sample.
func (b *branch) take(s *series, x, shift, healthy, forget float64) float64 {
	// A fault that begins with this sample has the level and the past of health.
	fresh := 1 / (1 + b.odds)
	level := b.level + float64(fresh*(s.level-b.level))
	last := b.last + float64(fresh*(s.last-b.last))
	b.size += float64(fresh * (1 - b.size))
	b.rough += float64(fresh * (roughSize - b.rough))
	mean := level + float64(s.keep*(last-level))
	r := x - float64(b.size*shift) - mean
	scale := s.scale
	if x > mean { // below it no fault of any size is seen
		scale += float64(float64(shift*shift) * b.rough)
	}
	d, sure := density(r * r / scale)
	if scale > s.scale {
		d *= math.Sqrt(s.scale / scale)
		gain := float64(sure*b.rough) * shift / scale
		b.size = min(max(b.size+float64(gain*r), leastSize), mostSize)
		b.rough *= 1 - float64(gain*shift)
	}
	b.odds = float64(1+b.odds) * forget * (d / healthy)
	b.level = level + float64(float64(sure*s.gain)*r)
	b.last = mean + float64(sure*r)
	b.age = float64((1-fresh)*b.age) + 1
	return b.odds
}

// start puts the branch back to the state in which no fault has begun.
func (b *branch) start(s *series) {
	*b = branch{level: s.level, last: s.last, size: 1, rough: roughSize}
}
