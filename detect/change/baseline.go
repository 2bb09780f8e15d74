package change

import (
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

const (
	learnClip = 2.0       // scales at which learning clips
	clipMean  = 0.9205368 // mean of the square of a standard normal variable clipped there
	memory    = 1024      // samples over which a settled baseline averages
	maxRho    = 0.9       // largest correlation that is taken out
)

// baseline is where a healthy series lies: its level, its scale and the correlation
// of each sample with the one before. It begins with the median of the first samples
// and the median deviation from it, and learns on by clipped means (Huber 1964, his
// second proposal, made recursive).
//
// Learning stays Lag samples behind and drops what is younger when an alarm is raised,
// so nothing of a fault that is found within Lag samples is learned. What is slower
// than that is held by two limits: on how far the level moves a sample, and on how far
// it rises in all.
type baseline struct {
	cfg     Config
	warm    []float64 // the first Warmup samples, fewer while they come in
	scratch []float64
	queue   []float64 // ring of samples that are not learned yet
	head    int       // oldest of the queue
	held    int       // samples in the queue
	n       int       // samples learned, held at memory
	mean    float64
	anchor  float64 // highest level that is ever learned
	varU    float64 // variance of samples about the level
	varE    float64 // variance of what is left of them without the correlation
	cov     float64 // covariance of neighbours
	rho     float64 // correlation that is taken out
	last    float64 // deviation of the sample that was learned last
	sdU     float64 // roots of the variances
	sdE     float64
}

func newBaseline(cfg Config) baseline {
	return baseline{
		cfg:     cfg,
		warm:    make([]float64, 0, cfg.Warmup),
		scratch: make([]float64, cfg.Warmup),
		queue:   make([]float64, cfg.Lag),
	}
}

func (b *baseline) reset() {
	*b = baseline{cfg: b.cfg, warm: b.warm[:0], scratch: b.scratch, queue: b.queue}
	clear(b.queue)
}

// learning says that the baseline is not known yet.
func (b *baseline) learning() bool { return b.n == 0 }

// begin takes one of the first samples.
func (b *baseline) begin(x float64) {
	b.warm = append(b.warm, x)
	if len(b.warm) < b.cfg.Warmup {
		return
	}
	s := b.scratch
	copy(s, b.warm)
	slices.Sort(s)
	b.mean = num.Median(s)
	b.varU = b.spread(s, 0)
	for i, x := range b.warm[1:] {
		most := learnClip * math.Sqrt(b.varU)
		b.cov += float64(num.Clip(b.warm[i]-b.mean, most) * num.Clip(x-b.mean, most) / float64(len(b.warm)-1))
	}
	b.n = len(b.warm)
	b.correlate()
	b.varE = b.spread(s, b.rho)
	b.last = b.warm[len(b.warm)-1] - b.mean
	b.roots()
	b.anchor = b.mean + b.cfg.Cap + b.uncertainty()
	b.warm = b.warm[:0]
}

// spread returns the variance, by the median deviation, of the first samples freed of a
// correlation; s is overwritten.
func (b *baseline) spread(s []float64, rho float64) float64 {
	last := 0.0
	for i, x := range b.warm {
		u := x - b.mean
		s[i] = math.Abs(u - float64(rho*last))
		last = u
	}
	slices.Sort(s)
	sd := max(num.MADScale*num.Median(s), b.cfg.MinScale)
	return sd * sd
}

// correlate works rho out, freed of the bias that few samples give it (Kendall, "Note on bias in the estimation of
// autocorrelation", 1954).
func (b *baseline) correlate() {
	b.rho = 0
	if !b.cfg.DisableWhitening {
		n := float64(b.n)
		b.rho = min(max((float64(n*b.cov/b.varU)+1)/(n-3), 0), maxRho)
	}
}

func (b *baseline) roots() {
	b.sdU = math.Sqrt(b.varU)
	b.sdE = math.Sqrt(b.varE)
}

// margin is how far the level may be off, in scales: twice the standard error of a median, nearly.
func (b *baseline) margin() float64 { return 1.5 / math.Sqrt(float64(b.n)) }

// uncertainty is by how much the level may be too low.
func (b *baseline) uncertainty() float64 { return 2 * b.margin() * b.sdE / (1 - b.rho) }

// scale is the scale that decisions use: wider while few samples were seen.
func (b *baseline) scale() float64 {
	return b.sdE * (1 + 1/math.Sqrt(float64(2*b.n)))
}

// push queues a healthy sample and learns from the oldest one where the queue is full.
func (b *baseline) push(x float64) {
	if b.held == len(b.queue) {
		b.learn(b.queue[b.head])
		b.queue[b.head] = x
		b.head++
		if b.head == len(b.queue) {
			b.head = 0
		}
		return
	}
	i := b.head + b.held
	if i >= len(b.queue) {
		i -= len(b.queue)
	}
	b.queue[i] = x
	b.held++
}

// drop empties the queue.
func (b *baseline) drop() {
	b.head, b.held = 0, 0
	clear(b.queue)
}

func (b *baseline) learn(x float64) {
	b.n = min(b.n+1, memory)
	gain := 1 / float64(b.n)
	u := x - b.mean
	cu := num.Clip(u, learnClip*b.sdU)
	ce := num.Clip(u-float64(b.rho*b.last), learnClip*b.sdE)
	least := b.cfg.MinScale * b.cfg.MinScale
	b.cov += float64(gain * (float64(cu*num.Clip(b.last, learnClip*b.sdU)) - b.cov))
	b.varU = max(b.varU+float64(gain*(float64(cu*cu/clipMean)-b.varU)), least)
	b.varE = max(b.varE+float64(gain*(float64(ce*ce/clipMean)-b.varE)), least)
	b.last = cu
	step := num.Clip(gain*cu, b.limit())
	b.mean = min(b.mean+step, b.anchor)
	b.correlate()
	b.roots()
}

// limit is how far the level may move in one sample: what one sample can say while few were seen, then the drift allowed.
func (b *baseline) limit() float64 {
	if b.n == memory {
		return b.cfg.Drift
	}
	return max(b.cfg.Drift, b.sdE/float64(b.n))
}
