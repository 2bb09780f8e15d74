package detect

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

const (
	onsets     = 256 // iterations whose numbers are kept, to name an onset
	recovering = 10  // iterations for which a job is Recovered
	unheard    = 100 // iterations after which the alarm of a test that gets no samples is dropped
)

// Monitor watches one job for slowdowns. It works out what each iteration should take
// from what was computed in it, and gives the ratio to the test that suits what was
// measured: a ChunkTest for chunk times, a MatchedTest where only iterations were timed, and
// a Test of whole iterations for what no chunk shows, or where there is no model.
//
// Not safe for concurrent use.
type Monitor struct {
	cfg     Config
	model   *Predictor // nil where there is no pipeline
	fitted  bool       // the model has rates
	fit     fitting
	whole   change.Test
	chunks  *ChunkTest   // nil without a model
	matched *MatchedTest // nil without a model
	paused  bool

	started bool   // an iteration was taken
	last    uint64 // its number
	layout  uint64
	micros  []int // micro-batches by replica
	numbers [onsets]uint64
	judged  uint64 // iterations in numbers, ever

	standing [3]bool // by test: an alarm stands
	unheard  [3]int  // by test: iterations since it was asked
	score    float64 // of the last iteration
	onset    uint64
	cleared  int // iterations for which the job still is Recovered
	resized  bool
	work     workload

	expect   Expectation
	typical  [][]perfmodel.Batch // where batches are not known
	observed []time.Duration     // by replica*stages+stage
	wanted   []time.Duration
	scratch  [2][]float64
	suspects []Suspect
	probes   []Probe
}

// The tests of a Monitor.
const (
	byChunks = iota
	byMatched
	byWhole
)

// New returns a Monitor that has seen nothing.
func New(cfg Config) (*Monitor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Monitor{cfg: cfg.withDefaults()}
	if err := m.arm(cfg.Replicas); err != nil {
		return nil, err
	}
	return m, nil
}

// arm makes the tests for a number of replicas. After an error nothing has changed.
func (m *Monitor) arm(replicas int) error {
	c := &m.cfg
	replicas = max(replicas, 1)
	whole := m.whole
	if whole == nil {
		var err error
		if whole, err = change.New(c.Whole); err != nil {
			return err
		}
	}
	places := 0
	var model *Predictor
	var chunks *ChunkTest
	var matched *MatchedTest
	if c.model() {
		var err error
		if model, err = newModel(c); err != nil {
			return err
		}
		stages := model.shape.Stages
		if chunks, err = NewChunks(ChunkConfig{Replicas: replicas, Stages: stages, FalseAlarms: c.ChunkAlarms}); err != nil {
			return err
		}
		if matched, err = NewMatched(MatchedConfig{Replicas: replicas, Stages: stages, FalseAlarms: c.MatchedAlarms}); err != nil {
			return err
		}
		places = replicas * stages
	}
	m.observed, m.wanted = make([]time.Duration, places), make([]time.Duration, places)
	c.Replicas, c.Whole = replicas, whole.Config()
	whole.Reset()
	m.whole = whole
	m.model, m.chunks, m.matched = model, chunks, matched
	m.fitted = model != nil && c.Rates.Forward != nil
	m.fit = fitting{}
	m.micros = nil
	m.standing, m.unheard, m.score, m.onset, m.cleared, m.judged = [3]bool{}, [3]int{}, 0, 0, 0, 0
	m.suspects, m.probes = m.suspects[:0], m.probes[:0]
	m.work = workload{}
	return nil
}

// Observe takes the next iteration and says what it shows. ErrInvalid for one that cannot
// be; then nothing has changed. An iteration that was seen before, or is older than one
// seen, is not judged, and says so in its Reason.
func (m *Monitor) Observe(it *Iteration) (Verdict, error) {
	if it == nil {
		return Verdict{}, invalid("observe", "it", "nil", "want an iteration")
	}
	v := Verdict{Number: it.Number, State: m.state(), Score: m.score}
	if m.started && it.Number <= m.last {
		v.Reason = reasonReordered
		if it.Number == m.last {
			v.Reason = reasonRepeated
		}
		return m.passed(v), nil
	}
	if it.Phase != Training || m.paused {
		m.started, m.last = true, it.Number
		v.Cause, v.Reason = Phases, reasonPhase
		if m.paused {
			v.State, v.Cause, v.Reason = Paused, NoCause, reasonPaused
		}
		return m.passed(v), nil
	}
	batches := it.Batches
	if batches == nil {
		batches = m.assume()
	}
	if err := m.check(it, batches); err != nil {
		return Verdict{}, err
	}
	if m.moved(it, batches) {
		return m.rearm(it, batches)
	}
	e, err := m.measure(it, batches)
	if err != nil {
		return Verdict{}, err
	}
	m.started, m.last, m.layout = true, it.Number, it.Layout
	m.settle(it.Batches)
	return m.judge(it, batches, &e)
}

// passed completes the verdict on an iteration that was not judged.
func (m *Monitor) passed(v Verdict) Verdict {
	if m.anyStanding() {
		v.Onset = m.onset
		v.Suspects = some(m.suspects)
	}
	return v
}

func (m *Monitor) anyStanding() bool {
	return m.standing[byChunks] || m.standing[byMatched] || m.standing[byWhole]
}

// state returns the state of the job without a new iteration.
func (m *Monitor) state() State {
	switch {
	case m.paused:
		return Paused
	case m.anyStanding():
		return Slow
	case m.judged == 0 || m.work.learning:
		return Learning
	case m.score >= m.cfg.Suspicion && !m.work.pause:
		return Suspicious
	case m.cleared > 0:
		return Recovered
	}
	return Healthy
}

