package detect

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

const (
	chunkRate  = 1.0 / 30000 // false alarms an iteration
	leastChunk = 0.0145      // smallest shift that is found in half of all jobs without noise, measured
)

// slower are the shifts, as logarithms, that a place is looked for at. Immutable.
var slower = [...]float64{0.04, 0.08, 0.15, 0.3, 0.6, 1.2}

// ChunkConfig configures a ChunkTest. Replicas and Stages have no default that could be right;
// everything else may be zero.
type ChunkConfig struct {
	Replicas    int     `json:"replicas"`              // data-parallel replicas, at least 1
	Stages      int     `json:"stages"`                // pipeline stages, at least 1
	FalseAlarms float64 `json:"falseAlarms,omitempty"` // most false alarms an iteration, of all places together, that the thresholds allow for, below 1; 0 means 1 in 30000
	Warmup      int     `json:"warmup,omitempty"`      // samples that the first level of a place is learned from, 8 to 4096; 0 means 30
	Horizon     int     `json:"horizon,omitempty"`     // iterations within which the minimum detectable slowdown is found, at most 4096; 0 means 30
	Power       float64 `json:"power,omitempty"`       // chance with which it is found, below 1; 0 means 0.6
}

// Validate reports every fault of c, joined.
func (c ChunkConfig) Validate() error {
	errs := checkPlaces(c.Replicas, c.Stages, 1)
	return errors.Join(append(errs, checkDesign(c.FalseAlarms, c.Warmup, c.Horizon, c.Power)...)...)
}

func (c ChunkConfig) withDefaults() ChunkConfig {
	if c.FalseAlarms == 0 {
		c.FalseAlarms = chunkRate
	}
	designDefaults(&c.FalseAlarms, &c.Warmup, &c.Horizon, &c.Power)
	return c
}

// place is one stage of one replica.
type place struct {
	warm     []float64 // the first samples, fewer while they come in; empty afterwards
	series   series
	branches [len(slower)]branch
	standing bool
	odds     float64 // mean of those of the branches
	residual float64 // of the last sample, in scales
}

func (p *place) learning() bool { return p.series.n == 0 }

// ChunkTest finds slow stages of single replicas from what the chunks of each stage and replica
// took and should have taken. Each place is compared with its own past, after what all other
// replicas show at that stage in the same iteration was taken off: a stage model that is wrong, or
// a loss layer, slows all of them and is no device's fault. How much of small common parts is real
// is learned; large ones are taken off whole, and what most replicas show together is taken for
// the stage's new level.
//
// Each place has an alarm of its own, raised when the odds of a fault that began at some iteration
// and still lasts reach the number of places over FalseAlarms (see MatchedTest), and ended when
// they are back at the root of that. While it stands nothing is learned of the place, and the
// others are not compared with it. The rate of false alarms holds for noise that is known; while
// it is being learned, in the first few hundred iterations, up to 2.5 times as many were measured
// (benchmarks/detect).
//
// Cost: linear in places; memory, a few hundred bytes and Warmup samples a place. Observe
// allocates nothing.
//
// Not safe for concurrent use.
type ChunkTest struct {
	cfg     ChunkConfig
	limit   float64 // odds at which an alarm is raised
	forget  float64
	needed  float64 // information that finds a fault with the power configured
	places  []place // by replica*stages+stage
	samples []float64
	rises   []float64 // of one stage, by replica: sample over level; NaN where it is not compared
	sorted  []float64 // those of rises that are numbers
	scratch []float64
	joint   float64 // sum of products of rises with the common part, clipped
	square  float64 // sum of squares of the common part
	count   float64 // samples in both
	shared  float64 // joint over square: how much of a small common part is real
}

// NewChunks returns a test that has seen nothing.
func NewChunks(cfg ChunkConfig) (*ChunkTest, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := cfg.Replicas * cfg.Stages
	t := &ChunkTest{
		cfg:     cfg,
		places:  make([]place, n),
		samples: make([]float64, n),
		rises:   make([]float64, cfg.Replicas),
		sorted:  make([]float64, 0, cfg.Replicas),
		scratch: make([]float64, cfg.Warmup),
		shared:  likelyShared,
	}
	for i := range t.places {
		t.places[i].warm = make([]float64, 0, cfg.Warmup)
	}
	t.design()
	return t, nil
}

