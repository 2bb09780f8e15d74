package detect

import (
	"time"

	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// evidence is what one iteration shows.
type evidence struct {
	took     float64 // logarithm of the whole time
	expected float64 // logarithm of what it should be, without what tests have learned; 0 without a model
	timed    bool    // took is known
	modelled bool    // expected is known
	chunked  bool    // chunk times are compared
	test     int     // test that suits best; -1 for none
	whole    change.Decision
	chunks   change.Decision
	matched  change.Decision
	waits    []Wait
}

// measure works out what an iteration should take. It changes nothing but scratch memory.
func (m *Monitor) measure(it *Iteration, batches [][]perfmodel.Batch) (evidence, error) {
	e := evidence{waits: it.Waits}
	if it.Took > 0 {
		e.timed, e.took = true, num.Log(float64(it.Took))
	}
	if m.model == nil || !m.fitted {
		return e, nil
	}
	e.chunked = len(it.Chunks) > 0
	if e.timed {
		factors := defaultFactors[:]
		if e.chunked {
			factors = factors[:0]
		}
		if err := m.model.Evaluate(batches, factors, &m.expect); err != nil {
			return e, err
		}
		e.modelled, e.expected = true, num.Log(float64(m.expect.Took))
	}
	if e.chunked {
		m.sum(it, batches)
	}
	return e, nil
}

// sum adds up, for each place, what its chunks took and should have taken.
func (m *Monitor) sum(it *Iteration, batches [][]perfmodel.Batch) {
	clear(m.observed)
	clear(m.wanted)
	stages := m.model.shape.Stages
	for i := range it.Chunks {
		c := &it.Chunks[i]
		cs := m.model.rates.kind(c.Kind)
		if cs == nil {
			continue // the rates have the gradient of weights in Backward, which is measured too
		}
		s := c.sample(batches)
		want := s.Expected(cs[c.Part*stages+c.Stage])
		if want == 0 {
			continue // nothing was expected of it, so there is nothing to compare
		}
		place := c.Replica*stages + c.Stage
		m.observed[place] = saturate(m.observed[place], c.Took)
		m.wanted[place] = saturate(m.wanted[place], want)
	}
}

// saturate returns a + b for a and b that are not negative, held to the largest time.
func saturate(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return 1<<63 - 1
}

// judge gives an iteration to the tests and puts together what they say.
func (m *Monitor) judge(it *Iteration, batches [][]perfmodel.Batch, e *evidence) (Verdict, error) {
	if err := m.ask(it, e); err != nil {
		return Verdict{}, err
	}
	m.number(it.Number)
	before := m.anyStanding()
	m.work.spike(e, m.score >= m.cfg.Suspicion)
	alarm := m.stand(e)
	v := Verdict{Number: it.Number, Alarm: alarm, Score: m.score, MinDetectable: e.main().MinDetectable, Ratio: m.ratio(e)}
	after := m.anyStanding()
	switch {
	case v.Alarm:
		m.onset = m.numberAt(m.since(e))
		m.cleared = 0
	case before && !after:
		m.onset, m.cleared = 0, recovering
		m.suspects = m.suspects[:0]
	case m.cleared > 0:
		m.cleared--
	}
	m.work.learning = e.test < 0 && !after || e.test >= 0 && e.main().Learning && !after
	v.State = m.state()
	m.explain(&v, e)
	if err := m.learn(it, batches, e, v.State); err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// ask gives the samples to the tests.
func (m *Monitor) ask(it *Iteration, e *evidence) error {
	e.test = -1
	var err error
	if e.timed && (e.modelled || m.model == nil || m.fit.failed) {
		e.test = byWhole
		if e.whole, err = m.askWhole(e); err != nil {
			return err
		}
	}
	switch {
	case e.chunked:
		e.test = byChunks
		e.chunks, err = m.chunks.Observe(m.observed, m.wanted)
	case e.modelled:
		e.test = byMatched
		e.matched, err = m.matched.Observe(it.Took, &m.expect)
	}
	return err
}

func (m *Monitor) askWhole(e *evidence) (change.Decision, error) {
	if p, ok := m.whole.(change.Predictive); ok && e.modelled {
		return p.ObserveExpected(e.took, e.expected)
	}
	return m.whole.Observe(e.took - e.expected)
}

// main returns the decision of the test that suits best what was measured.
func (e *evidence) main() *change.Decision {
	switch e.test {
	case byChunks:
		return &e.chunks
	case byMatched:
		return &e.matched
	}
	return &e.whole
}

// aside says that the test of whole iterations counts besides the main one: with chunk times it sees what is in none of them.
func (e *evidence) aside() bool { return e.test == byChunks && e.timed }

// stand takes over which alarms stand, and reports whether one was raised. The whole iteration is slow because a place
// is, so its alarm is none of its own while that of a place stands.
func (m *Monitor) stand(e *evidence) bool {
	for i := range m.unheard {
		m.unheard[i] = min(m.unheard[i]+1, unheard)
		if m.unheard[i] == unheard {
			m.standing[i] = false
		}
	}
	m.score = 0
	if e.test < 0 {
		return false
	}
	d := e.main()
	alarm := d.Alarm
	m.score, m.standing[e.test], m.unheard[e.test] = d.Score, d.Standing, 0
	if e.aside() {
		alarm = alarm || e.whole.Alarm && !m.standing[byChunks]
		m.standing[byWhole], m.unheard[byWhole] = e.whole.Standing, 0
		m.score = max(m.score, e.whole.Score)
	}
	return alarm
}

// since is how many iterations ago the slowdown began by which the alarm was raised.
func (m *Monitor) since(e *evidence) int {
	if d := e.main(); d.Alarm {
		return d.Since
	}
	return e.whole.Since
}

// number keeps the number of a judged iteration.
func (m *Monitor) number(n uint64) {
	m.numbers[m.judged%onsets] = n
	m.judged++
}

// numberAt returns the number of the iteration so many before the next one, or of the oldest one that is kept.
func (m *Monitor) numberAt(since int) uint64 {
	back := min(uint64(max(1, since)), onsets, m.judged)
	return m.numbers[(m.judged-back)%onsets]
}

// ratio is what the iteration took over what it should take, which includes the level
// that was learned; 0 where that is not known.
func (m *Monitor) ratio(e *evidence) float64 {
	if !e.timed || e.test < 0 || !e.modelled && e.whole.Learning {
		return 0
	}
	level := m.whole.Level()
	if _, ok := m.whole.(change.Predictive); ok && e.modelled {
		level = 0 // that of its series is of times
	}
	return num.Exp(e.took - e.expected - level)
}