// assume returns batches like those seen, for an iteration of which they are not known.
func (m *Monitor) assume() [][]perfmodel.Batch {
	micros := m.micros
	if micros == nil {
		micros = slices.Repeat([]int{max(m.cfg.Pipeline.Micros, 1)}, m.cfg.Replicas)
	}
	for len(m.typical) < len(micros) {
		m.typical = append(m.typical, nil)
	}
	m.typical = m.typical[:len(micros)]
	b := m.work.batch()
	for d, n := range micros {
		m.typical[d] = slices.Grow(m.typical[d][:0], n)[:n]
		for i := range m.typical[d] {
			m.typical[d][i] = b
		}
	}
	return m.typical
}

// check reports an iteration that cannot be.
func (m *Monitor) check(it *Iteration, batches [][]perfmodel.Batch) error {
	switch {
	case it.Took < 0:
		return invalid("observe", "Took", it.Took.String(), "want more than 0, or 0 where it is not known")
	case it.Took == 0 && len(it.Chunks) == 0:
		return invalid("observe", "Took", "0s", "want more than 0 where there are no Chunks")
	case len(batches) == 0 || len(batches) > mostPlaces:
		return invalid("observe", "Batches", strconv.Itoa(len(batches))+" replicas", "want at least 1, or nil")
	}
	for d, micros := range batches {
		if len(micros) == 0 {
			return invalid("observe", at("Batches", d), "", "want at least one micro-batch")
		}
		for i := range micros {
			if err := checkBatch(&micros[i], d, i); err != nil {
				return err
			}
		}
	}
	if m.model == nil {
		return nil
	}
	for i := range it.Chunks {
		if err := it.Chunks[i].check(i, batches, m.model.shape.Stages, m.model.parts); err != nil {
			return err
		}
	}
	for i := range it.Waits {
		if err := it.Waits[i].check(i, len(batches), m.model.shape.Stages); err != nil {
			return err
		}
	}
	return nil
}

// moved says whether the layout or the numbers of replicas and micro-batches changed.
func (m *Monitor) moved(it *Iteration, batches [][]perfmodel.Batch) bool {
	if m.micros == nil || it.Batches == nil {
		return m.started && it.Layout != m.layout || m.model != nil && len(batches) != m.cfg.Replicas
	}
	return it.Layout != m.layout || !slices.EqualFunc(m.micros, batches, func(n int, b []perfmodel.Batch) bool { return n == len(b) })
}

// settle keeps the numbers of micro-batches, where they are known.
func (m *Monitor) settle(batches [][]perfmodel.Batch) {
	if m.micros != nil {
		return
	}
	for _, micros := range batches {
		m.micros = append(m.micros, len(micros))
	}
}

// rearm begins anew with a changed layout. The iteration itself, which builds and
// compiles, is neither judged nor learned from.
func (m *Monitor) rearm(it *Iteration, batches [][]perfmodel.Batch) (Verdict, error) {
	if m.model != nil {
		for _, micros := range batches {
			shape := m.cfg.Pipeline
			shape.Micros = len(micros)
			if len(micros) == m.cfg.Pipeline.Micros {
				continue
			}
			if _, err := pipeline.New(shape); err != nil {
				return Verdict{}, err
			}
		}
	}
	if err := m.arm(len(batches)); err != nil {
		return Verdict{}, err
	}
	m.started, m.last, m.layout = true, it.Number, it.Layout
	m.settle(it.Batches)
	m.resized = true
	return Verdict{Number: it.Number, State: Learning, Cause: Resize, Reason: reasonRearmed}, nil
}

// Relayout tells the Monitor how the job runs from now on, after a change of its stages,
// schedule or replicas; iterations with this Layout are learned from anew. Without
// rates they are fitted. After an error nothing has changed.
func (m *Monitor) Relayout(layout uint64, p pipeline.Config, replicas int, r Rates) error {
	next := m.cfg
	next.Pipeline, next.Replicas, next.Rates = p, replicas, r
	if err := next.Validate(); err != nil {
		return err
	}
	old := m.cfg
	m.cfg = next.withDefaults()
	if err := m.arm(replicas); err != nil {
		m.cfg = old
		return err
	}
	m.layout, m.resized = layout, true
	return nil
}

// Pause stops judging and learning until Resume; iterations are told as Paused.
func (m *Monitor) Pause() { m.paused = true }

// Resume goes on where Pause stopped.
func (m *Monitor) Resume() { m.paused = false }

// Tune changes what the Monitor decides by and keeps what it has learned. ErrInvalid for
// values out of range, and for another Method, Warmup, Lag or Support of the Whole test; then nothing has changed.
func (m *Monitor) Tune(t Tuning) error {
	next := m.cfg
	next.Tuning = t
	if err := next.Validate(); err != nil {
		return err
	}
	t = t.withDefaults()
	if err := m.whole.Tune(t.Whole); err != nil {
		return err
	}
	if m.model != nil {
		if err := m.chunks.Tune(t.ChunkAlarms); err != nil {
			return err
		}
		if err := m.matched.Tune(t.MatchedAlarms); err != nil {
			return err
		}
	}
	t.Whole = m.whole.Config()
	m.cfg.Tuning = t
	return nil
}

// Reset forgets everything but the configuration, and the number of the last iteration.
func (m *Monitor) Reset() error { return m.arm(m.cfg.Replicas) }
