package detect

import (
	"errors"

	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// patience is how many times FitAfter iterations a fit may take before the model is given up.
const patience = 4

// fitting is the state of learning rates.
type fitting struct {
	gather   gatherer
	measured int // iterations with chunks that were gathered
	waited   int // iterations since the start
	failed   bool
	trackers [3][]*fit.Tracker // by kind and virtual stage; nil without Refit
}

// learn takes what is healthy of an iteration into the model.
func (m *Monitor) learn(it *Iteration, batches [][]perfmodel.Batch, e *evidence, s State) error {
	m.work.see(it.Batches, e)
	switch {
	case m.model == nil || m.fit.failed:
		return nil
	case !m.fitted:
		return m.gather(it, batches)
	case m.fit.trackers[0] != nil && s == Healthy && e.chunked:
		return m.track(it, batches)
	}
	return nil
}

// gather collects chunks until there are enough to fit.
func (m *Monitor) gather(it *Iteration, batches [][]perfmodel.Batch) error {
	f := &m.fit
	f.waited++
	if it.Batches != nil && len(it.Chunks) > 0 {
		if f.gather.stages == 0 {
			f.gather = gatherer{stages: m.model.shape.Stages, parts: m.model.parts, classes: m.cfg.Fit.Classes}
		}
		if err := f.gather.gather(it); err != nil {
			return err
		}
		f.measured++
	}
	if f.measured >= m.cfg.FitAfter && f.measured%m.cfg.FitAfter == 0 {
		m.fitNow(f.measured >= 2*m.cfg.FitAfter)
	}
	if !m.fitted && f.waited >= patience*m.cfg.FitAfter {
		f.failed = true
		f.gather = gatherer{}
	}
	return nil
}

// fitNow fits the rates; those of stages whose lengths do not vary enough without pairs, where linear says so.
func (m *Monitor) fitNow(linear bool) {
	o := m.cfg.Fit
	r, reports, err := m.fit.gather.fit(o)
	if linear && errors.Is(err, fit.ErrUnidentifiable) {
		o.Linear = true
		r, reports, err = m.fit.gather.fit(o)
	}
	if err != nil {
		return
	}
	given := m.cfg.Rates
	r.Send, r.Return, r.Rest = given.Send, given.Return, given.Rest
	if m.model.SetRates(r) != nil {
		return
	}
	m.fitted = true
	m.fit.gather = gatherer{}
	if m.cfg.Refit {
		m.trackers(o.Linear, reports)
	}
}

// trackers makes a Tracker for every fit.
func (m *Monitor) trackers(linear bool, reports []StageReport) {
	cfg := m.cfg.Tracker
	var made [3][]*fit.Tracker
	for k := pipeline.Forward; k <= pipeline.Weight; k++ {
		var report fit.Report
		for v, c := range m.model.rates.kind(k) {
			for i := range reports {
				if reports[i].Kind == k && reports[i].Stage == v {
					report = reports[i].Report // stages that share a fit come after it
				}
			}
			cfg.Linear = linear || m.cfg.Fit.Linear || k == pipeline.Weight
			t, err := fit.NewTracker(c, report, cfg)
			if err != nil {
				return // a stage that takes no time has nothing to track
			}
			made[k] = append(made[k], t)
		}
	}
	m.fit.trackers = made
}

// track fits the rates on.
func (m *Monitor) track(it *Iteration, batches [][]perfmodel.Batch) error {
	stages := m.model.shape.Stages
	for i := range it.Chunks {
		c := &it.Chunks[i]
		cs := m.model.rates.kind(c.Kind)
		if cs == nil {
			continue
		}
		v := c.Part*stages + c.Stage
		t := m.fit.trackers[c.Kind][v]
		if err := t.Observe(c.sample(batches)); err != nil {
			return err
		}
		cs[v] = t.Coeff()
	}
	return nil
}

// Rates returns what the Monitor takes chunks to take, fitted or given; false while that is
// not known. The slices are shared and read only.
func (m *Monitor) Rates() (Rates, bool) {
	if !m.fitted {
		return Rates{}, false
	}
	return m.model.rates, true
}

// Detectable returns the smallest slowdown of a place that would be found, by the chunk
// test where it has learned, else by the matched one; false where none would be, or nothing is known yet.
func (m *Monitor) Detectable(replica, stage int) (factor float64, ok bool) {
	if m.model == nil {
		return 0, false
	}
	if factor, ok := m.chunks.Detectable(replica, stage); ok {
		return factor, true
	}
	return m.matched.Detectable(replica, stage)
}