func (t *ChunkTest) design() {
	t.limit = float64(len(t.places)) / t.cfg.FalseAlarms
	t.forget = 1 - 1/float64(memorySpan*t.cfg.Horizon)
	t.needed = neededInformation(num.Log(t.limit)+chunkExcess, t.cfg.Power)
}

// Tune changes the rate of false alarms that is allowed for, 0 meaning the default, and keeps what
// was learned.
func (t *ChunkTest) Tune(falseAlarms float64) error {
	cfg := t.cfg
	cfg.FalseAlarms = falseAlarms
	if err := cfg.Validate(); err != nil {
		return err
	}
	t.cfg = cfg.withDefaults()
	t.design()
	for i := range t.places {
		t.places[i].hold(t.limit * oddsRoom)
	}
	return nil
}

// Reset forgets everything but the configuration.
func (t *ChunkTest) Reset() {
	for i := range t.places {
		t.places[i] = place{warm: t.places[i].warm[:0]}
	}
	t.joint, t.square, t.count, t.shared = 0, 0, 0, likelyShared
}

// Rearm ends all standing alarms and forgets the evidence for them, as after a repair. What was
// learned of health stays.
func (t *ChunkTest) Rearm() {
	for i := range t.places {
		p := &t.places[i]
		p.standing, p.odds = false, 0
		for j := range p.branches {
			p.branches[j].start(&p.series)
		}
	}
}

// Observe takes one iteration: for each place, at replica*Stages+stage, the sum of what its chunks
// took and of what they should have taken. An observed time of 0 is unknown. ErrInvalid for slices
// of another length and times out of range; then nothing has changed.
//
// Since, Shift and Residual are of the place with the highest Score; MinDetectable is the largest
// of any place that has learned.
func (t *ChunkTest) Observe(observed, expected []time.Duration) (change.Decision, error) {
	if err := t.check(observed, expected); err != nil {
		return change.Decision{}, err
	}
	for i := range t.samples {
		t.samples[i] = math.NaN()
		if observed[i] != 0 {
			t.samples[i] = num.Log(float64(observed[i]) / float64(expected[i]))
		}
	}
	for stage := range t.cfg.Stages {
		t.center(stage)
	}
	for i := range t.places {
		if p := &t.places[i]; !p.learning() {
			t.judge(p, t.samples[i])
		}
	}
	d := change.Decision{Learning: true}
	best := -1.0
	for i := range t.places {
		p := &t.places[i]
		if p.learning() {
			t.begin(p, t.samples[i])
			continue
		}
		own := change.Decision{Alarm: t.settle(i), Residual: p.residual}
		t.report(p, &own)
		d.Learning = false
		d.Alarm = d.Alarm || own.Alarm
		d.Standing = d.Standing || own.Standing
		d.MinDetectable = max(d.MinDetectable, t.detectable(p))
		if own.Score > best {
			best = own.Score
			d.Score, d.Since, d.Shift, d.Residual = own.Score, own.Since, own.Shift, own.Residual
		}
	}
	return d, nil
}

func (t *ChunkTest) check(observed, expected []time.Duration) error {
	if len(observed) != len(t.places) {
		return invalid("observe", "observed", strconv.Itoa(len(observed)), "want one a place: "+strconv.Itoa(len(t.places)))
	}
	if len(expected) != len(t.places) {
		return invalid("observe", "expected", strconv.Itoa(len(expected)), "want one a place: "+strconv.Itoa(len(t.places)))
	}
	for i, d := range observed {
		if d < 0 {
			return invalid("observe", "observed["+strconv.Itoa(i)+"]", d.String(), "want 0 or more")
		}
		if d > 0 && expected[i] <= 0 {
			return invalid("observe", "expected["+strconv.Itoa(i)+"]", expected[i].String(), "want more than 0")
		}
	}
	return nil
}

// begin takes one of the first samples of a place.
func (t *ChunkTest) begin(p *place, x float64) {
	if math.IsNaN(x) {
		return
	}
	p.warm = append(p.warm, x)
	if len(p.warm) < t.cfg.Warmup {
		return
	}
	p.series.begin(p.warm, t.scratch, leastScale)
	p.warm = p.warm[:0]
	for i := range p.branches {
		p.branches[i].start(&p.series)
	}
}

// judge takes a sample of a place into its odds, or that there is none.
func (t *ChunkTest) judge(p *place, x float64) {
	s := &p.series
	p.residual = 0
	if math.IsNaN(x) {
		for i := range p.branches {
			b := &p.branches[i]
			b.last = b.level + float64(s.keep*(b.last-b.level))
		}
		return
	}
	r := x - s.mean
	p.residual = num.Clip(r/math.Sqrt(s.scale), 8)
	healthy, _ := density(r * r / s.scale)
	sum := 0.0
	for i, shift := range slower {
		sum += p.branches[i].take(s, x, shift, healthy, t.forget)
	}
	p.odds = sum / float64(len(slower))
	p.hold(t.limit * oddsRoom)
}

// settle decides on the alarm of a place after all were judged, and learns. It says whether an
// alarm was raised.
func (t *ChunkTest) settle(i int) (alarm bool) {
	p := &t.places[i]
	switch {
	case !p.standing && p.odds >= t.limit:
		if t.together(i) {
			t.rebase(i % t.cfg.Stages)
			break
		}
		alarm, p.standing = true, true
		p.series.level = p.mean(func(b *branch) float64 { return b.level })
	case p.standing && p.odds*p.odds < t.limit:
		p.standing = false
	}
	switch x := t.samples[i]; {
	case math.IsNaN(x):
		p.series.skip()
	case p.standing:
		p.series.pass(x)
	default:
		p.series.learn(x, leastScale)
	}
	return alarm
}

// hold keeps the odds in bounds.
func (p *place) hold(most float64) {
	if p.odds <= most {
		return
	}
	for i := range p.branches {
		p.branches[i].odds *= most / p.odds
	}
	p.odds = most
}

// mean returns the mean of something over the branches, by their odds.
func (p *place) mean(of func(*branch) float64) float64 {
	sum, weight := 0.0, 0.0
	for i := range p.branches {
		b := &p.branches[i]
		sum += float64(b.odds * of(b))
		weight += b.odds
	}
	if !(weight > 0) {
		return 0
	}
	return sum / weight
}

func (t *ChunkTest) report(p *place, d *change.Decision) {
	d.Standing = p.standing
	d.Score = num.Log(1+p.odds) / num.Log(1+t.limit)
	if p.standing {
		d.Score = max(d.Score, 1)
	}
	if p.standing || d.Score > 0.5 {
		d.Since = int(p.mean(func(b *branch) float64 { return b.age }) + 0.5)
		d.Shift = p.shift()
	}
}

// shift is by how much the place is slower, as a logarithm, if there is a fault.
func (p *place) shift() float64 {
	sum, weight := 0.0, 0.0
	for i, shift := range slower {
		b := &p.branches[i]
		sum += float64(b.odds * float64(b.size*shift))
		weight += b.odds
	}
	if !(weight > 0) {
		return 0
	}
	return sum / weight
}

// detectable returns the smallest factor that is found in a place.
func (t *ChunkTest) detectable(p *place) float64 {
	return num.Exp(p.series.visible(t.needed, t.cfg.Horizon, leastChunk))
}

// Detectable returns the smallest factor of a place that would be found within the horizon with
// the power configured; false while nothing is known of the place, and for a place that there is
// not.
func (t *ChunkTest) Detectable(replica, stage int) (factor float64, ok bool) {
	c := &t.cfg
	if replica < 0 || replica >= c.Replicas || stage < 0 || stage >= c.Stages {
		return 0, false
	}
	p := &t.places[replica*c.Stages+stage]
	if p.learning() {
		return 0, false
	}
	return t.detectable(p), true
}

// AppendSuspects appends to dst the places whose alarm stands, or, where none does, those with the
// most evidence, worst first and at most limit of them; those with less than half the evidence of
// the worst are left out. Score is the logarithm of the odds over that of the threshold, and 1 or
// more where the alarm stands; it is held at some, so of clear faults the one with the larger Factor
// comes first. Ties go to the lower replica, then stage. It allocates nothing where dst has room.
func (t *ChunkTest) AppendSuspects(dst []Suspect, limit int) []Suspect {
	from := len(dst)
	for i := range t.places {
		p := &t.places[i]
		if p.learning() {
			continue
		}
		var d change.Decision
		t.report(p, &d)
		dst = rank(dst, from, limit, Suspect{
			Replica: i / t.cfg.Stages, Stage: i % t.cfg.Stages, Rank: Everywhere,
			Factor: num.Exp(p.shift()), Score: d.Score,
		})
	}
	if len(dst) > from && dst[from].Score >= 1 {
		return thin(dst, from, 1/dst[from].Score)
	}
	return thin(dst, from, 0.5)
}
